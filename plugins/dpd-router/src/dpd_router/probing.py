"""Asking an engine whether it is alive, and of which revision it is."""

from __future__ import annotations

import asyncio
import logging
import re

from prometheus_client.parser import text_string_to_metric_families

from .engines import Engine
from .upstream import Outgoing, Upstream, UpstreamError, UpstreamTimeout, sorted_errors

_log = logging.getLogger(__name__)

# Seconds that an engine may take to answer.
PROBE_SECONDS = 3.0
# Bytes of an engine's metrics that are looked through; vLLM has some hundred thousand.
MAX_METRICS_BYTES = 4 * 1024**2
_INFO_LINE = re.compile(r"^dpd:engine_info\{.*$", re.MULTILINE)


async def probe(upstream: Upstream, engine: Engine) -> None:
    """Ask for /health, now and then for the revision, and note the result on the engine."""
    before = engine.answers
    try:
        if await _is_healthy(upstream, engine):
            if engine.revision_due:
                engine.seen_revision(await _revision(upstream, engine))
            engine.seen_alive()
        else:
            engine.seen_dead()
    except (UpstreamTimeout, TimeoutError):
        engine.seen_late()
    except UpstreamError:
        engine.seen_dead()
    if engine.answers != before:
        word = f"answers, revision {engine.revision!r}" if engine.answers else "does not answer"
        _log.info("%s engine %s %s", engine.role, engine.url, word)


async def _is_healthy(upstream: Upstream, engine: Engine) -> bool:
    outgoing = Outgoing("GET", "/health", b"")
    async with upstream.send(engine, outgoing, silence=PROBE_SECONDS) as response:
        with sorted_errors(engine):
            await response.read()
        return response.status == 200


async def _revision(upstream: Upstream, engine: Engine) -> str:
    outgoing = Outgoing("GET", "/metrics", b"")
    page = bytearray()
    async with (
        asyncio.timeout(PROBE_SECONDS),
        upstream.send(engine, outgoing, silence=None) as response,
    ):
        with sorted_errors(engine):
            async for chunk in response.content.iter_any():
                page += chunk
                if len(page) > MAX_METRICS_BYTES:
                    _log.warning("%s: metrics of more than %d bytes", engine.url, len(page))
                    break
        return revision_in(page.decode(errors="replace")) if response.status == 200 else ""


def revision_in(page: str) -> str:
    """Return the revision that a page of Prometheus metrics names; empty if it names none."""
    line = _INFO_LINE.search(page)
    if line is None:
        return ""
    try:
        (family,) = text_string_to_metric_families(line[0])
    except ValueError:
        return ""
    return family.samples[0].labels.get("revision", "")
