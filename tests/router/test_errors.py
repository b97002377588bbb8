"""Every way a request can fail reaches the client with the right words, and in time."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from typing import Any

import pytest
from aiohttp import web
from tests.router.conftest import Stage
from tests.router.engine_answers import Answers
from tests.router.stub_engine import json_response

from dpd_router.parsing import BadRequest, write

LONG = {"model": "tiny", "prompt": "word " * 40}
SHORT = {"model": "tiny", "prompt": "word"}


def fails_with(status: int, headers: dict[str, str] | None = None) -> Any:
    async def handle(request: Any, seen: Any) -> web.Response:
        body = Answers.error(status, f"no: {status}", "SomeError", "prompt")
        return json_response(body, status, **(headers or {}))

    return handle


@pytest.mark.parametrize("status", [400, 404, 422, 429, 500, 503])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_prefillers_error_reaches_the_client_unchanged(
    stage: Stage, status: int, stream: bool
) -> None:
    router = await stage.router()
    stage.prefillers[0].does.handle = fails_with(status, {"Retry-After": "17"})
    async with stage.post("/v1/completions", LONG | {"stream": stream}) as response:
        assert response.status == status
        assert response.headers["Retry-After"] == "17"
        assert response.headers["Content-Type"] == "application/json"
        assert response.headers["x-dpd-path"] == "disaggregated"
        assert await response.json() == Answers.error(
            status, f"no: {status}", "SomeError", "prompt"
        )
    assert len(stage.prefillers[0].seen) == 1
    assert stage.decoders[0].seen == []
    assert router.metrics.registry.get_sample_value("dpd_router_transfers_waiting") == 0


@pytest.mark.parametrize("prompt", [LONG, SHORT], ids=["long", "short"])
async def test_a_decoders_error_reaches_the_client_unchanged(stage: Stage, prompt: Any) -> None:
    await stage.router()
    stage.decoders[0].does.handle = fails_with(429, {"Retry-After": "3"})
    async with stage.post("/v1/completions", prompt | {"stream": True}) as response:
        assert response.status == 429
        assert response.headers["Retry-After"] == "3"
        assert await response.json() == Answers.error(429, "no: 429", "SomeError", "prompt")


async def refusal(stage: Stage, body: Any, **options: Any) -> tuple[int, str]:
    async with stage.post("/v1/completions", body, **options) as response:
        error = (await response.json())["error"]
        assert error["code"] == response.status
        return response.status, error["message"]


async def test_a_prefiller_that_breaks_the_connection_is_a_502(stage: Stage) -> None:
    router = await stage.router()

    async def reset(request: web.Request, seen: Any) -> web.Response:
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    stage.prefillers[0].does.handle = reset
    status, message = await refusal(stage, LONG)
    assert status == 502
    assert message.startswith(f"The prefiller: {stage.prefillers[0].url} broke the connection: ")
    assert stage.decoders[0].seen == []
    assert router.metrics.registry.get_sample_value("dpd_router_transfers_waiting") == 0


async def test_a_transfer_that_never_lands_is_a_504_within_the_limit(stage: Stage) -> None:
    router = await stage.router(transferSeconds=0.5)
    stage.prefillers[0].does.notify = False
    began = time.monotonic()
    status, message = await refusal(stage, LONG)
    assert 0.5 <= time.monotonic() - began < 1.5
    assert (status, message) == (
        504,
        "The KV did not land within 0.5 s: the prefiller's HTTP gave 200 after 0.0 s, "
        "no rank reported.",
    )
    assert stage.decoders[0].seen == []
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_transfers_waiting") == 0
    assert value("dpd_router_in_flight", {"role": "prefill"}) == 0
    assert value("dpd_router_refused_total", {"cause": "transfer_timeout"}) == 1


async def test_a_transfer_of_which_a_rank_is_missing_is_a_504(stage: Stage) -> None:
    await stage.router(transferSeconds=0.5)
    prefiller = stage.prefillers[0]

    async def one_rank(transfer_id: str) -> None:
        notice = {"type": "ProxyNotif", "req_id": transfer_id, "rank": 1, "ranks": 2, "error": ""}
        for _ in range(3):
            await prefiller.push(transfer_id.split("/")[0], notice)

    prefiller._notify = one_rank  # type: ignore[method-assign]
    status, message = await refusal(stage, LONG)
    assert status == 504
    assert message.endswith("1 of 2 ranks reported.")


async def test_a_prefiller_that_never_answers_is_a_504_within_the_limit(stage: Stage) -> None:
    await stage.router(transferSeconds=0.5)
    stage.prefillers[0].does.delay = 60
    status, message = await refusal(stage, LONG)
    assert (status, message) == (
        504,
        "The KV did not land within 0.5 s: the prefiller's HTTP gave no answer, no rank reported.",
    )
    await stage.until(lambda: stage.prefillers[0].seen[0].cancelled, 1)


async def test_a_transfer_reported_as_failed_is_a_503_with_its_reason(stage: Stage) -> None:
    await stage.router()
    stage.prefillers[0].does.notify_error = "the receiver has no room"
    assert await refusal(stage, LONG) == (503, "The KV transfer failed: the receiver has no room")
    assert stage.decoders[0].seen == []


async def test_a_failure_reported_before_the_prefiller_answers_ends_the_leg(stage: Stage) -> None:
    await stage.router(transferSeconds=30)

    async def fail_then_hang(request: Any, seen: Any) -> web.Response:
        stage.prefillers[0].notify(seen.body["kv_transfer_params"]["disagg_spec"]["req_id"])
        await asyncio.sleep(60)
        return web.Response()

    stage.prefillers[0].does.notify_error = "gone"
    stage.prefillers[0].does.handle = fail_then_hang
    began = time.monotonic()
    assert await refusal(stage, LONG) == (503, "The KV transfer failed: gone")
    assert time.monotonic() - began < 2
    await stage.until(lambda: stage.prefillers[0].seen[0].cancelled, 1)


async def test_one_failed_leg_of_several_ends_the_others(stage: Stage) -> None:
    router = await stage.router(transferSeconds=30)

    async def first_fails(request: Any, seen: Any) -> web.StreamResponse:
        if len(stage.prefillers[0].seen) == 1:
            await asyncio.sleep(0.2)
            return web.json_response(Answers.error(400, "bad", "BadRequestError"), status=400)
        await asyncio.sleep(60)
        return web.Response()

    stage.prefillers[0].does.handle = first_fails
    status, message = await refusal(stage, {"prompt": [LONG["prompt"], LONG["prompt"] + "x"]})
    assert (status, message) == (400, "bad")
    await stage.until(lambda: stage.prefillers[0].seen[1].cancelled, 1)
    assert router.metrics.registry.get_sample_value("dpd_router_transfers_waiting") == 0


async def test_a_silent_decoder_is_a_504_after_the_idle_limit(stage: Stage) -> None:
    await stage.router(idleSeconds=0.4)
    stage.decoders[0].does.delay = 60
    status, message = await refusal(stage, SHORT)
    assert (status, message) == (
        504,
        f"The decoder: {stage.decoders[0].url} was silent for too long.",
    )
    await stage.until(lambda: stage.decoders[0].seen[0].cancelled, 1)


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[1]", b'"x"', b"\xff\xfe\xfd", b'{"prompt": "a" "b"}', b"[" * 100000],
    ids=["empty", "open", "list", "text", "not-utf8", "no-comma", "deep"],
)
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
async def test_a_body_that_is_no_json_object_is_a_400(stage: Stage, raw: bytes, path: str) -> None:
    await stage.router()
    headers = {"Content-Type": "application/json"}
    async with stage.post(path, data=raw, headers=headers) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["message"].startswith("The request body ")
    assert error | {"message": ""} == {
        "message": "",
        "type": "BadRequestError",
        "param": None,
        "code": 400,
    }
    assert stage.decoders[0].seen == []


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses", "/tokenize"])
@pytest.mark.parametrize("raw", [b"{}", b"\x1f\x8b\x08 not gzip"])
async def test_a_body_that_is_not_compressed_as_declared_is_a_400(
    stage: Stage, path: str, raw: bytes
) -> None:
    await stage.router()
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    async with stage.post(path, data=raw, headers=headers) as response:
        assert response.status == 400
    assert stage.decoders[0].seen == []


@pytest.mark.parametrize(
    "kind", ["application/json", "Application/JSON; x=y", "application/x+json"]
)
@pytest.mark.parametrize("raw", [b"{", b'{"kv_transfer_params": {}, "x":' + b"[" * 100000])
async def test_what_an_engine_might_read_as_json_does_not_pass_unread(
    stage: Stage, kind: str, raw: bytes
) -> None:
    await stage.router()
    async with stage.post("/v1/responses", data=raw, headers={"Content-Type": kind}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["message"].startswith(
            "The request body is not valid JSON: "
        )
    assert stage.decoders[0].seen == []


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
async def test_no_depth_of_nesting_is_a_fault_of_the_router(stage: Stage, path: str) -> None:
    await stage.router()
    headers = {"Content-Type": "application/json"}
    statuses = set()
    for depth in range(850, 1010, 3):
        nested = b"[" * depth + b"]" * depth
        for field in (b'"kv_transfer_params": {}', b'"user": "ann"'):
            raw = b'{"prompt": "%s", %s, "x": %s}' % (b"word " * 40, field, nested)
            async with stage.post(path, data=raw, headers=headers) as response:
                statuses.add(response.status)
    assert statuses == {200, 400}


def test_a_body_too_deep_to_be_written_again_is_a_bad_request() -> None:
    body: dict[str, Any] = {}
    for _ in range(100_000):
        body = {"x": body}
    with pytest.raises(BadRequest, match=r"^The request body is nested too deeply\.$"):
        write(body)


async def test_a_prefillers_answer_too_deep_to_be_read_is_not_checked(stage: Stage) -> None:
    router = await stage.router()

    async def deep(request: web.Request, seen: Any) -> web.Response:
        stage.prefillers[0].notify(seen.body["kv_transfer_params"]["disagg_spec"]["req_id"])
        return web.Response(body=b"[" * 100000, content_type="application/json")

    stage.prefillers[0].does.handle = deep
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 200
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_count_mismatches_total") == 0


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/responses"])
async def test_a_body_that_inflates_to_more_than_64_mebibytes_is_a_413(
    stage: Stage, path: str
) -> None:
    await stage.router()
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    raw = gzip.compress(b" " * (64 * 1024**2 + 1), 1)
    async with stage.post(path, data=raw, headers=headers) as response:
        assert response.status == 413
        assert (await response.json())["error"] == {
            "message": "The request body is larger than 67108864 bytes.",
            "type": "RequestTooLargeError",
            "param": None,
            "code": 413,
        }
    assert stage.decoders[0].seen == []


async def test_without_a_decoder_the_answer_names_the_addresses(stage: Stage) -> None:
    await stage.decoders[0].stop()
    await stage.router(wait=False)
    assert await refusal(stage, SHORT) == (
        503,
        f"No decoder answers ({stage.decoders[0].address}).",
    )


async def test_without_a_prefiller_a_long_prompt_is_a_503(stage: Stage) -> None:
    router = await stage.router()
    stage.prefillers[0].does.healthy = False
    await stage.until(lambda: not router.prefillers.usable)
    assert await refusal(stage, LONG) == (
        503,
        f"No prefiller answers ({stage.prefillers[0].address}).",
    )
    assert stage.decoders[0].seen == []


async def test_a_dead_decoder_is_passed_over_by_short_prompts(stage: Stage) -> None:
    await stage.engines(prefill=0, decode=1)
    await stage.router()
    await stage.decoders[0].stop()
    for _ in range(4):
        async with stage.post("/v1/completions", SHORT) as response:
            assert response.status == 200
    assert len(stage.decoders[1].seen) == 4


async def test_a_dead_prefiller_is_passed_over(stage: Stage) -> None:
    await stage.engines(prefill=1, decode=0)
    await stage.router()
    await stage.prefillers[0].stop()
    for _ in range(4):
        async with stage.post("/v1/completions", LONG) as response:
            assert response.status == 200
    assert len(stage.prefillers[1].seen) == 4


async def test_the_engines_own_refusal_answers_what_cannot_be_counted(stage: Stage) -> None:
    await stage.router()
    stage.decoders[0].does.handle = fails_with(400)
    for path, body in (
        ("/v1/completions", {"prompt": ""}),
        ("/v1/completions", {"prompt": []}),
        ("/v1/completions", {"prompt": {"a": 1}}),
        ("/v1/completions", {}),
        ("/v1/chat/completions", {"messages": []}),
        ("/v1/chat/completions", {"messages": "hello"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": {}}]}),
        ("/v1/chat/completions", {"messages": [5]}),
    ):
        async with stage.post(path, body) as response:
            assert response.status == 400
            assert response.headers["x-dpd-path"] == "direct"
            assert response.headers["x-dpd-reason"] == "the prompt cannot be counted"
            assert (await response.json())["error"]["message"] == "no: 400"
        assert json.loads(stage.decoders[0].seen[-1].raw) == body
