"""Writes values as a human would: in the chart's order, without its defaults, in block style."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import yaml

# What says which deployment this is, also where the chart's default is the same.
_ALWAYS = ("model.name", "instanceTypes")
_ROLES = ("prefill", "decode")
# Text that some reader of YAML takes for something else, although PyYAML does not.
_RISKY = re.compile(r"[-+.]?[0-9]|(?i:y|n|yes|no|on|off|true|false|null|nan|inf|~)$")
_QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|[KMGTP]i|[MGT])")


def trimmed(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return values in the order of the defaults, without those that are the default.

    A role's are laid over those of engines, so for them these are the default.
    """
    engines = _over(defaults["engines"], values.get("engines", {}))
    known = {**defaults, **{role: {**defaults[role], **engines} for role in _ROLES}}
    return _trimmed(values, known, "")


def _over(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _over(out[key], value) if both else value
    return out


def _trimmed(values: Mapping[str, Any], defaults: Mapping[str, Any], path: str) -> dict[str, Any]:
    order = list(defaults)
    out: dict[str, Any] = {}
    for key in sorted(values, key=lambda key: order.index(key) if key in order else len(order)):
        value, default = values[key], defaults.get(key)
        at = f"{path}{key}"
        if isinstance(value, dict) and isinstance(default, dict) and default:
            value = _trimmed(value, default, f"{at}.")
            keep = bool(value)
        else:
            keep = at in _ALWAYS or key not in defaults or value != default
        if keep:
            out[key] = value
    return out


class _Dumper(yaml.SafeDumper):
    """Block style with lists indented below their key, and double quotes."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
        return super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if "\n" in text:
        style = "|"
    elif (_RISKY.match(text) and not _QUANTITY.fullmatch(text)) or not text:
        style = '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(values: Mapping[str, Any], comment: str) -> str:
    """Return values as a YAML file that begins with a comment of one or more lines."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    if not values:
        return head + "{}\n"
    body = yaml.dump(
        dict(values),
        Dumper=_Dumper,
        sort_keys=False,
        default_flow_style=False,
        allow_unicode=True,
        width=10_000,
    )
    return head + str(body)
