"""Asking an engine whether it is alive."""

from __future__ import annotations

import logging

from .engines import Engine
from .upstream import Outgoing, Upstream, UpstreamError, UpstreamTimeout

_log = logging.getLogger(__name__)

# Seconds that an engine may take to answer.
PROBE_SECONDS = 3.0


async def probe(upstream: Upstream, engine: Engine) -> None:
    """Ask for /health and note the result on the engine."""
    before = engine.answers
    try:
        outgoing = Outgoing("GET", "/health", b"")
        async with upstream.send(engine, outgoing, silence=PROBE_SECONDS) as response:
            await response.read()
            if response.status == 200:
                engine.seen_alive()
            else:
                engine.seen_dead()
    except UpstreamTimeout:
        engine.seen_late()
    except UpstreamError:
        engine.seen_dead()
    if engine.answers != before:
        word = "answers" if engine.answers else "does not answer"
        _log.info("%s engine %s %s", engine.role, engine.url, word)
