"""Every way a request can end: counted, logged, and answered."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web

from .answers import Refused, error_response
from .metrics import Metrics
from .relaying import Aborted
from .trips import Trip

_log = logging.getLogger(__name__)

Answer = Callable[[Trip], Awaitable[web.StreamResponse]]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Ending:
    """Turns answers into handlers of the server, and knows how many requests are open."""

    def __init__(self, metrics: Metrics, *, max_body_bytes: int) -> None:
        self.open = 0
        self._metrics = metrics
        self._max_body_bytes = max_body_bytes
        self._none_open = asyncio.Event()
        self._none_open.set()

    async def none_open(self) -> None:
        """Return when no request is open."""
        await self._none_open.wait()

    def handler(self, answer: Answer) -> Handler:
        """Return a handler that gives this answer, or what there is to say instead."""

        async def handle(request: web.Request) -> web.StreamResponse:
            trip = Trip.start(request)
            self.open += 1
            self._none_open.clear()
            status = "client_left"
            try:
                response, status = await self._end(trip, answer)
            finally:
                self.open -= 1
                if not self.open:
                    self._none_open.set()
                self._metrics.responses.labels(trip.path, status).inc()
            if not response.prepared:
                response.headers.update(trip.headers)
            return response

        return handle

    async def _end(self, trip: Trip, answer: Answer) -> tuple[web.StreamResponse, str]:
        """Return the response and what to count it as."""
        try:
            response = await answer(trip)
            return response, str(response.status)
        except Refused as error:
            refused = error
        except web.HTTPRequestEntityTooLarge:
            text = f"The request body is larger than {self._max_body_bytes} bytes."
            refused = Refused(413, text, code="too_large")
        except Aborted as aborted:
            _log.warning("%s aborted: %s", trip.id, aborted)
            return aborted.response, "aborted"
        except asyncio.CancelledError:
            _log.info("%s the client left after %.3f s", trip.id, trip.seconds)
            raise
        except ConnectionError:
            _log.info("%s the client left after %.3f s", trip.id, trip.seconds)
            return web.Response(), "client_left"
        except Exception:
            _log.exception("%s failed", trip.id)
            refused = Refused(500, "The router failed.", code="bug")
        _log.info("%s refused with %d: %s", trip.id, refused.status, refused)
        self._metrics.refused.labels(refused.code).inc()
        return error_response(refused), str(refused.status)
