"""HTTP to the engines: one connection pool, its time limits, and one safe retry.

Knows nothing of routing. Errors are sorted by what they mean for the caller.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from .engines import Engine
from .metrics import Metrics

_log = logging.getLogger(__name__)

# Seconds that an idle connection is kept: less than the engines keep theirs (90), so that an
# engine seldom closes one just as it is used again.
KEEP_ALIVE_SECONDS = 60.0
# Longest header line from an engine, in bytes.
MAX_HEADER_BYTES = 65536

# Headers that belong to one connection and must not be passed on (RFC 9110, 7.6.1).
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_NOT_FORWARDED = HOP_BY_HOP | {"host", "content-length", "content-encoding", "expect"}


class UpstreamError(Exception):
    """An engine gave no usable answer.

    sent: whether it may have got the request nevertheless.
    """

    sent = True


class ConnectFailed(UpstreamError):
    """No connection could be opened."""

    sent = False


class UpstreamTimeout(UpstreamError):
    """The engine was silent for longer than allowed."""


class UpstreamBroke(UpstreamError):
    """The connection ended before the answer did."""


class ClosedEarly(UpstreamBroke):
    """The connection ended before any byte of an answer."""


@dataclass(slots=True)
class _Attempt:
    reused: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request for an engine."""

    method: str
    path: str
    body: bytes
    headers: CIMultiDict[str] = field(default_factory=CIMultiDict)


def forwarded_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return a client's headers without those that belong to its connection."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (k, v) for k, v in headers.items() if k.lower() not in _NOT_FORWARDED | named
    )


def answer_headers(headers: Mapping[str, str]) -> CIMultiDict[str]:
    """Return an engine's headers without those that belong to its connection."""
    named = {name.strip().lower() for name in headers.get("Connection", "").split(",")}
    dropped = HOP_BY_HOP | named | {"content-length"}
    return CIMultiDict((k, v) for k, v in headers.items() if k.lower() not in dropped)


class Upstream:
    """The router's HTTP client. Create it inside a running event loop; close it in the end."""

    def __init__(self, *, connect_seconds: float, metrics: Metrics) -> None:
        self._connect_seconds = connect_seconds
        self._metrics = metrics
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_note_reuse)

        def session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
            return aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
                trace_configs=[trace],
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )

        self._pooled = session(
            aiohttp.TCPConnector(limit=0, limit_per_host=0, keepalive_timeout=KEEP_ALIVE_SECONDS)
        )
        self._fresh = session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def close(self) -> None:
        """Close all connections."""
        await self._pooled.close()
        await self._fresh.close()

    @asynccontextmanager
    async def send(
        self,
        engine: Engine,
        outgoing: Outgoing,
        *,
        silence: float | None,
        again: Callable[[], Awaitable[Outgoing]] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request and give its answer as soon as the headers are there.

        A connection from the pool that ends before a byte came back is tried once more on a new
        one: the engine had closed it while it was idle.

        Args:
            engine: where to.
            outgoing: what.
            silence: seconds to wait for each next byte; None for ever.
            again: makes what is sent the second time, if that differs.

        Raises:
            ConnectFailed, UpstreamTimeout, UpstreamBroke: there is no answer.
        """
        attempt = _Attempt()
        try:
            response = await self._request(self._pooled, engine, outgoing, silence, attempt)
        except ClosedEarly as error:
            if not attempt.reused:
                raise
            self._metrics.retries.inc()
            _log.info("trying again on a new connection: %s", error)
            if again is not None:
                outgoing = await again()
            try:
                response = await self._request(self._fresh, engine, outgoing, silence, _Attempt())
            except ConnectFailed as gone:
                gone.sent = True
                raise
        try:
            yield response
        except BaseException:
            response.close()
            raise
        finally:
            response.release()

    async def _request(
        self,
        session: aiohttp.ClientSession,
        engine: Engine,
        outgoing: Outgoing,
        silence: float | None,
        attempt: _Attempt,
    ) -> aiohttp.ClientResponse:
        with sorted_errors(engine):
            return await session.request(
                outgoing.method,
                URL(engine.url + outgoing.path, encoded=True),
                data=outgoing.body or None,
                headers=outgoing.headers,
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=self._connect_seconds, sock_read=silence
                ),
                trace_request_ctx=attempt,
            )


class sorted_errors:
    """Turn aiohttp's errors into this module's, as a context manager."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Raise this module's error for aiohttp's."""
        where = self._engine.url
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            raise ConnectFailed(f"cannot connect to {where}: {error}") from error
        if isinstance(error, TimeoutError):
            raise UpstreamTimeout(f"{where} was silent for too long") from error
        if isinstance(error, aiohttp.ClientError | ConnectionError):
            kind = ClosedEarly if _before_any_byte(error) else UpstreamBroke
            raise kind(f"{where} broke the connection: {error or type(error).__name__}") from error


def _before_any_byte(error: Exception) -> bool:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        # Holds the headers instead of a text if some had come.
        return isinstance(error.message, str)
    return isinstance(error, aiohttp.ClientOSError | ConnectionError)


async def _note_reuse(
    session: aiohttp.ClientSession, context: SimpleNamespace, params: object
) -> None:
    context.trace_request_ctx.reused = True
