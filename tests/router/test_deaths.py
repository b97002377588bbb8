"""An engine whose process ends while a request is with it, and what the client then gets."""

from __future__ import annotations

import asyncio
from typing import Any

from aiohttp import web
from tests.router.conftest import HOST, Stage
from tests.router.stub_engine import StubEngine

LONG = {"model": "tiny", "prompt": [1] * 40}
SHORT = {"model": "tiny", "prompt": [1]}


def doom(engine: StubEngine, *, answers: bool = False) -> None:
    """End an engine with its next request: the connection breaks, and nobody listens any more.

    Args:
        engine: the one to end.
        answers: whether it answers that request first.
    """

    async def die(request: web.Request, seen: Any) -> web.StreamResponse:
        assert engine._runner is not None
        for site in list(engine._runner.sites):
            await site.stop()
        if answers:
            return await engine.answer_well(request, seen)
        return await hang_up(request, seen)

    engine.does.handle = die


async def hang_up(request: web.Request, seen: Any) -> web.Response:
    """Break the connection without an answer, and go on listening."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def ask(stage: Stage, body: dict[str, Any]) -> tuple[int, str]:
    """Return the status and, if it is an error, its message."""
    async with stage.post("/v1/completions", body) as response:
        answer = await response.json()
        return response.status, answer.get("error", {}).get("message", "")


async def test_a_prompt_whose_prefiller_dies_is_taken_over_by_the_next(stage: Stage) -> None:
    await stage.engines(prefill=1, decode=0)
    await stage.router()  # whose probes have used a connection to each engine
    doom(stage.prefillers[0])
    for _ in range(3):
        assert await ask(stage, LONG) == (200, "")
    assert [len(prefiller.seen) for prefiller in stage.prefillers] == [1, 3]


async def test_a_prompt_whose_prefiller_breaks_new_connections_is_taken_over(stage: Stage) -> None:
    await stage.engines(prefill=1, decode=0)
    await stage.router()
    breaking, well = stage.prefillers
    breaking.does.handle = hang_up
    for _ in range(3):
        assert await ask(stage, LONG) == (200, "")
    assert len(well.seen) == 3


def ids_sent_to(*prefillers: StubEngine) -> list[str]:
    """The transfer ids of all prefill legs, in their order on each engine."""
    return [
        seen.body["kv_transfer_params"]["disagg_spec"]["req_id"]
        for prefiller in prefillers
        for seen in prefiller.seen
    ]


async def test_each_attempt_at_a_prompt_has_an_id_of_its_own(stage: Stage) -> None:
    await stage.engines(prefill=1, decode=0)
    await stage.router()  # whose probes have used a connection to each engine
    for prefiller in stage.prefillers:
        prefiller.does.handle = hang_up
    assert (await ask(stage, LONG))[0] == 502
    ids = ids_sent_to(*stage.prefillers)
    transfer = min(ids)
    assert sorted(ids) == [transfer, *(f"{transfer}.{n}" for n in range(2, len(ids) + 1))]
    assert len(ids) > 2
    await stage.until(lambda: stage.receivers[HOST].released == [transfer])


async def test_what_a_lost_prefiller_reports_late_does_not_end_the_next_attempt(
    stage: Stage,
) -> None:
    await stage.engines(prefill=1, decode=0)
    await stage.router()
    lost, well = stage.prefillers
    lost.does.notify_error, lost.does.notify_delay = "no room", 0.2

    async def hang_up_and_report(request: web.Request, seen: Any) -> web.StreamResponse:
        lost.notify(seen.body["kv_transfer_params"]["disagg_spec"]["req_id"])
        return await hang_up(request, seen)

    lost.does.handle = hang_up_and_report
    well.does.delay = 0.5
    for _ in range(2):  # the first attempt at one of them goes to the lost one
        assert await ask(stage, LONG) == (200, "")
    assert lost.seen


async def test_a_prefiller_that_is_lost_when_its_kv_has_landed_is_not_missed(stage: Stage) -> None:
    await stage.router()
    (prefiller,) = stage.prefillers

    async def land_and_hang_up(request: web.Request, seen: Any) -> web.StreamResponse:
        prefiller.notify(seen.body["kv_transfer_params"]["disagg_spec"]["req_id"])
        await asyncio.sleep(0.2)
        return await hang_up(request, seen)

    prefiller.does.handle = land_and_hang_up
    assert await ask(stage, LONG) == (200, "")


async def test_a_prompt_that_ends_two_prefillers_does_not_reach_a_third(stage: Stage) -> None:
    await stage.engines(prefill=2, decode=0)
    await stage.router()
    for prefiller in stage.prefillers:
        prefiller.does.handle = hang_up
    status, message = await ask(stage, LONG)
    lost = [prefiller for prefiller in stage.prefillers if prefiller.seen]
    assert (status, len(lost)) == (502, 2)
    assert message.partition(" broke the connection: ")[0] in [
        f"The prefiller: {prefiller.url}" for prefiller in lost
    ]


async def test_a_prompt_that_ends_two_prefillers_for_good_does_not_reach_a_third(
    stage: Stage,
) -> None:
    await stage.engines(prefill=2, decode=0)
    await stage.router()
    for prefiller in stage.prefillers:
        doom(prefiller)
    status, message = await ask(stage, LONG)
    lost = [prefiller for prefiller in stage.prefillers if prefiller.seen]
    assert (status, len(lost)) == (502, 2)
    assert message.partition(": Cannot connect")[0] in [
        f"The prefiller: cannot connect to {prefiller.url}" for prefiller in lost
    ]


async def test_a_prompt_whose_last_prefiller_dies_is_a_503(stage: Stage) -> None:
    await stage.router()
    doom(stage.prefillers[0])
    assert await ask(stage, LONG) == (503, f"No prefiller answers ({stage.prefillers[0].address}).")
    assert stage.decoders[0].seen == []


async def test_a_prefiller_that_dies_when_its_kv_has_landed_is_not_missed(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.delay = 0.2
    doom(stage.prefillers[0], answers=True)
    assert await ask(stage, LONG) == (200, "")


async def test_a_short_prompt_whose_decoder_dies_is_taken_over_by_the_next(stage: Stage) -> None:
    await stage.engines(prefill=0, decode=1)
    await stage.router()
    doom(stage.decoders[0])
    for _ in range(3):
        assert await ask(stage, SHORT) == (200, "")
    assert [len(decoder.seen) for decoder in stage.decoders] == [1, 3]


async def test_a_long_prompt_whose_decoder_dies_with_its_kv_is_a_502(stage: Stage) -> None:
    await stage.engines(prefill=0, decode=1)
    await stage.router()
    for decoder in stage.decoders:
        doom(decoder)
    status, message = await ask(stage, LONG)
    assert status == 502
    (dead,) = [decoder for decoder in stage.decoders if decoder.seen]
    assert message.startswith(f"The decoder: cannot connect to {dead.url}: ")
    assert len(dead.seen) == 1
