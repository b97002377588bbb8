"""Room in the decoder's receive buffer, for which a request waits in the router."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web
from tests.router.conftest import HOST, Stage
from tests.router.test_errors import refusal

LONG = {"model": "tiny", "prompt": [1] * 40, "max_tokens": 3}


async def test_room_is_asked_for_by_transfer_before_a_prefiller_computes(stage: Stage) -> None:
    await stage.router()
    receiver = stage.receivers[HOST]
    asked_first: list[bool] = []

    async def prefill(request: web.Request, seen: object) -> web.StreamResponse:
        asked_first.append(len(receiver.reserved) == 1)
        return await stage.prefillers[0].answer_well(request, seen)  # type: ignore[arg-type]

    stage.prefillers[0].does.handle = prefill
    body = LONG | {"prompt": [[1] * 40, [1] * 3, [2] * 50]}
    async with stage.post("/v1/completions", body) as response:
        assert response.status == 200
    ((ids, tokens),) = receiver.reserved
    assert tokens == [40, 50]
    legs = [seen.body["kv_transfer_params"]["disagg_spec"] for seen in stage.prefillers[0].seen]
    assert sorted(ids) == sorted(leg["req_id"] for leg in legs)
    assert asked_first == [True, True]


async def test_a_short_prompt_needs_no_room(stage: Stage) -> None:
    await stage.router()
    stage.receivers[HOST].room = 0
    async with stage.post("/v1/completions", LONG | {"prompt": [1]}) as response:
        assert response.status == 200
    assert stage.receivers[HOST].reserved == []


async def test_prompts_beyond_the_room_are_computed_by_the_decoder(stage: Stage) -> None:
    router = await stage.router()
    stage.receivers[HOST].room = 1
    body = LONG | {"prompt": [[word] * 40 for word in range(3)]}
    async with stage.post("/v1/completions", body) as response:
        assert response.status == 200
        assert len((await response.json())["choices"]) == 3
        assert response.headers["x-dpd-path"] == "disaggregated"
        assert response.headers["x-dpd-reason"] == (
            "40 tokens >= threshold 20; no room in the receive buffer for 2 of 3 prompts"
        )
    assert [seen.body["prompt"] for seen in stage.prefillers[0].seen] == [[0] * 40]
    assert stage.decoders[0].seen[0].body == body
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_prompts_without_room_total") == 2
    await stage.until(lambda: len(stage.receivers[HOST].released) == 3, 2)


async def test_requests_wait_for_room_in_the_order_of_their_arrival(stage: Stage) -> None:
    router = await stage.router()
    receiver = stage.receivers[HOST]
    receiver.room = 0
    waiting = []
    for word in range(3):
        body = LONG | {"prompt": [word] * 40}
        waiting.append(asyncio.ensure_future(stage.post("/v1/completions", body)))
        await asyncio.sleep(0.1)
    assert stage.prefillers[0].seen == []
    assert len({ids[0] for ids, _ in receiver.reserved}) == 1  # the first alone asks
    async with stage.post("/v1/completions", LONG | {"prompt": [1]}) as response:
        assert response.status == 200  # nobody else waits
    receiver.room = None
    for each in await asyncio.gather(*waiting):
        assert each.status == 200
    assert [seen.body["prompt"][0] for seen in stage.prefillers[0].seen] == [0, 1, 2]
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_room_seconds_count") == 3
    assert 0.6 <= (value("dpd_router_room_seconds_sum") or 0) < 3


async def test_a_client_that_leaves_while_it_waits_lets_the_next_one_ask(stage: Stage) -> None:
    await stage.router()
    receiver = stage.receivers[HOST]
    receiver.room = 0
    first = asyncio.ensure_future(stage.post("/v1/completions", LONG))
    await stage.until(lambda: bool(receiver.reserved))
    second = asyncio.ensure_future(stage.post("/v1/completions", LONG))
    await asyncio.sleep(0.1)
    first.cancel()
    await stage.until(lambda: len({ids[0] for ids, _ in receiver.reserved}) == 2)
    await stage.until(lambda: receiver.released == receiver.reserved[0][0])
    receiver.room = None
    assert (await second).status == 200


async def test_no_room_in_time_is_a_503_that_says_what_to_do(stage: Stage) -> None:
    router = await stage.router(roomSeconds=0.5)
    stage.receivers[HOST].room = 0
    began = time.monotonic()
    assert await refusal(stage, LONG) == (
        503,
        f"No room in the receive buffer of decoder {HOST}:{stage.alloc_port} for 0.5 s: raise "
        "kvTransfer.bufferSize, add decoders, or send the request again later.",
    )
    assert 0.5 <= time.monotonic() - began < 1.5
    assert stage.prefillers[0].seen == [] == stage.decoders[0].seen
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_refused_total", {"cause": "no_room"}) == 1
    await stage.until(lambda: len(stage.receivers[HOST].released) == 1, 2)


async def test_a_prompt_for_which_there_never_is_room_is_a_503_with_the_reason(
    stage: Stage,
) -> None:
    await stage.router()
    stage.receivers[HOST].refuses = "the prompt needs 9 chunks"
    assert await refusal(stage, LONG) == (
        503,
        f"The KV transfer failed: the prompt needs 9 chunks (decoder {HOST}:{stage.alloc_port}).",
    )


async def test_a_decoder_whose_kv_port_is_silent_is_a_503_and_short_prompts_go_on(
    stage: Stage,
) -> None:
    await stage.router(connectSeconds=0.3)
    stage.receivers[HOST].silent = True
    assert await refusal(stage, LONG) == (
        503,
        f"The KV transfer failed: no answer in 0.3 s (decoder {HOST}:{stage.alloc_port}).",
    )
    async with stage.post("/v1/completions", LONG | {"prompt": [1]}) as response:
        assert response.status == 200


@pytest.mark.parametrize("answer", [b"", b"\xc1", b"\x80"])
async def test_an_answer_that_is_none_is_a_503(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    await stage.router()
    monkeypatch.setattr("tests.router.engine_answers.Answers.reserved", lambda count: answer)
    status, message = await refusal(stage, LONG)
    assert status == 503
    assert message.startswith("The KV transfer failed: ")
