"""A transfer from a prefiller to a decoder, over real sockets: its order, and how it fails."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import zmq
from tests.engine.ends import (
    CHUNK,
    FINGERPRINT,
    HOST,
    Stage,
    addresses,
    free_port,
    notice_of,
    send,
    until,
)

from dpd_vllm import messages
from dpd_vllm.sender import DecoderLost, Receivers, TransferError


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def test_pages_are_granted_then_written_then_landed_then_noticed(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    send(sender, transfer, decoder.address, "abc", tokens=17)
    sender.finish(transfer, 3)
    assert stage.router.notice() == notice_of(transfer)
    assert list(stage.events) == ["granted abc", "handshake", "written abc", "landed", "notice"]
    assert decoder.holds("abc") == ["A", "B", "C"]


def test_a_prompt_in_several_steps_is_noticed_once_after_its_last(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    send(sender, transfer, decoder.address, "ab", total=5)
    send(sender, transfer, decoder.address, "cd", total=5)
    assert stage.router.silent()
    assert decoder.holds("abcde") == ["A", "B", "C", "D", None]
    send(sender, transfer, decoder.address, "e", total=5, tokens=3)
    sender.finish(transfer, 5)
    assert stage.router.notice() == notice_of(transfer)
    assert stage.router.silent()
    assert list(stage.events).count("handshake") == 1


def test_nothing_is_visible_and_nobody_is_told_while_a_write_is_slow(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    go_on, writing = threading.Event(), threading.Event()

    def slow() -> None:
        writing.set()
        assert go_on.wait(5)

    stage.wire.before_write = slow

    def work() -> None:
        send(sender, transfer, decoder.address, "ab")
        sender.finish(transfer, 2)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(work)
        assert writing.wait(5)
        assert stage.router.silent(200)
        assert decoder.holds("ab") == [None, None]
        go_on.set()
        done.result(5)
    assert stage.router.notice()["error"] == ""
    assert decoder.holds("ab") == ["A", "B"]


def test_a_second_prefiller_is_not_told_that_bytes_in_flight_are_there(stage: Stage) -> None:
    decoder, slow, quick = stage.decoder(), stage.sender(), stage.sender()
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    held = threading.Event()
    first = threading.Lock()

    def slow_first() -> None:
        if first.acquire(blocking=False):
            assert held.wait(5)

    stage.wire.before_write = slow_first
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(send, slow, one, decoder.address, "abc")
        until(lambda: first.locked())
        send(quick, two, decoder.address, "abx")
        quick.finish(two, 3)
        assert stage.router.notice() == notice_of(two)
        assert decoder.holds("abxc") == ["A", "B", "X", None]
        held.set()
        done.result(5)
    slow.finish(one, 3)
    assert stage.router.notice() == notice_of(one)
    assert decoder.holds("abxc") == ["A", "B", "X", "C"]
    assert decoder.buffer.usage().free == 4  # of 8: the second copies of a and b went back


def test_chunks_that_landed_before_are_not_written_again(stage: Stage) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    for name, keys in (("one", "ab"), ("two", "abc"), ("three", "abc")):
        send(sender, stage.router.transfer(name), decoder.address, keys)
        sender.finish(stage.router.transfer(name), len(keys))
        assert stage.router.notice()["error"] == ""
    assert [event for event in stage.events if "written" in event] == ["written ab", "written c"]


def test_a_full_buffer_is_waited_for(stage: Stage) -> None:
    decoder, sender = stage.decoder(pages=2), stage.sender()
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    send(sender, one, decoder.address, "ab")

    def fetch() -> None:
        until(lambda: "denied xy" in stage.events)
        for key in "ab":
            assert decoder.buffer.fetched(key)

    with ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(fetch)
        send(sender, two, decoder.address, "xy")
        fetched.result(5)
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(two)
    assert decoder.holds("abxy") == [None, None, "X", "Y"]


def test_a_buffer_that_stays_full_fails_one_transfer_and_not_the_sender(stage: Stage) -> None:
    decoder, sender = stage.decoder(pages=2), stage.sender(allocation_timeout=0.1)
    one, two, three = (stage.router.transfer(name) for name in ("one", "two", "three"))
    send(sender, one, decoder.address, "ab")
    started = time.monotonic()
    send(sender, two, decoder.address, "xy")
    assert 0.1 <= time.monotonic() - started < 2
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(
        two,
        f"{HOST}: no room in the receive buffer for 0.1 s (2 pages needed, 0 of 2 free)",
    )
    stage.release(decoder, one)
    send(sender, three, decoder.address, "xy")
    sender.finish(three, 2)
    assert stage.router.notice() == notice_of(three)
    assert decoder.holds("xy") == ["X", "Y"]


def test_a_router_reserves_room_before_a_prefiller_asks(stage: Stage) -> None:
    decoder, sender = stage.decoder(pages=4), stage.sender(allocation_timeout=0.1)
    one, two, three = (stage.router.transfer(name) for name in ("one", "two", "three"))

    def reserved(*tokens: int) -> object:
        ids = [stage.router.transfer(f"new{i}") for i in range(len(tokens))]
        return stage.tell(decoder, messages.Reserve(ids, list(tokens)))["prompts"]

    answer = stage.tell(decoder, messages.Reserve([one, two], [3 * CHUNK + 1, CHUNK]))
    assert answer == {"type": "Reserved", "boot_id": decoder.receiver.boot_id, "prompts": 1}
    send(sender, three, decoder.address, "x")
    assert "no room" in str(stage.router.notice()["error"])
    assert reserved(1) == 0
    send(sender, one, decoder.address, "abcd")
    sender.finish(one, 4)
    assert stage.router.notice() == notice_of(one)
    stage.release(decoder, one)
    assert reserved(CHUNK, CHUNK + 1, 2 * CHUNK) == 2


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (messages.Reserve(["t"], [8 * CHUNK + 1]), "the prompt needs 9 chunks of KV"),
        (messages.Reserve(["t", "u"], [1]), "tokens must be one for each of transfer_ids"),
        (messages.Reserve([], []), "tokens must be one for each of transfer_ids"),
        (messages.Reserve(["t", "u"], [5, 0]), "a prompt has 0 tokens"),
    ],
)
def test_a_reservation_that_cannot_be_is_refused(
    stage: Stage, message: messages.Reserve, reason: str
) -> None:
    answer = stage.tell(stage.decoder(), message)
    assert (answer["type"], answer["then"]) == ("Refused", "fail")
    assert str(answer["reason"]).startswith(reason)


def test_a_router_that_came_back_frees_what_its_killed_process_had_under_way(stage: Stage) -> None:
    decoders = stage.ranks(HOST, HOST)
    sender = stage.sender(rank=1, ranks=2)
    killed, other, old = ("h:1/aa-1", "h:2/aa-1", "h:1/unique")
    for decoder in decoders:
        for name, key in ((killed, "a"), (other, "b"), (old, "c")):
            answer = decoder.buffer.allocate(name, 1, [key], [CHUNK], 1)
            assert decoder.buffer.landed(answer.ticket)
        assert decoder.buffer.usage().wanted == 3
    stage.tell(decoders[0], messages.Reserve(["h:1/bb-1"], [1]))
    for decoder in decoders:
        until(lambda decoder=decoder: decoder.buffer.usage().wanted == 2)  # type: ignore[misc]
    send(sender, killed, addresses(decoders), "d")  # by a prefiller that has not heard of it
    assert decoders[1].holds("abcd") == ["garbage", "garbage", "garbage", None]


def test_a_failed_handshake_leaves_no_pages_behind(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")

    def fail(peer: str, init_address: str, timeout: float) -> None:
        raise DecoderLost("no NIXL handshake")

    stage.wire.connect = fail  # type: ignore[method-assign]
    send(sender, transfer, decoder.address, "ab")
    assert "no NIXL handshake" in str(stage.router.notice()["error"])
    assert decoder.buffer.usage().free == 8


def test_a_decoder_that_stood_still_hears_afterwards_what_was_given_up(stage: Stage) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    with decoder.buffer._lock:  # it reads one message, and answers late
        send(sender, one, decoder.address, "abc")
        assert "no answer in 0.3 s" in str(stage.router.notice()["error"])
    until(lambda: list(stage.events).count("granted abc") > 0)
    send(sender, two, decoder.address, "xy")
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(two)
    until(lambda: decoder.buffer.usage().expected == 0)
    assert decoder.buffer.usage().free == 6


def test_a_failed_transfer_is_told_before_the_rest_of_its_prompt_is_computed(
    stage: Stage,
) -> None:
    decoder, transfer = stage.decoder(), stage.router.transfer("t")
    sender = stage.sender(hash_seed="2")
    send(sender, transfer, decoder.address, "ab", total=9)
    reason = f"{HOST}: hash_seed is 2 on the prefiller and 1 on the decoder"
    assert stage.router.notice() == notice_of(transfer, reason)
    sender.abandon(transfer)
    assert stage.router.silent()


def test_a_message_of_more_than_64_mib_ends_its_connection_and_nothing_else(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    socket: zmq.Socket[bytes] = stage.context.socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, 500)
    socket.connect(f"tcp://{HOST}:{decoder.port}")
    socket.send(bytes(64 * 1024**2 + 1))
    with pytest.raises(zmq.Again):
        socket.recv()
    socket.close(0)
    send(sender, transfer, decoder.address, "ab")
    sender.finish(transfer, 2)
    assert stage.router.notice() == notice_of(transfer)


def test_a_released_transfer_makes_room_at_once(stage: Stage) -> None:
    decoder, sender = stage.decoder(pages=2), stage.sender(allocation_timeout=0.1)
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    send(sender, one, decoder.address, "ab")
    assert decoder.buffer.usage().wanted == 2
    done = {"type": "Done", "boot_id": decoder.receiver.boot_id}
    assert stage.release(decoder, one, "unknown") == done
    send(sender, two, decoder.address, "xy")
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(two)
    assert decoder.holds("xy") == ["X", "Y"]


def test_a_prefiller_that_waits_for_room_stops_when_its_request_is_released(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    decoder, sender = stage.decoder(pages=2), stage.sender(allocation_timeout=30)
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    send(sender, one, decoder.address, "ab")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(send, sender, two, decoder.address, "xy")
        until(lambda: "denied xy" in stage.events)
        stage.release(decoder, two)
        waiting.result(5)
    sender.finish(two, 2)
    reason = f"{HOST}: the router has given this request up"
    assert stage.router.notice() == notice_of(two, reason)
    assert stage.router.silent()
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [
        ("INFO", f"KV transfer {two} ends: {reason}")
    ]


def test_a_write_under_way_when_its_request_is_released_leaves_nothing_wanted(
    stage: Stage,
) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")

    def leave() -> None:
        stage.release(decoder, transfer)

    stage.wire.before_write = leave
    send(sender, transfer, decoder.address, "ab", total=3)
    usage = decoder.buffer.usage()
    assert (usage.expected, usage.wanted, usage.cached) == (0, 0, 2)
    assert decoder.holds("ab") == ["A", "B"]


def test_a_prompt_taken_over_while_its_first_prefiller_writes_is_right(stage: Stage) -> None:
    decoder, transfer = stage.decoder(), stage.router.transfer("t")
    first, second = stage.sender(), stage.sender()

    def take_over() -> None:
        stage.wire.before_write = lambda: None
        send(second, f"{transfer}.2", decoder.address, "abc")

    stage.wire.before_write = take_over
    send(first, transfer, decoder.address, "ab", total=3)
    first.abandon(transfer)  # its request has left: that of the second is still wanted
    second.finish(f"{transfer}.2", 3)
    assert stage.router.notice() == notice_of(f"{transfer}.2")
    assert decoder.holds("abc") == ["A", "B", "C"]
    usage = decoder.buffer.usage()
    assert (usage.expected, usage.wanted) == (0, 3)


def test_a_prompt_sent_again_to_its_prefiller_has_pages_of_its_own(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    again = f"{transfer}.2"

    def fail() -> None:
        raise TransferError("the write was not done in 5 s")

    stage.wire.before_write = fail
    send(sender, transfer, decoder.address, "ab")
    assert stage.router.notice()["req_id"] == transfer
    assert decoder.buffer.usage().expected == 2  # the write may be under way
    stage.wire.before_write = lambda: None
    send(sender, again, decoder.address, "abc")
    sender.finish(again, 3)
    assert stage.router.notice() == notice_of(again)
    sender.abandon(again)
    stage.release(decoder, transfer)
    usage = decoder.buffer.usage()
    assert (usage.expected, usage.wanted, usage.cached) == (2, 0, 3)


def test_a_prompt_larger_than_the_buffer_fails_at_once(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(pages=4), stage.sender(), stage.router.transfer("t")
    started = time.monotonic()
    send(sender, transfer, decoder.address, "ab", total=6)
    assert time.monotonic() - started < 1
    send(sender, transfer, decoder.address, "cdef", total=6)
    sender.finish(transfer, 6)
    assert stage.router.notice() == notice_of(
        transfer,
        f"{HOST}: the prompt needs 6 chunks of KV, the receive buffer holds 4: raise "
        "kvTransfer.bufferSize or keep such prompts short",
    )
    assert list(stage.events) == ["denied ab", "notice"]
    assert decoder.buffer.usage().free == 4


def test_chunks_that_the_prefillers_own_buffer_had_no_room_for_fail_the_transfer(
    stage: Stage,
) -> None:
    decoder, sender, transfer = stage.decoder(), stage.sender(), stage.router.transfer("t")
    send(sender, transfer, decoder.address, "ab", total=3)
    sender.finish(transfer, 3)
    assert stage.router.notice() == notice_of(
        transfer,
        "LMCache gave only 2 of 3 chunks to send: its transfer buffer was full (raise "
        "kvTransfer.bufferSize), or its log says what failed",
    )
    assert decoder.buffer.usage().wanted == 0  # given up: no decode request will come


def test_engines_that_do_not_agree_are_told_in_what(stage: Stage) -> None:
    decoder, transfer = stage.decoder(), stage.router.transfer("t")
    sender = stage.sender(hash_seed="2", chunk_size="512")
    send(sender, transfer, decoder.address, "ab")
    sender.finish(transfer, 2)
    assert stage.router.notice() == notice_of(
        transfer,
        f"{HOST}: chunk_size is 512 on the prefiller and 256 on the decoder, "
        "hash_seed is 2 on the prefiller and 1 on the decoder",
    )
    assert decoder.buffer.usage().free == 8


def test_a_failed_write_is_noticed_and_the_next_transfer_shakes_hands_anew(stage: Stage) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    one, two = stage.router.transfer("one"), stage.router.transfer("two")

    def fail() -> None:
        raise TransferError("the write failed with state ERR")

    stage.wire.before_write = fail
    send(sender, one, decoder.address, "ab")
    sender.finish(one, 2)
    assert stage.router.notice() == notice_of(one, f"{HOST}: the write failed with state ERR")
    assert decoder.holds("ab") == [None, None]
    stage.wire.before_write = lambda: None
    send(sender, two, decoder.address, "ab")
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(two)
    assert list(stage.events).count("handshake") == 2


def test_a_decoder_restarted_on_its_address_gets_a_new_handshake(stage: Stage) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    one, two = stage.router.transfer("one"), stage.router.transfer("two")
    send(sender, one, decoder.address, "ab")
    again = stage.restarted(decoder)
    assert again.receiver.boot_id != decoder.receiver.boot_id
    send(sender, two, again.address, "ab")
    sender.finish(two, 2)
    assert stage.router.notice() == notice_of(two)
    assert again.holds("ab") == ["A", "B"]
    assert list(stage.events).count("handshake") == 2


def test_a_ticket_of_the_decoders_earlier_process_lands_nothing(stage: Stage) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    transfer = stage.router.transfer("t")

    def restart() -> None:
        again = stage.restarted(decoder)
        # Another prefiller's first ticket has the same number, and its write is under way.
        again.buffer.allocate("other", 1, ["a", "b"], [CHUNK, CHUNK], 2)

    stage.wire.before_write = restart
    send(sender, transfer, decoder.address, "ab")
    sender.finish(transfer, 2)
    assert "restarted" in stage.router.notice()["error"]
    assert "landed" not in stage.events


def test_a_decoder_that_is_gone_fails_the_transfer_in_the_time_of_two_answers(
    stage: Stage,
) -> None:
    sender, transfer = stage.sender(), stage.router.transfer("t")
    started = time.monotonic()
    send(sender, transfer, Receivers(HOST, [free_port()], [free_port()]), "ab")
    sender.finish(transfer, 2)
    assert 0.6 <= time.monotonic() - started < 2
    error = stage.router.notice()["error"]
    assert error.startswith(f"{HOST}: no answer in 0.3 s (")
    decoder, next_transfer = stage.decoder(), stage.router.transfer("next")
    send(sender, next_transfer, decoder.address, "ab")
    sender.finish(next_transfer, 2)
    assert stage.router.notice() == notice_of(next_transfer)


def test_an_aborted_request_gives_its_pages_up_and_sends_no_notice(stage: Stage) -> None:
    decoder, sender, transfer = stage.decoder(pages=4), stage.sender(), stage.router.transfer("t")
    send(sender, transfer, decoder.address, "ab", total=4)
    sender.abandon(transfer)
    sender.abandon("unknown")
    use = decoder.buffer.usage()
    assert (use.wanted, use.cached) == (0, 2)
    assert stage.router.silent()


def test_every_rank_sends_a_notice_of_its_own(stage: Stage) -> None:
    transfer = stage.router.transfer("t")
    decoders = stage.ranks(HOST, HOST)
    address = addresses(decoders)
    senders = [stage.sender(rank=rank, ranks=2) for rank in range(2)]
    for sender in senders:
        send(sender, transfer, address, "ab")
        sender.finish(transfer, 2)
    notices = [stage.router.notice() for _ in decoders]
    assert sorted(notices, key=lambda notice: notice["rank"]) == [
        notice_of(transfer, rank=0, ranks=2),
        notice_of(transfer, rank=1, ranks=2),
    ]
    assert [decoder.holds("ab") for decoder in decoders] == [["A", "B"], ["A", "B"]]


@pytest.mark.parametrize(
    ("init_ports", "alloc_ports", "reason"),
    [
        ([7300], [7400, 7401], "receiver_init_port has 1 port(s), rank 1 needs one of its own"),
        ([7300, 7301], [], "receiver_alloc_port has 0 port(s), rank 1 needs one of its own"),
    ],
)
def test_a_rank_without_a_port_fails_the_transfer_and_says_which_list_is_short(
    stage: Stage, init_ports: list[int], alloc_ports: list[int], reason: str
) -> None:
    sender, transfer = stage.sender(rank=1, ranks=2), stage.router.transfer("t")
    for keys in ("ab", "cd"):
        send(sender, transfer, Receivers(HOST, init_ports, alloc_ports), keys, total=4)
    sender.finish(transfer, 4)
    assert stage.router.notice() == notice_of(transfer, f"{HOST}: {reason}", rank=1, ranks=2)
    assert list(stage.events) == ["notice"]


def test_each_notice_goes_to_the_router_that_its_transfer_names(stage: Stage) -> None:
    other = Stage()
    try:
        decoder, sender = stage.decoder(), stage.sender()
        for router in (stage.router, other.router):
            send(sender, router.transfer("t"), decoder.address, "ab")
            sender.finish(router.transfer("t"), 2)
        assert other.router.notice() == notice_of(other.router.transfer("t"))
        assert stage.router.notice() == notice_of(stage.router.transfer("t"))
        assert other.router.silent() and stage.router.silent()
    finally:
        other.close()


@pytest.mark.parametrize("name", ["strange", "bad host:9/x"])
def test_a_transfer_id_that_names_no_router_harms_nothing(stage: Stage, name: str) -> None:
    decoder, sender = stage.decoder(), stage.sender()
    send(sender, name, decoder.address, "ab")
    sender.finish(name, 2)
    assert stage.router.silent()


ALLOCATE = messages.Allocate("t", FINGERPRINT, ["a"], 1, [2, 1, CHUNK, 8], CHUNK, "float", 1)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "not understood"),
        (b"\xc1\xff garbage", "not understood"),
        ([b"in two", b"frames"], "not understood"),
        (messages.encode({"type": "AllocRequest", "keys": ["a"]}), "not understood"),
        (messages.encode({"type": "Allocate", "transfer_id": 7}), "not understood"),
        (messages.encode(messages.Done("boot")), "not understood"),
        (messages.encode(messages.Landed("another process", 1)), "restarted"),
        (messages.encode(messages.Allocate("t", {}, ["a"], 1, [], 1, "", 1)), "not given"),
        (
            messages.encode(messages.Allocate("t", FINGERPRINT, ["a"], 1, [], CHUNK + 1, "", 1)),
            "the last chunk has 257 tokens, a chunk holds 1 to 256",
        ),
        (
            messages.encode(messages.Allocate("t", FINGERPRINT, ["a"], 1, [], 0, "", 1)),
            "the last chunk has 0 tokens, a chunk holds 1 to 256",
        ),
    ],
)
def test_a_strange_message_is_answered_and_the_next_good_one_served(
    stage: Stage, data: bytes | list[bytes], words: str
) -> None:
    decoder = stage.decoder()
    socket: zmq.Socket[bytes] = stage.context.socket(zmq.REQ)
    socket.setsockopt(zmq.RCVTIMEO, 5000)
    socket.connect(f"tcp://{HOST}:{decoder.port}")
    socket.send_multipart(data if isinstance(data, list) else [data])
    refused = messages.decode_from_decoder(socket.recv())
    assert isinstance(refused, messages.Refused)
    assert words in refused.reason
    assert refused.then == "fail"
    assert decoder.buffer.usage().free == 8
    socket.send(messages.encode(ALLOCATE))
    assert isinstance(messages.decode_from_decoder(socket.recv()), messages.Allocated)
    socket.close(0)


def test_a_receiver_frees_its_port_when_it_is_closed(stage: Stage) -> None:
    decoder = stage.decoder()
    with pytest.raises(zmq.ZMQError, match="in use"):
        stage.decoder(port=decoder.port)
    stage.restarted(decoder)
