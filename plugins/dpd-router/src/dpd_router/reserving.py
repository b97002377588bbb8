"""Waiting for room in a decoder's receive buffer, before a prefiller computes anything.

Here a request waits alone: a prefiller that waited for room would hold up all of its others, and
among those the ones whose KV is what takes the room.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from weakref import WeakValueDictionary

from .answers import Refused
from .asking import Line, NoAnswer, line
from .engines import Engine
from .lmcache import LMCachePD
from .metrics import Metrics

# Seconds between two questions of a request that waits for room.
PAUSE_SECONDS = 0.02


class Rooms:
    """Reserves room in decoders; requests to one decoder wait in the order of their arrival.

    Args:
        protocol: says where and how a decoder is asked.
        metrics: observes how long requests wait.
        answer_seconds: how long a decoder may take to answer.
        limit_seconds: how long a request waits for room.
    """

    def __init__(
        self,
        protocol: LMCachePD,
        metrics: Metrics,
        *,
        answer_seconds: float,
        limit_seconds: float,
    ) -> None:
        self._protocol = protocol
        self._metrics = metrics
        self._answer_seconds = answer_seconds
        self._limit = limit_seconds
        # By the decoder's address: held by the request whose turn it is.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def reserve(
        self, decoder: Engine, transfer_ids: Sequence[str], tokens: Sequence[int]
    ) -> int:
        """Return for how many of a request's prompts, from the first, there is room: at least one.

        A release of the transfers gives it back.

        Args:
            decoder: the one that gets the KV.
            transfer_ids: one for each prompt.
            tokens: of each prompt.

        Raises:
            Refused: the decoder does not answer, never has room for such a prompt, or has none in
                time.
        """
        address = self._protocol.decoder_address(decoder)
        question = self._protocol.reserve(list(transfer_ids), list(tokens))
        turn = self._turns.setdefault(address, asyncio.Lock())
        try:
            with self._metrics.room_seconds.time():
                async with asyncio.timeout(self._limit), turn:
                    with line(address, self._answer_seconds) as asked:
                        return await self._granted(asked, question, len(transfer_ids))
        except (NoAnswer, ValueError) as error:
            raise Refused(
                503, f"The KV transfer failed: {error} (decoder {address}).", code="transfer_failed"
            ) from None
        except TimeoutError:
            raise Refused(
                503,
                f"No room in the receive buffer of decoder {address} for {self._limit:g} s: raise "
                "kvTransfer.bufferSize, add decoders, or send the request again later.",
                code="no_room",
            ) from None

    async def _granted(self, asked: Line, question: bytes, prompts: int) -> int:
        while True:
            answer = await asked.ask(question)
            if granted := self._protocol.read_reserved(answer, prompts):
                return granted
            await asyncio.sleep(PAUSE_SECONDS)
