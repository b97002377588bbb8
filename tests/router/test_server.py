"""The router's own paths, and what it passes on to a decoder."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from tests.router.conftest import Stage
from tests.router.engine_answers import Answers
from yarl import URL

from dpd_router.app import Router
from dpd_router.tokenizing import load_tokenizer


async def get(stage: Stage, path: str) -> tuple[int, bytes]:
    async with stage.client.get(stage.url + path) as response:
        return response.status, await response.read()


async def test_ready_says_what_is_missing(stage: Stage) -> None:
    router = await stage.router()
    assert await get(stage, "/ready") == (200, b'{"ready": true, "missing": []}')
    stage.prefillers[0].does.healthy = stage.decoders[0].does.healthy = False
    await stage.until(lambda: not router.decoders.usable and not router.prefillers.usable)
    status, body = await get(stage, "/ready")
    assert status == 503
    assert json.loads(body)["missing"] == ["no decoder answers"]
    assert (await get(stage, "/health"))[0] == 200


async def test_a_router_gets_ready_with_a_prefiller_and_stays_so_without(stage: Stage) -> None:
    stage.prefillers[0].does.healthy = False
    router = await stage.router(wait=False)
    await stage.until(lambda: bool(router.decoders.usable))
    status, body = await get(stage, "/ready")
    assert (status, json.loads(body)["missing"]) == (503, ["no prefiller has answered yet"])
    stage.prefillers[0].does.healthy = True
    await stage.until(lambda: bool(router.prefillers.usable))
    assert (await get(stage, "/ready"))[0] == 200
    stage.prefillers[0].does.healthy = False
    await stage.until(lambda: not router.prefillers.usable)
    assert (await get(stage, "/ready"))[0] == 200
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 200


async def test_the_router_lives_but_is_not_ready_until_the_tokenizer_is_loaded(
    stage: Stage,
) -> None:
    router = await stage.router()
    router.serving.counter = None
    router._status.loaded = False
    status, body = await get(stage, "/ready")
    assert (status, json.loads(body)["missing"]) == (503, ["the tokenizer is not loaded"])
    async with stage.post("/v1/completions", {"prompt": "a"}) as response:
        assert response.status == 503
        message = (await response.json())["error"]["message"]
    assert message == "The router is still loading the tokenizer."
    assert (await get(stage, "/health"))[0] == 200


async def test_models_are_the_decoders(stage: Stage) -> None:
    await stage.router()
    status, body = await get(stage, "/v1/models")
    assert (status, json.loads(body)) == (200, Answers.models())


async def test_models_without_a_decoder_are_the_configured_one(stage: Stage) -> None:
    await stage.decoders[0].stop()
    await stage.router(wait=False)
    _, body = await get(stage, "/v1/models")
    assert [model["id"] for model in json.loads(body)["data"]] == ["tiny"]


@pytest.mark.parametrize(
    "path", ["/tokenize", "/detokenize", "/v1/embeddings", "/v1/responses?x=%20y", "/v1/a/../b"]
)
async def test_other_paths_pass_to_a_decoder_unchanged(stage: Stage, path: str) -> None:
    await stage.router(mode="always")
    raw = b'{"prompt":  "a" , "x":1.50}'
    url = URL(stage.url + path, encoded=True)
    headers = {"Content-Type": "application/json"}
    async with stage.client.post(url, data=raw, headers=headers) as response:
        assert response.status == 200
    (seen,) = stage.decoders[0].seen
    assert (seen.path, seen.raw) == (path, raw)
    assert stage.prefillers[0].seen == []


async def test_a_form_passes_as_it_is(stage: Stage) -> None:
    await stage.router()
    raw = b"--x\r\n\x00\xff kv_transfer_params"
    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    path = "/v1/audio/transcriptions"
    async with stage.post(path, data=raw, headers=headers) as response:
        assert response.status == 200
    assert stage.decoders[0].seen[0].raw == raw


@pytest.mark.parametrize(
    "path", ["/", "/collective_rpc", "/sleep", "/inference/v1/generate", "/v3/x", "/a%0AINFO"]
)
async def test_paths_that_are_not_for_clients_are_404(stage: Stage, path: str) -> None:
    await stage.router()
    async with stage.post(path, {}) as response:
        assert response.status == 404
        assert (await response.json())["error"]["code"] == 404
    assert stage.decoders[0].seen == []


async def test_a_body_of_many_megabytes_is_taken(stage: Stage) -> None:
    await stage.router()
    body = {"prompt": [1] * 1_000_000}
    async with stage.post("/v1/completions", body) as response:
        assert response.status == 200
        assert response.headers["x-dpd-prompt-tokens"] == "1000000"


async def test_counting_a_huge_prompt_does_not_hold_up_others(stage: Stage) -> None:
    await stage.router(threshold=10**9)
    huge = asyncio.ensure_future(status_of(stage, {"prompt": "some words " * 150_000}))
    await asyncio.sleep(0.05)
    slowest = 0.0
    loop = asyncio.get_running_loop()
    while not huge.done():
        began = loop.time()
        assert (await get(stage, "/health"))[0] == 200
        slowest = max(slowest, loop.time() - began)
        await asyncio.sleep(0.01)
    assert await huge == 200
    assert slowest < 1.5


async def status_of(stage: Stage, body: dict[str, Any]) -> int:
    async with stage.post("/v1/completions", body) as response:
        return int(response.status)


async def test_metrics_have_their_names_and_values(stage: Stage) -> None:
    await stage.router()
    for prompt in ([1] * 30, [1] * 40, [1] * 5):
        asked = {"prompt": prompt, "stream": True}
        async with stage.post("/v1/completions", asked) as response:
            assert response.status == 200
            await response.read()
    async with stage.client.get(stage.url + "/metrics") as response:
        assert response.headers["Content-Type"].startswith("text/plain")
        text = await response.text()
    got = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }

    def value(name: str, **labels: str) -> float:
        return got[f"dpd_router_{name}", tuple(sorted(labels.items()))]

    assert value("requests_total", path="disaggregated", reason="long_prompt") == 2
    assert value("requests_total", path="direct", reason="short_prompt") == 1
    assert value("responses_total", path="disaggregated", status="200") == 2
    assert value("prompt_tokens_total", path="disaggregated") == 70
    assert value("prompt_tokens_total", path="direct") == 5
    assert value("prefill_seconds_count") == 2
    assert value("transfer_wait_seconds_count") == 2
    assert value("ttft_seconds_count", path="disaggregated") == 2
    assert value("ttft_seconds_count", path="direct") == 1
    assert value("in_flight", role="prefill") == 0
    assert value("in_flight", role="decode") == 0
    assert value("transfers_waiting") == 0
    assert value("engines", role="decode", state="answers") == 1
    assert value("engines", role="decode", state="silent") == 0
    assert value("notices_unknown_total") == 0
    assert value("notices_invalid_total") == 0
    assert value("upstream_retries_total") == 0
    assert value("count_mismatches_total") == 2


async def test_only_a_stream_of_tokens_has_a_time_to_the_first(stage: Stage) -> None:
    """Autoscalers go by it: a whole answer takes as long as it is, and an error no time."""

    def answers(status: int, content_type: str) -> Any:
        async def handle(request: web.Request, seen: Any) -> web.StreamResponse:
            return web.Response(status=status, content_type=content_type, body=b"data: x\n\n")

        return handle

    router = await stage.router()
    stream = {"prompt": [1] * 5, "stream": True}
    text, events = "application/json", "text/event-stream"
    for path, body, handle in (
        ("/v1/completions", {"prompt": [1] * 5}, None),
        ("/v1/completions", {"prompt": [1] * 40}, None),
        ("/v1/completions", stream, answers(400, text)),
        ("/v1/completions", stream, answers(500, events)),
        ("/v1/completions", stream, answers(200, text)),
        ("/v1/responses", stream, answers(200, events)),
        ("/tokenize", {"prompt": "a"}, None),
    ):
        stage.decoders[0].does.handle = handle
        async with stage.post(path, body) as response:
            await response.read()
    (family,) = router.metrics.ttft_seconds.collect()
    assert family.samples == []


async def test_the_time_to_the_first_token_ends_with_it_and_begins_with_the_request(
    stage: Stage,
) -> None:
    router = await stage.router()
    stage.prefillers[0].does.delay = 0.3
    stage.decoders[0].does.delay = 0.3
    stage.decoders[0].does.pause = 1.0  # of two, after the first of three words
    async with stage.post("/v1/completions", {"prompt": [1] * 40, "stream": True}) as response:
        await response.read()
    took = router.metrics.registry.get_sample_value(
        "dpd_router_ttft_seconds_sum", {"path": "disaggregated"}
    )
    assert took is not None and 0.6 <= took < 0.6 + 1.0


async def test_a_port_that_is_taken_is_named(stage: Stage) -> None:
    first = await stage.router()
    second = Router(first._config, pod_ip="127.0.0.1", load_tokenizer=load_tokenizer)
    with pytest.raises(OSError, match=rf"tcp://127\.0\.0\.1:{stage.notify_port}"):
        await second.start()
    await second.stop()


async def test_a_pod_ip_of_another_machine_is_named(stage: Stage) -> None:
    first = await stage.router()
    second = Router(first._config, pod_ip="192.0.2.7", load_tokenizer=load_tokenizer)
    with pytest.raises(OSError, match=r"tcp://192\.0\.2\.7"):
        await second.start()
    await second.stop()
