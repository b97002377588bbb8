"""A router over stub engines, all in this process, on real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from tests.router.stub_engine import StubEngine, StubReceiver
from tests.router.tokenizers_made import TEMPLATES, make_tokenizer

from dpd_router.app import Router
from dpd_router.config import parse
from dpd_router.tokenizing import load_tokenizer

HOST = "127.0.0.1"


@pytest.fixture(scope="session")
def tokenizer_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A folder for each template; all tokenizers but chatml's put a BOS token first."""
    base = tmp_path_factory.mktemp("tokenizers")
    return {
        name: make_tokenizer(base / name, template, bos=name != "chatml")
        for name, template in TEMPLATES.items()
    }


def free_port() -> int:
    """A port that no outgoing connection takes meanwhile: Linux gives those 32768 and up."""
    while True:
        port = random.randrange(20000, 32768)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return port


class Stage:
    """A router, its engines, and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.prefillers: list[StubEngine] = []
        self.decoders: list[StubEngine] = []
        self.decoder_addresses: list[str] | None = None
        self.client = aiohttp.ClientSession()
        self.notify_port = 0
        self.alloc_port = free_port()
        self.receivers: dict[str, StubReceiver] = {}  # by the decoders' host
        self.scheme = "http"
        self._routers: list[Router] = []

    async def engines(self, prefill: int = 1, decode: int = 1, host: str = HOST) -> None:
        for role, wanted, engines in (
            ("prefill", prefill, self.prefillers),
            ("decode", decode, self.decoders),
        ):
            for _ in range(wanted):
                engine = StubEngine(role, host)
                await engine.start()
                engines.append(engine)
        if decode and host not in self.receivers:
            self.receivers[host] = StubReceiver(host, self.alloc_port)

    async def router(
        self,
        *,
        mode: str = "threshold",
        threshold: int = 20,
        max_len: int | None = None,
        wait: bool = True,
        tls: dict[str, str] | None = None,
        **timeouts: float,
    ) -> Router:
        self.port, self.notify_port = free_port(), free_port()
        decoders = self.decoder_addresses or [e.address for e in self.decoders]
        self.scheme = "https" if tls else "http"
        document = {
            "listen": {"host": HOST, "port": self.port} | ({"tls": tls} if tls else {}),
            "notify": {"port": self.notify_port},
            "model": {"name": "tiny", "tokenizer": str(self.folder), "maxLen": max_len},
            "routing": {"mode": mode, "threshold": threshold},
            "prefill": {"addresses": [e.address for e in self.prefillers]},
            "decode": {
                "addresses": decoders,
                "initPorts": [7300, 7301],
                "allocPorts": [self.alloc_port, 7401],
            },
            "timeouts": {"connectSeconds": 2, "transferSeconds": 5, "idleSeconds": 5} | timeouts,
        }
        router = Router(parse(document), pod_ip=HOST, load_tokenizer=load_tokenizer)
        self._routers.append(router)
        await router.start()
        await router.load()
        if wait:
            await self.until(lambda: len(router.decoders.usable) == len(decoders))
            await self.until(lambda: len(router.prefillers.usable) == len(self.prefillers))
        return router

    @property
    def url(self) -> str:
        return f"{self.scheme}://{HOST}:{self.port}"

    def post(self, path: str, body: Any = None, **options: Any) -> Any:
        if body is not None:
            options["json"] = body
        return self.client.post(self.url + path, **options)

    @staticmethod
    async def until(true: Callable[[], bool], seconds: float = 5.0) -> None:
        async with asyncio.timeout(seconds):
            while not true():
                await asyncio.sleep(0.005)

    async def close(self) -> None:
        await self.client.close()
        for router in self._routers:
            await router.stop()
        for engine in (*self.prefillers, *self.decoders):
            await engine.stop()
        for receiver in self.receivers.values():
            await receiver.stop()


MakeStage = Callable[..., Awaitable[Stage]]


@pytest_asyncio.fixture
async def stage(tokenizer_folders: dict[str, Path]) -> AsyncIterator[Stage]:
    """A stage with one prefiller and one decoder; tests start the router as they need it."""
    made = Stage(tokenizer_folders["chatml"])
    await made.engines()
    yield made
    await made.close()
