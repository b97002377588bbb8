"""The migration table: what becomes of every field of an InferenceEndpointConfig."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

# The Python types of what the table calls the kinds of fields.
KINDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "integer": (int,),
    "number": (int, float),
    "true or false": (bool,),
    "list": (list,),
    "map": (dict,),
}


@dataclass(frozen=True)
class Row:
    """What becomes of one field.

    Attributes:
        path: the field's path below spec; `[]` stands for each item of a list.
        kind: what the field is, a key of KINDS.
        how: "copied", "worked", "left" or "group"; see table.yaml.
        keys: where our values have it.
        remark: how it is carried over, or why it is not and what to do instead.
    """

    path: str
    kind: str
    how: str
    keys: tuple[str, ...] = ()
    remark: str = ""

    def takes(self, value: Any) -> bool:
        """Whether a value is of the field's kind."""
        if isinstance(value, bool) and self.kind != "true or false":
            return False
        return isinstance(value, KINDS[self.kind])


@dataclass(frozen=True)
class Section:
    """Rows that belong together, below a sentence.

    Attributes:
        title: the sentence.
        rows: the rows as the document has them.
        below: for rows whose paths are not below spec itself: below what they are, and below which
            of our keys theirs are.
        lists: fields which have the same fields as a list's items: the field and the list.
    """

    title: str
    rows: tuple[Row, ...]
    below: Mapping[str, str]
    lists: Mapping[str, str]

    def unfolded(self) -> Iterator[Row]:
        """Yield every row with its path below spec."""
        if not self.below:
            yield from self.rows
        for place, ours in self.below.items():
            yield Row(place, "map", "group")
            for row in self.rows:
                keys = tuple(f"{ours}.{key}" for key in row.keys)
                yield replace(row, path=f"{place}.{row.path}", keys=keys)
                field, _, rest = row.path.partition(".")
                if field in self.lists:
                    path = f"{place}.{self.lists[field]}" + (f"[].{rest}" if rest else "")
                    yield replace(row, path=path, keys=keys, kind=row.kind if rest else "list")


def _sections() -> tuple[Section, ...]:
    text = (Path(__file__).parent / "table.yaml").read_text(encoding="utf-8")
    return tuple(
        Section(
            title=part["title"],
            rows=tuple(
                Row(path, kind, how, *_keys_and_remark(rest))
                for path, (kind, how, *rest) in part["fields"].items()
            ),
            below=part.get("below", {}),
            lists=part.get("lists", {}),
        )
        for part in yaml.safe_load(text)
    )


def _keys_and_remark(rest: Sequence[str]) -> tuple[tuple[str, ...], str]:
    keys, remark = (*rest, "", "")[:2]
    return tuple(keys.split(", ")) if keys else (), remark


SECTIONS = _sections()
TABLE: Mapping[str, Row] = {row.path: row for section in SECTIONS for row in section.unfolded()}


def find(path: str) -> Row | None:
    """Return the row of a path, or of what it is a part of; None when the table has neither.

    A number in brackets counts as `[]`.
    """
    path = re.sub(r"\[\d+\]", "[]", path)
    if path in TABLE:
        return TABLE[path]
    above = path.removesuffix("[]") if path.endswith("[]") else path.rpartition(".")[0]
    row = find(above) if above else None
    return row if row and row.how != "group" else None


def fields(value: Any, path: str = "") -> Iterator[tuple[str, Row | None, Any]]:
    """Yield path, row and value of each field of a spec that is set, but not of groups.

    The row is None for a field that the table does not know. Where a group should be and is
    something else, that is yielded.
    """
    row = find(path) if path else Row("", "map", "group")
    if value is None:
        return
    if row and row.how == "group" and isinstance(value, list) and row.kind == "list":
        for index, item in enumerate(value):
            if isinstance(item, dict):
                for name, part in item.items():
                    yield from fields(part, f"{path}[{index}].{name}")
            else:
                yield f"{path}[{index}]", row, item
    elif row and row.how == "group" and row.takes(value):
        for name, part in value.items():
            yield from fields(part, f"{path}.{name}" if path else str(name))
    else:
        yield path, row, value


def markdown() -> str:
    """Return the table as Markdown: for each section its sentence, and a line for each field."""
    return "\n\n".join(
        "\n".join([section.title, "", "| Field | Value | |", "|---|---|---|", *_lines(section)])
        for section in SECTIONS
    )


def _lines(section: Section) -> Iterator[str]:
    for row in section.rows:
        if row.how != "group":
            keys = ", ".join(f"`{key}`" for key in row.keys) or "–"
            yield f"| `{row.path}` | {keys} | {row.remark} |"
