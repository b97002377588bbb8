"""The plugin's entry point in a process of its own, and the ports that a receiver needs."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.wired import Pod

from dpd_vllm.wiring import WiringError, check_ports_free

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


def test_a_taken_port_is_refused() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(WiringError) as refused:
            check_ports_free("127.0.0.1", [port])
    assert str(refused.value) == (
        f"the receiver can't listen on 127.0.0.1:{port}: Address already in use. Check "
        "kvTransfer.ports and that LMCACHE_PD_PEER_HOST is the pod's own IP"
    )
    check_ports_free("127.0.0.1", [port])


def test_an_address_of_another_pod_is_refused() -> None:
    with pytest.raises(WiringError, match=r"can't listen on 192\.0\.2\.1:7300: Cannot assign"):
        check_ports_free("192.0.2.1", [7300])


def test_the_entry_point_ends_the_process_with_the_sentence(pod: Pod) -> None:
    pod.write("decode")
    ended = register(pod.env("decode", PYTHONHASHSEED=None))
    assert ended.returncode == 1
    assert ended.stderr == (
        "dpd: PYTHONHASHSEED is not set: chunk keys of prefill and decode would never match. Set "
        "one number on every engine (model.hashSeed)\n"
    )


def test_the_entry_point_leaves_other_engines_alone() -> None:
    ended = register({})
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(("asked", "used"), [("fork", "fork"), (None, "spawn")])
def test_vllm_starts_its_processes_as_the_pod_says(pod: Pod, asked: str | None, used: str) -> None:
    pod.write("prefill")
    code = "from dpd_vllm.plugin import register; register(); "
    code += "from vllm.config import VllmConfig; VllmConfig(); "
    code += "import os; print(os.environ['VLLM_WORKER_MULTIPROC_METHOD'])"
    ran = run(code, pod.env("prefill", VLLM_WORKER_MULTIPROC_METHOD=asked))
    assert ran.stdout.splitlines()[-1:] == [used], ran.stderr


@pytest.mark.parametrize(("one", "other", "same"), [("0", "0", True), ("0", "1", False)])
def test_engines_with_different_hash_seeds_have_different_fingerprints(
    one: str, other: str, same: bool
) -> None:
    code = "from dpd_vllm.fingerprint import fingerprint as f; print(f(model='m', kv_shape=(1,), "
    code += "kv_dtype='d', ranks=1, chunk_size=1, revision='r', "
    code += "vllm_version='v', lmcache_version='l'))"
    first, second = (run(code, {"PYTHONHASHSEED": seed}).stdout for seed in (one, other))
    assert first and (first == second) == same


def register(env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return run("from dpd_vllm.plugin import register; register()", env)


def run(code: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    path = {"PYTHONPATH": str(ROOT / "plugins/dpd-vllm/src"), "PATH": os.environ["PATH"]}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=path | env, capture_output=True, text=True, check=False)
