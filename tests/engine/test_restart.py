"""An engine that comes back at its address is used again without hands; no text is wrong."""

from __future__ import annotations

import time

import pytest
from tests.engine.conftest import Engines, completion, token_ids

from dpd_local.client import AnswerError

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", ["decode-0", "prefill-0"])
def test_a_killed_engine_comes_back_at_its_address(engines: Engines, name: str) -> None:
    bodies = [completion(token_ids(600, seed=7000 + i)) for i in range(20)]
    expected = [engines.colocated(body).token_ids for body in bodies]
    pod = engines.cluster.pod(name)
    pod.kill()
    # Meanwhile a request gets an answer: an error, or the right tokens from another engine.
    started = time.monotonic()
    try:
        assert engines.routed(bodies[0]).token_ids == expected[0]
    except AnswerError:
        assert time.monotonic() - started < 60
    pod.start()
    pod.wait_ready(timeout=200)
    ready = time.monotonic()
    while True:  # the router probes engines every few seconds
        try:
            engines.routed(bodies[0])
            break
        except AnswerError:
            assert time.monotonic() - ready < 30
            time.sleep(0.5)
    routed = [engines.routed(body) for body in bodies]
    assert [answer.token_ids for answer in routed] == expected
    assert {answer.headers["x-dpd-path"] for answer in routed} == {"disaggregated"}
