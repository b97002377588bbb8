"""The configuration is closed, and a mistake in it is named with its path and the way out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd_router.config import (
    Config,
    Listen,
    Model,
    Receiver,
    Routing,
    Timeouts,
    Tls,
    load,
    parse,
)
from dpd_router.sections import ConfigError

GOOD = """
listen: {host: 0.0.0.0, port: 8000}
notify: {port: 7500}
model: {name: served, tokenizer: org/model, revision: ""}
routing: {mode: threshold, threshold: 4096}
prefill: {addresses: ["d-prefill:8000"]}
decode:
  addresses: ["d-decode:8000", "[fd00::1]:8000"]
  initPorts: [7300, 7301]
  allocPorts: [7400, 7401]
timeouts: {connectSeconds: 5, transferSeconds: 60, idleSeconds: 600}
"""


def test_a_good_file_becomes_typed_objects(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text(GOOD)
    assert load(path) == Config(
        listen=Listen("0.0.0.0", 8000),
        notify_port=7500,
        model=Model("served", "org/model", revision=None, max_len=None),
        routing=Routing("threshold", 4096),
        prefill=("d-prefill:8000",),
        decode=("d-decode:8000", "[fd00::1]:8000"),
        receiver=Receiver((7300, 7301), (7400, 7401)),
        timeouts=Timeouts(connect=5, room=30, transfer=60, idle=600, drain=25),
    )


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot read the configuration: "):
        load(tmp_path / "none.yaml")


def test_a_file_that_is_no_yaml_is_named(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text("a: [")
    with pytest.raises(ConfigError, match=r"router\.yaml: cannot read the configuration: "):
        load(path)


def changed(path: str, value: Any) -> dict[str, Any]:
    document: dict[str, Any] = copy.deepcopy(yaml.safe_load(GOOD))
    *sections, key = path.split(".")
    target = document
    for section in sections:
        target = target[section]
    if value is ...:
        del target[key]
    else:
        target[key] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "routing.thresold",
            5,
            "routing.thresold: unknown key; known here: mode, threshold",
        ),
        (
            "extra",
            {},
            "extra: unknown key; known here: listen, notify, model, routing, prefill, decode, "
            "timeouts",
        ),
        (
            "routing.mode",
            "sometimes",
            "routing.mode: 'sometimes' is not one of threshold, always, never",
        ),
        ("routing.mode", ..., "routing.mode: missing; it has no default"),
        (
            "routing.threshold",
            "4k",
            "routing.threshold: '4k' is not a number of tokens; write an integer of at least 0",
        ),
        (
            "routing.threshold",
            True,
            "routing.threshold: True is not a number of tokens; write an integer of at least 0",
        ),
        (
            "routing.threshold",
            -1,
            "routing.threshold: -1 is not a number of tokens; write an integer of at least 0",
        ),
        (
            "listen.port",
            70000,
            "listen.port: 70000 is not a port; write an integer from 1 to 65535",
        ),
        (
            "notify.port",
            "7500",
            "notify.port: '7500' is not a port; write an integer from 1 to 65535",
        ),
        ("listen.tls", None, "listen.tls: None is not a mapping; write keys and values there"),
        ("listen.tls", {"certFile": "/c"}, "listen.tls.keyFile: missing; it has no default"),
        (
            "listen.tls",
            {"certFile": 5, "keyFile": "/k"},
            "listen.tls.certFile: 5 is not a text; write a non-empty string",
        ),
        (
            "listen.tls",
            {"certFile": "/c", "keyFile": "/k", "caFile": "/a"},
            "listen.tls.caFile: unknown key; known here: certFile, keyFile",
        ),
        ("model.tokenizer", "", "model.tokenizer: '' is not a text; write a non-empty string"),
        ("model.name", 5, "model.name: 5 is not a text; write a non-empty string"),
        ("model", ..., "model: missing; it has no default"),
        ("model", "x", "model: 'x' is not a mapping; write keys and values there"),
        (
            "prefill.addresses",
            [],
            'prefill.addresses: [] names no engine; give "host:port" entries',
        ),
        ("prefill.addresses", "a:1", "prefill.addresses: 'a:1' is not a list; write [a, b]"),
        (
            "decode.addresses",
            ["good:1", "http://x:1"],
            "decode.addresses[1]: 'http://x:1' is not \"host:port\"",
        ),
        ("decode.addresses", ["x"], "decode.addresses[0]: 'x' is not \"host:port\""),
        ("decode.addresses", ["x:0"], "decode.addresses[0]: 'x:0' is not \"host:port\""),
        ("decode.addresses", [8000], 'decode.addresses[0]: 8000 is not "host:port"'),
        (
            "decode.addresses",
            ["fd00::1:80"],
            "decode.addresses[0]: 'fd00::1:80' is not \"host:port\"",
        ),
        ("decode.initPorts", [], "decode.initPorts: [] has no port; give one per rank"),
        (
            "decode.initPorts",
            [7300],
            "decode.allocPorts: [7400, 7401] and decode.initPorts [7300] differ in length; "
            "give one of each per rank",
        ),
        (
            "decode.allocPorts",
            [7400, None],
            "decode.allocPorts[1]: None is not a port; write an integer from 1 to 65535",
        ),
        (
            "timeouts.idleSeconds",
            0,
            "timeouts.idleSeconds: 0 is not a time; write a number of seconds above 0",
        ),
        (
            "timeouts.transferSeconds",
            "60s",
            "timeouts.transferSeconds: '60s' is not a time; write a number of seconds above 0",
        ),
        (
            "timeouts.connectSeconds",
            float("inf"),
            "timeouts.connectSeconds: inf is not a time; write a number of seconds above 0",
        ),
    ],
)
def test_a_mistake_is_named_with_its_path(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(changed(path, value))
    assert str(error.value) == message


@pytest.mark.parametrize("document", [None, [], "x", 5])
def test_a_document_that_is_no_mapping_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError) as error:
        parse(document)
    assert str(error.value) == (
        f"the document: {document!r} is not a mapping; write keys and values there"
    )


def test_mode_never_needs_no_prefiller_addresses() -> None:
    document = changed("prefill.addresses", [])
    document["routing"]["mode"] = "never"
    assert parse(document).prefill == ()


def test_times_and_limits_have_defaults() -> None:
    config = parse(changed("timeouts", ...))
    assert config.timeouts == Timeouts(connect=5, room=30, transfer=60, idle=600, drain=25)
    assert parse(changed("routing.threshold", ...)).routing.threshold == 4096
    assert parse(changed("model.maxLen", 16384)).model.max_len == 16384


def test_a_certificate_for_https_is_two_files() -> None:
    files = {"certFile": "/etc/dpd-tls/tls.crt", "keyFile": "/etc/dpd-tls/tls.key"}
    tls = Tls(cert_file="/etc/dpd-tls/tls.crt", key_file="/etc/dpd-tls/tls.key")
    assert parse(changed("listen.tls", files)).listen.tls == tls
    assert parse(yaml.safe_load(GOOD)).listen.tls is None


def test_the_pods_own_ip_may_be_where_the_router_listens() -> None:
    listen = parse(changed("listen.host", "$(POD_IP)")).listen
    assert listen.on("10.1.2.3") == "10.1.2.3"
    assert Listen("0.0.0.0", 1).on("10.1.2.3") == "0.0.0.0"
