"""How many requests and prompt tokens are at engines now, by role: autoscalers go by it."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest
from tests.router.conftest import Stage

from dpd_router.app import Router

PATH = "/v1/completions"
EMPTY = {"prefill": (0, 0), "decode": (0, 0)}


def at_engines(router: Router) -> dict[str, tuple[float | None, float | None]]:
    """Requests and prompt tokens, by role."""
    value = router.metrics.registry.get_sample_value
    return {
        role: (
            value("dpd_router_in_flight", {"role": role}),
            value("dpd_router_in_flight_tokens", {"role": role}),
        )
        for role in ("prefill", "decode")
    }


async def status_of(stage: Stage, body: dict[str, Any], path: str = PATH) -> int:
    async with stage.post(path, body) as response:
        await response.read()
        return int(response.status)


async def test_the_series_are_there_before_any_request(stage: Stage) -> None:
    await stage.router()
    async with stage.client.get(stage.url + "/metrics") as response:
        text = await response.text()
    for role in EMPTY:
        assert f'dpd_router_in_flight{{role="{role}"}} 0.0' in text
        assert f'dpd_router_in_flight_tokens{{role="{role}"}} 0.0' in text


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_at_the_prefiller_and_then_at_the_decoder(
    stage: Stage, stream: bool
) -> None:
    router = await stage.router()
    (prefiller,), (decoder,) = stage.prefillers, stage.decoders
    prefiller.does.delay = 0.3
    if stream:
        decoder.does.pause = 0.2
    else:
        decoder.does.delay = 0.3
    asked = asyncio.ensure_future(
        status_of(stage, {"prompt": [[1] * 30, [2] * 5, [3] * 40], "stream": stream})
    )
    await stage.until(lambda: len(prefiller.seen) == 2)
    assert at_engines(router) == {"prefill": (2, 70), "decode": (0, 0)}
    await stage.until(lambda: len(decoder.seen) == 1)
    assert at_engines(router) == {"prefill": (0, 0), "decode": (1, 75)}
    assert await asked == 200
    assert at_engines(router) == EMPTY


async def test_while_the_kv_lands_tokens_are_at_no_engine(stage: Stage) -> None:
    router = await stage.router()
    stage.prefillers[0].does.notify_delay = 0.4
    asked = asyncio.ensure_future(status_of(stage, {"prompt": [1] * 30}))
    value = router.metrics.registry.get_sample_value
    await stage.until(lambda: value("dpd_router_prefill_seconds_count") == 1)
    assert at_engines(router) == EMPTY
    assert await asked == 200


async def test_requests_add_up(stage: Stage) -> None:
    router = await stage.router()
    stage.decoders[0].does.delay = 0.4
    bodies = [{"prompt": [1] * n} for n in (3, 4, 25)]
    asked = asyncio.gather(*(status_of(stage, body) for body in bodies))
    await stage.until(lambda: len(stage.decoders[0].seen) == 3)
    assert at_engines(router)["decode"] == (3, 32)
    assert await asked == [200] * 3
    assert at_engines(router) == EMPTY


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
        ("/v1/embeddings", {"input": "some words"}),
    ],
)
async def test_a_prompt_that_was_not_counted_adds_a_request_and_no_tokens(
    stage: Stage, path: str, body: dict[str, Any]
) -> None:
    router = await stage.router()
    stage.decoders[0].does.delay = 0.2
    asked = asyncio.ensure_future(status_of(stage, body, path))
    await stage.until(lambda: len(stage.decoders[0].seen) == 1)
    assert at_engines(router)["decode"] == (1, 0)
    assert await asked == 200
    assert at_engines(router) == EMPTY


async def test_failed_and_abandoned_requests_are_taken_off_again(stage: Stage) -> None:
    router = await stage.router()
    stage.prefillers[0].does.notify_error = "no room"
    assert await status_of(stage, {"prompt": [1] * 30}) == 503
    assert at_engines(router) == EMPTY
    stage.prefillers[0].does.delay = stage.decoders[0].does.delay = 60
    for prompt in ([1] * 30, [1] * 5):
        with pytest.raises(asyncio.TimeoutError):
            timeout = aiohttp.ClientTimeout(total=0.3)
            await stage.client.post(stage.url + PATH, json={"prompt": prompt}, timeout=timeout)
        await stage.until(lambda: at_engines(router) == EMPTY)
    await stage.decoders[0].stop()
    assert await status_of(stage, {"prompt": [1] * 5}) == 502
    assert at_engines(router) == EMPTY
