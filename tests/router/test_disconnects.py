"""A client that leaves stops the work that was done for it."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from typing import Any

import pytest
from aiohttp import web
from tests.router.conftest import Stage

LONG = {"model": "tiny", "prompt": "word " * 40, "max_tokens": 5}
SHORT = {"model": "tiny", "prompt": "word", "max_tokens": 5}


async def open_request(stage: Stage, body: dict[str, Any]) -> Any:
    """Send a request over a plain socket and leave it open."""
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    raw = json.dumps(body).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(raw), raw)
    )
    return reader, writer


def leave(writer: asyncio.StreamWriter, how: str) -> None:
    if how == "reset":
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_during_prefill_closes_it_and_starts_no_decode(
    stage: Stage, stream: bool, how: str
) -> None:
    router = await stage.router()
    stage.prefillers[0].does.delay = 60
    _, writer = await open_request(stage, LONG | {"stream": stream})
    await stage.until(lambda: len(stage.prefillers[0].seen) == 1)
    leave(writer, how)
    await stage.until(lambda: stage.prefillers[0].seen[0].cancelled, 1)
    await no_residue(stage, router, "disaggregated")
    assert stage.decoders[0].seen == []


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_kv_has_landed_starts_no_decode(
    stage: Stage, stream: bool
) -> None:
    router = await stage.router()
    stage.prefillers[0].does.notify_delay = 0.6
    _, writer = await open_request(stage, LONG | {"stream": stream})
    prefill_answered = "dpd_router_prefill_seconds_count"
    value = router.metrics.registry.get_sample_value
    await stage.until(lambda: value(prefill_answered) == 1)
    leave(writer, "close")
    await no_residue(stage, router, "disaggregated")
    await stage.until(lambda: value("dpd_router_notices_unknown_total") == 1)
    await asyncio.sleep(0.1)
    assert stage.decoders[0].seen == []


@pytest.mark.parametrize("body", [SHORT, LONG], ids=["short", "long"])
@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_before_the_first_byte_closes_the_decode_leg(
    stage: Stage, stream: bool, body: dict[str, Any]
) -> None:
    router = await stage.router()
    stage.decoders[0].does.delay = 60
    _, writer = await open_request(stage, body | {"stream": stream})
    await stage.until(lambda: len(stage.decoders[0].seen) == 1)
    leave(writer, "close")
    await stage.until(lambda: stage.decoders[0].seen[0].cancelled, 1)
    await no_residue(stage, router, "direct" if body is SHORT else "disaggregated")


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_leaving_in_a_stream_closes_the_decode_leg(stage: Stage, how: str) -> None:
    router = await stage.router()
    stage.decoders[0].does.pause = 60
    reader, writer = await open_request(stage, LONG | {"stream": True})
    assert b"200 OK" in await reader.read(100)
    leave(writer, how)
    await stage.until(lambda: stage.decoders[0].seen[0].cancelled, 1)
    await no_residue(stage, router, "disaggregated")


async def no_residue(stage: Stage, router: Any, path: str) -> None:
    value = router.metrics.registry.get_sample_value
    left = {"path": path, "status": "client_left"}
    await stage.until(lambda: value("dpd_router_responses_total", left) == 1, 1)
    assert value("dpd_router_transfers_waiting") == 0
    for role in ("prefill", "decode"):
        assert (value("dpd_router_in_flight", {"role": role}) or 0) == 0
    for engine in (*router.prefillers.engines, *router.decoders.engines):
        assert engine.in_flight == 0


async def test_a_thousand_dropped_requests_leave_nothing_behind(stage: Stage) -> None:
    router = await stage.router()
    value = router.metrics.registry.get_sample_value

    async def answer_without_landing(request: Any, seen: Any) -> web.StreamResponse:
        stage.prefillers[0].does.notify = False
        return await stage.prefillers[0].answer_well(request, seen)

    stage.prefillers[0].does.handle = answer_without_landing
    for batch in range(20):
        writers = [(await open_request(stage, LONG))[1] for _ in range(50)]
        done = (batch + 1) * 50
        await stage.until(lambda n=done: value("dpd_router_prefill_seconds_count") == n, 20)
        for writer in writers:
            leave(writer, "close")
    left = {"path": "disaggregated", "status": "client_left"}
    await stage.until(lambda: value("dpd_router_responses_total", left) == 1000)
    assert value("dpd_router_transfers_waiting") == 0
    assert router.notices._landings == {}
    assert stage.decoders[0].seen == []
    stage.prefillers[0].does.handle = None
    stage.prefillers[0].does.notify = True
    for _ in range(20):
        async with stage.post("/v1/completions", LONG) as response:
            assert response.status == 200
