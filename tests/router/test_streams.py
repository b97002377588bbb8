"""Streams pass through byte by byte, and a broken one is never made to look whole."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.router.conftest import Stage
from tests.router.engine_answers import Answers

LONG = {"model": "tiny", "prompt": "word " * 40, "stream": True}
SHORT = {"model": "tiny", "prompt": "word", "stream": True}
CHAT = {"messages": [{"role": "user", "content": "word " * 40}], "stream": True}


@pytest.mark.parametrize(
    ("path", "body"),
    [("/v1/completions", LONG), ("/v1/completions", SHORT), ("/v1/chat/completions", CHAT)],
    ids=["long", "short", "chat"],
)
async def test_a_stream_ends_with_one_usage_event_and_done(
    stage: Stage, path: str, body: dict[str, Any]
) -> None:
    await stage.router()
    asked = body | {"stream_options": {"include_usage": True}}
    async with stage.post(path, asked, headers={"X-Request-Id": "r1"}) as response:
        assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
        got = await response.read()
    chat = "chat" in path
    build = Answers.chat_event if chat else Answers.completion_event
    assert got == b"".join(
        [
            *([Answers.first_chat_event("r1")] if chat else []),
            build("Hel", "r1", None),
            build("lo", "r1", None),
            build(" you", "r1", "length"),
            Answers.usage_event("chat" if chat else "completion", 7, 3, "r1"),
            Answers.DONE,
        ]
    )
    for leg in stage.prefillers[0].seen:
        assert leg.body["stream"] is False
        assert "stream_options" not in leg.body


def sends(pieces: list[bytes], end: str = "well") -> Any:
    """A decoder that streams these pieces, each in a write of its own, and then ends like that."""

    async def handle(request: web.Request, seen: Any) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
            await asyncio.sleep(0.002)
        assert request.transport is not None
        if end == "close":
            await asyncio.sleep(0.05)
            request.transport.close()
        if end == "reset":
            await asyncio.sleep(0.05)
            request.transport.abort()
        return response

    return handle


async def test_bytes_pass_unchanged_however_they_are_cut(stage: Stage) -> None:
    await stage.router()
    whole = Answers.completion_event("zebra 🦓 漢", "r", None) + Answers.DONE
    for cut in range(1, len(whole)):
        stage.decoders[0].does.handle = sends([whole[:cut], whole[cut:]])
        async with stage.post("/v1/completions", SHORT) as response:
            assert await response.read() == whole
    stage.decoders[0].does.handle = sends([bytes([byte]) for byte in whole])
    async with stage.post("/v1/completions", LONG) as response:
        assert await response.read() == whole


async def test_each_piece_passes_at_once(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.pause = 0.3
    async with stage.post("/v1/completions", SHORT) as response:
        loop = asyncio.get_running_loop()
        times = []
        async for _ in response.content.iter_any():
            times.append(loop.time())
    assert times[1] - times[0] == pytest.approx(0.3, abs=0.1)


EVENTS = [Answers.completion_event(word, "r", None) for word in ("a", "b", "c")]


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("body", [SHORT, LONG], ids=["short", "long"])
async def test_a_stream_that_breaks_is_an_aborted_connection(
    stage: Stage, body: dict[str, Any], end: str
) -> None:
    router = await stage.router()
    stage.decoders[0].does.handle = sends(EVENTS, end)
    got = b""
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stage.post("/v1/completions", body) as response:
            assert response.status == 200
            async for piece in response.content.iter_any():
                got += piece
    assert got == b"".join(EVENTS)
    path = "direct" if body is SHORT else "disaggregated"
    labels = {"path": path, "status": "aborted"}
    assert router.metrics.registry.get_sample_value("dpd_router_responses_total", labels) == 1


async def test_a_broken_stream_over_http_1_0_is_a_reset(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.handle = sends(EVENTS, "close")
    reader, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    body = json.dumps(SHORT).encode()
    writer.write(
        b"POST /v1/completions HTTP/1.0\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    )
    with pytest.raises(ConnectionResetError):
        await reader.read()
        await reader.read()
    writer.close()


async def test_a_body_shorter_than_its_length_is_an_aborted_connection(stage: Stage) -> None:
    await stage.router()

    async def short_body(request: web.Request, seen: Any) -> web.StreamResponse:
        response = web.StreamResponse()
        response.content_length = 100
        await response.prepare(request)
        await response.write(b'{"half":')
        assert request.transport is not None
        request.transport.close()
        return response

    stage.decoders[0].does.handle = short_body
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stage.post("/v1/completions", SHORT | {"stream": False}) as response:
            assert response.headers["Content-Length"] == "100"
            await response.read()


async def test_a_stream_that_falls_silent_is_an_aborted_connection(stage: Stage) -> None:
    await stage.router(idleSeconds=0.4)
    stage.decoders[0].does.pause = 60
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stage.post("/v1/completions", SHORT) as response:
            await response.read()
    await stage.until(lambda: stage.decoders[0].seen[0].cancelled, 1)


async def test_a_stream_may_last_longer_than_every_limit(stage: Stage) -> None:
    await stage.router(idleSeconds=0.4, transferSeconds=0.4, connectSeconds=0.4)
    stage.decoders[0].does.words = ["w"] * 8
    stage.decoders[0].does.pause = 0.2
    async with stage.post("/v1/completions", LONG) as response:
        assert (await response.read()).endswith(Answers.DONE)


async def test_a_stream_without_done_gets_none(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.handle = sends(EVENTS)
    async with stage.post("/v1/completions", SHORT) as response:
        assert await response.read() == b"".join(EVENTS)


async def test_status_and_headers_pass_but_those_of_the_connection(stage: Stage) -> None:
    await stage.router()

    async def answer(request: web.Request, seen: Any) -> web.Response:
        headers = {"X-Engine": "yes", "Set-Cookie": "a=1", "Keep-Alive": "timeout=9"}
        return web.Response(status=202, body=b"\x00\xff", headers=headers)

    stage.decoders[0].does.handle = answer
    async with stage.post("/v1/completions", SHORT) as response:
        assert response.status == 202
        assert response.headers["X-Engine"] == "yes"
        assert response.headers["Set-Cookie"] == "a=1"
        assert response.headers["Content-Length"] == "2"
        assert "Keep-Alive" not in response.headers
        assert await response.read() == b"\x00\xff"


async def test_a_compressed_answer_stays_compressed(stage: Stage) -> None:
    await stage.router()

    async def answer(request: web.Request, seen: Any) -> web.Response:
        response = web.Response(body=b"x" * 2000, content_type="application/json")
        response.enable_compression(web.ContentCoding.gzip)
        return response

    stage.decoders[0].does.handle = answer
    headers = {"Accept-Encoding": "gzip"}
    async with stage.post("/v1/completions", SHORT, headers=headers) as response:
        assert response.headers["Content-Encoding"] == "gzip"
        assert await response.read() == b"x" * 2000
    assert stage.decoders[0].seen[0].headers["Accept-Encoding"] == "gzip"


async def test_a_fault_of_the_router_in_a_stream_is_an_aborted_connection(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never a second answer inside the first."""
    router = await stage.router()

    def fault(*labels: str) -> Any:
        raise RuntimeError("a fault")

    monkeypatch.setattr(router.metrics.ttft_seconds, "labels", fault)
    with pytest.raises(aiohttp.ClientPayloadError):
        async with stage.post("/v1/completions", SHORT) as response:
            assert response.status == 200
            await response.read()


async def test_a_fault_of_the_router_before_the_answer_is_a_500(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    router = await stage.router()

    def fault(*labels: str) -> Any:
        raise RuntimeError("a fault")

    monkeypatch.setattr(router.metrics.requests, "labels", fault)
    async with stage.post("/v1/completions", SHORT) as response:
        assert response.status == 500
        assert (await response.json())["error"]["message"] == "The router failed."
