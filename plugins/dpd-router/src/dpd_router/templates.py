"""What a chat template expects, read from its syntax tree.

The engine decides the same way (vLLM 0.19, renderers/hf.py): a template that loops over a message's
content gets a list of parts, any other gets one text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.sandbox
from jinja2 import nodes
from jinja2.parser import Parser

ContentFormat = Literal["string", "openai"]


class _Generation(jinja2.ext.Extension):
    """Lets templates with `{% generation %}` blocks parse."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own declaration)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.CallBlock(self.call_method("_mark"), [], [], body).set_lineno(line)


def _parse(template: str) -> nodes.Template:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[_Generation, jinja2.ext.loopcontrols],
    )
    return environment.parse(template)


def template_variables(template: str) -> frozenset[str]:
    """Return the names that a template reads and does not define itself."""
    return frozenset(jinja2.meta.find_undeclared_variables(_parse(template)))


def content_format(template: str) -> ContentFormat:
    """Return whether a template wants a message's content as one text or as a list of parts."""
    try:
        tree = _parse(template)
        lists = list(_aliases(tree, "messages"))
        messages = [
            _name(loop.target)
            for loop in tree.find_all(nodes.For)
            if any(_reads(loop.iter, name) for name in lists)
        ]
        for loop in tree.find_all(nodes.For):
            if any(_reads(loop.iter, name, "content") for name in messages):
                _name(loop.target)
                return "openai"
    except (jinja2.TemplateError, _Unnamed):
        pass
    return "string"


class _Unnamed(Exception):
    """A loop or assignment has several targets, where the engine gives up as well."""


def _name(target: nodes.Node) -> str:
    if not isinstance(target, nodes.Name):
        raise _Unnamed
    return target.name


def _aliases(tree: nodes.Template, name: str) -> Iterator[str]:
    """Yield a variable and every variable that was assigned from it, directly or through others."""
    yield name
    pending, seen = [name], {name}
    while pending:
        current = pending.pop(0)
        for assignment in tree.find_all(nodes.Assign):
            if _reads(assignment.node, current):
                alias = _name(assignment.target)
                if alias not in seen:
                    seen.add(alias)
                    pending.append(alias)
                    yield alias


def _reads(node: nodes.Node | None, name: str, key: str | None = None) -> bool:
    """Return whether an expression is a variable (or its key), maybe filtered or sliced."""
    if isinstance(node, nodes.Filter | nodes.Test):
        return _reads(node.node, name, key)
    if isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice):
        return _reads(node.node, name, key)
    if key is None:
        return isinstance(node, nodes.Name) and node.ctx == "load" and node.name == name
    if isinstance(node, nodes.Getitem):
        arg = node.arg
        return isinstance(arg, nodes.Const) and arg.value == key and _reads(node.node, name)
    return isinstance(node, nodes.Getattr) and node.attr == key and _reads(node.node, name)
