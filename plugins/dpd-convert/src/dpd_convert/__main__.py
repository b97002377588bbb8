"""`python -m dpd_convert manifest.yaml > values.yaml`, `python -m dpd_convert --table`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from . import ConvertError, comment, convert, read_chart, read_manifest, report, to_yaml, trimmed
from .chart import CHECKOUT
from .table import markdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line asks for; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m dpd_convert",
        description="Turns a HyperPod InferenceEndpointConfig with pdSpec into values of the dpd "
        "chart. Values go to standard output, the report to standard error.",
    )
    parser.add_argument("manifest", nargs="?", help="the manifest's file, or - for standard input")
    parser.add_argument("--output", type=Path, help="the file to write the values to")
    parser.add_argument("--chart", type=Path, default=CHECKOUT, help="the chart's folder")
    parser.add_argument("--table", action="store_true", help="print what becomes of each field")
    options = parser.parse_args(arguments)
    if options.table:
        print(markdown())
        return 0
    if options.manifest is None:
        parser.error("give a manifest, or - for standard input")
    try:
        _convert(options.manifest, options.output, options.chart)
    except ConvertError as error:
        print(f"dpd_convert: {error}", file=sys.stderr)
        return 1
    return 0


def _convert(source: str, output: Path | None, folder: Path) -> None:
    chart = read_chart(folder)
    manifest = read_manifest(_read(source), "standard input" if source == "-" else source)
    conversion = convert(manifest, chart)
    file = str(output) if output else "values.yaml"
    values = trimmed(conversion.values, chart.values)
    text = to_yaml(values, comment(conversion, file))
    if output:
        try:
            output.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConvertError(f"{output} cannot be written: {error.strerror}") from None
    else:
        sys.stdout.write(text)
        sys.stdout.flush()
    sys.stderr.write(report(conversion, values, file))


def _read(source: str) -> str:
    try:
        if source == "-":
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(source).read_text(encoding="utf-8")
    except OSError as error:
        raise ConvertError(f"{source} cannot be read: {error.strerror}; give a manifest") from None
    except UnicodeDecodeError:
        raise ConvertError(f"{source} is not text in UTF-8; give a manifest in YAML") from None


if __name__ == "__main__":
    sys.exit(main())
