"""The README's demo, by its commands, and what is asked of pods, asked of the demo's engines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.readme.document import ROOT, TEXT, commands

pytestmark = pytest.mark.slow

ROW = re.compile(r"(short|long) .*  (yes|NO)$")


@dataclass(frozen=True)
class Demo:
    """A demo that stays up: what it has printed, and where its pods and their logs are."""

    lines: list[str]
    addresses: dict[str, str]
    logs: Path


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """The README's `make demo`, ended by Ctrl-C."""
    assert "make demo" in commands()
    process = subprocess.Popen(
        ["make", "demo"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    lines = []
    try:
        for line in process.stdout:
            lines.append(line.rstrip())
            if line.startswith("Logs: "):
                break
        assert process.poll() is None, "\n".join(lines)
        ready = re.findall(r"s +(\w+)-0 +(127\.[\d.]+) +ready", "\n".join(lines))
        yield Demo(lines, dict(ready), Path(lines[-1].removeprefix("Logs: ")).parent)
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        assert "Interrupted: everything is stopped." in rest
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def table(lines: list[str]) -> list[list[str]]:
    """The demo's rows without the columns of times."""
    cells = [re.split(r"  +", line) for line in lines if ROW.match(line)]
    return [[*row[:3], row[4], row[-1]] for row in cells]


def test_the_demo_prints_the_table_that_the_readme_shows(demo: Demo) -> None:
    shown = table(TEXT.splitlines())
    assert len(shown) == 3
    assert all(row in table(demo.lines) for row in shown)
    (heading,) = [line for line in TEXT.splitlines() if line.strip().startswith("prompt tokens")]
    assert heading.split() in [line.split() for line in demo.lines]


ASKED = [line for line in commands() if re.match(r"kubectl logs|curl -s localhost:8001/", line)]


@pytest.mark.parametrize("line", ASKED)
def test_the_demos_pods_answer_what_is_asked_of_a_clusters(demo: Demo, line: str) -> None:
    def log(match: re.Match[str]) -> str:
        return f"cat {demo.logs}/{match[1]}-0.log"

    here = re.sub(r"kubectl logs deployment/dpd-(\w+)", log, line)
    here = here.replace("localhost:8001", f"{demo.addresses['decode']}:8000")
    here = here.replace("LIBFABRIC", "UCX")  # the one difference of values/local-cpu.yaml here
    assert here != line
    done = subprocess.run(["bash", "-o", "pipefail", "-c", here], capture_output=True, text=True)
    assert done.returncode == 0, f"{here}: {done.stdout}{done.stderr}"
    if "metrics" in line:
        assert re.search(r'external_kv_transfer".*} [1-9]', done.stdout)
        states = re.findall(r'^dpd:receive_buffer_pages.*state="(\w+)"', done.stdout, re.M)
        assert sorted(states) == ["cached", "expected", "free", "total", "wanted"]
    if "Retrieved" in line:
        counts = re.findall(r"Retrieved (\d+) out of (\d+) required tokens", done.stdout)
        assert counts
        assert all(got == wanted for got, wanted in counts)


def test_the_demo_that_ends_by_itself_ends_well() -> None:
    assert "make demo ONCE=1" in commands()
    done = subprocess.run(
        ["make", "demo", "ONCE=1"], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = table(done.stdout.splitlines())
    assert len(rows) == 8
    assert all(row[-1] == "yes" for row in rows)
