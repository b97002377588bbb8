"""The router's connections to the engines: how many, how long kept, and when tried again."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.router.conftest import Stage

from dpd_router import upstream

SHORT = {"model": "tiny", "prompt": "word", "stream": True}
LONG = {"model": "tiny", "prompt": "word " * 40}


async def test_three_hundred_slow_streams_reach_one_decoder_at_once(stage: Stage) -> None:
    await stage.router()
    await stage.client.close()
    stage.client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
    stage.decoders[0].does.pause = 1.0

    async def one() -> int:
        async with stage.post("/v1/completions", SHORT) as response:
            await response.read()
            return int(response.status)

    assert await asyncio.gather(*(one() for _ in range(300))) == [200] * 300
    assert stage.decoders[0].most_open == 300


def test_idle_connections_are_dropped_before_the_engines_drop_theirs() -> None:
    engines_keep_alive = 90.0
    assert upstream.KEEP_ALIVE_SECONDS == 60.0 < engines_keep_alive


class Fickle:
    """A server that keeps connections open and closes each one as it is used again."""

    def __init__(self, answers_before_closing: int = 1) -> None:
        self.requests = 0
        self.connections = 0
        self.closed_on_reuse = 0
        self._answers = answers_before_closing
        self._server: asyncio.Server | None = None

    async def start(self) -> str:
        self._server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return f"{host}:{port}"

    def stop(self) -> None:
        assert self._server is not None
        self._server.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        answered = 0
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
            except (asyncio.IncompleteReadError, ConnectionError):
                break
            length = 0
            for line in head.split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
            if not head.startswith((b"get /health", b"get /metrics")):
                if answered >= self._answers:
                    self.closed_on_reuse += 1
                    break
                answered += 1
                self.requests += 1
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()


async def test_a_connection_that_closes_as_it_is_reused_costs_the_client_nothing(
    stage: Stage,
) -> None:
    fickle = Fickle()
    address = await fickle.start()
    stage.decoder_addresses = [address]
    router = await stage.router()
    for _ in range(500):
        async with stage.post("/v1/completions", {"prompt": "a"}) as response:
            assert (response.status, await response.read()) == (200, b"{}")
    assert fickle.requests == 500
    retries = router.metrics.registry.get_sample_value("dpd_router_upstream_retries_total")
    assert retries == fickle.closed_on_reuse > 0
    fickle.stop()


async def test_a_request_is_tried_again_only_once(stage: Stage) -> None:
    await stage.router()
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 200

    async def always_close(request: web.Request, seen: Any) -> web.Response:
        assert request.transport is not None
        request.transport.close()
        return web.Response()

    stage.decoders[0].does.handle = always_close
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 502
    assert len(stage.decoders[0].seen) == 1 + 2


async def test_a_request_on_a_new_connection_is_not_tried_again(stage: Stage) -> None:
    posts = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith((b"GET /health", b"GET /metrics")):
            writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
        else:
            posts.append(head)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    stage.decoder_addresses = [f"{host}:{port}"]
    await stage.router()
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 502
    assert len(posts) == 1
    server.close()


async def test_an_answer_that_had_begun_is_not_asked_for_again(stage: Stage) -> None:
    await stage.router()
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 200

    async def half_a_head(request: web.Request, seen: Any) -> web.Response:
        assert request.transport is not None
        request.transport.write(b"HTTP/1.1 200 OK\r\nContent-")  # type: ignore[attr-defined]
        await asyncio.sleep(0.05)
        request.transport.close()
        return web.Response()

    stage.decoders[0].does.handle = half_a_head
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 502
    assert len(stage.decoders[0].seen) == 1 + 1


async def test_a_hung_decoder_does_not_stop_a_healthy_one(stage: Stage) -> None:
    await stage.engines(prefill=0, decode=1)
    await stage.router(idleSeconds=3)
    stage.decoders[0].does.delay = 60

    async def one() -> int:
        async with stage.post("/v1/completions", SHORT) as response:
            await response.read()
            return int(response.status)

    began = time.monotonic()
    hung = [asyncio.ensure_future(one()) for _ in range(2)]
    await stage.until(lambda: len(stage.decoders[0].seen) == 1)
    for _ in range(10):
        assert await one() == 200
    assert time.monotonic() - began < 2.5
    assert sorted(await asyncio.gather(*hung)) == [200, 504]


async def test_an_address_where_nothing_answers_is_given_up_after_the_connect_limit(
    stage: Stage,
) -> None:
    router = await stage.router(connectSeconds=0.5)
    # An address of a network for documentation: packets to it are dropped or refused.
    engine = router.decoders.engines[0]
    engine.url = "http://192.0.2.1:9"
    began = time.monotonic()
    async with stage.post("/v1/completions", SHORT) as response:
        assert response.status == 502
        message = (await response.json())["error"]["message"]
    assert message.startswith("The decoder: cannot connect to http://192.0.2.1:9: ")
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("body", [SHORT, LONG])
async def test_a_legs_connections_are_used_again(stage: Stage, body: dict[str, Any]) -> None:
    router = await stage.router()
    for _ in range(10):
        async with stage.post("/v1/completions", body) as response:
            await response.read()
    connector = router.upstream._pooled.connector
    assert connector is not None
    assert sum(len(idle) for idle in connector._conns.values()) <= 2 * 2
