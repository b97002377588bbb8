"""The demo: a release of the chart on this machine, proved to move KV, and left up to try."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

from dpd_local import client, metrics, model, places
from dpd_local.cluster import Cluster
from dpd_local.display import Progress
from dpd_local.rows import Row, table
from dpd_local.running import PodFailedError, RunningPod, State

SHORT, LONG = 40, 2000  # tokens; the threshold of values/local-cpu.yaml is between them
ANSWER_TOKENS = 32
RECEIVED = "vllm:prompt_tokens_by_source_total"


def run(once: bool) -> int:
    """Run the demo; return the exit status.

    Args:
        once: end after the table; otherwise stay up until interrupted.
    """
    with _interruptible():
        try:
            return _run(once)
        except KeyboardInterrupt:
            print("\nInterrupted: everything is stopped.", flush=True)
            return 0
        except PodFailedError as error:
            print(f"\nFAILED: {error}", file=sys.stderr, flush=True)
            return 1


def _run(once: bool) -> int:
    print("Starting the chart's pods as processes; three engines load at once:", flush=True)
    progress = Progress()
    began = time.monotonic()
    with Cluster(colocated=True, wait=False, on_change=progress.on_change) as cluster:
        with progress:
            cluster.wait_ready()
        print(f"Started in {time.monotonic() - began:.1f} s.", flush=True)
        rows = [_send(cluster, *question) for question in _questions()]
        print(table(rows), flush=True)
        faults = [fault for row in rows for fault in row.faults()]
        faults += [
            pod.report("died") for pod in cluster.node.pods.values() if pod.state is State.ENDED
        ]
        for fault in faults:
            print(f"FAILED: {fault}", file=sys.stderr, flush=True)
        if not faults:
            print("\nLong prompts' KV came from the prefiller, and every token is the same.")
        if faults:
            cluster.keep = True
            print(f"Logs: {cluster.directory}/*.log", file=sys.stderr)
            return 1
        if once:
            return 0
        print(_invitation(cluster), flush=True)
        _watch(list(cluster.node.pods.values()))


def _questions() -> Iterator[tuple[str, bool, str, dict[str, Any]]]:
    """Yield kind, whether it must be disaggregated, path, body."""
    directory = places.cache() / "models" / "tiny"
    for seed, (size, tokens) in enumerate((("short", SHORT), ("long", LONG))):
        for shape, chat, stream in (
            ("completion", False, False),
            ("completion, streamed", False, True),
            ("chat", True, False),
            ("chat, streamed", True, True),
        ):
            # Every prompt is another one, so that no earlier transfer can serve it.
            text = model.text(directory, tokens, seed=10 * seed + 2 * chat + stream)
            body: dict[str, Any] = {"model": "tiny", "temperature": 0, "ignore_eos": True}
            body |= {"max_tokens": ANSWER_TOKENS, "stream": stream}
            body |= {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
            path = "/v1/chat/completions" if chat else "/v1/completions"
            yield f"{size} {shape}", size == "long", path, body


def _send(cluster: Cluster, kind: str, disaggregated: bool, path: str, body: dict[str, Any]) -> Row:
    def received() -> float:
        return metrics.value(cluster.url("decode"), RECEIVED, source="external_kv_transfer")

    before = received()
    answer = client.ask(cluster.url("router"), path, body)
    # An engine counts just after it has answered.
    deadline = time.monotonic() + 2
    while (after := received()) == before and disaggregated and time.monotonic() < deadline:
        time.sleep(0.05)
    reference = client.ask(cluster.url("colocated"), path, body)
    equal = answer.token_ids == reference.token_ids and len(answer.token_ids) == ANSWER_TOKENS
    return Row(kind, disaggregated, answer, int(after - before), equal)


def _invitation(cluster: Cluster) -> str:
    url, decoder = cluster.url("router"), cluster.url("decode")
    words = model.text(places.cache() / "models" / "tiny", 6, seed=1).strip()
    ask = f"curl -si {url}/v1/completions -H 'content-type: application/json' -d "
    short = f'\'{{"model": "tiny", "prompt": "{words}", "max_tokens": 16}}\''
    long_ = (
        f'"$(printf \'{{"model": "tiny", "max_tokens": 16, "prompt": "%s"}}\' '
        f"\"$(yes '{words}' | head -100 | tr '\\n' ' ')\")\""
    )
    return (
        f"\nThe endpoint is {url} until Ctrl-C. See x-dpd-path in the answers to\n"
        f"\n  {ask}{short}\n\n  {ask}{long_}\n"
        "\nand in the metrics of the router, and of the decoder, what became of them:\n"
        f"\n  curl -s {url}/metrics | grep dpd_router_requests_total"
        f"\n  curl -s {decoder}/metrics | grep -E '{RECEIVED}|dpd:receive_buffer_pages'"
        f"\n\nLogs: {cluster.directory}/*.log"
    )


def _watch(pods: Sequence[RunningPod]) -> NoReturn:
    """Tell of each pod that dies, until interrupted."""
    told: set[str] = set()
    while True:
        for pod in pods:
            if pod.state is State.ENDED and pod.name not in told:
                told.add(pod.name)
                died = pod.report(f"died with exit code {pod.exit_code}")
                print(f"\n{died}", file=sys.stderr, flush=True)
        time.sleep(0.5)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Make SIGTERM and SIGHUP do what Ctrl-C does; a second one does not disturb the end."""
    seen = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        if not seen:
            seen = True
            raise KeyboardInterrupt

    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interrupt) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
