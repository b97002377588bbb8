"""The receive buffer's rules, one behaviour a test; a model of them all is in test_buffer_model."""

from __future__ import annotations

from tests.engine.pages import Clock, Pages

from dpd_vllm.buffer import Denied, Granted, ReceiveBuffer, Usage, fullest

PULL_TIMEOUT = 300.0


class Stage:
    """A receive buffer of a few pages, and a short way to ask for them."""

    def __init__(self, total: int) -> None:
        self.pages = Pages(total)
        self.clock = Clock()
        self.buffer: ReceiveBuffer[str, int] = ReceiveBuffer(self.pages, PULL_TIMEOUT, self.clock)

    def ask(
        self, transfer: str, keys: str, remaining: int = 0, attempt: int = 1, again: bool = False
    ) -> Granted[int] | Denied:
        """Ask for a page for each letter of `keys`."""
        tokens = [256] * len(keys)
        return self.buffer.allocate(transfer, attempt, list(keys), tokens, remaining, again)

    def granted(
        self, transfer: str, keys: str, remaining: int = 0, attempt: int = 1, again: bool = False
    ) -> Granted[int]:
        answer = self.ask(transfer, keys, remaining, attempt, again)
        assert isinstance(answer, Granted), answer
        return answer

    def refused(self, transfer: str, keys: str, remaining: int = 0, attempt: int = 1) -> Denied:
        answer = self.ask(transfer, keys, remaining, attempt)
        assert isinstance(answer, Denied), answer
        return answer

    def put(self, transfer: str, keys: str, remaining: int = 0) -> list[int]:
        """Have chunks land; returns their pages."""
        answer = self.granted(transfer, keys, remaining)
        assert self.buffer.landed(answer.ticket)
        return answer.pages

    def read(self, key: str) -> int | None:
        """Start to copy a chunk out, as a decode request does."""
        return self.buffer.page(key, self.pages.hold)

    def visible(self, keys: str) -> str:
        return "".join(key for key in keys if self.buffer.contains(key))

    def uses(self) -> tuple[int, int, int, int]:
        """Return the counts of free, expected, wanted and cached pages."""
        usage = self.buffer.usage()
        return usage.free, usage.expected, usage.wanted, usage.cached


def test_a_chunk_is_not_visible_before_it_has_landed() -> None:
    stage = Stage(4)
    answer = stage.granted("t", "ab")
    assert stage.visible("ab") == ""
    assert stage.read("a") is None
    assert not stage.buffer.fetched("a")
    assert stage.buffer.usage() == Usage(total=4, free=2, expected=2, wanted=0, cached=0)
    assert stage.buffer.landed(answer.ticket)
    assert stage.visible("ab") == "ab"
    assert [stage.read("a"), stage.read("b")] == answer.pages
    assert stage.uses() == (2, 0, 2, 0)


def test_each_ticket_makes_its_own_chunks_visible_and_no_others() -> None:
    stage = Stage(4)
    first, second = stage.granted("t", "ab", 4), stage.granted("t", "cd", 2)
    assert stage.buffer.landed(second.ticket)
    assert stage.visible("abcd") == "cd"
    assert stage.buffer.landed(first.ticket)
    assert stage.visible("abcd") == "abcd"


def test_an_unknown_ticket_and_a_used_one_are_told() -> None:
    stage = Stage(2)
    ticket = stage.granted("t", "a").ticket
    assert not stage.buffer.landed(ticket + 1)
    assert stage.buffer.landed(ticket)
    assert not stage.buffer.landed(ticket)


def test_each_page_is_taken_for_as_many_tokens_as_its_chunk_has() -> None:
    stage = Stage(3)
    stage.put("s", "b")
    answer = stage.buffer.allocate("t", 1, ["a", "b", "c"], [256, 256, 17], 3)
    assert isinstance(answer, Granted)
    assert [stage.pages.tokens[page] for page in answer.pages] == [256, 17]


def test_an_allocation_is_granted_wholly_or_not_at_all() -> None:
    stage = Stage(4)
    stage.put("s", "xyz")
    refusal = stage.refused("t", "ab")
    assert refusal == Denied("2 pages needed, 1 of 4 free", "ask_again")
    assert stage.uses() == (1, 0, 3, 0)
    assert len(stage.granted("u", "c").pages) == 1


def test_a_prompt_larger_than_the_buffer_is_refused_for_good() -> None:
    stage = Stage(4)
    assert stage.refused("t", "ab", 5) == Denied(
        "the prompt needs 5 chunks of KV, the receive buffer holds 4: raise kvTransfer.bufferSize "
        "or keep such prompts short",
        "fail",
    )
    assert stage.refused("t", "abcde").then == "fail"
    assert stage.uses() == (4, 0, 0, 0)
    assert len(stage.granted("t", "abcd").pages) == 4


def test_two_long_prompts_never_wait_for_each_others_half() -> None:
    stage = Stage(4)
    stage.put("s", "ab", 4)
    assert stage.refused("t", "x", 3).reason == "3 pages needed, 0 of 4 free"
    assert (
        stage.refused("t", "x").then == "ask_again"
    )  # not even one page: the other half is promised
    stage.put("s", "cd", 2)
    for key in "abcd":
        assert stage.buffer.fetched(key)
    assert len(stage.granted("t", "x", 3).pages) == 1


def test_what_is_cached_counts_as_room_for_a_reservation_once() -> None:
    stage = Stage(4)
    stage.put("s", "ab")
    stage.buffer.fetched("a"), stage.buffer.fetched("b")
    stage.granted("t", "x", 4)  # promised: the 2 cached pages and 1 free one
    assert stage.refused("u", "a").then == "ask_again"  # a hit would take a page away from t
    assert len(stage.granted("t", "yzw", 3).pages) == 3


def test_a_landed_chunk_is_not_asked_for_again() -> None:
    stage = Stage(4)
    stage.put("s", "ab")
    answer = stage.granted("t", "abc")
    assert (answer.already_landed, len(answer.pages)) == ([0, 1], 1)
    assert stage.uses() == (1, 1, 2, 0)


def test_a_landed_chunk_is_kept_while_any_transfer_wants_it() -> None:
    stage = Stage(2)
    stage.put("s", "ab")
    stage.granted("t", "ab")
    for key in "ab":
        stage.buffer.fetched(key)
    assert stage.uses() == (0, 0, 2, 0)
    assert stage.refused("u", "x").then == "ask_again"
    stage.buffer.fetched("b")
    assert stage.uses() == (0, 0, 1, 1)
    stage.put("u", "x")
    assert stage.visible("abx") == "ax"


def test_the_least_recently_used_chunk_makes_room_first() -> None:
    stage = Stage(3)
    stage.put("s", "abc")
    for key in "abc":
        stage.buffer.fetched(key)
    stage.buffer.contains("a")
    stage.put("t", "x")
    assert stage.visible("abcx") == "acx"
    assert stage.pages.free_count() == 0


def test_a_chunk_still_being_written_is_written_again_by_a_second_prefiller() -> None:
    stage = Stage(4)
    slow, quick = stage.granted("s", "ab"), stage.granted("t", "ab")
    assert quick.already_landed == []
    assert not set(slow.pages) & set(quick.pages)
    assert stage.buffer.landed(quick.ticket)
    assert [stage.read("a"), stage.read("b")] == quick.pages
    assert stage.uses() == (0, 2, 2, 0)


def test_the_later_copy_is_given_back_and_still_counts_as_wanted() -> None:
    stage = Stage(4)
    slow, quick = stage.granted("s", "ab"), stage.granted("t", "ab")
    stage.buffer.landed(quick.ticket)
    assert stage.buffer.landed(slow.ticket)
    assert sorted(stage.pages.free) == sorted(slow.pages)
    assert stage.read("a") == quick.pages[0]
    stage.buffer.fetched("a")
    assert stage.uses() == (2, 0, 2, 0)  # by one request; the other still counts on it
    stage.buffer.fetched("a")
    assert stage.uses() == (2, 0, 1, 1)


def test_a_key_twice_in_one_prompt_keeps_one_page() -> None:
    stage = Stage(3)
    assert len(stage.put("t", "aba")) == 3
    assert stage.uses() == (1, 0, 2, 0)


def test_landed_chunks_that_nobody_fetches_are_freed_after_the_pull_timeout() -> None:
    stage = Stage(2)
    stage.put("t", "ab")
    stage.clock.now += PULL_TIMEOUT - 1
    assert stage.refused("u", "x").then == "ask_again"
    stage.clock.now += 1
    assert stage.uses() == (0, 0, 0, 2)
    assert len(stage.granted("u", "xy").pages) == 2


def test_the_pull_timeout_runs_from_the_landing() -> None:
    stage = Stage(1)
    answer = stage.granted("t", "a")
    stage.clock.now += PULL_TIMEOUT - 1
    stage.buffer.landed(answer.ticket)
    stage.clock.now += PULL_TIMEOUT - 1
    assert stage.uses() == (0, 0, 1, 0)
    stage.clock.now += 1
    assert stage.uses() == (0, 0, 0, 1)


def test_pages_of_a_writer_that_died_are_freed_after_the_timeout() -> None:
    stage = Stage(3)
    answer = stage.granted("t", "ab", 3)
    assert stage.refused("u", "x").then == "ask_again"  # promised to t
    stage.clock.now += PULL_TIMEOUT
    assert stage.uses() == (3, 0, 0, 0)
    assert not stage.buffer.landed(answer.ticket)
    assert stage.visible("ab") == ""
    assert len(stage.granted("u", "xyz").pages) == 3


def test_an_abandoned_transfer_frees_what_landed_and_what_it_was_promised() -> None:
    stage = Stage(4)
    stage.put("t", "ab", 4)
    stage.buffer.abandon("t", 1)
    assert stage.uses() == (2, 0, 0, 2)
    assert len(stage.granted("u", "wxyz").pages) == 4


def test_pages_under_a_write_are_not_reused_when_their_transfer_is_abandoned() -> None:
    stage = Stage(2)
    answer = stage.granted("t", "ab")
    stage.buffer.abandon("t", 1)
    assert stage.uses() == (0, 2, 0, 0)
    assert stage.refused("u", "x").then == "ask_again"
    stage.buffer.landed(answer.ticket)
    assert stage.uses() == (0, 0, 0, 2)  # right bytes, wanted by nobody
    assert len(stage.granted("u", "x").pages) == 1


def test_a_released_transfer_frees_what_landed_and_gets_nothing_more() -> None:
    stage = Stage(4)
    stage.put("t", "ab", 4)
    stage.buffer.release("t")
    assert stage.uses() == (2, 0, 0, 2)
    gone = Denied("the router has given this request up", "stop")
    assert stage.refused("t", "cd", 2) == gone
    assert stage.uses() == (2, 0, 0, 2)
    assert len(stage.granted("u", "wxyz").pages) == 4


def test_what_lands_for_a_released_transfer_is_nobodys() -> None:
    stage = Stage(2)
    answer = stage.granted("t", "ab")
    stage.buffer.release("t")
    assert stage.uses() == (0, 2, 0, 0)  # still written to
    assert stage.buffer.landed(answer.ticket)
    assert stage.uses() == (0, 0, 0, 2)


def test_releasing_one_transfer_keeps_what_another_wants() -> None:
    stage = Stage(1)
    stage.put("s", "a")
    stage.granted("t", "a")
    stage.buffer.release("s")
    assert stage.uses() == (0, 0, 1, 0)
    stage.buffer.release("t")
    assert stage.uses() == (0, 0, 0, 1)


def test_a_release_is_remembered_for_the_pull_timeout_from_its_last_time() -> None:
    stage = Stage(1)
    stage.buffer.release("s")
    stage.buffer.release("t")
    stage.clock.now += PULL_TIMEOUT - 1
    stage.buffer.release("s")
    stage.clock.now += 1
    assert len(stage.granted("t", "a").pages) == 1
    assert stage.refused("s", "a").then == "stop"
    stage.clock.now += PULL_TIMEOUT
    assert stage.granted("s", "b").pages


def test_room_is_reserved_for_as_many_prompts_of_a_request_as_fit_in_their_order() -> None:
    stage = Stage(6)
    stage.granted("s", "x")
    assert stage.buffer.reserve(["a", "b", "c", "d"], [2, 2, 2, 1]) == 2
    assert stage.buffer.reserve(["e"], [2]) == 0
    assert stage.buffer.reserve(["f"], [1]) == 1
    assert stage.refused("g", "w").then == "ask_again"
    assert len(stage.granted("a", "ij", 2).pages) == 2
    assert len(stage.granted("b", "k", 2).pages) == 1
    stage.buffer.release("a")
    stage.buffer.release("b")
    stage.buffer.release("f")
    assert stage.buffer.reserve(["e"], [2]) == 1  # the writes of a and b are still under way


def test_room_is_never_reserved_for_more_than_the_buffer_holds() -> None:
    stage = Stage(4)
    never = stage.buffer.reserve(["a", "b"], [1, 5])
    assert isinstance(never, Denied) and never.then == "fail"
    assert never.reason.startswith("the prompt needs 5 chunks of KV, the receive buffer holds 4: ")
    assert stage.buffer.reserve(["c"], [4]) == 1


def test_a_reservation_ends_with_its_request_or_its_time() -> None:
    stage = Stage(2)
    stage.put("s", "ab")
    for key in "ab":
        stage.buffer.fetched(key)
    assert stage.buffer.reserve(["t"], [2]) == 1  # cached pages are room
    assert stage.visible("ab") == "ab"
    assert stage.buffer.reserve(["u"], [1]) == 0
    stage.buffer.release("t")
    assert stage.buffer.reserve(["t"], [1]) == 0  # its request has ended
    assert stage.buffer.reserve(["u"], [1]) == 1
    stage.clock.now += PULL_TIMEOUT
    assert stage.buffer.reserve(["v"], [2]) == 1


def test_pages_of_an_answer_that_was_not_heard_are_free_at_once() -> None:
    stage = Stage(4)
    stage.granted("t", "abc", 3)
    stage.granted("t", "abc", again=True)
    assert stage.uses() == (1, 3, 0, 0)


def test_pages_of_a_transfer_given_up_without_a_write_are_free_at_once() -> None:
    stage = Stage(4)
    stage.put("t", "a", 4)
    stage.granted("t", "bc", 3)
    stage.buffer.abandon("t", 1, unwritten=True)
    assert stage.uses() == (3, 0, 0, 1)
    # What was asked for before, and comes late.
    assert stage.refused("t", "bcd").then == "stop"


def test_a_further_attempt_gets_pages_of_its_own() -> None:
    stage = Stage(4)
    first = stage.granted("t", "ab", attempt=1)  # its write may be under way
    second = stage.granted("t", "ab", attempt=2, again=True)
    assert not set(first.pages) & set(second.pages)
    assert stage.uses() == (0, 4, 0, 0)
    assert stage.buffer.landed(second.ticket)
    assert stage.buffer.landed(first.ticket)  # the same KV: one copy is kept
    assert stage.uses() == (2, 0, 2, 0)


def test_what_is_given_up_of_one_attempt_stays_with_the_next() -> None:
    stage = Stage(6)
    stage.granted("t", "ab", 3, attempt=1)
    landed = stage.granted("t", "ab", 3, attempt=2)
    stage.buffer.landed(landed.ticket)
    stage.buffer.abandon("t", 1, unwritten=True)
    assert stage.uses() == (4, 0, 2, 0)
    assert stage.buffer.reserve(["u"], [4]) == 0  # a page is promised to t
    denied = Denied("this attempt at the transfer was given up", "stop")
    assert stage.refused("t", "c", attempt=1) == denied
    stage.granted("t", "c", attempt=2)


def test_what_landed_of_an_earlier_attempt_is_room_for_the_next() -> None:
    stage = Stage(4)
    stage.put("t", "ab", 4)
    stage.put("t", "c", 2)
    stage.granted("t", "ab", 4, attempt=2)  # finds a and b, and needs room for c and d
    assert stage.buffer.reserve(["u"], [1]) == 0
    assert stage.refused("t", "d").then == "stop"  # of the first attempt
    stage.granted("t", "cd", 2, attempt=2)
    assert stage.uses() == (0, 1, 3, 0)


def test_pages_an_earlier_attempt_may_write_to_are_not_the_next_ones() -> None:
    stage = Stage(4)
    stage.granted("t", "ab", 4)
    assert stage.refused("t", "ab", 4, attempt=2).then == "ask_again"
    stage.clock.now += PULL_TIMEOUT
    stage.granted("t", "ab", 4, attempt=2)


def test_abandoning_one_transfer_keeps_what_another_wants() -> None:
    stage = Stage(1)
    stage.put("s", "a")
    stage.granted("t", "a")
    stage.buffer.abandon("s", 1)
    stage.buffer.abandon("unknown", 1)
    assert stage.uses() == (0, 0, 1, 0)


def test_a_page_is_never_reused_while_it_is_read() -> None:
    stage = Stage(2)
    stage.put("t", "ab")
    page = stage.read("a")
    assert page is not None
    stage.buffer.fetched("a"), stage.buffer.fetched("b")
    assert stage.uses() == (0, 0, 0, 2)
    assert stage.refused("u", "xy") == Denied("2 pages needed, 1 of 2 free", "ask_again")
    assert page not in stage.granted("u", "x").pages
    assert stage.visible("ab") == "a"
    stage.pages.release(page)
    assert stage.granted("v", "y").pages == [page]


def test_of_several_ranks_the_one_that_holds_most_is_the_fullest() -> None:
    idle = Usage(total=8, free=0, expected=0, wanted=0, cached=8)
    writing = Usage(total=8, free=5, expected=3, wanted=0, cached=0)
    both = Usage(total=8, free=4, expected=2, wanted=2, cached=0)
    assert fullest([idle, both, writing]) == both
    assert fullest([writing, idle]) == writing
