"""The HTTP server: its routes, its health, and its start and end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from aiohttp import web

from .addresses import join_address
from .answers import Refused
from .certificate import CHECK_SECONDS, Certificate
from .choosing import LeastInFlight
from .config import Config
from .counting import Counter
from .ending import Ending
from .engines import Pool, keep_current, resolve
from .lmcache import LMCachePD
from .metrics import Metrics
from .notices import Notices
from .probing import probe
from .releasing import Releases
from .reserving import Rooms
from .serving import Serving
from .status import Status
from .tokenizing import Tokenizer
from .transferring import Transfer
from .trips import Trip
from .upstream import Upstream

_log = logging.getLogger(__name__)

# Seconds between two rounds of resolving and probing the engines.
REFRESH_SECONDS = 2.0
# Largest request body in bytes, inflated: a million token ids or a handful of images fit well.
MAX_BODY_BYTES = 64 * 1024**2
MAX_HEADER_BYTES = 65536
# Any rest of a path, line breaks included.
ANYTHING = "{tail:(?s:.*)}"


class Router:
    """One router. Create it inside a running event loop, then start, and stop in the end."""

    def __init__(
        self,
        config: Config,
        *,
        pod_ip: str,
        load_tokenizer: Callable[[str, str | None], Tokenizer],
    ) -> None:
        self._config = config
        self._pod_ip = pod_ip
        self._load_tokenizer = load_tokenizer
        self._workers = ThreadPoolExecutor(thread_name_prefix="count")
        self.metrics = Metrics()
        self.upstream = Upstream(connect_seconds=config.timeouts.connect, metrics=self.metrics)
        self.notices = Notices(self.metrics)
        protocol = LMCachePD(join_address(pod_ip, config.notify_port), config.receiver)
        self.releases = Releases(protocol, answer_seconds=config.timeouts.connect)
        self.prefillers = Pool("prefill", config.prefill, resolve=resolve)
        self.decoders = Pool("decode", config.decode, resolve=resolve)
        self.serving = Serving(
            routing=config.routing,
            prefillers=self.prefillers,
            decoders=self.decoders,
            strategy=LeastInFlight(),
            upstream=self.upstream,
            transfer=Transfer(
                upstream=self.upstream,
                prefillers=self.prefillers,
                strategy=LeastInFlight(),
                protocol=protocol,
                notices=self.notices,
                rooms=Rooms(
                    protocol,
                    self.metrics,
                    answer_seconds=config.timeouts.connect,
                    limit_seconds=config.timeouts.room,
                ),
                releases=self.releases,
                metrics=self.metrics,
                limit_seconds=config.timeouts.transfer,
            ),
            metrics=self.metrics,
            workers=self._workers,
            idle_seconds=config.timeouts.idle,
        )
        self._status = Status(
            prefillers=self.prefillers,
            decoders=self.decoders,
            needs_prefiller=config.routing.mode != "never",
            metrics=self.metrics,
        )
        self._ending = Ending(self.metrics, max_body_bytes=MAX_BODY_BYTES)
        self._duties: list[asyncio.Task[None]] = []
        self._runner = web.AppRunner(
            self._app(),
            handler_cancellation=True,
            access_log=None,
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            shutdown_timeout=1.0,
        )

    def _app(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(self._close_when_draining)
        add, handler = app.router.add_route, self._ending.handler
        add("GET", "/health", self._status.health)
        add("GET", "/ready", self._status.ready)
        add("GET", "/metrics", self._status.metrics_text)
        add("POST", "/v1/completions", handler(lambda t: self.serving.generate(t, "completions")))
        add("POST", "/v1/chat/completions", handler(lambda t: self.serving.generate(t, "chat")))
        add("GET", "/v1/models", handler(self._models))
        pass_on = handler(self.serving.pass_on)
        for path in ("/v1/" + ANYTHING, "/v2/rerank", "/version"):
            add("*", path, pass_on)
        for name in ("tokenize", "detokenize", "pooling", "classify", "score", "rerank"):
            add("POST", f"/{name}", pass_on)
        add("*", "/" + ANYTHING, handler(_not_found))
        return app

    async def start(self) -> None:
        """Listen for notices and clients.

        Raises:
            ConfigError: the certificate cannot be used.
            OSError: an address is not this pod's or is taken.
        """
        listen = self._config.listen
        certificate = Certificate(listen.tls) if listen.tls else None
        self.notices.bind(self._pod_ip, self._config.notify_port)
        pools = (self.prefillers, self.decoders)
        self._duties = [
            asyncio.create_task(self.notices.listen()),
            asyncio.create_task(
                keep_current(pools, partial(probe, self.upstream), every=REFRESH_SECONDS)
            ),
        ]
        if certificate:
            self._duties.append(asyncio.create_task(certificate.keep_current(every=CHECK_SECONDS)))
        await self._runner.setup()
        host = listen.on(self._pod_ip)
        context = certificate.context if certificate else None
        site = web.TCPSite(self._runner, host, listen.port, backlog=1024, ssl_context=context)
        await site.start()
        _log.info(
            "listening on %s://%s, for notices on %s",
            "https" if certificate else "http",
            join_address(host, listen.port),
            join_address(self._pod_ip, self._config.notify_port),
        )

    async def load(self) -> None:
        """Load the tokenizer, after which the router can serve.

        Raises:
            Exception: whatever loading it leads to.
        """
        model = self._config.model
        loop = asyncio.get_running_loop()
        tokenizer = await loop.run_in_executor(
            self._workers, self._load_tokenizer, model.tokenizer, model.revision
        )
        self.serving.counter = Counter(tokenizer, max_len=model.max_len)
        self._status.loaded = True
        _log.info("tokenizer of %s loaded", model.tokenizer)

    async def drain(self) -> None:
        """Turn unready and wait until no request is open, but not longer than allowed."""
        self._status.draining = True
        limit = self._config.timeouts.drain
        _log.info("stopping: %d requests are open, waiting up to %g s", self._ending.open, limit)
        try:
            await asyncio.wait_for(self._ending.none_open(), limit)
        except TimeoutError:
            _log.warning("stopping although %d requests are open", self._ending.open)

    async def failed(self) -> None:
        """Return when one of the router's lasting duties has ended, which none should."""
        await asyncio.wait(self._duties, return_when=asyncio.FIRST_COMPLETED)
        for duty in self._duties:
            if duty.done():
                error = None if duty.cancelled() else duty.exception()
                _log.error("a duty of the router ended", exc_info=error)

    async def stop(self) -> None:
        """Close everything."""
        await self._runner.cleanup()
        for duty in self._duties:
            duty.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)
        self.notices.close()
        await self.releases.close()
        await self.upstream.close()
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def _close_when_draining(
        self, request: web.Request, response: web.StreamResponse
    ) -> None:
        """End kept-alive connections while stopping, so that clients go to other routers."""
        if self._status.draining:
            response.force_close()
            response.headers["Connection"] = "close"

    async def _models(self, trip: Trip) -> web.StreamResponse:
        if self.decoders.usable:
            return await self.serving.pass_on(trip)
        model = {"id": self._config.model.name, "object": "model", "created": 0, "owned_by": "dpd"}
        return web.json_response({"object": "list", "data": [model]})


async def _not_found(trip: Trip) -> web.StreamResponse:
    raise Refused(404, f"{trip.request.path} is not a path of this API.", code="not_found")
