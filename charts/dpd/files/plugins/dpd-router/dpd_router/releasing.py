"""Telling decoders which transfers have no request any more, so that they free the KV's pages."""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Iterable

from .asking import NoAnswer, line
from .engines import Engine
from .lmcache import LMCachePD

_log = logging.getLogger(__name__)

# Transfers named in one message.
MAX_IN_MESSAGE = 1000
# Seconds between two tries to reach a decoder.
PAUSE_SECONDS = 1.0
# Seconds after which a decoder is not told any more. By default it has freed the KV by then itself.
KEPT_SECONDS = 300.0


class Releases:
    """Sends releases to decoders; one that does not answer is tried again.

    Nobody waits for them, and a decoder may hear of a transfer twice.

    Args:
        protocol: says where and how a decoder is told.
        answer_seconds: how long a decoder may take to answer.
    """

    def __init__(self, protocol: LMCachePD, *, answer_seconds: float) -> None:
        self._protocol = protocol
        self._answer_seconds = answer_seconds
        # By decoder's address: since when each transfer is to be told, oldest first.
        self._waiting: dict[str, dict[str, float]] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._closing = False

    def release(self, decoder: Engine, transfer_ids: Iterable[str]) -> None:
        """Have a decoder told that the requests of these transfers have ended."""
        address = self._protocol.decoder_address(decoder)
        waiting = self._waiting.setdefault(address, {})
        waiting.update(dict.fromkeys(transfer_ids, time.monotonic()))
        if address not in self._sending:
            self._sending[address] = asyncio.create_task(self._send(address, waiting))

    async def _send(self, address: str, waiting: dict[str, float]) -> None:
        complained = False
        try:
            while waiting:
                ids = list(itertools.islice(waiting, MAX_IN_MESSAGE))
                if not (failure := await self._tell(address, ids)):
                    for transfer_id in ids:
                        del waiting[transfer_id]
                    continue
                if not complained:
                    complained = True
                    _log.warning(
                        "decoder %s was not told yet of %d ended transfers: %s; its "
                        "kvTransfer.pullTimeoutSeconds frees their KV otherwise",
                        address,
                        len(waiting),
                        failure,
                    )
                if self._closing:
                    return
                await asyncio.sleep(PAUSE_SECONDS)
                too_old = time.monotonic() - KEPT_SECONDS
                for transfer_id in [i for i, since in waiting.items() if since < too_old]:
                    del waiting[transfer_id]
        finally:
            del self._sending[address], self._waiting[address]

    async def _tell(self, address: str, transfer_ids: list[str]) -> str:
        """Return why a decoder did not answer; an empty text if it did."""
        message = self._protocol.release(transfer_ids)
        try:
            with line(address, self._answer_seconds) as decoder:
                await decoder.ask(message)
        except NoAnswer as failure:
            return str(failure)
        return ""

    async def close(self) -> None:
        """Return when all decoders are told, or did not answer once more."""
        self._closing = True
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
