"""The receive buffer under any order of events, against what must hold in each of them."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.engine.pages import Clock, Pages

from dpd_vllm.buffer import Denied, Granted, ReceiveBuffer

TOTAL = 5
PULL_TIMEOUT = 10.0
KEYS = st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4)
TRANSFERS = st.sampled_from("rstu")
ATTEMPTS = st.integers(1, 2)


@dataclass
class Write:
    """A ticket's pages, until it has landed."""

    transfer: str
    attempt: int
    bytes_of: dict[int, str]  # key by page


class Decoder(RuleBasedStateMachine):
    """Prefillers that write at their own pace, and requests that fetch, over a few pages."""

    def __init__(self) -> None:
        super().__init__()
        self.pages = Pages(TOTAL)
        self.clock = Clock()
        self.buffer: ReceiveBuffer[str, int] = ReceiveBuffer(self.pages, PULL_TIMEOUT, self.clock)
        self.writes: dict[int, Write] = {}
        self.promised: dict[str, int] = {}  # chunks that a transfer may still bring
        self.bytes: dict[int, str] = {}  # by page: the key whose KV it holds, "" while written to
        self.asked_last: dict[str, int] = {}  # attempt by transfer
        self.released: set[str] = set()  # transfers whose request has ended
        self.given_up: set[tuple[str, int]] = set()  # transfer and attempt that writes nothing
        self.landed: set[str] = set()  # keys of all writes that were ever complete
        self.readers: list[tuple[int, str]] = []

    def is_denied(self, transfer: str, attempt: int) -> bool:
        earlier = attempt < self.asked_last.get(transfer, 0)
        return earlier or transfer in self.released or (transfer, attempt) in self.given_up

    def drop_writes(self, transfer: str, attempt: int) -> None:
        theirs = (transfer, attempt)
        kept = {n: w for n, w in self.writes.items() if (w.transfer, w.attempt) != theirs}
        self.writes = kept

    @rule(
        transfer=TRANSFERS,
        attempt=ATTEMPTS,
        keys=KEYS,
        later=st.integers(0, 3),
        again=st.booleans(),
    )
    def allocate(
        self, transfer: str, attempt: int, keys: list[str], later: int, again: bool
    ) -> None:
        before = self.buffer.usage()
        remaining = len(keys) + later
        answer = self.buffer.allocate(
            transfer, attempt, keys, [1] * len(keys), remaining, again=again
        )
        denied = self.is_denied(transfer, attempt)
        first = attempt > self.asked_last.get(transfer, 0)
        if again and not denied:
            self.drop_writes(transfer, attempt)
        if isinstance(answer, Denied):
            assert again or first or self.buffer.usage() == before
            fits = len(keys) + later <= TOTAL
            assert answer.then == ("stop" if denied else "ask_again" if fits else "fail")
            if answer.then == "ask_again" and transfer in self.promised:
                self.asked_last[transfer] = attempt
            return
        assert not denied
        self.note(transfer, attempt, keys, answer)
        self.promised[transfer] = later

    @rule(prompts=st.dictionaries(TRANSFERS, st.integers(1, 6), min_size=1))
    def reserve(self, prompts: dict[str, int]) -> None:
        before = self.buffer.usage()
        reserved = self.buffer.reserve(list(prompts), list(prompts.values()))
        assert self.buffer.usage() == before
        if isinstance(reserved, Denied):
            assert max(prompts.values()) > TOTAL
            return
        for transfer in list(prompts)[:reserved]:
            assert transfer not in self.released
            self.promised[transfer] = prompts[transfer]
            self.asked_last.pop(transfer, None)

    @precondition(lambda self: not self.readers and any(self.promised.values()))
    @rule(data=st.data(), attempt=ATTEMPTS)
    def bring_what_was_promised(self, data: st.DataObject, attempt: int) -> None:
        transfer = data.draw(st.sampled_from([t for t, n in self.promised.items() if n]))
        keys = [f"{transfer}{n}" for n in range(self.promised[transfer])]
        answer = self.buffer.allocate(transfer, attempt, keys, [1] * len(keys), len(keys))
        if self.is_denied(transfer, attempt):
            assert isinstance(answer, Denied) and answer.then == "stop"
            return
        assert isinstance(answer, Granted), answer
        self.note(transfer, attempt, keys, answer)
        self.promised[transfer] = 0

    def note(self, transfer: str, attempt: int, keys: list[str], answer: Granted[int]) -> None:
        missing = [key for i, key in enumerate(keys) if i not in answer.already_landed]
        assert {keys[i] for i in answer.already_landed} <= self.landed
        assert len(set(answer.pages)) == len(missing)
        assert not set(answer.pages) & {p for w in self.writes.values() for p in w.bytes_of}
        assert not set(answer.pages) & {page for page, _ in self.readers}
        self.bytes.update(dict.fromkeys(answer.pages, ""))
        bytes_of = dict(zip(answer.pages, missing, strict=True))
        self.writes[answer.ticket] = Write(transfer, attempt, bytes_of)
        self.asked_last[transfer] = attempt

    @precondition(lambda self: self.writes)
    @rule(data=st.data())
    def land(self, data: st.DataObject) -> None:
        ticket = data.draw(st.sampled_from(sorted(self.writes)))
        write = self.writes.pop(ticket)
        self.bytes.update(write.bytes_of)
        assert self.buffer.landed(ticket)
        self.landed.update(write.bytes_of.values())

    @rule(transfer=TRANSFERS, attempt=ATTEMPTS, unwritten=st.booleans())
    def abandon(self, transfer: str, attempt: int, unwritten: bool) -> None:
        self.buffer.abandon(transfer, attempt, unwritten)
        if self.asked_last.get(transfer, 0) <= attempt:
            self.promised.pop(transfer, None)
            self.asked_last.pop(transfer, None)
        if unwritten:
            self.drop_writes(transfer, attempt)
            self.given_up.add((transfer, attempt))

    @rule(transfer=TRANSFERS)
    def release(self, transfer: str) -> None:
        self.buffer.release(transfer)
        self.promised.pop(transfer, None)
        self.asked_last.pop(transfer, None)
        self.released.add(transfer)

    @precondition(lambda self: len(self.released) == 4)
    @rule()
    def nobody_wants_anything_when_all_are_released(self) -> None:
        assert self.buffer.usage().wanted == 0

    @rule(key=st.sampled_from("abcdefgh"))
    def read(self, key: str) -> None:
        visible = self.buffer.contains(key)
        page = self.buffer.page(key, self.pages.hold)
        assert (page is not None) == visible
        if page is not None:
            self.readers.append((page, key))

    @precondition(lambda self: self.readers)
    @rule()
    def end_reading(self) -> None:
        page, key = self.readers.pop(0)
        self.buffer.fetched(key)
        self.pages.release(page)

    @rule()
    def time_out(self) -> None:
        """Prefillers give a write up in half of this time, so what is under way never lands."""
        self.clock.now += PULL_TIMEOUT
        self.writes.clear()
        self.promised.clear()
        self.asked_last.clear()
        self.released.clear()
        self.given_up.clear()

    @invariant()
    def every_page_has_one_use(self) -> None:
        use = self.buffer.usage()
        assert use.free + use.expected + use.wanted + use.cached == use.total == TOTAL
        assert use.expected == sum(len(write.bytes_of) for write in self.writes.values())

    @invariant()
    def what_is_visible_has_its_own_bytes(self) -> None:
        for key in "abcdefgh":
            page = self.buffer.page(key, lambda page: None)
            assert page is None or self.bytes[page] == key

    @invariant()
    def what_is_read_does_not_change(self) -> None:
        assert all(self.bytes[page] == key for page, key in self.readers)

    def teardown(self) -> None:
        while self.readers:
            self.end_reading()
        self.time_out()
        use = self.buffer.usage()
        assert (use.expected, use.wanted, use.free + use.cached) == (0, 0, TOTAL)
        keys = [f"new{n}" for n in range(TOTAL)]
        assert isinstance(self.buffer.allocate("new", 1, keys, [1] * TOTAL, TOTAL), Granted)


TestDecoder = Decoder.TestCase
TestDecoder.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
