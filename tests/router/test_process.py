"""The router as the process that a pod runs: its log, its signals, and what it needs."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest_asyncio
import yaml
from tests.router.conftest import HOST, Stage, free_port

SOURCE = Path(__file__).parents[2] / "plugins/dpd-router/src"
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "POD_IP": HOST}
COMMAND = [sys.executable, "-m", "dpd_router"]


class Process:
    """A router process and the lines it has written."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reading = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.lines.append(line.decode().rstrip("\n"))

    def messages(self) -> list[str]:
        """The lines without their date, time and level."""
        return [re.sub(r"^\S+ \S+ (INFO|WARNING|ERROR) ", "", line) for line in self.lines]


@pytest_asyncio.fixture
async def running(stage: Stage, tmp_path: Path) -> AsyncIterator[Process]:
    """A ready router process in front of the stage's engines, draining for up to 3 s."""
    stage.port, stage.notify_port = free_port(), free_port()
    document = {
        "listen": {"host": "$(POD_IP)", "port": stage.port},
        "notify": {"port": stage.notify_port},
        "model": {"name": "tiny", "tokenizer": str(stage.folder), "revision": ""},
        "routing": {"mode": "threshold", "threshold": 20},
        "prefill": {"addresses": [stage.prefillers[0].address]},
        "decode": {
            "addresses": [stage.decoders[0].address],
            "initPorts": [7300],
            "allocPorts": [stage.alloc_port],
        },
        "timeouts": {"drainSeconds": 3},
    }
    path = tmp_path / "router.yaml"
    path.write_text(yaml.safe_dump(document))
    process = await asyncio.create_subprocess_exec(
        *COMMAND, str(path), env=ENVIRONMENT, stdout=asyncio.subprocess.PIPE, limit=1 << 20
    )
    made = Process(process)
    async with asyncio.timeout(30):
        while not await ready(stage):
            await asyncio.sleep(0.05)
    yield made
    if process.returncode is None:
        process.kill()
    await process.wait()
    await made._reading


async def ready(stage: Stage) -> bool:
    try:
        async with stage.client.get(stage.url + "/ready") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def test_the_log_has_the_lines_that_the_runbook_greps_for(
    stage: Stage, running: Process
) -> None:
    running.lines.clear()
    stage.prefillers[0].does.prompt_tokens = 30
    for prompt, request_id in (([1] * 30, "req-long"), ([1] * 5, "req-short")):
        headers = {"X-Request-Id": request_id}
        async with stage.post("/v1/completions", {"prompt": prompt}, headers=headers) as response:
            assert response.status == 200
    await stage.until(lambda: len(running.lines) >= 7)
    prefiller, decoder = stage.prefillers[0].url, stage.decoders[0].url
    number = r"\d+\.\d+"
    wanted = [
        "Conditional routing: estimated_tokens=30, threshold=20, disaggregate=True",
        f"DPD prefill selection: least-in-flight selected {prefiller}",
        r"req-long prefill time \(TTFT\): \d+\.\d{4}",
        rf"Routing request req-long to {prefiller} at {number}, process time = \d+\.\d{{4}}",
        rf"Routing request req-long to decoder {decoder} at {number}, process time = \d+\.\d{{4}}",
        "Conditional routing: estimated_tokens=5, threshold=20, disaggregate=False",
        rf"Routing request req-short to decoder {decoder} at {number}, "
        r"process time = \d+\.\d{4}",
    ]
    got = running.messages()
    assert len(got) == len(wanted), got
    for line, pattern in zip(got, wanted, strict=True):
        assert re.fullmatch(pattern, line), (line, pattern)


async def test_no_request_can_forge_a_line_of_the_log(stage: Stage, running: Process) -> None:
    running.lines.clear()
    await stage.prefillers[0].push(
        f"{HOST}:{stage.notify_port}", {"type": "ProxyNotif", "req_id": "x\nINFO forged"}
    )
    async with stage.post("/a%0A2026-01-01%20INFO%20forged%1b[31m", {}) as response:
        assert response.status == 404
    async with stage.post("/v1/completions", data=b"{\n\x1bINFO forged") as response:
        assert response.status == 400
    await stage.until(lambda: len(running.lines) >= 2)
    assert all(re.match(r"^\d{4}-\d\d-\d\d \S+ (INFO|WARNING) ", line) for line in running.lines)
    assert r"/a\n2026-01-01 INFO forged\x1b[31m is not a path" in running.lines[0]


async def test_sigterm_lets_open_requests_finish(stage: Stage, running: Process) -> None:
    stage.decoders[0].does.pause = 0.4
    body = {"prompt": [1] * 30, "stream": True}
    async with stage.post("/v1/completions", body) as response:
        await response.content.readany()
        running.process.send_signal(signal.SIGTERM)
        await stage.until(lambda: any("stopping: 1 requests" in line for line in running.lines))
        async with stage.client.get(stage.url + "/ready") as probe:
            assert probe.status == 503
            assert (await probe.json())["missing"] == ["the router is stopping"]
            assert probe.headers["Connection"] == "close"
        async with stage.post("/v1/completions", {"prompt": [1] * 5}) as late:
            assert late.status == 200
            assert late.headers["Connection"] == "close"
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    async with asyncio.timeout(2):
        assert await running.process.wait() == 0


async def test_sigterm_does_not_wait_for_ever(stage: Stage, running: Process) -> None:
    stage.prefillers[0].does.delay = 600
    hung = asyncio.ensure_future(post_quietly(stage, {"prompt": [1] * 30}))
    await stage.until(lambda: len(stage.prefillers[0].seen) == 1)
    began = time.monotonic()
    running.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(8):
        assert await running.process.wait() == 0
    assert 2.9 < time.monotonic() - began < 6
    assert await hung == "broken"
    assert any("stopping although 1 requests are open" in line for line in running.lines)
    await stage.until(lambda: stage.prefillers[0].seen[0].cancelled, 1)


async def post_quietly(stage: Stage, body: Any) -> str:
    try:
        async with stage.post("/v1/completions", body) as response:
            return str(response.status)
    except aiohttp.ClientError:
        return "broken"


async def test_an_idle_router_stops_at_once(stage: Stage, running: Process) -> None:
    running.process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(2):
        assert await running.process.wait() == 0


def run(document: str, tmp_path: Path, **environment: str) -> tuple[int, str]:
    path = tmp_path / "router.yaml"
    path.write_text(document)
    done = subprocess.run(
        [*COMMAND, str(path)],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.returncode, re.sub(r"^\S+ \S+ ", "", done.stdout, flags=re.M)


CONFIG = """
listen: {host: 127.0.0.1, port: %d}
notify: {port: %d}
model: {name: m, tokenizer: %s}
routing: {mode: never}
prefill: {addresses: []}
decode: {addresses: ["127.0.0.1:1"], initPorts: [1], allocPorts: [2]}
"""


def test_a_wrong_configuration_ends_the_process_with_its_words(tmp_path: Path) -> None:
    document = CONFIG % (1, 2, "m") + "routng: {}\n"
    assert run(document, tmp_path, POD_IP=HOST) == (
        2,
        "ERROR routng: unknown key; known here: listen, notify, model, routing, prefill, decode, "
        "timeouts\n",
    )


def test_a_missing_certificate_ends_the_process_with_its_words(tmp_path: Path) -> None:
    tls = "tls: {certFile: /no/tls.crt, keyFile: /no/tls.key}"
    document = (CONFIG % (1, 2, "m")).replace("port: 1}", "port: 1, " + tls + "}")
    assert run(document, tmp_path, POD_IP=HOST) == (
        2,
        "ERROR listen.tls.certFile: '/no/tls.crt' cannot be read: No such file or directory; "
        "name a Secret of type kubernetes.io/tls in router.tls.secretName\n",
    )


def test_a_missing_pod_ip_ends_the_process_with_its_words(tmp_path: Path) -> None:
    assert run(CONFIG % (1, 2, "m"), tmp_path) == (
        2,
        "ERROR POD_IP: not set; set this environment variable to the pod's own IP, where engines "
        "send their notices\n",
    )


def test_a_model_that_is_not_there_ends_the_process_with_its_words(tmp_path: Path) -> None:
    document = CONFIG % (free_port(), free_port(), "/no/such/model")
    status, output = run(document, tmp_path, POD_IP=HOST, HF_HUB_OFFLINE="1")
    assert status == 1
    assert "ERROR model.tokenizer: '/no/such/model' cannot be loaded: " in output


def test_counting_needs_no_torch(tokenizer_folders: dict[str, Path]) -> None:
    """As in the slim image, where torch is not installed."""
    script = """
        import sys

        sys.modules["torch"] = sys.modules["tensorflow"] = sys.modules["jax"] = None
        sys.modules["vllm"] = None
        from dpd_router.__main__ import main
        from dpd_router.counting import Counter
        from dpd_router.tokenizing import load_tokenizer

        counter = Counter(load_tokenizer(sys.argv[1], None), max_len=None)
        body = {"messages": [{"role": "user", "content": "hello"}]}
        print(counter.count("chat", body).total)
        print(counter.count("completions", {"prompt": "a"}).total)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tokenizer_folders["chatml"])],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    chat, text = map(int, done.stdout.split())
    assert chat > text == 1


def test_torch_is_not_imported_where_it_is_installed(tokenizer_folders: dict[str, Path]) -> None:
    script = """
        import sys
        import dpd_router.__main__
        from dpd_router.tokenizing import load_tokenizer

        load_tokenizer(sys.argv[1], None).length("a", True)
        print("torch" in sys.modules)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tokenizer_folders["chatml"])],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "False\n"
