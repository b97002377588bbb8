"""The demo tells true from false and shows how pods come up; tests/readme runs it."""

from __future__ import annotations

import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from dpd_local import Node, Pod
from dpd_local.client import Answer
from dpd_local.display import Progress
from dpd_local.rows import Row


def row(disaggregated: bool, path: str, received: int, equal: bool = True) -> Row:
    headers = {"x-dpd-path": path, "x-dpd-reason": "below the threshold"}
    answer = Answer(headers, prompt_tokens=2000, token_ids=[1], first_seconds=None, total_seconds=1)
    return Row("long chat", disaggregated, answer, received, equal)


@pytest.mark.parametrize(
    ("tried", "fault"),
    [
        (row(True, "direct", 1999), "went direct, not disaggregated (below the threshold)"),
        (row(True, "disaggregated", 0), "the decoder received no KV"),
        (row(False, "direct", 9), "the decoder received KV for a short prompt"),
        (row(False, "disaggregated", 0), "went disaggregated, not direct (below the threshold)"),
        (row(True, "disaggregated", 9, equal=False), "the tokens differ from the colocated engine"),
    ],
)
def test_each_way_to_go_wrong_is_a_fault(tried: Row, fault: str) -> None:
    faults = list(tried.faults())
    assert len(faults) == 1
    assert fault in faults[0]


def test_the_right_paths_with_equal_tokens_are_no_fault() -> None:
    assert not list(row(True, "disaggregated", 1999).faults())
    assert not list(row(False, "direct", 0).faults())


def test_a_log_gets_one_line_for_each_change(script: Callable[..., Pod]) -> None:
    output = io.StringIO()
    probe = {"tcpSocket": {"port": 9}}
    with (
        Progress(output) as progress,
        tempfile.TemporaryDirectory(prefix="dpd-", dir="/tmp") as place,
        Node(Path(place), path=[Path(sys.executable).parent], on_change=progress.on_change) as node,
    ):
        pod = node.add(script("bad-0", "raise SystemExit(3)", readinessProbe=probe))
        pod.start()
        pod.wait_exit(15)
    lines = [line.split(maxsplit=4) for line in output.getvalue().splitlines()]
    assert [(name, state) for _seconds, _unit, name, _ip, state in lines] == [
        ("bad-0", "starting"),
        ("bad-0", "ended with exit code 3"),
    ]
