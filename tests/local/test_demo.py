"""The demo tells true from false, shows how pods come up, and ends cleanly."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from dpd_local import Node, Pod, places, shim
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


@pytest.mark.slow
def test_the_demo_proves_itself_tells_of_a_death_and_leaves_nothing() -> None:
    environment = os.environ | {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    command = [sys.executable, "-u", "-m", "dpd_local", "demo"]
    demo = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )
    assert demo.stdout
    # Its end is the end of its output, so that no reading waits for ever.
    alarm = threading.Timer(300, demo.kill)
    alarm.start()
    try:
        lines: list[str] = []

        def read_until(word: str) -> None:
            assert demo.stdout
            while not lines or word not in lines[-1]:
                line = demo.stdout.readline()
                assert line, "the demo ended:\n" + "".join(lines)
                lines.append(line)

        read_until("/metrics")
        url = re.search(r"The endpoint is (\S+)", "".join(lines))
        assert url
        with urllib.request.urlopen(f"{url[1]}/v1/models") as response:
            assert b'"tiny"' in response.read()
        rows = [line.rstrip() for line in lines if re.match(r"(short|long) ", line)]
        assert len(rows) == 8
        assert all(line.endswith("yes") for line in rows)
        engines = re.findall(r"(127\.[\d.]+) +ready", "".join(lines))
        assert len(set(engines)) == 4

        os.kill(prefiller_of(demo.pid), signal.SIGKILL)
        read_until("pod prefill-0 died with exit code 137")

        demo.send_signal(signal.SIGINT)
        lines.append(demo.communicate(timeout=60)[0])
        assert demo.returncode == 0, "".join(lines)
    finally:
        alarm.cancel()
        demo.kill()
    time.sleep(0.5)
    assert not any(address in command_line(pid) for pid in everyone() for address in engines)


def everyone() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def prefiller_of(demo: int) -> int:
    """Only among the demo's own processes: another run's engines may be on the machine."""
    serving = f"{places.programs()}/vllm serve"
    found = [
        pid
        for pid in shim.descendants(demo)
        if serving in command_line(pid) and "kv_producer" in command_line(pid)
    ]
    assert len(found) == 1
    return found[0]
