"""What the documents say of the chart's values, written from the comments of its values.yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

Keys = tuple[str, ...]

LONGEST_DEFAULT = 60  # characters of a default in a table; longer ones are left to values.yaml
BEGIN, END = "<!-- values: begin, written by ci/generate -->", "<!-- values: end -->"


def documented(values: Path) -> Iterator[tuple[Keys, str]]:
    """Each key of a values file that has a comment right above it, with that comment."""
    stack: list[tuple[int, str]] = []
    comment: list[str] = []
    for line in values.read_text(encoding="utf-8").splitlines():
        if found := re.match(r"\s*# (?!----)(.*)", line):
            comment.append(found[1])
            continue
        if found := re.match(r"(\s*)([A-Za-z]\w*):", line):
            depth = len(found[1])
            stack = [(level, key) for level, key in stack if level < depth] + [(depth, found[2])]
            if comment:
                yield tuple(key for _, key in stack), " ".join(comment)
        comment = []


def headings(values: Path) -> dict[str, str]:
    """The group of each top-level key: the text of the `# ---- … ----` line above it."""
    found: dict[str, str] = {}
    heading = ""
    for line in values.read_text(encoding="utf-8").splitlines():
        if match := re.fullmatch(r"# ---- (.*) ----", line):
            heading = match[1]
        elif match := re.match(r"([A-Za-z]\w*):", line):
            found[match[1]] = heading
    return found


def full_table(values: Path) -> str:
    """Every documented value in a Markdown table for each group."""
    defaults = yaml.safe_load(values.read_text(encoding="utf-8"))
    groups = headings(values)
    lines: list[str] = []
    heading = None
    for keys, sentence in documented(values):
        if groups[keys[0]] != heading:
            heading = groups[keys[0]]
            lines += ["", f"### {heading}", "", "| Key | Default | Meaning |", "|---|---|---|"]
        lines.append(_row(keys, defaults, sentence))
    return "\n".join(lines).strip()


def short_table(table: str, values: Path) -> str:
    """A table whose keys were chosen by hand, with what values.yaml says of each now.

    Raises:
        KeyError: a key of the table has no comment in values.yaml.
    """
    defaults = yaml.safe_load(values.read_text(encoding="utf-8"))
    sentences = dict(documented(values))
    lines = []
    for line in table.splitlines():
        if found := re.match(r"\| `([\w.]+)` \|", line):
            keys = tuple(found[1].split("."))
            line = _row(keys, defaults, sentences[keys])
        lines.append(line)
    return "\n".join(lines)


def between_marks(text: str) -> str:
    """What stands between the marks of a document."""
    return text.split(BEGIN)[1].split(END)[0].strip()


def with_table(text: str, table: str) -> bytes:
    """The document with another table between its marks."""
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.split(END)[1]}".encode()


def _row(keys: Keys, defaults: Any, sentence: str) -> str:
    value = defaults
    for key in keys:
        value = value[key]
    written = json.dumps(value, ensure_ascii=False)
    default = f"`{written}`" if len(written) <= LONGEST_DEFAULT else "see values.yaml"
    return f"| `{'.'.join(keys)}` | {default} | {sentence.replace('|', chr(92) + '|')} |"
