"""The closing count of `make test` says what ran, and counts nothing twice or for free."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpd_ci.counting import Count, Outcome, count_junit, summary

PASSED = "<testcase name='a'/>"
FAILED = "<testcase name='b'><failure/></testcase>"
BROKEN = "<testcase name='c'><error/></testcase>"
SKIPPED = "<testcase name='d'><skipped/></testcase>"


@pytest.mark.parametrize(
    ("cases", "status", "expected"),
    [
        (PASSED * 3, 0, Count(passed=3)),
        (PASSED + FAILED + BROKEN, 1, Count(passed=1, failed=2)),
        (PASSED + SKIPPED, 0, Count(passed=1, skipped=1)),
        (PASSED, 2, Count(passed=1, failed=1)),  # the runner failed beside its tests
        ("", 0, Count(failed=1)),  # nothing ran
    ],
)
def test_counts_the_tests_of_a_report(
    tmp_path: Path, cases: str, status: int, expected: Count
) -> None:
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>", encoding="utf-8")
    assert count_junit(report, status) == expected


def test_a_runner_that_wrote_no_report_is_one_failure(tmp_path: Path) -> None:
    assert count_junit(tmp_path / "none.xml", 127) == Count(failed=1)


@pytest.mark.parametrize("count", [Count(), Count(5, 1, 0), Count(5, 0, 1)])
def test_a_step_that_ran_nothing_or_skipped_or_failed_is_not_ok(count: Count) -> None:
    assert not count.ok


def test_the_last_line_counts_skipped_tests_as_failed() -> None:
    outcomes = [Outcome("helm-lint", Count(8), 3.0), Outcome("pytest", Count(4, 1, 2), 60.0)]
    lines = summary(outcomes).splitlines()
    assert lines[-1] == "12 passed, 3 failed"
    assert [line.split()[-1] for line in lines if line.startswith(("helm-lint", "pytest"))] == [
        "3.0",
        "FAILED",
    ]
