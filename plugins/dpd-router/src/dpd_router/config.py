"""The router's configuration: one YAML file, parsed once into frozen objects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml

from .sections import ConfigError, Section

Mode = Literal["threshold", "always", "never"]
MODES: tuple[Mode, ...] = ("threshold", "always", "never")


@dataclass(frozen=True, slots=True)
class Tls:
    """The files of a certificate chain and of its private key, both PEM."""

    cert_file: str
    key_file: str


@dataclass(frozen=True, slots=True)
class Listen:
    """Where clients reach the router; "$(POD_IP)" in host stands for the pod's own IP.

    Kubernetes replaces it in the engines' arguments, which get the same value, but not in files.
    With tls the port speaks HTTPS only, without it HTTP only.
    """

    host: str
    port: int
    tls: Tls | None = None

    def on(self, pod_ip: str) -> str:
        """Return the host to bind in the pod of that IP."""
        return self.host.replace("$(POD_IP)", pod_ip)


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

    connect: opening a connection to an engine. room: waiting for room in a decoder's receive
    buffer. transfer: the prefill leg until its KV has landed.
    idle: silence of a decoder. drain: how long a stopping router waits for open requests.
    """

    connect: float
    room: float
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
    root = Section("", document)
    listen = root.section("listen")
    tls = listen.section_or_none("tls")
    notify = root.section("notify")
    model = root.section("model")
    routing = root.section("routing")
    prefill = root.section("prefill")
    decode = root.section("decode")
    timeouts = root.section("timeouts", optional=True)
    mode = routing.choice("mode", MODES)
    config = Config(
        listen=Listen(
            host=listen.text("host"),
            port=listen.port("port"),
            tls=Tls(tls.text("certFile"), tls.text("keyFile")) if tls else None,
        ),
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
            room=timeouts.seconds("roomSeconds", default=30),
            transfer=timeouts.seconds("transferSeconds", default=60),
            idle=timeouts.seconds("idleSeconds", default=600),
            drain=timeouts.seconds("drainSeconds", default=25),
        ),
    )
    for section in (root, listen, tls, notify, model, routing, prefill, decode, timeouts):
        if section is not None:
            section.refuse_unknown()
    if len(config.receiver.init_ports) != len(config.receiver.alloc_ports):
        raise ConfigError(
            f"decode.allocPorts: {list(config.receiver.alloc_ports)} and decode.initPorts "
            f"{list(config.receiver.init_ports)} differ in length; give one of each per rank"
        )
    return config
