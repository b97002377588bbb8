"""The engines of one role: which addresses they have and which of them answer."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from .addresses import join_address, split_address

_log = logging.getLogger(__name__)

Resolve = Callable[[str, int], Awaitable[list[tuple[str, int]]]]
Probe = Callable[["Engine"], Awaitable[None]]

# A busy engine may answer a probe late: only this many late answers in a row make it unusable.
LATE_PROBES = 3
# An engine is asked for its revision when it turns up, and again after so many probes: a restart
# that no probe saw is then noticed too.
REVISION_PROBES = 15


class Engine:
    """One engine at one IP address.

    Only engines of the same revision understand each other's KV; revision is what this one says of
    itself, empty if it says nothing, and is known whenever the engine answers.
    """

    def __init__(self, role: str, ip: str, port: int) -> None:
        self.role = role
        self.ip = ip
        self.port = port
        self.url = f"http://{join_address(ip, port)}"
        self.in_flight = 0
        self.answers = False
        self.revision = ""
        self._late = 0
        self._probes_since_revision = 0

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Count a request as open on this engine for as long as the block runs."""
        self.in_flight += 1
        try:
            yield
        finally:
            self.in_flight -= 1

    @property
    def revision_due(self) -> bool:
        """Whether to ask for the revision before noting that the engine answered."""
        return not self.answers or self._probes_since_revision >= REVISION_PROBES

    def seen_revision(self, revision: str) -> None:
        """Note what the engine says its revision is."""
        if self.answers and revision != self.revision:
            _log.info("%s engine %s is now of revision %r", self.role, self.url, revision)
        self.revision = revision
        self._probes_since_revision = 0

    def seen_alive(self) -> None:
        """Note that the engine answered."""
        self.answers = True
        self._late = 0
        self._probes_since_revision += 1

    def seen_dead(self) -> None:
        """Note that nobody listens there, or that the engine says it is broken."""
        self.answers = False

    def seen_late(self) -> None:
        """Note that the engine took too long to answer a probe."""
        self._late += 1
        if self._late >= LATE_PROBES:
            self.answers = False


class Pool:
    """The engines of one role, kept current by `refresh`."""

    def __init__(self, role: str, addresses: Sequence[str], *, resolve: Resolve) -> None:
        self.role = role
        self.addresses = tuple(addresses)
        self._resolve = resolve
        self._last_good: dict[str, list[tuple[str, int]]] = {}
        self._engines: dict[tuple[str, int], Engine] = {}

    @property
    def engines(self) -> list[Engine]:
        """Every known engine, answering or not."""
        return list(self._engines.values())

    @property
    def usable(self) -> list[Engine]:
        """The engines that answer."""
        return [engine for engine in self._engines.values() if engine.answers]

    @property
    def revisions(self) -> list[str]:
        """The revisions of the engines that answer."""
        return sorted({engine.revision for engine in self.usable})

    async def refresh(self) -> None:
        """Resolve every address again; a name that fails keeps what it last gave."""
        for address in self.addresses:
            host, port = split_address(address)
            try:
                found = await self._resolve(host, port)
            except OSError as error:
                if address not in self._last_good:
                    _log.warning("%s engines: cannot resolve %s: %s", self.role, address, error)
                continue
            if found:
                self._last_good[address] = found
        wanted = {key for found in self._last_good.values() for key in found}
        for gone in self._engines.keys() - wanted:
            _log.info("%s engine %s is gone", self.role, self._engines.pop(gone).url)
        for key in sorted(wanted - self._engines.keys()):
            self._engines[key] = Engine(self.role, *key)
            _log.info("%s engine %s found", self.role, self._engines[key].url)


async def resolve(host: str, port: int) -> list[tuple[str, int]]:
    """Return every (ip, port) of a host name.

    Raises:
        OSError: the name cannot be resolved.
    """
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({(str(info[4][0]), int(info[4][1])) for info in found})


async def keep_current(pools: Sequence[Pool], probe: Probe, *, every: float) -> None:
    """Resolve and probe the pools' engines again and again; runs until cancelled.

    Args:
        pools: what to keep current.
        probe: asks one engine and notes the result on it.
        every: seconds between two rounds.
    """

    async def one(pool: Pool) -> None:
        try:
            await pool.refresh()
            await asyncio.gather(*(probe(engine) for engine in pool.engines))
        except Exception:
            _log.exception("%s engines: refresh failed", pool.role)

    while True:
        await asyncio.gather(*(one(pool) for pool in pools))
        await asyncio.sleep(every)
