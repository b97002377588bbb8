"""Waiting for the engines' word that a transfer has landed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager

import zmq
import zmq.asyncio

from .addresses import join_address
from .lmcache import Notice, read_notice
from .metrics import Metrics

_log = logging.getLogger(__name__)

# A notice has some hundred bytes; ZeroMQ cuts the connection of a peer that sends more than this.
MAX_NOTICE_BYTES = 65536
# Notices that may wait in memory, for each engine; after that the engine waits.
MAX_WAITING_NOTICES = 10_000
# Messages taken in a row before requests get their turn.
BURST = 64
# Seconds between two log lines about messages that are no notices.
LOG_EVERY_SECONDS = 1.0


class TransferFailed(Exception):
    """An engine reported that a transfer did not land."""


class Landing:
    """One transfer that is waited for, and the latest attempt at it."""

    def __init__(self) -> None:
        self.attempt = 0
        self.ranks: int | None = None
        self._landed: set[int] = set()
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next_attempt(self) -> int:
        """Wait for a further attempt's reports instead; return its number, the first of them 1."""
        self.attempt += 1
        self.ranks = None
        self._landed.clear()
        return self.attempt

    @property
    def ended(self) -> bool:
        """Whether `wait` would return, or raise, at once."""
        return self._done.done()

    def note(self, notice: Notice, attempt: int) -> None:
        """Take in one rank's report; one of an earlier attempt tells nothing."""
        if self._done.done() or attempt < self.attempt:
            return
        if notice.error:
            self._done.set_exception(TransferFailed(notice.error))
            return
        self.ranks = notice.ranks
        self._landed.add(notice.rank)
        if len(self._landed) >= notice.ranks:
            self._done.set_result(None)

    async def wait(self) -> None:
        """Return when every rank has landed.

        Raises:
            TransferFailed: a rank reported an error.
        """
        await asyncio.shield(self._done)

    def progress(self) -> str:
        """Say how far the transfer is, for an error's text."""
        if self.ranks is None:
            return "no rank reported"
        return f"{len(self._landed)} of {self.ranks} ranks reported"

    def forget(self) -> None:
        """Drop the result, so that nobody misses an error that came too late."""
        if self._done.done() and not self._done.cancelled():
            self._done.exception()
        self._done.cancel()


class Notices:
    """The transfers under way, and the socket on which the engines report them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._landings: dict[str, Landing] = {}
        self._socket: zmq.asyncio.Socket | None = None
        self._quiet_until = 0.0

    @contextmanager
    def expected(self, transfer_id: str) -> Iterator[Landing]:
        """Keep a place for a transfer's reports for as long as the block runs."""
        landing = self._landings[transfer_id] = Landing()
        self._metrics.transfers_waiting.set(len(self._landings))
        try:
            yield landing
        finally:
            del self._landings[transfer_id]
            self._metrics.transfers_waiting.set(len(self._landings))
            landing.forget()

    def take(self, *parts: bytes) -> None:
        """Take in one message from an engine; a strange one is counted and dropped."""
        try:
            (message,) = parts
            notice = read_notice(message)
        except Exception as error:
            # Whatever decoding leads to (too deep a nesting too): anybody may send anything here.
            self._metrics.notices_invalid.inc()
            self._complain(error)
            return
        transfer_id, attempt = notice.of
        landing = self._landings.get(transfer_id)
        if landing is None:
            self._metrics.notices_unknown.inc()
            _log.debug("ignoring a notice for the unknown transfer %.100r", notice.req_id)
            return
        landing.note(notice, attempt)

    def _complain(self, error: Exception) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + LOG_EVERY_SECONDS
            _log.warning("ignoring a message that is no notice: %s", error)

    def bind(self, ip: str, port: int) -> None:
        """Open the socket for notices.

        Raises:
            OSError: the address is not this machine's, or is taken.
        """
        self._socket = zmq.asyncio.Context.instance().socket(zmq.PULL)
        self._socket.setsockopt(zmq.LINGER, 0)
        self._socket.setsockopt(zmq.RCVHWM, MAX_WAITING_NOTICES)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MAX_NOTICE_BYTES)
        self._socket.setsockopt(zmq.IPV6, 1 if ":" in ip else 0)
        address = f"tcp://{join_address(ip, port)}"
        try:
            self._socket.bind(address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, f"{error} ({address})") from error

    async def listen(self) -> None:
        """Take in messages; runs until cancelled."""
        assert self._socket is not None, "bind first"
        while True:
            for _ in range(BURST):
                self.take(*await self._socket.recv_multipart())
            # Receiving what is there already does not let other tasks run.
            await asyncio.sleep(0)

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close(0)
