"""Decode never starts before the KV has landed, and nothing of the receive buffer is lost."""

from __future__ import annotations

import http.client
import json
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.engine.conftest import (
    PAGES,
    PULL_TIMEOUT,
    Engines,
    completion,
    post,
    together,
    token_ids,
)
from tests.engine.ends import until

from dpd_local import metrics
from dpd_local.client import Answer

pytestmark = pytest.mark.slow

# In which a decoder hears of clients that left: much less than PULL_TIMEOUT, which hides that.
LEFT_SECONDS = 5


def settle(engines: Engines, within: float = 0) -> dict[str, float]:
    """Return the pages' use once no transfer holds any, or as it is after `within` seconds.

    Landed pages stay cached, and visible, until room is needed.
    """
    give_up_at = time.monotonic() + within
    while True:
        pages = engines.pages()
        if pages["expected"] == pages["wanted"] == 0 or time.monotonic() > give_up_at:
            return pages
        time.sleep(1)


def held(pages: dict[str, float]) -> float:
    assert sum(pages[state] for state in ("free", "expected", "wanted", "cached")) == PAGES
    return pages["expected"] + pages["wanted"]


@pytest.fixture
def settled(engines: Engines) -> None:
    """Wait until nothing is held for an earlier test: this one counts pages."""
    assert held(settle(engines, within=PULL_TIMEOUT + 10)) == 0


@pytest.mark.usefixtures("settled")
def test_code_words_at_the_end_of_long_prompts_arrive(engines: Engines) -> None:
    """Fifty prompts that differ in their last tokens alone, eight at once."""
    start = token_ids(1000, seed=1)
    bodies = [completion(start + token_ids(12, seed=2000 + i)) for i in range(50)]
    routed, alone = engines.both_of_each(bodies, at_once=8)
    assert {answer.headers["x-dpd-path"] for answer in routed} == {"disaggregated"}
    assert [answer.token_ids for answer in routed] == [answer.token_ids for answer in alone]
    assert held(settle(engines)) == 0


def test_a_slow_transfer_is_waited_for(engines: Engines) -> None:
    body = completion(token_ids(1300, seed=11))
    with (
        engines.fault("prefill-0", "write-delay-seconds", "1.5"),
        engines.fault("prefill-1", "write-delay-seconds", "1.5"),
    ):
        routed = engines.routed(body)
    assert routed.total_seconds > 1.5
    assert routed.token_ids == engines.colocated(body).token_ids


@pytest.mark.usefixtures("settled")
def test_a_slow_writer_does_not_spoil_another_prefillers_request(
    engines: Engines, notices: Any
) -> None:
    """Two prefillers write the same first chunks to one decoder; the first to start is slow."""
    shared = token_ids(1024, seed=21)
    slow_prompt = shared + token_ids(200, seed=22)
    fast_prompt = shared + token_ids(200, seed=23)
    slow, fast = notices.transfer_id(), notices.transfer_id()
    with engines.fault("prefill-1", "write-delay-seconds", "4"):
        writer = threading.Thread(
            target=engines.prefill, args=("prefill-1", slow_prompt, slow), daemon=True
        )
        writer.start()
        time.sleep(1.5)  # its pages are allocated, its write has not begun
        assert engines.pages()["expected"] > 0
        assert engines.prefill("prefill-0", fast_prompt, fast)["status"] == 200
        assert notices.wait(fast, seconds=2) is not None
        assert notices.wait(slow, seconds=0) is None
        fast_answer = engines.decoded(completion(fast_prompt))
        writer.join()
    notice = notices.wait(slow, seconds=5)
    assert notice is not None and not notice.error
    slow_answer = engines.decoded(completion(slow_prompt))
    assert fast_answer.token_ids == engines.colocated(completion(fast_prompt)).token_ids
    assert slow_answer.token_ids == engines.colocated(completion(slow_prompt)).token_ids
    assert held(settle(engines)) == 0


@pytest.mark.usefixtures("settled")
def test_decode_before_landing_computes_the_prompt_itself(engines: Engines, notices: Any) -> None:
    """Even a router that does not wait can't make the decoder read what has not landed."""
    prompt = token_ids(700, seed=31)
    transfer = notices.transfer_id()
    with engines.fault("prefill-0", "write-delay-seconds", "3"):
        writer = threading.Thread(
            target=engines.prefill, args=("prefill-0", prompt, transfer), daemon=True
        )
        writer.start()
        time.sleep(1)
        before = engines.external_tokens()
        early = engines.decoded(completion(prompt))
        assert engines.external_tokens() == before
        writer.join()
    assert early.token_ids == engines.colocated(completion(prompt)).token_ids
    assert engines.decoded(completion(prompt)).token_ids == early.token_ids  # from its KV now
    assert engines.external_tokens() == before + len(prompt) - 1
    assert held(settle(engines)) == 0


@pytest.mark.usefixtures("settled")
def test_more_requests_than_the_buffer_has_pages(engines: Engines) -> None:
    """Two pages each, one a partial chunk: stock LMCache stops at request 63 of 64 pages."""
    bodies = [completion(token_ids(300, seed=4000 + i), max_tokens=4) for i in range(2 * PAGES)]
    routed = together(engines.routed, bodies, at_once=4)
    assert {answer.headers["x-dpd-path"] for answer in routed} == {"disaggregated"}
    sample = range(0, 2 * PAGES, 32)
    assert [routed[i].token_ids for i in sample] == [
        engines.colocated(bodies[i]).token_ids for i in sample
    ]
    assert held(settle(engines)) == 0


@pytest.mark.usefixtures("settled")
def test_more_at_once_than_the_buffer_holds(engines: Engines) -> None:
    """Eight prompts of 17 pages need more than the buffer: the excess waits, and all are right."""
    bodies = [completion(token_ids(4300, seed=60 + i), max_tokens=4) for i in range(8)]
    routed, alone = engines.both_of_each(bodies, at_once=8)
    assert [a.token_ids for a in routed] == [a.token_ids for a in alone]
    assert held(settle(engines)) == 0


@pytest.mark.usefixtures("settled")
def test_prompts_that_fit_one_by_one_but_not_together_are_answered_in_one_request(
    engines: Engines,
) -> None:
    """Of nine prompts of 15 pages eight fit, and the decoder computes the other.

    Meanwhile one more waits for room, and no prefiller waits with it.
    """
    prompts = [token_ids(3600, seed=500 + i) for i in range(9)]
    together_body = completion(prompts, max_tokens=4)
    others = [completion(token_ids(n, seed=510 + n), max_tokens=4) for n in (3600, 600)]
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(engines.routed, together_body)
        time.sleep(2)
        routed_others = together(engines.routed, others, at_once=2)
        routed = asked.result()
    assert routed.headers["x-dpd-path"] == "disaggregated"
    reason = routed.headers["x-dpd-reason"]
    assert reason.endswith("; no room in the receive buffer for 1 of 9 prompts")
    assert routed.token_ids == engines.colocated(together_body).token_ids
    for answer, body in zip(routed_others, others, strict=True):
        assert answer.headers["x-dpd-path"] == "disaggregated"
        assert answer.token_ids == engines.colocated(body).token_ids
    assert held(settle(engines, within=LEFT_SECONDS)) == 0


def opened(engines: Engines, body: dict[str, Any]) -> http.client.HTTPConnection:
    """Send a request to the router; return the connection, whose answer is not read."""
    connection = http.client.HTTPConnection(engines.cluster.pod("router").ip, 8000)
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"}
    )
    return connection


def leave(engines: Engines, body: dict[str, Any], after: float) -> None:
    """Send a request and close the connection `after` seconds later."""
    connection = opened(engines, body)
    time.sleep(after)
    connection.close()


def test_a_client_that_leaves_during_the_prefill_takes_no_engine_down(engines: Engines) -> None:
    with (
        engines.fault("prefill-0", "write-delay-seconds", "2"),
        engines.fault("prefill-1", "write-delay-seconds", "2"),
    ):
        for seed in range(4):
            leave(engines, completion(token_ids(3000, seed=8000 + seed)), after=0.3)
    body = completion(token_ids(500, seed=8010))
    assert engines.routed(body).token_ids == engines.colocated(body).token_ids


@pytest.mark.usefixtures("settled")
def test_clients_that_leave_at_any_stage_take_no_room(engines: Engines) -> None:
    """Their KV would fill the buffer twice: it is asked for, written, landed, read or decoded."""
    bodies = [completion(token_ids(1000, seed=8100 + i), stream=True) for i in range(PAGES // 2)]
    moments = random.Random(1)
    waits = [moments.uniform(0, 1.5) for _ in bodies]
    together(lambda i: leave(engines, bodies[i], waits[i]), range(len(bodies)), at_once=8)
    assert held(settle(engines, within=LEFT_SECONDS)) == 0
    large = completion(token_ids(8000, seed=8200), max_tokens=4)
    assert engines.routed(large).token_ids == engines.colocated(large).token_ids


@pytest.mark.usefixtures("settled")
def test_a_decoder_that_stood_still_hears_afterwards_which_clients_left(engines: Engines) -> None:
    url, decoder = engines.cluster.url("router"), engines.cluster.pod("decode-0")

    def router(name: str, **labels: str) -> float:
        return metrics.value(url, f"dpd_router_{name}", **labels)

    bodies = [
        completion(token_ids(600, seed=8300 + i), stream=True, max_tokens=2000) for i in range(24)
    ]
    streams = [opened(engines, body) for body in bodies]
    until(lambda: router("in_flight", role="decode") == len(streams), seconds=60, pause=0.2)
    decoder.signal(signal.SIGSTOP)
    try:
        for stream in streams:
            stream.close()
        time.sleep(7)  # the router waits 5 s for an answer
    finally:
        decoder.signal(signal.SIGCONT)
    assert held(settle(engines, within=3 * LEFT_SECONDS)) == 0
    until(lambda: router("engines", role="decode", state="answers") == 1, seconds=60, pause=0.2)
    body = completion(token_ids(600, seed=8400))
    assert engines.routed(body).token_ids == engines.colocated(body).token_ids


def test_prefixes_shared_by_many_requests_leave_nothing_behind(engines: Engines) -> None:
    start = token_ids(512, seed=71)
    bodies = [completion(start + token_ids(64, seed=i), max_tokens=2) for i in range(100)]

    def ask_or_leave(number: int) -> Answer | None:
        if number % 5:
            return engines.routed(bodies[number])
        leave(engines, bodies[number], after=0.05)
        return None

    together(ask_or_leave, list(range(100)), at_once=6)
    answer = engines.routed(bodies[1])
    assert answer.token_ids == engines.colocated(bodies[1]).token_ids
    assert held(settle(engines, within=LEFT_SECONDS)) == 0


def test_a_receiver_that_is_not_there_fails_the_transfer_not_the_engine(
    engines: Engines, notices: Any
) -> None:
    transfer = notices.transfer_id()
    receiver = {
        "req_id": transfer,
        "receiver_host": "127.0.0.1",
        "receiver_init_port": [1],
        "receiver_alloc_port": [1],
    }
    body = completion(token_ids(300, seed=81), max_tokens=1)
    body["kv_transfer_params"] = {"disagg_spec": receiver}
    answer = post(engines.cluster.url("prefill-0") + "/v1/completions", body)
    assert answer["status"] == 200  # the prompt was computed; the transfer is what failed
    notice = notices.wait(transfer, seconds=1)
    assert notice is not None
    assert "no answer" in notice.error


def test_a_prefiller_survives_requests_without_a_receiver(engines: Engines) -> None:
    url = engines.cluster.url("prefill-0")
    for length in (5, 700):
        answer = post(url + "/v1/completions", completion(token_ids(length, seed=length)))
        assert answer["status"] == 200
    body = completion(token_ids(600, seed=91))
    assert engines.routed(body).token_ids == engines.colocated(body).token_ids


def test_transfer_parameters_of_a_client_reach_no_engine(engines: Engines) -> None:
    spec = {
        "req_id": "127.0.0.1:1/x",
        "receiver_host": "169.254.169.254",
        "receiver_init_port": [7300],
        "receiver_alloc_port": [7400],
    }
    for length in (30, 600):
        body = completion(token_ids(length, seed=95), kv_transfer_params={"disagg_spec": spec})
        answer = engines.routed(body)
        del body["kv_transfer_params"]
        assert answer.token_ids == engines.colocated(body).token_ids
    for name in ("prefill-0", "prefill-1", "decode-0"):
        assert "169.254.169.254" not in engines.cluster.pod(name).log_text()
