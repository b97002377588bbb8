"""Reads command lines with vLLM's own parser; run as a process of its own.

Reads a JSON list of argument lists from standard input, and writes a JSON list of what they mean
to the file named by its argument as "settings": name of the setting → its value as text. Beside
it as "flags": all long flags that it knows.
"""

from __future__ import annotations

import json
import sys

from vllm.entrypoints.openai.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser


def main() -> None:
    parser = make_arg_parser(FlexibleArgumentParser())
    found = [
        {name: repr(value) for name, value in vars(parser.parse_args(given)).items()}
        for given in json.load(sys.stdin)
    ]
    flags = [flag for flag in parser._option_string_actions if flag.startswith("--")]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump({"settings": found, "flags": flags}, file)


if __name__ == "__main__":
    main()
