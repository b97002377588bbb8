"""The prefill legs of a request: compute each prompt's KV and wait until it has landed."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from multidict import CIMultiDict

from .answers import EngineError, Refused
from .choosing import Strategy, of_a_revision
from .engines import Engine, Pool
from .lmcache import LMCachePD
from .metrics import Metrics
from .notices import Landing, Notices, TransferFailed
from .releasing import Releases
from .reserving import Rooms
from .upstream import (
    ConnectFailed,
    Outgoing,
    Upstream,
    UpstreamError,
    answer_headers,
    sorted_errors,
)

_log = logging.getLogger(__name__)

# Legs of one request that run at once; each holds a body of up to the request's size.
LEGS_AT_ONCE = 8
# Prefillers that a prompt may be lost with before it is given up: it may be what ends them.
LOST_PREFILLERS = 2


@dataclass(frozen=True, slots=True)
class Leg:
    """One prompt to be computed; its body is made when its turn has come, for it may be large.

    make_body: takes the id of an attempt at the transfer.
    """

    transfer_id: str
    make_body: Callable[[str], Awaitable[bytes]]
    tokens: int


@dataclass(frozen=True, slots=True)
class Transferred:
    """How long the slowest leg took, in seconds: its HTTP answer, and until its KV landed.

    left_to_decoder: for how many prompts there was no room beside the request's others.
    """

    prefill_seconds: float
    transfer_seconds: float
    left_to_decoder: int = 0


class Transfer:
    """Runs prefill legs."""

    def __init__(
        self,
        *,
        upstream: Upstream,
        prefillers: Pool,
        strategy: Strategy,
        protocol: LMCachePD,
        notices: Notices,
        rooms: Rooms,
        releases: Releases,
        metrics: Metrics,
        limit_seconds: float,
    ) -> None:
        self._upstream = upstream
        self._prefillers = prefillers
        self._strategy = strategy
        self.protocol = protocol
        self._notices = notices
        self._rooms = rooms
        self._releases = releases
        self._metrics = metrics
        self._limit = limit_seconds

    @contextmanager
    def wanted(self, legs: Sequence[Leg], decoder: Engine) -> Iterator[None]:
        """Let a decoder keep the legs' KV for as long as the block runs, however that ends."""
        try:
            yield
        finally:
            self._releases.release(decoder, [leg.transfer_id for leg in legs])

    async def run(
        self,
        legs: Sequence[Leg],
        *,
        decoder: Engine,
        path: str,
        headers: CIMultiDict[str],
        request_id: str,
    ) -> Transferred:
        """Run the legs for which the decoder has room, some at once; return when their KV is there.

        Raises:
            Refused: there was no room in time, or a leg failed; the other legs are dropped.
        """
        count = await self._rooms.reserve(
            decoder, [leg.transfer_id for leg in legs], [leg.tokens for leg in legs]
        )
        self._metrics.prompts_without_room.inc(len(legs) - count)
        turns = asyncio.Semaphore(LEGS_AT_ONCE)

        async def in_turn(leg: Leg) -> Transferred:
            async with turns:
                return await self._leg(leg, decoder, path, headers, request_id)

        tasks = [asyncio.ensure_future(in_turn(leg)) for leg in legs[:count]]
        try:
            done = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return Transferred(
            max(d.prefill_seconds for d in done),
            max(d.transfer_seconds for d in done),
            len(legs) - count,
        )

    async def _leg(
        self, leg: Leg, decoder: Engine, path: str, headers: CIMultiDict[str], request_id: str
    ) -> Transferred:
        began = time.monotonic()
        with self._notices.expected(leg.transfer_id) as landing:

            async def next_attempt() -> Outgoing:
                attempt_id = self.protocol.attempt_id(leg.transfer_id, landing.next_attempt())
                own = headers.copy()
                # An attempt's id is unique even if clients' are not, and greps with the request's.
                own["X-Request-Id"] = f"{request_id}-{attempt_id.rpartition('/')[2]}"
                own["Content-Type"] = "application/json"
                return Outgoing("POST", path, await leg.make_body(attempt_id), own)

            answered: float | None = None
            try:
                async with asyncio.timeout(self._limit):
                    engine = await self._prefill(leg, decoder, next_attempt, request_id, landing)
                    answered = time.monotonic() - began
                    self._metrics.prefill_seconds.observe(answered)
                    _log.info("%s prefill time (TTFT): %.4f", request_id, answered)
                    await landing.wait()
                    landed = time.monotonic() - began
                    self._metrics.transfer_wait_seconds.observe(landed - answered)
                    _log.info(
                        "Routing request %s to %s at %s, process time = %.4f",
                        request_id,
                        engine.url,
                        time.time(),
                        time.monotonic() - began,
                    )
                    return Transferred(answered, landed - answered)
            except TransferFailed as error:
                raise Refused(
                    503, f"The KV transfer failed: {error}", code="transfer_failed"
                ) from None
            except TimeoutError:
                http = "no answer" if answered is None else f"200 after {answered:.1f} s"
                raise Refused(
                    504,
                    f"The KV did not land within {self._limit:g} s: the prefiller's HTTP gave "
                    f"{http}, {landing.progress()}.",
                    code="transfer_timeout",
                ) from None

    async def _prefill(
        self,
        leg: Leg,
        decoder: Engine,
        next_attempt: Callable[[], Awaitable[Outgoing]],
        request_id: str,
        landing: Landing,
    ) -> Engine:
        """Send the leg to a prefiller of the decoder's revision; the next replaces a lost one."""
        tried: set[str] = set()
        lost = 0
        while True:
            answering = [e for e in self._prefillers.usable if e.url not in tried]
            candidates = of_a_revision(answering, [decoder])
            if not candidates:
                names = ", ".join(self._prefillers.addresses) or "none is configured"
                kind = "prefiller of the decoder's revision" if answering else "prefiller"
                raise Refused(503, f"No {kind} answers ({names}).", code="no_prefiller")
            engine = self._strategy.choose(candidates)
            tried.add(engine.url)
            _log.info("DPD prefill selection: %s selected %s", self._strategy.name, engine.url)
            try:
                with engine.serving(), self._metrics.at_engine("prefill", leg.tokens):
                    await self._post(engine, next_attempt, leg, landing)
            except UpstreamError as error:
                if landing.ended:
                    await landing.wait()
                    return engine
                lost += error.sent
                refused = isinstance(error, ConnectFailed)
                if refused:
                    engine.seen_dead()
                if lost == LOST_PREFILLERS or not (refused or len(candidates) > 1):
                    raise Refused(502, f"The prefiller: {error}.", code="prefill_broke") from None
                _log.warning("%s The prefiller: %s", request_id, error)
                continue
            return engine

    async def _post(
        self,
        engine: Engine,
        next_attempt: Callable[[], Awaitable[Outgoing]],
        leg: Leg,
        landing: Landing,
    ) -> None:
        posting = asyncio.ensure_future(self._answer(engine, next_attempt))
        waiting = asyncio.ensure_future(landing.wait())
        try:
            # A transfer that fails early ends the leg although HTTP has not answered yet.
            both: set[asyncio.Future[Any]] = {posting, waiting}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done() and not posting.done():
                await waiting
            self._check_count(await posting, leg.tokens)
        finally:
            posting.cancel()
            waiting.cancel()
            await asyncio.gather(posting, waiting, return_exceptions=True)

    async def _answer(
        self, engine: Engine, next_attempt: Callable[[], Awaitable[Outgoing]]
    ) -> bytes:
        """Return the body of a prefiller's 200; the leg's own time limit is the only one."""
        async with self._upstream.send(
            engine, await next_attempt(), silence=None, again=next_attempt
        ) as response:
            with sorted_errors(engine):
                body = await response.read()
            if response.status != 200:
                headers = answer_headers(response.headers)
                private = response.status < 500 and b"kv_transfer_params" in body
                code = "prefill_status"
                raise EngineError(response.status, body, headers, code=code, private=private)
            return body

    def _check_count(self, body: bytes, counted: int) -> None:
        try:
            engine_count = json.loads(body)["usage"]["prompt_tokens"]
        except (ValueError, KeyError, TypeError, RecursionError):
            return
        if engine_count != counted:
            self._metrics.count_mismatches.inc()
            _log.warning(
                "the engine counted %s prompt tokens and the router %s: does the engine use "
                "another tokenizer or chat template?",
                engine_count,
                counted,
            )
