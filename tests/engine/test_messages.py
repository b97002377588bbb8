"""What goes over the wire is what LMCache, the router and an older engine expect."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.router.engine_answers import BOOT_ID, Answers

from dpd_router.config import Receiver
from dpd_router.lmcache import LMCachePD, Notice, read_notice
from dpd_vllm import messages
from dpd_vllm.fingerprint import difference, fingerprint

TRANSFER = "10.0.0.7:7500/0123456789abcdef0123456789abcdef"


def lmcaches_proxy_notif() -> Any:
    """LMCache's own message, made from its source: importing its module takes seconds."""
    package = find_spec("lmcache")
    assert package is not None and package.submodule_search_locations
    source = Path(package.submodule_search_locations[0], "v1/storage_backend/pd_backend.py")
    names = ("PDMsgBase", "ProxyNotif")
    classes: list[ast.stmt] = [
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in names
    ]
    assert len(classes) == 2
    space: dict[str, Any] = {"msgspec": msgspec}
    exec(compile(ast.Module(classes, []), str(source), "exec"), space)
    return space["ProxyNotif"]


def test_a_notice_is_read_by_lmcaches_own_decoder() -> None:
    notif = lmcaches_proxy_notif()
    sent = messages.encode(messages.Notice(TRANSFER, rank=1, ranks=8))
    assert msgspec.msgpack.decode(sent, type=notif) == notif(req_id=TRANSFER)


def test_lmcaches_own_notice_reads_as_a_landed_single_rank() -> None:
    theirs = msgspec.msgpack.encode(lmcaches_proxy_notif()(req_id=TRANSFER))
    assert theirs == msgspec.msgpack.encode({"type": "ProxyNotif", "req_id": TRANSFER})
    assert msgspec.msgpack.decode(theirs, type=messages.Notice) == messages.Notice(TRANSFER)


def test_a_notice_starts_with_tag_and_id_and_adds_rank_ranks_and_error() -> None:
    sent = messages.encode(messages.Notice("h:1/u", 1, 2, "no room"))
    assert sent == (
        b"\x85\xa4type\xaaProxyNotif\xa6req_id\xa5h:1/u\xa4rank\x01"
        b"\xa5ranks\x02\xa5error\xa7no room"
    )


@pytest.mark.parametrize(
    ("rank", "ranks", "error"), [(0, 1, ""), (7, 8, ""), (1, 2, "10.0.0.9: x")]
)
def test_the_router_reads_exactly_what_is_sent(rank: int, ranks: int, error: str) -> None:
    notice = read_notice(messages.encode(messages.Notice(TRANSFER, rank, ranks, error)))
    assert (notice.req_id, notice.rank, notice.ranks, notice.error) == (
        TRANSFER,
        rank,
        ranks,
        error,
    )


def test_the_decoder_reads_exactly_what_the_router_releases() -> None:
    router = LMCachePD("10.0.0.7:7500", Receiver((7300,), (7400,)))
    sent = router.release([TRANSFER, "10.0.0.7:7500/ff"])
    assert messages.decode_to_decoder(sent) == messages.Release([TRANSFER, "10.0.0.7:7500/ff"])
    assert sent.startswith(b"\x82\xa4type\xa7Release\xactransfer_ids\x92")


def test_the_decoder_reads_exactly_what_the_router_asks_and_is_read_so() -> None:
    router = LMCachePD("10.0.0.7:7500", Receiver((7300,), (7400,)))
    question = messages.decode_to_decoder(router.reserve([TRANSFER, "h:1/u"], [300, 5]))
    assert question == messages.Reserve([TRANSFER, "h:1/u"], [300, 5])
    for prompts in (0, 1, 2):
        answer = messages.encode(messages.Reserved("boot", prompts))
        assert router.read_reserved(answer, 2) == prompts
    with pytest.raises(ValueError, match=r"^too long$"):
        router.read_reserved(messages.encode(messages.Refused("boot", "too long", "fail")), 2)
    with pytest.raises(ValueError):
        router.read_reserved(messages.encode(messages.Done("boot")), 2)


def test_a_decoder_of_an_earlier_release_that_reserves_nothing_is_not_waited_for() -> None:
    router = LMCachePD("10.0.0.7:7500", Receiver((7300,), (7400,)))
    reason = "message not understood: Invalid value 'Reserve'"
    refused = {"type": "Refused", "boot_id": "boot", "reason": reason, "retry": False}
    assert router.read_reserved(msgspec.msgpack.encode(refused), 2) == 2


def test_the_stub_of_the_routers_tests_answers_as_the_decoder_does() -> None:
    assert messages.encode(messages.Done(BOOT_ID)) == Answers.released()
    assert messages.encode(messages.Reserved(BOOT_ID, 3)) == Answers.reserved(3)
    assert messages.encode(messages.Refused(BOOT_ID, "x", "fail")) == Answers.refused("x")


@pytest.mark.parametrize(
    "message",
    [
        messages.Allocate("t", {"model": "m"}, ["a", "b"], 5, [2, 1, 256, 8], 17, "float", 1),
        messages.Landed("boot", 3),
        messages.Allocate("t", {}, ["a"], 1, [], 17, "float", 1, again=True, boot_id="boot"),
        messages.Abandon("t"),
        messages.Abandon("10.0.0.1:7500/b-u.2"),
        messages.Abandon("t", unwritten=True),
    ],
)
def test_what_a_prefiller_says_reaches_the_decoder_whole(message: messages.ToDecoder) -> None:
    assert messages.decode_to_decoder(messages.encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        messages.Allocated("boot", 3, [0], [7, 9]),
        messages.Refused("boot", "full", "ask_again"),
        messages.Reserved("boot", 3),
        messages.Done("boot"),
    ],
)
def test_what_a_decoder_answers_reaches_the_prefiller_whole(
    message: messages.FromDecoder,
) -> None:
    assert messages.decode_from_decoder(messages.encode(message)) == message


@pytest.mark.parametrize(
    ("transfer", "address"),
    [(TRANSFER, "10.0.0.7:7500"), ("127.3.0.4:7500/u", "127.3.0.4:7500")],
)
def test_a_transfer_id_names_its_router(transfer: str, address: str) -> None:
    assert messages.router_address(transfer) == address


@pytest.mark.parametrize("transfer", ["", "u", "/u", "h:1/", "h/u", "h:/u", ":1/u", "h:port/u"])
def test_an_id_that_names_no_router_is_told(transfer: str) -> None:
    with pytest.raises(ValueError) as told:
        messages.router_address(transfer)
    assert str(told.value) == f"transfer id {transfer!r} is not of the form host:port/unique"


@pytest.mark.parametrize("attempt", [1, 2, 13])
def test_both_ends_read_an_attempt_from_its_id(attempt: int) -> None:
    router = LMCachePD("10.0.0.7:7500", Receiver((7300,), (7400,)))
    transfer = router.new_transfer_id()
    of_attempt = router.attempt_id(transfer, attempt)
    assert messages.attempt_of(of_attempt) == Notice(of_attempt).of == (transfer, attempt)
    assert messages.router_address(of_attempt) == "10.0.0.7:7500"


def test_a_transfer_id_names_the_start_of_its_router() -> None:
    one, other = (LMCachePD("[fd00::7]:7500", Receiver((7300,), (7400,))) for _ in range(2))
    ids = [one.new_transfer_id(), one.new_transfer_id(), other.new_transfer_id()]
    starts = [messages.router_start(each) for each in ids]
    assert {address for address, _ in starts} == {"[fd00::7]:7500"}
    assert starts[0] == starts[1] != starts[2] and all(start for _, start in starts)
    assert messages.router_start("10.0.0.7:7500/unique") == ("10.0.0.7:7500", "")


def facts(**changed: Any) -> dict[str, str]:
    usual: dict[str, Any] = {
        "model": "m",
        "kv_shape": (2, 2, 256, 4, 64),
        "kv_dtype": "torch.float32",
        "ranks": 1,
        "chunk_size": 256,
        "revision": "0123456789ab",
        "vllm_version": "0.19.0",
        "lmcache_version": "0.4.3",
    }
    return fingerprint(**usual | changed)


def test_engines_with_the_same_facts_agree() -> None:
    assert difference(facts(), facts()) == ""


def test_engines_that_differ_are_told_every_fact_with_both_values() -> None:
    assert difference(facts(ranks=2), facts(kv_shape=(2, 2, 256, 8, 64))) == (
        "kv_shape is 2x2x256x4x64 on the prefiller and 2x2x256x8x64 on the decoder, "
        "ranks is 2 on the prefiller and 1 on the decoder"
    )


def test_engines_of_two_revisions_do_not_agree() -> None:
    assert difference(facts(), facts(revision="ba9876543210")) == (
        "revision is 0123456789ab on the prefiller and ba9876543210 on the decoder"
    )


def test_a_fact_that_one_engine_does_not_know_is_a_difference() -> None:
    older = {name: value for name, value in facts().items() if name != "lmcache"}
    assert difference(older, facts()) == (
        "lmcache is not given on the prefiller and 0.4.3 on the decoder"
    )
