"""Answers, their times and an engine's metrics are read as they come."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dpd_local import client, metrics

BODY = {"model": "tiny", "prompt": "x"}
METRICS = """\
# HELP vllm:prompt_tokens_by_source_total Prompt tokens.
vllm:prompt_tokens_by_source_total{engine="0",source="external_kv_transfer"} 1999.0
vllm:prompt_tokens_by_source_total{engine="1",source="external_kv_transfer"} 1.5e+01
vllm:prompt_tokens_by_source_total{engine="0",source="local_compute"} 4.0
plain_total 7
"""


@contextmanager
def serving(*parts: bytes, status: int = 200, pause: float = 0.0) -> Iterator[str]:
    """Serve `parts` to each request, `pause` seconds before each part."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("X-Dpd-Path", "direct")
            self.end_headers()
            for part in parts:
                time.sleep(pause)
                self.wfile.write(part)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_plain_answer_gives_tokens_usage_and_headers() -> None:
    text = b'{"choices": [{"token_ids": [5, 6]}], "usage": {"prompt_tokens": 9}}'
    with serving(text) as url:
        answer = client.ask(url, "/v1/completions", BODY)
    assert (answer.token_ids, answer.prompt_tokens) == ([5, 6], 9)
    assert answer.headers["x-dpd-path"] == "direct"
    assert answer.first_seconds is None


def test_a_stream_gives_its_tokens_in_order_and_the_time_of_the_first() -> None:
    events = (
        b'data: {"choices": [{"delta": {"role": "assistant"}}]}\n\n',
        b'data: {"choices": [{"token_ids": [5]}]}\n\n',
        b'data: {"choices": [{"token_ids": [6, 7]}]}\n\n',
        b'data: {"choices": [], "usage": {"prompt_tokens": 9}}\n\ndata: [DONE]\n\n',
    )
    with serving(*events, pause=0.1) as url:
        answer = client.ask(url, "/v1/completions", {**BODY, "stream": True})
    assert (answer.token_ids, answer.prompt_tokens) == ([5, 6, 7], 9)
    assert answer.first_seconds is not None
    assert 0.19 < answer.first_seconds < answer.total_seconds - 0.19


def test_an_error_status_is_reported_with_its_body() -> None:
    with (
        serving(b"no room", status=503) as url,
        pytest.raises(client.AnswerError, match="status 503: no room"),
    ):
        client.ask(url, "/v1/completions", BODY)


@pytest.mark.parametrize(
    ("event", "message"),
    [(b'data: {"error": "gone"}\n\n', "broke off: gone"), (b"data: {}\n\n", "without")],
)
def test_a_stream_that_breaks_off_is_an_error(event: bytes, message: str) -> None:
    with serving(event) as url, pytest.raises(client.AnswerError, match=message):
        client.ask(url, "/v1/completions", {**BODY, "stream": True})


def test_a_metric_is_the_sum_of_the_samples_with_the_labels() -> None:
    name = "vllm:prompt_tokens_by_source_total"
    with serving(METRICS.encode()) as url:
        assert metrics.value(url, name, source="external_kv_transfer") == 2014
    assert metrics.total(METRICS, name, engine="0") == 2003
    assert metrics.total(METRICS, "plain_total") == 7
    assert metrics.total(METRICS, "absent_total") == 0
