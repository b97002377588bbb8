"""A request's way through the router: parse, count, decide, transfer, relay."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TypeVar

import aiohttp
from aiohttp import web

from .answers import EngineError, Refused
from .choosing import Strategy, of_a_revision
from .config import Routing
from .counting import Counted, Counter, Direct, split_prompts
from .deciding import UNPAIRED, Decision, decide
from .engines import Engine, Pool
from .metrics import Metrics
from .parsing import BadRequest, Parsed, Route, parse
from .prefilling import prefill_body
from .relaying import relay
from .transferring import Leg, Transfer
from .trips import Trip, clean_id
from .upstream import ConnectFailed, Outgoing, Upstream, UpstreamError, UpstreamTimeout
from .upstream import forwarded_headers as forwarded

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Bodies up to this many bytes are parsed on the event loop; larger ones would hold it up.
SMALL_BODY = 65536


class Serving:
    """Answers API requests with the engines' help."""

    def __init__(
        self,
        *,
        routing: Routing,
        prefillers: Pool,
        decoders: Pool,
        strategy: Strategy,
        upstream: Upstream,
        transfer: Transfer,
        metrics: Metrics,
        workers: Executor,
        idle_seconds: float,
    ) -> None:
        self.counter: Counter | None = None
        self._routing = routing
        self._prefillers = prefillers
        self._decoders = decoders
        self._strategy = strategy
        self._upstream = upstream
        self._transfer = transfer
        self._metrics = metrics
        self._workers = workers
        self._idle_seconds = idle_seconds

    async def generate(self, trip: Trip, route: Route) -> web.StreamResponse:
        """Answer a completion or chat request.

        Raises:
            Refused: with the answer for the client.
            Aborted: the answer broke off on its way.
        """
        parsed = await self._parse(trip, await self._read(trip))
        counted = await self._count(trip, route, parsed)
        decoders = self._decoders.usable
        paired = of_a_revision(decoders, self._prefillers.usable)
        decision = decide(counted, self._routing, paired=bool(paired) or not decoders)
        self._report(trip, counted, decision)
        if not decision.prompts:
            return await self._relay_to_any(trip, parsed.forward, self._choose(decoders))
        decoder = self._choose(paired)
        legs = self._legs(route, parsed, counted, decision, decoder)
        with decoder.serving(), self._transfer.wanted(legs, decoder):
            await self._move_kv(trip, legs, decoder)
            return await self._relay(trip, parsed.forward, decoder)

    async def pass_on(self, trip: Trip) -> web.StreamResponse:
        """Answer any other request by handing it to a decoder.

        Raises:
            Refused: with the answer for the client.
            Aborted: the answer broke off on its way.
        """
        trip.path = "passed"
        raw = await self._read(trip)
        if raw:
            try:
                raw = (await self._off_loop(len(raw), parse, raw)).forward
            except BadRequest as error:
                # A form or a sound holds nothing that an engine takes for transfer parameters;
                # of what an engine may read as JSON nothing passes that was not looked through.
                if trip.may_be_json:
                    raise Refused(400, str(error), code="bad_json") from None
        return await self._relay_to_any(trip, raw, self._choose(self._decoders.usable))

    async def _read(self, trip: Trip) -> bytes:
        try:
            return await trip.request.read()
        except web.RequestPayloadError as error:
            text = f"The request body cannot be read: {error}"
            raise Refused(400, text, code="bad_body") from None

    async def _parse(self, trip: Trip, raw: bytes) -> Parsed:
        try:
            parsed = await self._off_loop(len(raw), parse, raw)
        except BadRequest as error:
            raise Refused(400, str(error), code="bad_json") from None
        named = clean_id(parsed.body.get("request_id"))
        if named and "X-Request-Id" not in trip.request.headers:
            trip.rename(named)
        return parsed

    async def _count(self, trip: Trip, route: Route, parsed: Parsed) -> Counted:
        if self.counter is None:
            raise Refused(503, "The router is still loading the tokenizer.", code="loading")
        if trip.media_type != "application/json":
            return Counted(direct=Direct("content_type", "the content type is not JSON"))
        with self._metrics.count_seconds.time():
            return await self._off_loop(None, self.counter.count, route, parsed.body)

    def _report(self, trip: Trip, counted: Counted, decision: Decision) -> None:
        trip.path = decision.path
        trip.prompt_tokens = counted.total
        trip.headers["x-dpd-path"] = decision.path
        trip.headers["x-dpd-reason"] = decision.reason
        if counted.tokens:
            trip.headers["x-dpd-prompt-tokens"] = str(counted.total)
        self._metrics.requests.labels(decision.path, decision.code).inc()
        self._metrics.prompt_tokens.labels(decision.path).inc(counted.total)
        _log.info(
            "Conditional routing: estimated_tokens=%s, threshold=%d, disaggregate=%s",
            max(counted.tokens) if counted.tokens else "unknown",
            self._routing.threshold,
            bool(decision.prompts),
        )
        if decision is UNPAIRED:
            _log.warning(
                "%s goes to a decoder directly: decoders are of revision %s, prefillers of %s",
                trip.id,
                self._decoders.revisions,
                self._prefillers.revisions,
            )

    def _choose(self, decoders: Sequence[Engine]) -> Engine:
        if not decoders:
            names = ", ".join(self._decoders.addresses)
            raise Refused(503, f"No decoder answers ({names}).", code="no_decoder")
        return self._strategy.choose(decoders)

    def _legs(
        self,
        route: Route,
        parsed: Parsed,
        counted: Counted,
        decision: Decision,
        decoder: Engine,
    ) -> list[Leg]:
        prompts = [None] if route == "chat" else split_prompts(parsed.body["prompt"])
        protocol = self._transfer.protocol

        def leg(index: int) -> Leg:
            transfer_id = protocol.new_transfer_id()

            def make_body(attempt_id: str) -> Awaitable[bytes]:
                body = partial(
                    prefill_body,
                    route,
                    parsed.body,
                    prompt=prompts[index],
                    truncate_to=counted.truncate_to,
                    transfer_params=protocol.transfer_params(attempt_id, decoder),
                )
                return self._write(len(parsed.forward), body)

            return Leg(transfer_id, make_body, counted.tokens[index])

        return [leg(index) for index in decision.prompts]

    async def _move_kv(self, trip: Trip, legs: Sequence[Leg], decoder: Engine) -> None:
        try:
            done = await self._transfer.run(
                legs,
                decoder=decoder,
                path=trip.path_and_query,
                headers=forwarded(trip.request.headers),
                request_id=trip.id,
            )
        except EngineError as error:
            if not error.private:
                raise
            # It echoes the prefill leg. The decoder refuses the client's own words.
            _log.warning(
                "%s: the prefiller answered %d: %s", trip.id, error.status, error.body[:2000]
            )
            return
        if done.left_to_decoder:
            count = f"{done.left_to_decoder} of {len(legs)} prompts"
            trip.headers["x-dpd-reason"] += f"; no room in the receive buffer for {count}"
        trip.prefill_seconds = done.prefill_seconds + done.transfer_seconds
        trip.headers["x-dpd-prefill-seconds"] = f"{done.prefill_seconds:.4f}"
        trip.headers["x-dpd-transfer-seconds"] = f"{done.transfer_seconds:.4f}"

    async def _write(self, size: int, make_body: Callable[[], bytes]) -> bytes:
        try:
            return await self._off_loop(size, make_body)
        except BadRequest as error:
            raise Refused(400, str(error), code="bad_json") from None

    async def _relay_to_any(self, trip: Trip, body: bytes, decoder: Engine) -> web.StreamResponse:
        """Relay from a decoder; one to which no connection can be made is passed over."""
        tried: frozenset[str] = frozenset()
        while True:
            try:
                with decoder.serving():
                    return await self._relay(trip, body, decoder)
            except Refused as refused:
                if refused.code != "decoder_connect":
                    raise
                tried |= {decoder.url}
                left = [engine for engine in self._decoders.usable if engine.url not in tried]
                if not left:
                    raise
                decoder = self._choose(left)

    async def _relay(self, trip: Trip, body: bytes, decoder: Engine) -> web.StreamResponse:
        if trip.client_left:
            raise asyncio.CancelledError
        headers = forwarded(trip.request.headers)
        headers["X-Request-Id"] = trip.id
        outgoing = Outgoing(trip.request.method, trip.path_and_query, body, headers)
        began = time.time()
        _log.info(
            "Routing request %s to decoder %s at %s, process time = %.4f",
            trip.id,
            decoder.url,
            began,
            trip.seconds - trip.prefill_seconds,
        )

        with self._metrics.at_engine("decode", trip.prompt_tokens):
            try:
                async with self._upstream.send(
                    decoder, outgoing, silence=self._idle_seconds
                ) as response:
                    return await relay(
                        trip.request,
                        response,
                        decoder,
                        added=trip.headers,
                        on_first_byte=partial(self._note_first_byte, trip, response),
                    )
            except ConnectFailed as error:
                decoder.seen_dead()
                raise Refused(502, f"The decoder: {error}.", code="decoder_connect") from None
            except UpstreamTimeout as error:
                raise Refused(504, f"The decoder: {error}.", code="decoder_timeout") from None
            except UpstreamError as error:
                raise Refused(502, f"The decoder: {error}.", code="decoder_broke") from None

    def _note_first_byte(self, trip: Trip, answer: aiohttp.ClientResponse) -> None:
        """Observe the time to the first token, if the first byte is a token's.

        Other answers come as a whole, and streams of other paths than completions and chats begin
        with events that the engine sends before it computes.
        """
        streamed = answer.status == 200 and answer.content_type == "text/event-stream"
        if streamed and trip.path != "passed":
            self._metrics.ttft_seconds.labels(trip.path).observe(trip.seconds)

    async def _off_loop(self, size: int | None, call: Callable[..., _T], *args: object) -> _T:
        """Run something that takes CPU time in a worker thread, unless its input is small."""
        if size is not None and size <= SMALL_BODY:
            return call(*args)
        return await asyncio.get_running_loop().run_in_executor(self._workers, call, *args)
