"""Pods as real processes: addresses, probes, exits, and nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from dpd_local import Node, Pod, PodFailedError, RunningPod, State

Script = Callable[..., Pod]

SERVE = """
import http.server, os
address = (os.environ["POD_IP"], 8000)
http.server.HTTPServer(address, http.server.SimpleHTTPRequestHandler).serve_forever()
"""
SERVE_FOLDER = ["python3", "-m", "http.server", "8000", "--bind", "$(POD_IP)", "-d", "/www"]
# A command that leaves a process in a session of its own, which does not die of SIGTERM.
STUBBORN = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
inner = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('in', flush=True); time.sleep(600)"
)
subprocess.Popen([sys.executable, "-c", inner], start_new_session=True)
time.sleep(600)
"""
READY = {"httpGet": {"path": "/", "port": "http"}, "periodSeconds": 0.05}
PORTS = [{"name": "http", "containerPort": 8000}]


def until(true: Callable[[], object], seconds: float = 15) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def state_and_parent(process: int) -> list[str]:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[:2]


def alive(process: int) -> bool:
    try:
        return state_and_parent(process)[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_pod_serves_its_volume_at_its_own_address(node: Node, script: Script) -> None:
    pod = script("web-0", "", ports=PORTS, readinessProbe=READY)
    pod.container["command"], pod.container["args"] = SERVE_FOLDER[:3], SERVE_FOLDER[3:]
    pod.container["volumeMounts"] = [{"name": "www", "mountPath": "/www"}]
    pod.spec["volumes"] = [{"name": "www", "emptyDir": {}}]
    running = node.add(pod)
    running.start()
    running.wait_ready(15)
    (node.directory / "web-0" / "www" / "word").write_text("hello")
    with urllib.request.urlopen(f"{running.url()}/word") as response:
        assert response.read() == b"hello"


def test_pods_of_parallel_runs_share_no_address() -> None:
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as place,
        Node(Path(place) / "1") as one,
        Node(Path(place) / "2") as two,
    ):
        addresses = [node.address(name) for node in (one, two) for name in ("a", "b")]
    assert len(set(addresses)) == 4
    assert all(address.startswith("127.") for address in addresses)


def test_a_pod_sees_nothing_of_the_users_environment(
    node: Node, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("MINE", "secret")
    running = node.add(script("env-0", "import os; print(*sorted(os.environ))"))
    running.start()
    assert running.wait_exit(15) == 0
    names = set(running.log_text().split()) - {"LC_CTYPE", "OPENBLAS_CORETYPE"}
    assert names == {"LANG", "PATH", "POD_IP", "PYTHONUNBUFFERED"}


def test_extra_variables_and_python_paths_come_on_top(node: Node, script: Script) -> None:
    code = "import os; print(os.environ['A'], os.environ['PYTHONPATH'])"
    env = [{"name": "PYTHONPATH", "value": "/own"}, {"name": "A", "value": "1"}]
    running = node.add(
        script("x-0", code, env=env), environment={"A": "2"}, python_path=[Path("/first")]
    )
    running.start()
    assert running.wait_exit(15) == 0
    assert running.log_text() == "2 /first:/own\n"


def test_readiness_is_not_asked_before_the_startup_probe_passed(node: Node, script: Script) -> None:
    # The server answers /started with 200 only after two askings, and counts all it is asked.
    code = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    asked = 0
    def do_GET(self):
        print(self.path)
        Handler.asked += self.path == "/started"
        self.send_response(200 if Handler.asked > 2 else 503)
        self.end_headers()
http.server.HTTPServer((os.environ["POD_IP"], 8000), Handler).serve_forever()
"""
    startup = {"httpGet": {"path": "/started", "port": 8000}, "periodSeconds": 0.1}
    readiness = {"httpGet": {"path": "/ready", "port": 8000}, "periodSeconds": 0.05}
    running = node.add(
        script(
            "slow-0",
            code,
            startupProbe=startup | {"failureThreshold": 100},
            readinessProbe=readiness,
        )
    )
    running.start()
    running.wait_ready(15)
    paths = [line for line in running.log_text().splitlines() if line.startswith("/")]
    assert paths[:4] == ["/started", "/started", "/started", "/ready"]


def test_a_pod_that_stops_answering_is_no_longer_ready(node: Node, script: Script) -> None:
    probe = READY | {"timeoutSeconds": 0.2, "failureThreshold": 2}
    running = node.add(script("web-0", SERVE, ports=PORTS, readinessProbe=probe))
    running.start()
    running.wait_ready(15)
    running.signal(signal.SIGSTOP)
    until(lambda: running.state is State.UNREADY)
    assert "timed out" in running.reason
    running.signal(signal.SIGCONT)
    running.wait_ready(15)


def test_a_failed_liveness_probe_ends_the_pod(node: Node, script: Script) -> None:
    probe = {"tcpSocket": {"port": 9}, "periodSeconds": 0.05, "failureThreshold": 2}
    running = node.add(script("dead-0", "import time; time.sleep(600)", livenessProbe=probe))
    running.start()
    assert running.wait_exit(15) == 128 + signal.SIGTERM
    assert "liveness probe failed: connect 127." in running.reason


def test_an_exit_before_readiness_is_reported_with_the_last_log_lines(
    node: Node, script: Script
) -> None:
    code = "import sys; print('chunk_size is wrong'); sys.exit(3)"
    running = node.add(script("bad-0", code, readinessProbe=READY, ports=PORTS))
    running.start()
    with pytest.raises(PodFailedError, match=r"exit code 3 before it was ready(.|\n)*chunk_size"):
        running.wait_ready(15)
    assert running.exit_code == 3


@pytest.mark.parametrize(
    ("code", "expected"),
    [("raise SystemExit(7)", 7), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_exit_codes_are_a_containers(node: Node, script: Script, code: str, expected: int) -> None:
    running = node.add(script("x-0", code))
    running.start()
    assert running.wait_exit(15) == expected


def test_a_command_that_does_not_exist_is_named(node: Node, script: Script) -> None:
    pod = script("x-0", "")
    pod.container["command"] = ["no-such-program"]
    running = node.add(pod)
    running.start()
    assert running.wait_exit(15) == 127
    assert running.log_text() == "cannot run no-such-program: No such file or directory\n"


def test_stopping_leaves_no_process_even_of_other_sessions(node: Node, script: Script) -> None:
    running = node.add(script("x-0", STUBBORN))
    running.start()
    until(lambda: "in" in running.log_text())
    left = running.processes()
    assert len(left) == 2
    assert running.stop(grace=0.2) == 137
    assert not any(alive(process) for process in left)


def test_a_pods_first_process_that_gets_sigterm_stops_the_pod(node: Node, script: Script) -> None:
    running = node.add(script("x-0", STUBBORN))
    running.start()
    until(lambda: "in" in running.log_text())
    left = running.processes()
    os.kill(int(state_and_parent(left[0])[1]), signal.SIGTERM)
    assert running.wait_exit(15) == 137
    assert not any(alive(process) for process in left)


def test_what_a_command_leaves_behind_ends_with_it(node: Node, script: Script) -> None:
    code = (
        "import subprocess; print(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    )
    running = node.add(script("x-0", code))
    running.start()
    assert running.wait_exit(15) == 0
    assert not alive(int(running.log_text()))


def test_a_pod_starts_again_at_its_address(node: Node, script: Script) -> None:
    running = node.add(script("web-0", SERVE, ports=PORTS, readinessProbe=READY))
    for _ in range(2):
        running.start()
        running.wait_ready(15)
        running.kill()
        assert running.state is State.ENDED


def test_a_killed_runner_leaves_no_process(tmp_path: Path) -> None:
    code = f"""
import sys, time
from pathlib import Path
from dpd_local import Node, Pod
pod = Pod("x-0", {{}}, {{"containers": [{{"command": ["python3", "-c", {STUBBORN!r}]}}]}})
running = Node(Path(sys.argv[1]), path=[Path(sys.executable).parent]).add(pod)
running.start()
while "in" not in running.log_text():
    time.sleep(0.05)
print(*running.processes(), flush=True)
time.sleep(600)
"""
    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        command = [sys.executable, "-c", code, f"{place}/run"]
        environment = os.environ | {"PYTHONPATH": ":".join(sys.path)}
        runner = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert runner.stdout
        left = [int(process) for process in runner.stdout.readline().split()]
        assert len(left) == 2
        runner.kill()
        runner.wait()
        until(lambda: not any(alive(process) for process in left))


def test_every_change_of_state_is_told_once(script: Script) -> None:
    told: list[tuple[str, State]] = []

    def note(pod: RunningPod) -> None:
        told.append((pod.name, pod.state))

    with tempfile.TemporaryDirectory(dir="/tmp") as place:
        path = [Path(sys.executable).parent]
        with Node(Path(place) / "run", path=path, on_change=note) as node:
            running = node.add(script("web-0", SERVE, ports=PORTS, readinessProbe=READY))
            running.start()
            running.wait_ready(15)
            time.sleep(0.3)
    assert told == [("web-0", state) for state in (State.STARTING, State.READY, State.ENDED)]
