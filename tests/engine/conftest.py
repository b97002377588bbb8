"""One cluster of real engines for all tests that need one, and what they send to it."""

from __future__ import annotations

import json
import os
import random
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import zmq

from dpd_local import Cluster, metrics, places
from dpd_local.client import Answer, ask
from dpd_router.config import Receiver
from dpd_router.lmcache import LMCachePD, Notice, read_notice

T = TypeVar("T")
U = TypeVar("U")

FAULTS = Path(__file__).parent / "faults"
# `make test-next` runs these tests with the newer pair of vLLM and LMCache.
PROGRAMS = places.cache() / os.environ.get("DPD_ENGINE", "engine") / "bin"
OUTPUT_TOKENS = 16
PULL_TIMEOUT = 30  # seconds that landed KV waits for its request: tests wait for its end
PAGES = 128  # of the decoder's receive buffer: bufferSize of values/local-cpu.yaml over 1 MiB
PREFILL_BLOCKS = 160  # of 128 tokens, on each prefiller: few, so that prompts soon leave them


def token_ids(count: int, seed: int) -> list[int]:
    """A prompt of `count` random tokens, the same for the same seed; no special tokens."""
    numbers = random.Random(seed)
    return [numbers.randrange(50, 450) for _ in range(count)]


def completion(prompt: Any, **more: Any) -> dict[str, Any]:
    return {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": OUTPUT_TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        **more,
    }


def together(function: Callable[[T], U], items: Sequence[T], at_once: int) -> list[U]:
    """Call a function for each item, `at_once` at a time; return the results in order."""
    with ThreadPoolExecutor(at_once) as pool:
        return list(pool.map(function, items))


class Engines:
    """Two prefillers, a decoder, a router and a colocated engine, and ways to ask them."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self._folder = folder

    def routed(self, body: Mapping[str, Any], path: str = "/v1/completions") -> Answer:
        return ask(self.cluster.url("router"), path, body)

    def colocated(self, body: Mapping[str, Any], path: str = "/v1/completions") -> Answer:
        return ask(self.cluster.url("colocated-0"), path, body)

    def both(self, body: Mapping[str, Any], path: str = "/v1/completions") -> tuple[Answer, Answer]:
        """The router's answer and the colocated engine's, asked at once."""
        with ThreadPoolExecutor(2) as pool:
            alone = pool.submit(self.colocated, body, path)
            return self.routed(body, path), alone.result()

    def both_of_each(
        self, bodies: Sequence[Mapping[str, Any]], at_once: int
    ) -> tuple[list[Answer], list[Answer]]:
        """The router's answers, `at_once` at a time, and the colocated engine's, one by one."""
        with ThreadPoolExecutor(1) as pool:
            alone = pool.submit(together, self.colocated, bodies, 1)
            return together(self.routed, bodies, at_once), alone.result()

    def decoded(self, body: Mapping[str, Any]) -> Answer:
        return ask(self.cluster.url("decode-0"), "/v1/completions", body)

    def external_tokens(self) -> float:
        return metrics.value(
            self.cluster.url("decode-0"),
            "vllm:prompt_tokens_by_source_total",
            source="external_kv_transfer",
        )

    def pages(self) -> dict[str, float]:
        """The receive buffer's pages by state; a request makes the engine report them."""
        self.decoded(completion(token_ids(5, seed=1), max_tokens=1))
        name = "dpd:receive_buffer_pages"
        url = self.cluster.url("decode-0")
        states = ("total", "free", "expected", "wanted", "cached")
        return {state: metrics.value(url, name, state=state) for state in states}

    def prefill(self, prefiller: str, prompt: list[int], transfer_id: str, ranks: int = 1) -> Any:
        """Run a prefill leg as the router does; return the answer's JSON."""
        receiver = {
            "req_id": transfer_id,
            "receiver_host": self.cluster.pod("decode-0").ip,
            "receiver_init_port": [7300 + rank for rank in range(ranks)],
            "receiver_alloc_port": [7400 + rank for rank in range(ranks)],
        }
        body = completion(prompt, max_tokens=1)
        body["kv_transfer_params"] = {"disagg_spec": receiver}
        return post(self.cluster.url(prefiller) + "/v1/completions", body)

    def release(self, transfer_id: str) -> None:
        """Tell the decoder, as the router does, that a transfer's request has ended."""
        router = LMCachePD("127.0.0.1:1", Receiver((7300,), (7400,)))
        with zmq.Context.instance().socket(zmq.REQ) as socket:
            socket.setsockopt(zmq.RCVTIMEO, 5000)
            socket.connect(f"tcp://{self.cluster.pod('decode-0').ip}:7400")
            socket.send(router.release([transfer_id]))
            socket.recv()

    @contextmanager
    def fault(self, pod: str, name: str, content: str = "") -> Iterator[None]:
        """Switch a fault of `faults/` on in one pod."""
        file = self._folder / pod / name
        file.write_text(content)
        try:
            yield
        finally:
            file.unlink()


def post(url: str, body: Mapping[str, Any], timeout: float = 120) -> Any:
    """POST JSON; return the answer's JSON, of an error status too, with the status in "status"."""
    request = urllib.request.Request(
        url, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            return {"status": response.status, **json.load(response)}
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.loads(error.read())}


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Prefillers with both caches, and few blocks of their own: their KV comes from anywhere."""
    folder = tmp_path_factory.mktemp("faults")
    names = ("prefill-0", "prefill-1", "decode-0")
    for name in names:
        (folder / name).mkdir()
    store = {"name": "store", "hostPath": {"path": str(tmp_path_factory.mktemp("l2"))}}
    with Cluster(
        prefill=2,
        colocated=True,
        programs=PROGRAMS,
        set_json={
            "kvTransfer.pullTimeoutSeconds": PULL_TIMEOUT,
            "router.timeouts.transferSeconds": PULL_TIMEOUT,  # the chart takes no more than that
            "prefill.args": [f"--num-gpu-blocks-override={PREFILL_BLOCKS}"],
            "prefill.volumes": [store],
            "prefill.volumeMounts": [{"name": "store", "mountPath": "/var/l2"}],
            "cache.l2": {"type": "file", "address": "/var/l2"},
        },
        python_path={name: [FAULTS] for name in names},
        pod_env={name: {"DPD_FAULTS": str(folder / name)} for name in names},
        timeout=400,
    ) as cluster:
        yield Engines(cluster, folder)


class Notices:
    """A router's notice port, for tests that speak to engines themselves."""

    def __init__(self, host: str) -> None:
        self._socket = zmq.Context.instance().socket(zmq.PULL)
        self._address = f"{host}:{self._socket.bind_to_random_port(f'tcp://{host}')}"
        self._seen: dict[str, Notice] = {}

    def transfer_id(self) -> str:
        return f"{self._address}/{uuid.uuid4().hex}"

    def wait(self, transfer_id: str, seconds: float) -> Notice | None:
        """Return the notice of a transfer, or None if there is none within `seconds`."""
        while transfer_id not in self._seen:
            if not self._socket.poll(int(seconds * 1000)):
                return None
            notice = read_notice(self._socket.recv())
            self._seen[notice.req_id] = notice
        return self._seen[transfer_id]

    def close(self) -> None:
        self._socket.close(0)


@pytest.fixture
def notices() -> Iterator[Notices]:
    made = Notices("127.0.0.1")
    yield made
    made.close()
