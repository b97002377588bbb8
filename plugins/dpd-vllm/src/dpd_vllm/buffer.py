"""The decoder's receive buffer: which pages hold which chunk, and who still wants them.

A page is *expected* from its allocation until its bytes have landed. Only then does its key become
visible to the scheduler. A landed page is *wanted* by each transfer that counts on it, until a
request fetches it or the transfer is released; after that it is *cached*: still visible (a later
prompt with the same prefix need not send it again) and the first to go when room is needed.

A prompt whose prefiller was lost is sent again: a further attempt at its transfer, while the
earlier one may still be at work. What is said of an attempt, that it writes nothing or is given up,
holds for its own pages alone. The latest one that asked for pages is the one that counts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from dpd_vllm.messages import Then, router_start

K = TypeVar("K", bound=Hashable)
P = TypeVar("P")


class PagePool(Protocol[P]):
    """Where pages come from: all of one size, a chunk of KV each."""

    total: int

    def free_count(self) -> int:
        """Return how many pages are free now."""

    def take(self, tokens: int) -> P:
        """Return a free page for a chunk of `tokens` tokens."""

    def give_back(self, page: P) -> None:
        """Make a page free."""

    def is_read(self, page: P) -> bool:
        """Tell whether the engine is copying out of this page right now."""


@dataclass(frozen=True)
class Granted(Generic[P]):
    """The answer to an allocation: where to write what is not there yet."""

    ticket: int
    already_landed: list[int]
    pages: list[P]


@dataclass(frozen=True)
class Denied:
    """The answer when there is no room, or no need of any."""

    reason: str
    then: Then


@dataclass(frozen=True)
class Usage:
    """How the pages of the buffer are used. `free + expected + wanted + cached == total`."""

    total: int
    free: int
    expected: int
    wanted: int
    cached: int


def fullest(usages: Iterable[Usage]) -> Usage:
    """Return the usage with most pages that can't be reused yet; the first of equals."""
    return max(usages, key=lambda usage: usage.expected + usage.wanted)


@dataclass
class _Landed(Generic[P]):
    page: P
    wanted_by: dict[str, None] = field(default_factory=dict)  # transfer ids, oldest first


@dataclass
class _Ticket(Generic[K, P]):
    transfer_id: str
    attempt: int
    expected: list[tuple[K, P]]
    deadline: float


@dataclass
class _Transfer:
    reserved: int  # pages promised for chunks that are not computed yet
    deadline: float
    attempt: int = 0  # the latest that asked for pages


class ReceiveBuffer(Generic[K, P]):
    """Pages of the receive buffer by chunk key. All methods may be called from any thread.

    Args:
        pool: the pages.
        pull_timeout: seconds after which landed KV that no request fetched, or pages whose
            write never completed, are given up. Must exceed the sender's write timeout.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        pool: PagePool[P],
        pull_timeout: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = pool
        self._pull_timeout = pull_timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._landed: OrderedDict[K, _Landed[P]] = OrderedDict()  # least recently used first
        self._tickets: dict[int, _Ticket[K, P]] = {}
        self._transfers: dict[str, _Transfer] = {}
        # Until when, oldest first: attempts that were given up, and whole transfers as number 0.
        self._denied: OrderedDict[tuple[str, int], float] = OrderedDict()
        self._numbers = itertools.count(1)

    def reserve(self, transfer_ids: Sequence[str], chunks: Sequence[int]) -> int | Denied:
        """Reserve room for as many prompts of one request as there is room for, in their order.

        Room for all of them at once, so that two requests can't each hold room and wait for more.

        Args:
            transfer_ids: one for each prompt.
            chunks: of each prompt.

        Returns:
            For how many prompts, from the first, there is room now.
        """
        with self._lock:
            self._expire()
            if most := self._never(max(chunks)):
                return most
            room = self._room() - sum(t.reserved for t in self._transfers.values())
            deadline = self._clock() + self._pull_timeout
            for count, (transfer_id, needed) in enumerate(zip(transfer_ids, chunks, strict=True)):
                if needed > room or (transfer_id, 0) in self._denied:
                    return count
                room -= needed
                self._transfers[transfer_id] = _Transfer(needed, deadline)
            return len(transfer_ids)

    def allocate(
        self,
        transfer_id: str,
        attempt: int,
        keys: Sequence[K],
        tokens: Sequence[int],
        remaining_chunks: int,
        again: bool = False,
    ) -> Granted[P] | Denied:
        """Take a page for each key that has not landed; all of them or none.

        The first call of a transfer also reserves room for the chunks still to come, so that two
        long prompts can't each hold half of the buffer and wait for the other half.

        Args:
            transfer_id: unique to one prompt on its way to this decoder.
            attempt: at this transfer, from 1. With the first call of a further one the earlier ones
                have nothing to ask for any more, and what landed of them has to be found anew.
            keys: chunk keys in prompt order.
            tokens: tokens of each chunk.
            remaining_chunks: chunks still to come in this transfer, `keys` included.
            again: the answer to an earlier call was not heard, so nobody writes to its pages.
        """
        with self._lock:
            self._expire()
            if (transfer_id, 0) in self._denied:
                return Denied("the router has given this request up", "stop")
            mine = self._transfers.get(transfer_id) or _Transfer(0, 0.0)
            if attempt < mine.attempt or (transfer_id, attempt) in self._denied:
                return Denied("this attempt at the transfer was given up", "stop")
            if again:
                self._drop_tickets(transfer_id, attempt)
            remaining = max(remaining_chunks, len(keys))
            if most := self._never(remaining):
                return most
            if attempt > mine.attempt:
                # What an earlier one has sent is room, and stays promised to this transfer.
                mine.reserved += self._unwant(transfer_id)
                mine.attempt = attempt
            already = [i for i, key in enumerate(keys) if key in self._landed]
            others = sum(t.reserved for t in self._transfers.values() if t is not mine)
            hits = {keys[i] for i in already}
            room = self._room(hits)
            if remaining - len(already) > room - others:
                return Denied(
                    f"{remaining - len(already)} pages needed, {max(room - others, 0)} of "
                    f"{self._pool.total} free",
                    "ask_again",
                )
            deadline = self._clock() + self._pull_timeout
            self._transfers[transfer_id] = _Transfer(remaining - len(keys), deadline, attempt)
            for i in already:
                self._landed[keys[i]].wanted_by[transfer_id] = None
                self._landed.move_to_end(keys[i])
            missing = [i for i in range(len(keys)) if keys[i] not in hits]
            self._make_room(len(missing))
            expected = [(keys[i], self._pool.take(tokens[i])) for i in missing]
            ticket = next(self._numbers)
            self._tickets[ticket] = _Ticket(transfer_id, attempt, expected, deadline)
            return Granted(ticket, already, [page for _, page in expected])

    def landed(self, ticket: int) -> bool:
        """Show the ticket's chunks to the scheduler: their bytes are all here.

        Returns:
            False if the ticket is unknown (its time-out passed, or the process restarted).
        """
        with self._lock:
            known = self._tickets.pop(ticket, None)
            if known is None:
                return False
            transfer = self._transfers.get(known.transfer_id)
            if transfer is not None:
                transfer.deadline = self._clock() + self._pull_timeout
            for key, page in known.expected:
                entry = self._landed.get(key)
                if entry is None:
                    entry = self._landed[key] = _Landed(page)
                else:  # another prefiller's copy came first: the same KV, keep one
                    self._pool.give_back(page)
                if transfer is not None:
                    entry.wanted_by[known.transfer_id] = None
                self._landed.move_to_end(key)
            return True

    def abandon(self, transfer_id: str, attempt: int, unwritten: bool = False) -> None:
        """Forget a transfer that its prefiller gives up, unless there is a later attempt at it.

        Expected pages stay until their time-out, for a write may be under way; with `unwritten`
        there is none, and what the prefiller asked for before and was not heard of is denied.
        """
        with self._lock:
            transfer = self._transfers.get(transfer_id)
            if transfer is not None and transfer.attempt <= attempt:
                self._forget(transfer_id)
            if unwritten:
                self._drop_tickets(transfer_id, attempt)
                self._deny(transfer_id, attempt)

    def release(self, transfer_id: str) -> None:
        """Forget a transfer for good, since its request has ended.

        Its prefiller may not know yet: what it still asks for is denied, and what it still writes
        lands as nobody's. This is remembered for as long as KV waits for its request.
        """
        with self._lock:
            self._forget(transfer_id)
            self._deny(transfer_id, 0)

    def of_earlier_starts(self, transfer_id: str) -> list[str]:
        """Return the transfers of the same router's earlier processes, which nobody waits for."""
        router, start = router_start(transfer_id)
        with self._lock:
            theirs = ((i, *router_start(i)) for i in self._transfers)
            return [i for i, of, at in theirs if of == router and start and at and at != start]

    def contains(self, key: K) -> bool:
        """Tell whether a chunk has landed."""
        with self._lock:
            if key not in self._landed:
                return False
            self._landed.move_to_end(key)
            return True

    def page(self, key: K, hold: Callable[[P], None]) -> P | None:
        """Return a landed chunk's page after calling `hold` on it, or None if it is not here.

        `hold` must make `PagePool.is_read` true, so that the page is not reused while it is read.
        """
        with self._lock:
            entry = self._landed.get(key)
            if entry is None:
                return None
            hold(entry.page)
            return entry.page

    def fetched(self, key: K) -> bool:
        """Note that one request has copied a chunk out: its oldest want is met."""
        with self._lock:
            entry = self._landed.get(key)
            if entry is None:
                return False
            if entry.wanted_by:
                del entry.wanted_by[next(iter(entry.wanted_by))]
            self._landed.move_to_end(key)
            return True

    def usage(self) -> Usage:
        """Return how the pages are used, after giving up what timed out."""
        with self._lock:
            self._expire()
            expected = sum(len(t.expected) for t in self._tickets.values())
            wanted = sum(1 for entry in self._landed.values() if entry.wanted_by)
            return Usage(
                total=self._pool.total,
                free=self._pool.free_count(),
                expected=expected,
                wanted=wanted,
                cached=len(self._landed) - wanted,
            )

    def _never(self, chunks: int) -> Denied | None:
        if chunks <= self._pool.total:
            return None
        return Denied(
            f"the prompt needs {chunks} chunks of KV, the receive buffer holds "
            f"{self._pool.total}: raise kvTransfer.bufferSize or keep such prompts short",
            "fail",
        )

    def _room(self, but: Collection[K] = ()) -> int:
        """Return how many pages are free or can be reused, but for those of some keys."""
        return self._pool.free_count() + sum(
            1 for key, entry in self._landed.items() if key not in but and self._idle(entry)
        )

    def _deny(self, transfer_id: str, attempt: int) -> None:
        self._denied[transfer_id, attempt] = self._clock() + self._pull_timeout
        self._denied.move_to_end((transfer_id, attempt))

    def _drop_tickets(self, transfer_id: str, attempt: int) -> None:
        its = (transfer_id, attempt)
        self._give_back([n for n, t in self._tickets.items() if (t.transfer_id, t.attempt) == its])

    def _give_back(self, tickets: Sequence[int]) -> None:
        for ticket in tickets:
            for _, page in self._tickets.pop(ticket).expected:
                self._pool.give_back(page)

    def _idle(self, entry: _Landed[P]) -> bool:
        return not entry.wanted_by and not self._pool.is_read(entry.page)

    def _make_room(self, pages: int) -> None:
        short = pages - self._pool.free_count()
        if short <= 0:
            return
        idle = [key for key, entry in self._landed.items() if self._idle(entry)]
        for key in idle[:short]:
            self._pool.give_back(self._landed.pop(key).page)

    def _expire(self) -> None:
        now = self._clock()
        while self._denied and next(iter(self._denied.values())) <= now:
            self._denied.popitem(last=False)
        for transfer_id in [i for i, t in self._transfers.items() if t.deadline <= now]:
            self._forget(transfer_id)
        self._give_back([n for n, t in self._tickets.items() if t.deadline <= now])

    def _forget(self, transfer_id: str) -> None:
        if self._transfers.pop(transfer_id, None) is not None:
            self._unwant(transfer_id)

    def _unwant(self, transfer_id: str) -> int:
        """Take a transfer's wants back; return how many pages nobody wants now."""
        theirs = [entry for entry in self._landed.values() if transfer_id in entry.wanted_by]
        for entry in theirs:
            del entry.wanted_by[transfer_id]
        return sum(1 for entry in theirs if not entry.wanted_by)
