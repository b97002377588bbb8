"""A pod that follows an engine's first stays as long as that one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "plugins" / "dpd-vllm" / "src"


def hook(port: int) -> subprocess.Popen[bytes]:
    """The hook as the chart runs it: with the plugin on PYTHONPATH and nothing else."""
    command = [sys.executable, "-m", "dpd_vllm.following", str(port)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(SOURCES)})


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
def test_it_waits_until_the_leader_closes_its_connection(address: str) -> None:
    with (
        socket.create_server(
            (address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET
        ) as leader,
        socket.create_connection(leader.getsockname()[:2]),
    ):
        accepted, _ = leader.accept()
        waiting = hook(leader.getsockname()[1])
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(timeout=2)
        # The follower still holds its end, as vLLM's does.
        accepted.close()
        assert waiting.wait(timeout=5) == 0


def test_it_waits_for_no_leader_that_it_never_met() -> None:
    with socket.create_server(("127.0.0.1", 0)) as leader:
        started = time.monotonic()
        assert hook(leader.getsockname()[1]).wait(timeout=5) == 0
        assert time.monotonic() - started < 2
