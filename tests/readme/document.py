"""The README and OPERATING.md as a test reads them: commands, tables, messages they quote."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "README.md").read_text(encoding="utf-8")
OPERATING = (ROOT / "charts" / "dpd" / "OPERATING.md").read_text(encoding="utf-8")


def commands() -> list[str]:
    """Every command of every bash block; one a line."""
    blocks = re.findall(r"^```bash\n(.*?)^```$", TEXT + OPERATING, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) > 20
    assert not [line for line in lines if line.endswith("\\")], "write a command on one line"
    return list(dict.fromkeys(lines))


def section(title: str, text: str = TEXT) -> str:
    """The text under a heading, down to the next of its level."""
    level, _, _ = title.partition(" ")
    start = text.index(f"\n{title}\n")
    following = re.search(rf"^#{{1,{len(level)}}} ", text[start + len(title) + 2 :], re.M)
    return (
        text[start:] if not following else text[start : start + len(title) + 2 + following.start()]
    )


def rows(text: str) -> list[list[str]]:
    """The cells of a table's rows, without its heading and without the rows that name groups."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[2:]]
    return [row for row in cells if not row[0].startswith("**")]


def links(text: str) -> list[str]:
    """Where its links lead."""
    return re.findall(r"\]\(([^)]+)\)", text)


def anchors(text: str) -> set[str]:
    """What a link may name behind #, as GitHub makes it of the headings."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def quoted(text: str) -> list[str]:
    """What stands between backticks, outside of the blocks."""
    return re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S))
