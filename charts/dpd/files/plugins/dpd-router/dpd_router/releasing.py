"""Telling decoders which transfers have no request any more, so that they free the KV's pages."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import zmq
import zmq.asyncio

from .engines import Engine
from .lmcache import LMCachePD

_log = logging.getLogger(__name__)

# Transfers named in one message.
MAX_IN_MESSAGE = 1000


class Releases:
    """Sends releases to decoders, in the order in which the requests ended.

    Nobody waits for them: a decoder that does not hear frees the pages by its own time-out.

    Args:
        protocol: says where and how a decoder is told.
        answer_seconds: how long a decoder may take to answer.
    """

    def __init__(self, protocol: LMCachePD, *, answer_seconds: float) -> None:
        self._protocol = protocol
        self._answer_seconds = answer_seconds
        self._waiting: dict[str, list[str]] = {}  # transfer ids, by decoder's address
        self._sending: dict[str, asyncio.Task[None]] = {}

    def release(self, decoder: Engine, transfer_ids: Iterable[str]) -> None:
        """Have a decoder told that the requests of these transfers have ended."""
        address = self._protocol.release_address(decoder)
        self._waiting.setdefault(address, []).extend(transfer_ids)
        if address not in self._sending:
            self._sending[address] = asyncio.create_task(self._send(address))

    async def _send(self, address: str) -> None:
        socket = zmq.asyncio.Context.instance().socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.IPV6, 1 if "[" in address else 0)
        ids: list[str] | None = None
        try:
            socket.connect(f"tcp://{address}")
            while ids := self._waiting.pop(address, None):
                for start in range(0, len(ids), MAX_IN_MESSAGE):
                    message = self._protocol.release(ids[start : start + MAX_IN_MESSAGE])
                    async with asyncio.timeout(self._answer_seconds):
                        await socket.send(message)
                        await socket.recv()
        except (TimeoutError, zmq.ZMQError) as error:
            left = self._waiting.pop(address, [])
            _log.warning(
                "decoder %s was not told of %d released transfers (%s); it frees their KV in "
                "kvTransfer.pullTimeoutSeconds",
                address,
                len(ids or ()) + len(left),
                str(error) or f"no answer in {self._answer_seconds:g} s",
            )
        finally:
            socket.close()
            del self._sending[address]

    async def close(self) -> None:
        """Return when all decoders are told, or did not answer in time."""
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
