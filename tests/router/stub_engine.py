"""A stand-in for an engine, which answers as vLLM 0.19 does, over real HTTP and ZMQ.

Every body the stub sends is built in `engine_answers`, where it is compared with a real engine's.
What a test wants different it says in `Behaviour`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
import zmq
import zmq.asyncio
from aiohttp import web
from multidict import CIMultiDict
from tests.router.engine_answers import REVISION, Answers


def json_response(body: dict[str, Any], status: int = 200, **headers: str) -> web.Response:
    """Answer with JSON in the form that the engine's server gives it."""
    headers = {"Content-Type": "application/json"} | headers
    return web.Response(body=Answers.json(body), status=status, headers=headers)


@dataclass
class Seen:
    """A request that reached the stub."""

    path: str
    raw: bytes
    headers: CIMultiDict[str]
    cancelled: bool = False

    @property
    def body(self) -> dict[str, Any]:
        body: dict[str, Any] = json.loads(self.raw)
        return body


Handle = Callable[[web.Request, Seen], Any]


@dataclass
class Behaviour:
    """What a test wants different from a good engine."""

    # Before anything else is answered.
    delay: float = 0.0
    # Instead of the usual answer: a coroutine function that returns the response.
    handle: Handle | None = None
    # The prefiller's notices: how many ranks, how long after the answer, and with which error.
    ranks: int = 1
    notify: bool = True
    notify_delay: float = 0.0
    notify_error: str = ""
    # What the decoder says, event by event, and the pause between events.
    words: list[str] = field(default_factory=lambda: ["Hel", "lo", " you"])
    pause: float = 0.0
    prompt_tokens: int = 7
    healthy: bool = True
    # What /metrics says; None for an engine that does not tell its revision.
    revision: str | None = REVISION
    # Instead of the usual page of metrics.
    metrics: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None


class StubEngine:
    """One engine on one address."""

    def __init__(self, role: str, host: str = "127.0.0.1") -> None:
        self.role = role
        self.host = host
        self.port = 0
        self.does = Behaviour()
        self.seen: list[Seen] = []
        self.metrics_read = 0
        self.open = 0
        self.most_open = 0
        self._runner: web.AppRunner | None = None
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    async def start(self, port: int = 0, keepalive: float = 90.0) -> None:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/v1/models", self._models)
        app.router.add_route("*", "/{tail:.*}", self._answer)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            keepalive_timeout=keepalive,
            access_log=None,
            shutdown_timeout=0.1,
            max_field_size=65536,
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.host, port)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        while self._sockets:
            self._sockets.popitem()[1].close(0)
        if self._runner is not None:
            await self._runner.cleanup()

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if self.does.healthy else 503)

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        self.metrics_read += 1
        if self.does.metrics is not None:
            return await self.does.metrics(request)
        page = Answers.metrics(self.role, self.does.revision)
        headers = {"Content-Type": "text/plain; version=1.0.0; charset=utf-8"}
        return web.Response(body=page, headers=headers)

    async def _models(self, request: web.Request) -> web.Response:
        self.seen.append(Seen(request.raw_path, b"", CIMultiDict(request.headers)))
        return json_response(Answers.models())

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.raw_path, await request.read(), CIMultiDict(request.headers))
        self.seen.append(seen)
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            await asyncio.sleep(self.does.delay)
            if self.does.handle is not None:
                response: web.StreamResponse = await self.does.handle(request, seen)
                return response
            return await self.answer_well(request, seen)
        except asyncio.CancelledError:
            seen.cancelled = True
            raise
        finally:
            self.open -= 1

    async def answer_well(self, request: web.Request, seen: Seen) -> web.StreamResponse:
        """Answer as a good engine: completions, chats, their streams, and PD prefill legs."""
        if not request.path.startswith(("/v1/completions", "/v1/chat/completions")):
            return json_response({"path": request.raw_path, "got": len(seen.raw)})
        body = seen.body
        chat = "chat" in request.path
        if body.get("stream"):
            return await self._stream(request, seen, chat)
        request_id = seen.headers.get("X-Request-Id", "none")
        if body.get("kv_transfer_params"):
            self.notify(body["kv_transfer_params"]["disagg_spec"]["req_id"])
        tokens = self.does.prompt_tokens
        text = "".join(self.does.words)
        if chat:
            return json_response(Answers.chat(text, tokens, request_id))
        prompts = body["prompt"]
        several = isinstance(prompts, list) and not isinstance(prompts[0], int)
        count = (len(prompts) if several else 1) * (body.get("n") or 1)
        return json_response(Answers.completion([text] * count, tokens, request_id))

    async def _stream(self, request: web.Request, seen: Seen, chat: bool) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        await response.prepare(request)
        async for event in self.events(seen, chat):
            await response.write(event)
        await response.write_eof()
        return response

    async def events(self, seen: Seen, chat: bool) -> AsyncIterator[bytes]:
        request_id = seen.headers.get("X-Request-Id", "none")
        if chat:
            yield Answers.first_chat_event(request_id)
        build = Answers.chat_event if chat else Answers.completion_event
        words = self.does.words
        for index, word in enumerate(words):
            if index:
                await asyncio.sleep(self.does.pause)
            yield build(word, request_id, "length" if index == len(words) - 1 else None)
        if (seen.body.get("stream_options") or {}).get("include_usage"):
            yield Answers.usage_event(
                "chat" if chat else "completion", self.does.prompt_tokens, len(words), request_id
            )
        yield Answers.DONE

    def notify(self, transfer_id: str) -> None:
        """Tell the router named in a transfer id that its KV has landed, as the engine does."""
        if not self.does.notify:
            return
        task = asyncio.ensure_future(self._notify(transfer_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _notify(self, transfer_id: str) -> None:
        await asyncio.sleep(self.does.notify_delay)
        for rank in range(self.does.ranks):
            await self.push(
                transfer_id.split("/")[0],
                {
                    "type": "ProxyNotif",
                    "req_id": transfer_id,
                    "rank": rank,
                    "ranks": self.does.ranks,
                    "error": self.does.notify_error,
                },
            )

    async def push(self, address: str, message: dict[str, Any] | bytes) -> None:
        """Send one message to a router's notice port."""
        socket = self._sockets.get(address)
        if socket is None:
            socket = self._sockets[address] = zmq.asyncio.Context.instance().socket(zmq.PUSH)
            socket.connect(f"tcp://{address}")
        if not isinstance(message, bytes):
            message = msgspec.msgpack.encode(message)
        await socket.send(message)


class StubReceiver:
    """A decoder's allocation port, which answers routers as the first rank of an engine does.

    What it reads and says is compared with the engine's in tests/engine/test_messages.py.
    """

    def __init__(self, host: str, port: int) -> None:
        self.room: int | None = None  # for so many prompts of each request; None: for all
        self.reserved: list[tuple[list[str], list[int]]] = []  # ids and tokens of each question
        self.refuses = ""  # the reason for which nothing is ever reserved
        self.silent = False  # does not answer questions
        self.released: list[str] = []
        self.messages = 0  # with releases
        self.answers = True
        self.deaf = False  # what is released then is lost
        # Not REP, which must answer whatever it hears.
        self._socket = zmq.asyncio.Context.instance().socket(zmq.ROUTER)
        self._socket.bind(f"tcp://{host}:{port}")
        self._serving = asyncio.ensure_future(self._serve())

    async def _serve(self) -> None:
        held: list[list[bytes]] = []
        while True:
            while held and self.answers:
                await self._socket.send_multipart(held.pop(0))
            if not await self._socket.poll(5):
                continue
            *envelope, raw = await self._socket.recv_multipart()
            message = msgspec.msgpack.decode(raw)
            if message["type"] == "Reserve":
                self.reserved.append((message["transfer_ids"], message["tokens"]))
                count = len(message["tokens"]) if self.room is None else self.room
                answer = Answers.refused(self.refuses) if self.refuses else Answers.reserved(count)
                if not self.silent:
                    await self._socket.send_multipart([*envelope, answer])
                continue
            if self.deaf:
                continue
            assert message["type"] == "Release", message
            self.messages += 1
            self.released += message["transfer_ids"]
            held.append([*envelope, Answers.released()])

    async def stop(self) -> None:
        self._serving.cancel()
        await asyncio.gather(self._serving, return_exceptions=True)
        self._socket.close(0)
