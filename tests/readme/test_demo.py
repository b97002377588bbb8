"""The README's demo, by its commands, and what is asked of pods, asked of the demo's engines."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.readme.document import ROOT, TEXT, commands

from dpd_local import shim

pytestmark = pytest.mark.slow

ROW = re.compile(r"(short|long) .*  (yes|NO)$")


def table(lines: list[str]) -> list[list[str]]:
    """The demo's rows without the columns of times."""
    cells = [re.split(r"  +", line) for line in lines if ROW.match(line)]
    return [[*row[:3], row[4], row[-1]] for row in cells]


def assert_all_equal(rows: list[list[str]]) -> None:
    assert len(rows) == 8
    assert all(row[-1] == "yes" for row in rows)


# Before the fixture, so that no two demos are up at once.
def test_the_demo_that_ends_by_itself_ends_well() -> None:
    assert "make demo ONCE=1" in commands()
    done = subprocess.run(
        ["make", "demo", "ONCE=1"], cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert_all_equal(table(done.stdout.splitlines()))


@dataclass(frozen=True)
class Demo:
    """A demo that stays up."""

    process: subprocess.Popen[str]
    lines: list[str]  # what it has printed

    @property
    def addresses(self) -> dict[str, str]:
        return dict(re.findall(r"s +(\w+)-0 +(127\.[\d.]+) +ready", "\n".join(self.lines)))

    @property
    def logs(self) -> Path:
        (line,) = [line for line in self.lines if line.startswith("Logs: ")]
        return Path(line.removeprefix("Logs: ")).parent

    def read_until(self, start: str) -> None:
        """Read what it prints, to the first line that starts so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())
            if line.startswith(start):
                return
        pytest.fail("the demo ended:\n" + "\n".join(self.lines))


@pytest.fixture(scope="module")
def demo() -> Iterator[Demo]:
    """The README's `make demo`, ended by Ctrl-C."""
    assert "make demo" in commands()
    process = subprocess.Popen(
        ["make", "demo"],
        cwd=ROOT,
        # As in a shell: below `make test`, make would add lines about its folder.
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        made = Demo(process, [])
        made.read_until("Logs: ")
        started = shim.descendants(process.pid)
        yield made
        os.killpg(process.pid, signal.SIGINT)
        rest, _ = process.communicate(timeout=60)
        # The last line: make would add one of its own if the status were not 0.
        assert rest.splitlines()[-1] == "Interrupted: everything is stopped."
        assert not [pid for pid in started if Path(f"/proc/{pid}").exists()]
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def test_the_demo_prints_the_table_that_the_readme_shows(demo: Demo) -> None:
    shown = table(TEXT.splitlines())
    assert len(shown) == 3
    rows = table(demo.lines)
    assert_all_equal(rows)
    assert all(row in rows for row in shown)
    (heading,) = [line for line in TEXT.splitlines() if line.strip().startswith("prompt tokens")]
    assert heading.split() in [line.split() for line in demo.lines]


def test_the_demos_pods_have_addresses_of_their_own_and_its_endpoint_the_model(demo: Demo) -> None:
    assert len(set(demo.addresses.values())) == 4
    endpoint = re.search(r"The endpoint is (\S+)", "\n".join(demo.lines))
    assert endpoint
    with urllib.request.urlopen(f"{endpoint[1]}/v1/models") as response:
        assert b'"tiny"' in response.read()


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


# The last one: the tests above need the prefiller.
def test_the_demo_tells_of_a_pod_that_dies(demo: Demo) -> None:
    os.kill(prefiller_of(demo), signal.SIGKILL)
    demo.read_until("pod prefill-0 died with exit code 137")


def prefiller_of(demo: Demo) -> int:
    """Only among the demo's own processes: another run's engines may be on the machine."""
    found = []
    for pid in shim.descendants(demo.process.pid):
        words = Path(f"/proc/{pid}/cmdline").read_text()
        if "/vllm\0serve" in words and "kv_producer" in words:
            found.append(pid)
    assert len(found) == 1
    return found[0]
