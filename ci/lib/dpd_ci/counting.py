"""Counts what a step ran, and sums it up; a skipped test never counts as passed."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Count:
    """How many checks or tests passed, failed and were skipped."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )

    @property
    def ok(self) -> bool:
        """Whether something ran, and all of it passed."""
        return self.passed > 0 and self.failed == 0 and self.skipped == 0


def count_junit(report: Path, status: int) -> Count:
    """Counts the test cases of a JUnit report.

    Args:
        report: as pytest or helm-unittest wrote it; missing when the runner could not start.
        status: the runner's exit status.

    Returns:
        The tests; one failure more when the runner failed with no failing test to show for it, or
        ran nothing.
    """
    count = Count()
    if report.exists():
        for case in ET.parse(report).iter("testcase"):
            outcomes = {child.tag for child in case}
            if outcomes & {"failure", "error"}:
                count += Count(failed=1)
            elif "skipped" in outcomes:
                count += Count(skipped=1)
            else:
                count += Count(passed=1)
    unexplained = (status != 0 and count.failed == 0) or count == Count()
    return count + Count(failed=1) if unexplained else count


@dataclass(frozen=True)
class Outcome:
    """A step that has run."""

    name: str
    count: Count
    seconds: float


def summary(outcomes: Sequence[Outcome]) -> str:
    """The closing table; its last line is `N passed, N failed`, the skipped among the failed."""
    head = f"{'step':<16}{'passed':>8}{'failed':>8}{'skipped':>9}{'seconds':>9}"
    lines = [head, "-" * len(head)]
    total = Count()
    for outcome in outcomes:
        count, total = outcome.count, total + outcome.count
        lines.append(
            f"{outcome.name:<16}{count.passed:>8}{count.failed:>8}{count.skipped:>9}"
            f"{outcome.seconds:>9.1f}{'' if count.ok else '  FAILED'}"
        )
    lines.append("-" * len(head))
    if total.skipped:
        lines.append(f"{total.skipped} skipped: each counts as failed, since it proved nothing")
    lines.append(f"{total.passed} passed, {total.failed + total.skipped} failed")
    return "\n".join(lines)
