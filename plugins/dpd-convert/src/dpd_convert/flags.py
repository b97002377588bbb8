"""Takes vLLM's command line apart, as the chart compares flags and as values write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

_FLAG = re.compile(r"^--?[A-Za-z]")
_JOINED = re.compile(r"^(--?[A-Za-z][^=\s]*)\s+(.*)$", re.DOTALL)
_SHORT_WITH_VALUE = re.compile(r"^(-[A-Za-z])([^=-].*)$", re.DOTALL)


@dataclass(frozen=True)
class Flag:
    """A flag with its values.

    Attributes:
        name: its name in one spelling; the same for `--x` and `--no-x`.
        part: which part of a JSON flag it sets, such as "a" in `--compilation-config.a`.
        written: its name as values write it.
        values: what was given to it.
    """

    name: str
    part: str
    written: str
    values: tuple[str, ...] = ()

    @property
    def items(self) -> list[str]:
        """The flag as items of a list of arguments: one, unless it has several values."""
        if len(self.values) == 1:
            return [f"{self.written}={self.values[0]}"]
        return [self.written, *self.values]

    @property
    def value(self) -> str:
        """The first of its values; empty when it has none."""
        return self.values[0] if self.values else ""

    def __str__(self) -> str:
        return " ".join(self.items)


def split(
    arguments: Iterable[str], aliases: Mapping[str, str]
) -> tuple[tuple[Flag, ...], tuple[str, ...]]:
    """Return the flags of a command line, and what stands before the first of them.

    Args:
        arguments: the items, with values apart or behind `=`.
        aliases: short spellings and their long ones.
    """
    flags: list[Flag] = []
    before: list[str] = []
    for item in arguments:
        if joined := _JOINED.match(item):
            flags.append(_flag(joined[1], (joined[2],), aliases))
        elif _FLAG.match(item):
            name, equals, value = item.partition("=")
            flags.append(_flag(name, (value,) if equals else (), aliases))
        elif flags:
            flags[-1] = replace(flags[-1], values=(*flags[-1].values, item))
        else:
            before.append(item)
    return tuple(flags), tuple(before)


def _flag(name: str, values: tuple[str, ...], aliases: Mapping[str, str]) -> Flag:
    if name.startswith("-O"):  # a level may stick to it
        return Flag("--optimization-level", name.partition(".")[2], name, values)
    stem, dot, part = name.partition(".")
    short = _SHORT_WITH_VALUE.match(stem)
    if stem not in aliases and short and short[1] in aliases:
        stem, values = short[1], (short[2], *values)
    stem = aliases.get(stem, stem.replace("_", "-"))
    return Flag(re.sub(r"^--no-", "--", stem), part, stem + dot + part, values)


def meant(name: str, flags: Iterable[str]) -> str | None:
    """Return which of some flags a name means, which vLLM also takes cut short."""
    flags = tuple(flags)
    if name in flags:
        return name
    return next((flag for flag in flags if flag.startswith(name)), None)


def last_of_each(flags: Sequence[Flag]) -> tuple[list[Flag], list[Flag]]:
    """Return the flags that count, of which vLLM takes the last, and those given again later."""
    counting: dict[tuple[str, str], Flag] = {}
    again: list[Flag] = []
    for flag in flags:
        if earlier := counting.pop((flag.name, flag.part), None):
            again.append(earlier)
        counting[flag.name, flag.part] = flag
    return list(counting.values()), again


def laid_over(shared: Sequence[Flag], own: Sequence[Flag]) -> list[Flag]:
    """Return a role's flags: the shared ones that it does not give itself, then its own."""
    given = {(flag.name, flag.part) for flag in own}
    return [flag for flag in shared if (flag.name, flag.part) not in given] + list(own)
