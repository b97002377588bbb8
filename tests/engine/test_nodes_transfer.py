"""A transfer to a decoder over several nodes: each rank is found on its own host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from tests.engine.ends import (
    FINGERPRINT,
    Stage,
    addresses,
    free_port,
    notice_of,
    send,
    until,
)

from dpd_vllm import messages
from dpd_vllm.sender import Receivers, Sender

HOSTS = ("127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3")


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    yield made
    made.close()


def transfer(
    stage: Stage, sender: Sender, to: Receivers, name: str, keys: str
) -> dict[str, object]:
    """Send chunks and return the notice of how it ended."""
    transfer_id = stage.router.transfer(name)
    send(sender, transfer_id, to, keys)
    sender.finish(transfer_id, len(keys))
    return stage.router.notice()


def ended(stage: Stage, name: str, rank: int, error: str = "") -> dict[str, object]:
    return notice_of(stage.router.transfer(name), error, rank=rank, ranks=4)


def test_each_rank_sends_to_the_host_of_its_peer(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    for rank, decoder in enumerate(ranks):
        keys = "abcd"[rank]
        sender = stage.sender(rank=rank, ranks=4)
        assert transfer(stage, sender, addresses(ranks), "t", keys) == ended(stage, "t", rank)
        assert decoder.holds("abcd") == [k.upper() if k == keys else None for k in "abcd"]


def test_the_first_rank_is_asked_once_a_start_of_the_decoder(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4)
    to = addresses(ranks)
    assert transfer(stage, sender, to, "one", "a") == ended(stage, "one", 2)
    ranks[0].receiver.close()  # nobody is left to ask
    assert transfer(stage, sender, to, "two", "b") == ended(stage, "two", 2)
    assert ranks[2].holds("ab") == ["A", "B"]


def test_a_restarted_decoder_is_asked_anew_and_its_rank_found_on_another_host(
    stage: Stage,
) -> None:
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4)
    to = addresses(ranks)
    assert transfer(stage, sender, to, "one", "a") == ended(stage, "one", 2)
    again = stage.ranks_restarted(ranks, "127.0.0.2", "127.0.0.2", "127.0.0.4", "127.0.0.4")
    assert transfer(stage, sender, to, "two", "a") == ended(stage, "two", 2)
    assert again[2].holds("a") == ["A"]


def test_a_decoder_restarted_on_its_hosts_gets_what_is_sent_next(stage: Stage) -> None:
    """The new rank answers at the old one's place, before anybody asked the first rank anew."""
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4)
    to = addresses(ranks)
    assert transfer(stage, sender, to, "one", "a") == ended(stage, "one", 2)
    again = stage.ranks_restarted(ranks)
    assert transfer(stage, sender, to, "two", "b") == ended(stage, "two", 2)
    assert again[2].holds("b") == ["B"]
    assert again[2].buffer.usage().expected == 0


def test_kv_does_not_go_to_another_decoder_that_got_the_old_host(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4)
    to = addresses(ranks)
    assert transfer(stage, sender, to, "one", "a") == ended(stage, "one", 2)
    again = stage.ranks_restarted(ranks, "127.0.0.2", "127.0.0.2", "127.0.0.4", "127.0.0.4")
    stranger = stage.decoder(port=ranks[2].port, host="127.0.0.3")
    assert transfer(stage, sender, to, "two", "b") == ended(stage, "two", 2)
    assert again[2].holds("b") == ["B"]
    assert stranger.holds("b") == [None]
    assert stranger.buffer.usage().free == 8


def test_a_rank_that_is_not_the_one_of_this_decoder_fails_the_transfer(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4)
    stage.restarted(ranks[2])  # alone, which an engine's rank never does
    error = "127.0.0.2, rank 2 at 127.0.0.3: rank 2 is not the one that the first rank knows"
    assert transfer(stage, sender, addresses(ranks), "t", "a") == ended(stage, "t", 2, error)


def test_a_first_rank_that_is_gone_fails_the_transfer_and_names_its_host(stage: Stage) -> None:
    ports = [free_port() for _ in HOSTS]
    to = Receivers(HOSTS[0], [port + 1 for port in ports], ports)
    notice = transfer(stage, stage.sender(rank=2, ranks=4), to, "t", "a")
    assert str(notice["error"]).startswith("127.0.0.2: no answer in 0.3 s (")


def test_a_rank_that_is_gone_fails_the_transfer_and_names_both_hosts(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    ranks[3].receiver.close()
    notice = transfer(stage, stage.sender(rank=3, ranks=4), addresses(ranks), "t", "a")
    assert str(notice["error"]).startswith("127.0.0.2, rank 3 at 127.0.0.3: no answer in 0.3 s (")


def test_a_decoder_of_fewer_ranks_fails_the_transfer(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS[:3])
    to = addresses(ranks)
    to = Receivers(to.host, [*to.init_ports, 7000], [*to.alloc_ports, 7001])
    error = "127.0.0.2: the decoder has 3 rank(s), none for 3"
    notice = transfer(stage, stage.sender(rank=3, ranks=4), to, "t", "a")
    assert notice == ended(stage, "t", 3, error)


def test_the_first_rank_tells_the_others_what_is_released(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    for name in ("one", "two"):
        for rank in range(4):
            sender = stage.sender(rank=rank, ranks=4)
            assert transfer(stage, sender, addresses(ranks), name, name)["error"] == ""
    assert [rank.buffer.usage().wanted for rank in ranks] == [5] * 4  # "one" and "two" share "o"
    stage.release(ranks[0], stage.router.transfer("one"))
    until(lambda: all(rank.buffer.usage().wanted == 3 for rank in ranks))
    stage.release(ranks[0], stage.router.transfer("two"))
    until(lambda: all(rank.buffer.usage().wanted == 0 for rank in ranks))


def test_releases_go_on_while_a_rank_is_gone(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    ranks[1].receiver.close()
    for number in range(3000):  # more than ZeroMQ keeps for a peer
        assert stage.release(ranks[0], f"r/{number}")["type"] == "Done"
    sender = stage.sender(rank=3, ranks=4)
    assert transfer(stage, sender, addresses(ranks), "t", "a")["error"] == ""
    stage.release(ranks[0], stage.router.transfer("t"))
    until(lambda: ranks[3].buffer.usage().wanted == 0)


def test_a_decoder_that_does_not_know_the_question_says_so(stage: Stage) -> None:
    """The two engines may have different versions of this plugin."""
    port = free_port()
    socket: zmq.Socket[bytes] = stage.context.socket(zmq.REP)
    socket.bind(f"tcp://127.0.0.2:{port}")
    sender = stage.sender(rank=1, ranks=4)
    transfer_id = stage.router.transfer("t")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        to = Receivers("127.0.0.2", [7000, 7001], [port, port])
        done = pool.submit(send, sender, transfer_id, to, "a")
        asked = messages.decode_to_decoder(socket.recv())
        assert asked == messages.Where()
        refused = messages.Refused("boot", "message not understood: Where", "fail")
        socket.send(messages.encode(refused))
        done.result(5)
    socket.close(0)
    sender.finish(transfer_id, 1)
    error = "127.0.0.2: message not understood: Where"
    assert stage.router.notice() == ended(stage, "t", 1, error)


def test_ranks_of_one_engine_still_compare_what_they_agree_on(stage: Stage) -> None:
    ranks = stage.ranks(*HOSTS)
    sender = stage.sender(rank=2, ranks=4, chunk_size="512")
    error = (
        "127.0.0.2, rank 2 at 127.0.0.3: chunk_size is 512 on the prefiller and "
        f"{FINGERPRINT['chunk_size']} on the decoder"
    )
    assert transfer(stage, sender, addresses(ranks), "t", "a") == ended(stage, "t", 2, error)
