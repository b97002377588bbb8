"""Every way a request ends, its decoder is told that nobody wants its KV any more."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from tests.router.conftest import HOST, Stage
from tests.router.stub_engine import StubEngine
from tests.router.test_disconnects import LONG, SHORT, leave, open_request


def transfers(stage: Stage) -> list[str]:
    """Return the ids that the prefillers were given."""
    return [
        str(seen.body["kv_transfer_params"]["disagg_spec"]["req_id"])
        for engine in stage.prefillers
        for seen in engine.seen
    ]


def behave(engine: StubEngine, how: dict[str, Any]) -> None:
    """Have an engine behave as the named fields of `Behaviour` say."""
    engine.does = replace(engine.does, **how)


async def all_released(stage: Stage, count: int) -> None:
    """Wait until just the transfers that were begun are released, each once."""
    receiver = stage.receivers[HOST]
    await stage.until(lambda: len(receiver.released) >= count, 2)
    assert sorted(receiver.released) == sorted(transfers(stage))
    assert len(set(receiver.released)) == count


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answered_request_is_released(stage: Stage, stream: bool) -> None:
    await stage.router()
    async with stage.post("/v1/completions", LONG | {"stream": stream}) as response:
        assert response.status == 200
        await response.read()
    await all_released(stage, 1)


async def test_each_long_prompt_of_a_request_is_released(stage: Stage) -> None:
    await stage.router()
    prompts = [[word] * 40 for word in range(1, 4)]
    async with stage.post("/v1/completions", LONG | {"prompt": [*prompts, [1]]}) as response:
        assert response.status == 200
    await all_released(stage, 3)


async def test_a_short_prompt_has_nothing_to_release(stage: Stage) -> None:
    router = await stage.router()
    async with stage.post("/v1/completions", SHORT) as response:
        assert response.status == 200
    await router.releases.close()
    assert stage.receivers[HOST].messages == 0


async def test_nothing_is_released_before_the_request_has_ended(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.pause = 0.3
    async with stage.post("/v1/completions", LONG | {"stream": True}) as response:
        await response.content.readany()
        await asyncio.sleep(0.1)
        assert stage.receivers[HOST].released == []
        await response.read()
    await all_released(stage, 1)


@pytest.mark.parametrize(
    ("engine", "how"),
    [
        ("prefill", {"delay": 60}),
        ("prefill", {"notify_delay": 60}),
        ("decode", {"delay": 60}),
        ("decode", {"pause": 60}),
    ],
    ids=["prefill", "landing", "before the first token", "in the stream"],
)
async def test_a_client_that_leaves_is_released(
    stage: Stage, engine: str, how: dict[str, Any]
) -> None:
    await stage.router()
    slow = stage.prefillers[0] if engine == "prefill" else stage.decoders[0]
    behave(slow, how)
    _, writer = await open_request(stage, LONG | {"stream": True})
    await stage.until(lambda: len(slow.seen) == 1)
    await asyncio.sleep(0.1)
    assert stage.receivers[HOST].released == []
    leave(writer, "close")
    await all_released(stage, 1)


@pytest.mark.parametrize(
    ("how", "status"),
    [({"notify_error": "no room"}, 503), ({"notify": False}, 504)],
    ids=["failed", "took too long"],
)
async def test_a_transfer_that_did_not_land_is_released(
    stage: Stage, how: dict[str, Any], status: int
) -> None:
    await stage.router(transferSeconds=0.3)
    behave(stage.prefillers[0], how)
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == status
    await all_released(stage, 1)


async def test_a_request_that_the_decoder_refuses_is_released(stage: Stage) -> None:
    await stage.router()

    async def refuse(request: Any, seen: Any) -> web.Response:
        return web.Response(status=400)

    stage.decoders[0].does.handle = refuse
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 400
    await all_released(stage, 1)


async def test_releases_that_wait_for_an_answer_go_out_together(stage: Stage) -> None:
    await stage.router()
    receiver = stage.receivers[HOST]
    receiver.answers = False
    for _ in range(20):
        async with stage.post("/v1/completions", LONG) as response:
            assert response.status == 200  # nobody waits for a decoder to hear it
    assert receiver.messages == 1
    receiver.answers = True
    await all_released(stage, 20)
    assert receiver.messages == 2


async def test_a_decoder_that_did_not_answer_is_told_once_it_does(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await stage.router(connectSeconds=0.2)
    receiver = stage.receivers[HOST]
    receiver.deaf = True
    with caplog.at_level(logging.WARNING, "dpd_router.releasing"):
        for _ in range(3):
            async with stage.post("/v1/completions", LONG) as response:
                assert response.status == 200
        await stage.until(lambda: any("not told" in line for line in caplog.messages))
        await asyncio.sleep(0.5)
    told = [r.getMessage() for r in caplog.records if r.name == "dpd_router.releasing"]
    assert len(told) == 1  # one line for an outage
    assert re.fullmatch(
        rf"decoder {HOST}:{stage.alloc_port} was not told yet of [1-3] ended transfers: no answer "
        r"in 0\.2 s; its kvTransfer\.pullTimeoutSeconds frees their KV otherwise",
        told[0],
    )
    assert receiver.released == []
    receiver.deaf = False
    await all_released(stage, 3)


async def test_a_decoder_that_never_answers_again_is_given_up(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpd_router.releasing.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("dpd_router.releasing.KEPT_SECONDS", 0.3)
    router = await stage.router(connectSeconds=0.05)
    stage.receivers[HOST].deaf = True
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 200
    assert router.releases._waiting
    await stage.until(lambda: not router.releases._waiting and not router.releases._sending)


async def test_a_stopping_router_tells_what_it_has_to(stage: Stage) -> None:
    router = await stage.router()
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 200
    await router.stop()
    await all_released(stage, 1)
