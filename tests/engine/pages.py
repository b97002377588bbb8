"""A page pool without LMCache, and a clock that tests move."""

from __future__ import annotations

from collections import Counter


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Pages:
    """`buffer.PagePool` whose pages are numbers. It refuses what would corrupt KV."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = list(range(total))
        self.tokens: dict[int, int] = {}  # of each page that is not free
        self._readers: Counter[int] = Counter()

    def free_count(self) -> int:
        return len(self.free)

    def take(self, tokens: int) -> int:
        page = self.free.pop(0)
        self.tokens[page] = tokens
        return page

    def give_back(self, page: int) -> None:
        assert page in self.tokens, f"page {page} was given back twice"
        assert not self.is_read(page), f"page {page} was given back while it was read"
        del self.tokens[page]
        self.free.append(page)

    def is_read(self, page: int) -> bool:
        return self._readers[page] > 0

    def hold(self, page: int) -> None:
        """Begin to read a page."""
        self._readers[page] += 1

    def release(self, page: int) -> None:
        """End one reading of a page."""
        self._readers[page] -= 1
