"""An engine that comes back at its address is used again without hands; no text is wrong."""

from __future__ import annotations

import time
import urllib.request
from typing import Any

import pytest
import zmq
from tests.engine.conftest import Engines, Notices, completion, token_ids

from dpd_local import metrics
from dpd_local.client import AnswerError
from dpd_router.probing import revision_in

pytestmark = pytest.mark.slow

NEWER = "ba9876543210"


def bodies(seed: int) -> list[dict[str, Any]]:
    return [completion(token_ids(600, seed=seed + i)) for i in range(20)]


def wait_until_used(engines: Engines) -> None:
    """Until the router, which probes engines every few seconds, sends what is long to a pair."""
    give_up_at = time.monotonic() + 30
    while True:
        try:
            headers = engines.routed(completion(token_ids(600, seed=1))).headers
            if headers["x-dpd-path"] == "disaggregated":
                return
            why = headers["x-dpd-reason"]
        except AnswerError as error:
            why = str(error)
        assert time.monotonic() < give_up_at, why
        time.sleep(0.5)


def assert_right(engines: Engines, seed: int) -> None:
    routed, alone = engines.both_of_each(bodies(seed), at_once=1)
    assert {answer.headers["x-dpd-path"] for answer in routed} == {"disaggregated"}
    assert [answer.token_ids for answer in routed] == [answer.token_ids for answer in alone]


def test_a_killed_decoder_comes_back_at_its_address(engines: Engines) -> None:
    pod = engines.cluster.pod("decode-0")
    pod.kill()
    # Meanwhile a request gets an answer, and soon: there is no other decoder, so it is an error.
    started = time.monotonic()
    with pytest.raises(AnswerError):
        engines.routed(bodies(7000)[0])
    assert time.monotonic() - started < 60
    pod.start()
    pod.wait_ready(timeout=200)
    wait_until_used(engines)
    assert_right(engines, seed=7000)


@pytest.fixture(scope="module")
def upgrading(engines: Engines) -> Engines:
    """Prefillers that were killed and came back, one as it was and one of a newer revision."""
    first, second = (engines.cluster.pod(name) for name in ("prefill-0", "prefill-1"))
    first.kill()
    # Whatever the decoder heard on its handshake port before, it meets those that come back.
    with zmq.Context.instance().socket(zmq.REQ) as stranger:
        stranger.setsockopt(zmq.RCVTIMEO, 5000)
        stranger.connect(f"tcp://{engines.cluster.pod('decode-0').ip}:7300")
        stranger.send_multipart([b"no", b"handshake"])
        assert stranger.recv() == b""
    routed, alone = engines.both(bodies(7100)[0])
    assert routed.token_ids == alone.token_ids  # by the other one
    second.kill()
    for variable in first.pod.container["env"]:
        if variable["name"] == "DPD_REVISION":
            variable["value"] = NEWER
    for pod in (first, second):
        pod.start()
    for pod in (first, second):
        pod.wait_ready(timeout=200)
    return engines


def revision_of(engines: Engines, pod: str) -> str:
    with urllib.request.urlopen(f"{engines.cluster.url(pod)}/metrics") as page:
        return revision_in(page.read().decode())


def test_an_engine_tells_its_revision_before_any_request(upgrading: Engines) -> None:
    (charts,) = (
        variable["value"]
        for variable in upgrading.cluster.pod("prefill-1").pod.container["env"]
        if variable["name"] == "DPD_REVISION"
    )
    assert revision_of(upgrading, "prefill-0") == NEWER != charts
    assert revision_of(upgrading, "prefill-1") == revision_of(upgrading, "decode-0") == charts
    for pod in ("prefill-0", "prefill-1", "decode-0"):
        role = pod.partition("-")[0]
        assert metrics.value(upgrading.cluster.url(pod), "dpd:engine_info", role=role) == 1


def test_the_decoder_refuses_what_a_prefiller_of_another_revision_sends(
    upgrading: Engines, notices: Notices
) -> None:
    transfer = notices.transfer_id()
    upgrading.prefill("prefill-0", token_ids(700, seed=2), transfer)
    notice = notices.wait(transfer, seconds=30)
    assert notice is not None
    assert f"revision is {NEWER} on the prefiller and " in notice.error


def test_the_router_pairs_the_decoder_with_the_prefiller_of_its_own(upgrading: Engines) -> None:
    wait_until_used(upgrading)
    assert_right(upgrading, seed=7200)


def test_without_one_of_its_own_the_decoder_computes_prompts_and_the_router_says_so(
    upgrading: Engines,
) -> None:
    upgrading.cluster.pod("prefill-1").kill()
    labels = {"path": "direct", "reason": "no_matching_prefiller"}
    url = upgrading.cluster.url("router")
    give_up_at = time.monotonic() + 30
    while True:  # until the router knows that it is gone, its requests may fail
        try:
            answer, alone = upgrading.both(bodies(7300)[0])
            if answer.headers["x-dpd-path"] == "direct":
                break
        except AnswerError:
            pass
        assert time.monotonic() < give_up_at
        time.sleep(0.5)
    assert answer.headers["x-dpd-reason"] == "no prefiller of the decoder's revision"
    assert answer.token_ids == alone.token_ids
    assert metrics.value(url, "dpd_router_requests_total", **labels) >= 1
