"""The router's configuration: one YAML file, parsed once into frozen objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

Mode = Literal["threshold", "always", "never"]
MODES: tuple[Mode, ...] = ("threshold", "always", "never")


class ConfigError(ValueError):
    """A setting is missing, unknown or wrong; the text names it and says what would be right."""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients reach the router."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Model:
    """The served name, the tokenizer's id or folder, and the limit the engines are started with.

    max_len is in tokens; None when it was not given.
    """

    name: str
    tokenizer: str
    revision: str | None
    max_len: int | None


@dataclass(frozen=True, slots=True)
class Routing:
    """When a prompt goes through a prefiller; the threshold is in tokens."""

    mode: Mode
    threshold: int


@dataclass(frozen=True, slots=True)
class Receiver:
    """The KV ports of a decoder, one of each per rank."""

    init_ports: tuple[int, ...]
    alloc_ports: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Timeouts:
    """All in seconds; no limit covers a whole request.

    connect: opening a connection to an engine. transfer: the prefill leg until its KV has landed.
    idle: silence of a decoder. drain: how long a stopping router waits for open requests.
    """

    connect: float
    transfer: float
    idle: float
    drain: float


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the router is told."""

    listen: Listen
    notify_port: int
    model: Model
    routing: Routing
    prefill: tuple[str, ...]
    decode: tuple[str, ...]
    receiver: Receiver
    timeouts: Timeouts


def load(path: str | Path) -> Config:
    """Read and check the configuration file.

    Raises:
        ConfigError: the file cannot be read, or a setting in it is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        document = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot read the configuration: {error}") from error
    return parse(document)


def parse(document: object) -> Config:
    """Check a parsed document and turn it into a Config.

    Raises:
        ConfigError: naming the path, the value and the way out.
    """
    root = _Section("", document)
    listen = root.section("listen")
    notify = root.section("notify")
    model = root.section("model")
    routing = root.section("routing")
    prefill = root.section("prefill")
    decode = root.section("decode")
    timeouts = root.section("timeouts", optional=True)
    mode = routing.choice("mode", MODES)
    config = Config(
        listen=Listen(host=listen.text("host"), port=listen.port("port")),
        notify_port=notify.port("port"),
        model=Model(
            name=model.text("name"),
            tokenizer=model.text("tokenizer"),
            revision=model.text("revision", default="") or None,
            max_len=model.whole("maxLen", minimum=1, default=None),
        ),
        routing=Routing(mode=mode, threshold=routing.whole("threshold", 0, default=4096) or 0),
        prefill=prefill.addresses("addresses", may_be_empty=mode == "never"),
        decode=decode.addresses("addresses"),
        receiver=Receiver(decode.ports("initPorts"), decode.ports("allocPorts")),
        timeouts=Timeouts(
            connect=timeouts.seconds("connectSeconds", default=5),
            transfer=timeouts.seconds("transferSeconds", default=60),
            idle=timeouts.seconds("idleSeconds", default=600),
            drain=timeouts.seconds("drainSeconds", default=25),
        ),
    )
    for section in (root, listen, notify, model, routing, prefill, decode, timeouts):
        section.refuse_unknown()
    if len(config.receiver.init_ports) != len(config.receiver.alloc_ports):
        raise ConfigError(
            f"decode.allocPorts: {list(config.receiver.alloc_ports)} and decode.initPorts "
            f"{list(config.receiver.init_ports)} differ in length; give one of each per rank"
        )
    return config


class _Section:
    """One mapping of the document, which remembers what was asked of it."""

    def __init__(self, path: str, value: object) -> None:
        self._path = path
        if not isinstance(value, Mapping):
            where = path or "the document"
            raise ConfigError(f"{where}: {value!r} is not a mapping; write keys and values there")
        self._values: Mapping[Any, Any] = value
        self._known: list[str] = []

    def section(self, key: str, *, optional: bool = False) -> _Section:
        value = self._take(key, {} if optional else _MISSING)
        return _Section(self._at(key), value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._take(key, _MISSING if default is None else default)
        if not isinstance(value, str) or (default is None and not value):
            raise ConfigError(f"{self._at(key)}: {value!r} is not a text; write a non-empty string")
        return value

    def choice(self, key: str, choices: tuple[Mode, ...]) -> Mode:
        value = self._take(key, _MISSING)
        for choice in choices:
            if value == choice:
                return choice
        raise ConfigError(f"{self._at(key)}: {value!r} is not one of {', '.join(choices)}")

    def whole(self, key: str, minimum: int, default: int | None) -> int | None:
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
        return _port(self._at(key), self._take(key, _MISSING))

    def ports(self, key: str) -> tuple[int, ...]:
        values = self._list(key)
        if not values:
            raise ConfigError(f"{self._at(key)}: [] has no port; give one per rank")
        return tuple(_port(f"{self._at(key)}[{i}]", value) for i, value in enumerate(values))

    def addresses(self, key: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
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
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e9:
            raise ConfigError(
                f"{self._at(key)}: {value!r} is not a time; write a number of seconds above 0"
            )
        return float(value)

    def refuse_unknown(self) -> None:
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


_MISSING = object()


def split_address(address: object) -> tuple[str, int]:
    """Split "host:port" (or "[ipv6]:port") into its two parts.

    Raises:
        ValueError: it is not of that form.
    """
    if isinstance(address, str):
        host, colon, port = address.rpartition(":")
        bracketed = host.startswith("[") and host.endswith("]")
        if colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            if bracketed:
                return host[1:-1], int(port)
            if ":" not in host and "/" not in host:
                return host, int(port)
    raise ValueError(f'{address!r} is not "host:port"')


def _port(path: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 65536:
        raise ConfigError(f"{path}: {value!r} is not a port; write an integer from 1 to 65535")
    return value
