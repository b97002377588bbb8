"""Strategies that pick one engine out of several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from .engines import Engine


def of_a_revision(engines: Sequence[Engine], partners: Sequence[Engine]) -> list[Engine]:
    """Return the engines whose revision at least one partner has.

    Without partners, return all: nothing can be paired wrongly.
    """
    revisions = {partner.revision for partner in partners}
    return [engine for engine in engines if not partners or engine.revision in revisions]


class Strategy(Protocol):
    """Picks one of the engines; there is always at least one."""

    name: str

    def choose(self, engines: Sequence[Engine]) -> Engine:
        """Return the engine that gets the next request."""
        ...


class LeastInFlight:
    """The engine with the fewest open requests, in turn among equals."""

    name = "least-in-flight"

    def __init__(self) -> None:
        self._turn = 0
        self._last_chosen: dict[str, int] = {}

    def choose(self, engines: Sequence[Engine]) -> Engine:
        """Return the least busy engine; among equals the one whose turn is longest ago."""
        chosen = min(engines, key=lambda e: (e.in_flight, self._last_chosen.get(e.url, 0)))
        self._turn += 1
        self._last_chosen[chosen.url] = self._turn
        known = {engine.url for engine in engines}
        if len(self._last_chosen) > 4 * len(known):
            self._last_chosen = {u: t for u, t in self._last_chosen.items() if u in known}
        return chosen
