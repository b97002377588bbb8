"""Reading a configuration strictly: every mistake is named by its path, value and way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from .addresses import split_address

_Choice = TypeVar("_Choice", bound=str)


class ConfigError(ValueError):
    """A setting is missing, unknown or wrong; the text names it and says what would be right."""


_MISSING = object()


class Section:
    """One mapping of the document, which remembers what was asked of it.

    Every method takes one key and raises ConfigError if its value is not of that kind.
    """

    def __init__(self, path: str, value: object) -> None:
        self._path = path
        if not isinstance(value, Mapping):
            where = path or "the document"
            raise ConfigError(f"{where}: {value!r} is not a mapping; write keys and values there")
        self._values: Mapping[Any, Any] = value
        self._known: list[str] = []

    def section(self, key: str, *, optional: bool = False) -> Section:
        """Return a mapping inside this one."""
        value = self._take(key, {} if optional else _MISSING)
        return Section(self._at(key), value)

    def section_or_none(self, key: str) -> Section | None:
        """Return a mapping inside this one, or None if it is not there."""
        section = self.section(key, optional=True)
        return section if key in self._values else None

    def text(self, key: str, default: str | None = None) -> str:
        """Return a text; it may be empty only if there is a default."""
        value = self._take(key, _MISSING if default is None else default)
        if not isinstance(value, str) or (default is None and not value):
            raise ConfigError(f"{self._at(key)}: {value!r} is not a text; write a non-empty string")
        return value

    def choice(self, key: str, choices: tuple[_Choice, ...]) -> _Choice:
        """Return one of the given words."""
        value = self._take(key, _MISSING)
        for choice in choices:
            if value == choice:
                return choice
        raise ConfigError(f"{self._at(key)}: {value!r} is not one of {', '.join(choices)}")

    def whole(self, key: str, minimum: int, default: int | None) -> int | None:
        """Return a number of tokens."""
        value = self._take(key, default)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise ConfigError(
                f"{self._at(key)}: {value!r} is not a number of tokens; "
                f"write an integer of at least {minimum}"
            )
        return value

    def port(self, key: str) -> int:
        """Return a port."""
        return _port(self._at(key), self._take(key, _MISSING))

    def ports(self, key: str) -> tuple[int, ...]:
        """Return a list of at least one port."""
        values = self._list(key)
        if not values:
            raise ConfigError(f"{self._at(key)}: [] has no port; give one per rank")
        return tuple(_port(f"{self._at(key)}[{i}]", value) for i, value in enumerate(values))

    def addresses(self, key: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        """Return a list of "host:port" texts."""
        values = self._list(key)
        if not values and not may_be_empty:
            raise ConfigError(f'{self._at(key)}: [] names no engine; give "host:port" entries')
        for i, value in enumerate(values):
            try:
                split_address(value)
            except ValueError as error:
                raise ConfigError(f"{self._at(key)}[{i}]: {error}") from None
        return tuple(values)

    def seconds(self, key: str, default: float) -> float:
        """Return a time in seconds, above 0."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise ConfigError(
                f"{self._at(key)}: {value!r} is not a time; write a number of seconds above 0"
            )
        return float(value)

    def refuse_unknown(self) -> None:
        """Raise ConfigError if there is a key that nothing asked for."""
        for key in self._values:
            if key not in self._known:
                known = ", ".join(self._known)
                raise ConfigError(f"{self._at(key)}: unknown key; known here: {known}")

    def _list(self, key: str) -> list[Any]:
        value = self._take(key, _MISSING)
        if not isinstance(value, list):
            raise ConfigError(f"{self._at(key)}: {value!r} is not a list; write [a, b]")
        return value

    def _take(self, key: str, default: object) -> Any:
        self._known.append(key)
        value = self._values.get(key, default)
        if value is _MISSING:
            raise ConfigError(f"{self._at(key)}: missing; it has no default")
        return value

    def _at(self, key: object) -> str:
        return f"{self._path}.{key}" if self._path else str(key)


def _port(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ConfigError(f"{path}: {value!r} is not a port; write an integer from 1 to 65535")
    return value
