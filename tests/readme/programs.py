"""The texts in the programs' code, as a test looks for them."""

from __future__ import annotations

import ast
import re
from pathlib import Path


def as_text(node: ast.AST) -> str:
    """A text of the code, with … where a value is put in; empty if this is none."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(n.value) if isinstance(n, ast.Constant) else "…" for n in node.values)
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return re.sub(r"%[\d.]*[sdfgr]", "…", node.value)
    return ""


def texts(file: Path) -> list[str]:
    """Every text of a module."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [text for node in nodes if (text := as_text(node))]
