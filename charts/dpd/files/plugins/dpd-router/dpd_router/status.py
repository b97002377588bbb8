"""What the router says about itself: alive, ready, and its metrics."""

from __future__ import annotations

from aiohttp import web

from .engines import Pool
from .metrics import Metrics


class Status:
    """Answers /health, /ready and /metrics.

    A prefiller is needed to become ready. Short prompts are served without one too, so that a
    router stays ready when the last one is away.
    """

    def __init__(
        self, *, prefillers: Pool, decoders: Pool, needs_prefiller: bool, metrics: Metrics
    ) -> None:
        self.draining = False
        self.loaded = False
        self._prefillers = prefillers
        self._decoders = decoders
        self._waits_for_prefiller = needs_prefiller
        self._metrics = metrics

    def missing(self) -> list[str]:
        """Return what keeps the router from being ready, in words."""
        if self._prefillers.usable:
            self._waits_for_prefiller = False
        reasons = {
            "the router is stopping": self.draining,
            "the tokenizer is not loaded": not self.loaded,
            "no decoder answers": not self._decoders.usable,
            "no prefiller has answered yet": self._waits_for_prefiller,
        }
        return [reason for reason, holds in reasons.items() if holds]

    async def health(self, request: web.Request) -> web.Response:
        """Answer 200 as long as the process lives."""
        return web.Response()

    async def ready(self, request: web.Request) -> web.Response:
        """Answer 200 if requests can be served, else 503 with what is missing."""
        missing = self.missing()
        body = {"ready": not missing, "missing": missing}
        return web.json_response(body, status=503 if missing else 200)

    async def metrics_text(self, request: web.Request) -> web.Response:
        """Answer with all metrics."""
        for pool in (self._prefillers, self._decoders):
            usable = len(pool.usable)
            self._metrics.engines.labels(pool.role, "answers").set(usable)
            self._metrics.engines.labels(pool.role, "silent").set(len(pool.engines) - usable)
        return web.Response(
            body=self._metrics.text(), headers={"Content-Type": "text/plain; version=0.0.4"}
        )
