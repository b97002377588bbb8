"""Checks of the shape of what the CRD passes through to Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import ConvertError


def a_map(value: Any, what: str) -> Mapping[str, Any]:
    """Return a map, also for nothing.

    Args:
        value: what the manifest has.
        what: where it has it, for the message.

    Raises:
        ConvertError: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConvertError(f"{what} is {value!r}, but must be a map; correct it")
    return value


def maps(value: Any, what: str) -> list[Mapping[str, Any]]:
    """Return a list of maps, also for nothing.

    Args:
        value: what the manifest has.
        what: where it has it, for the message.

    Raises:
        ConvertError: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConvertError(f"{what} is {value!r}, but must be a list; correct it")
    return [a_map(item, f"{what}[{index}]") for index, item in enumerate(value)]
