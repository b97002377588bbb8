"""`python -m dpd_local demo [--once]`, `python -m dpd_local bare`."""

from __future__ import annotations

import argparse
import sys

from dpd_local import bare, demo


def main() -> int:
    """Run what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dpd_local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    shown = commands.add_parser("demo", help="run the chart here, prove it, leave it up")
    shown.add_argument("--once", action="store_true", help="end after the table")
    commands.add_parser("bare", help="time the start of the same engines by themselves")
    arguments = parser.parse_args()
    return demo.run(arguments.once) if arguments.command == "demo" else bare.run()


if __name__ == "__main__":
    sys.exit(main())
