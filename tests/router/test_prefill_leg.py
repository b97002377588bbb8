"""What the prefiller is sent, and that the decoder gets the client's own bytes."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import pytest
from aiohttp import web
from tests.router.conftest import Stage

from dpd_router.prefilling import prefill_body

LONG_TEXT = "word " * 40
LONG = {"model": "tiny", "prompt": LONG_TEXT}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": LONG_TEXT}]}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]


async def send(stage: Stage, path: str, raw: bytes) -> tuple[dict[str, Any], bytes]:
    """Send a long request; return the prefill leg's body and the decode leg's bytes."""
    await stage.router()
    headers = {"Content-Type": "application/json"}
    async with stage.post(path, data=raw, headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["x-dpd-path"] == "disaggregated"
    (prefill,) = stage.prefillers[0].seen
    (decode,) = stage.decoders[0].seen
    assert prefill.path == decode.path == path
    return prefill.body, decode.raw


async def test_the_prefill_leg_names_the_decoder_that_gets_the_request(stage: Stage) -> None:
    body, _ = await send(stage, "/v1/completions", json.dumps(LONG).encode())
    spec = body["kv_transfer_params"].pop("disagg_spec")
    transfer_id = spec.pop("req_id")
    assert re.fullmatch(
        rf"127\.0\.0\.1:{stage.notify_port}/[0-9a-f]{{8}}-[0-9a-f]{{32}}", transfer_id
    )
    assert spec == {
        "receiver_host": "127.0.0.1",
        "receiver_init_port": [7300, 7301],
        "receiver_alloc_port": [stage.alloc_port, 7401],
    }
    assert body == LONG | {
        "max_tokens": 1,
        "n": 1,
        "stream": False,
        "kv_transfer_params": {},
    }


@pytest.mark.parametrize(
    "raw",
    [
        b'{"prompt": "%s"}' % LONG_TEXT.encode(),
        b'{"prompt": "%s", "max_tokens": null}' % LONG_TEXT.encode(),
        b'{ "prompt":"%s" ,"max_tokens":5e0, "temperature" : 0.10, "x":"\\u00fc\xc3\xbc" }\n'
        % LONG_TEXT.encode(),
    ],
)
async def test_the_decode_leg_has_the_clients_very_bytes(stage: Stage, raw: bytes) -> None:
    body, decode = await send(stage, "/v1/completions", raw)
    assert decode == raw
    assert body["max_tokens"] == 1


@pytest.mark.parametrize(
    "limits",
    [
        {"max_completion_tokens": 500},
        {"max_tokens": 300, "max_completion_tokens": 500},
        {"max_tokens": 300},
        {},
        {"max_tokens": None, "max_completion_tokens": None},
    ],
)
async def test_every_limit_of_a_chat_is_one_on_the_prefill_leg(
    stage: Stage, limits: dict[str, Any]
) -> None:
    raw = json.dumps(CHAT | limits).encode()
    body, decode = await send(stage, "/v1/chat/completions", raw)
    assert (body["max_tokens"], body["max_completion_tokens"]) == (1, 1)
    assert decode == raw


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_one_token_cannot_satisfy_stays_off_the_prefill_leg(
    stage: Stage, path: str, stream: bool
) -> None:
    asked = {
        "stream": stream,
        "max_tokens": 500,
        "min_tokens": 100,
        "n": 3,
        "best_of": 4,
        "use_beam_search": True,
        "logprobs": True,
        "top_logprobs": 2,
        "return_token_ids": True,
        "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {}}},
        "structured_outputs": {"regex": "a+"},
        "guided_json": {},
        "request_id": "mine",
        "temperature": 0.5,
        "seed": 7,
        "stop": ["\n"],
        "stop_token_ids": [3],
        "ignore_eos": False,
        "user": "ann",
    }
    if stream:
        asked["stream_options"] = {"include_usage": True}
    raw = json.dumps((CHAT if "chat" in path else LONG) | asked).encode()
    body, decode = await send(stage, path, raw)
    del body["kv_transfer_params"]
    kept = {k: asked[k] for k in ("temperature", "seed", "stop", "stop_token_ids", "ignore_eos")}
    own = {"max_tokens": 1, "n": 1, "stream": False, "user": "ann"}
    if "chat" in path:
        own["max_completion_tokens"] = 1
    assert body == (CHAT if "chat" in path else LONG) | kept | own
    assert decode == raw


@pytest.mark.parametrize(
    ("choice", "on_prefill"),
    [
        ("required", "none"),
        ({"type": "function", "function": {"name": "weather"}}, "none"),
        ("auto", "auto"),
        ("none", "none"),
    ],
)
async def test_a_forced_tool_choice_is_freed_and_the_tools_stay(
    stage: Stage, choice: Any, on_prefill: str
) -> None:
    raw = json.dumps(CHAT | {"tools": TOOLS, "tool_choice": choice}).encode()
    body, decode = await send(stage, "/v1/chat/completions", raw)
    assert body["tool_choice"] == on_prefill
    assert body["tools"] == TOOLS
    assert json.loads(decode)["tool_choice"] == choice


async def test_a_tool_choice_that_was_not_given_stays_so(stage: Stage) -> None:
    body, _ = await send(
        stage, "/v1/chat/completions", json.dumps(CHAT | {"tools": TOOLS}).encode()
    )
    assert "tool_choice" not in body


async def test_required_tools_out_of_none_are_dropped_as_the_engine_does(stage: Stage) -> None:
    raw = json.dumps(CHAT | {"tools": [], "tool_choice": "required"}).encode()
    body, _ = await send(stage, "/v1/chat/completions", raw)
    assert body["tool_choice"] == "none"
    assert "tools" not in body


async def test_a_prompt_limit_of_what_fits_is_resolved_with_the_clients_own_output(
    stage: Stage,
) -> None:
    await stage.router(max_len=100)
    body = {"prompt": "word " * 300, "max_tokens": 30, "truncate_prompt_tokens": -1}
    async with stage.post("/v1/completions", body) as response:
        assert response.headers["x-dpd-prompt-tokens"] == "70"
    assert stage.prefillers[0].seen[0].body["truncate_prompt_tokens"] == 70
    assert stage.decoders[0].seen[0].body["truncate_prompt_tokens"] == -1


async def test_each_long_prompt_of_a_call_has_its_own_leg_and_all_land_before_decode(
    stage: Stage,
) -> None:
    await stage.router()
    started: list[int] = []

    async def decode(request: Any, seen: Any) -> Any:
        started.append(len(landed))
        return await stage.decoders[0].answer_well(request, seen)

    landed: list[str] = []
    prefiller = stage.prefillers[0]
    notify = prefiller._notify

    async def slow_notify(transfer_id: str) -> None:
        prefiller.does.notify_delay = 0.1 * (1 + len(landed))
        await notify(transfer_id)
        landed.append(transfer_id)

    prefiller._notify = slow_notify  # type: ignore[method-assign]
    stage.decoders[0].does.handle = decode
    prompts = [LONG_TEXT, "short", LONG_TEXT + "b", LONG_TEXT + "c"]
    raw = {"prompt": prompts, "n": 3, "max_tokens": 9}
    async with stage.post("/v1/completions", raw) as response:
        choices = (await response.json())["choices"]
    assert [choice["index"] for choice in choices] == list(range(12))
    legs = [seen.body for seen in prefiller.seen]
    assert sorted(leg["prompt"] for leg in legs) == sorted(p for p in prompts if p != "short")
    assert all(leg["n"] == 1 for leg in legs)
    ids = {leg["kv_transfer_params"]["disagg_spec"]["req_id"] for leg in legs}
    assert len(ids) == 3
    assert started == [3]
    assert stage.decoders[0].seen[0].body == raw


async def test_of_one_request_eight_legs_run_at_once_and_bodies_are_made_in_turn(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def make(*arguments: Any, **options: Any) -> bytes:
        made.append(options["prompt"])
        return prefill_body(*arguments, **options)

    monkeypatch.setattr("dpd_router.serving.prefill_body", make)
    await stage.router()
    prefiller = stage.prefillers[0]
    first_eight = asyncio.Event()

    async def answer(request: Any, seen: Any) -> Any:
        await first_eight.wait()
        return await prefiller.answer_well(request, seen)

    prefiller.does.handle = answer
    prompts = [[n] * 30 for n in range(20)]
    posting = asyncio.ensure_future(stage.post("/v1/completions", {"prompt": prompts}))
    await stage.until(lambda: prefiller.open == 8)
    await asyncio.sleep(0.1)
    assert (prefiller.open, made) == (8, prompts[:8])
    first_eight.set()
    async with await posting as response:
        assert response.status == 200
    assert prefiller.most_open == 8
    assert sorted(seen.body["prompt"] for seen in prefiller.seen) == prompts
    assert made == prompts


async def test_lists_of_token_ids_are_split_by_prompt(stage: Stage) -> None:
    long_ids = [list(range(30)), list(range(5, 40))]
    body, _ = await send(stage, "/v1/completions", json.dumps({"prompt": long_ids[:1]}).encode())
    assert body["prompt"] == long_ids[0]


@pytest.mark.parametrize("long", [True, False])
async def test_transfer_parameters_of_a_client_reach_no_engine(stage: Stage, long: bool) -> None:
    await stage.router()
    evil = {"disagg_spec": {"receiver_host": "169.254.169.254", "req_id": "x"}}
    body = {
        "prompt": LONG_TEXT if long else "a",
        "kv_transfer_params": evil,
        "ec_transfer_params": evil,
        "vllm_xargs": {"kv_transfer_params": "x", "ec_x": 1, "KV_y": 2, "mine": 3},
        "max_tokens": 7,
    }
    async with stage.post("/v1/completions", body) as response:
        assert response.status == 200
    clean = {"prompt": body["prompt"], "vllm_xargs": {"mine": 3}, "max_tokens": 7}
    assert stage.decoders[0].seen[0].body == clean
    for seen in (*stage.prefillers[0].seen, *stage.decoders[0].seen):
        assert b"169.254" not in seen.raw
        assert b"KV_y" not in seen.raw


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
async def test_other_encodings_hide_no_transfer_parameters(stage: Stage, encoding: str) -> None:
    await stage.router()
    raw = json.dumps({"prompt": "a", "kv_transfer_params": {"a": 1}}).encode(encoding)
    headers = {"Content-Type": "application/json"}
    async with stage.post("/v1/completions", data=raw, headers=headers) as response:
        assert response.status == 200
    assert stage.decoders[0].seen[0].body == {"prompt": "a"}


async def test_transfer_parameters_are_stripped_on_every_other_path(stage: Stage) -> None:
    await stage.router()
    async with stage.post("/v1/responses", {"input": "a", "kv_transfer_params": {"a": 1}}):
        pass
    assert stage.decoders[0].seen[0].body == {"input": "a"}


async def test_a_refusal_that_echoes_the_prefill_leg_is_left_to_the_decoder(stage: Stage) -> None:
    await stage.router()

    async def refuse(request: Any, seen: Any) -> web.Response:
        return web.json_response({"error": f"wrong input: {seen.body}"}, status=400)

    stage.prefillers[0].does.handle = stage.decoders[0].does.handle = refuse
    async with stage.post("/v1/completions", LONG | {"cache_salt": ""}) as response:
        assert response.status == 400
        assert await response.json() == {"error": f"wrong input: {LONG | {'cache_salt': ''}}"}


async def test_the_prefill_leg_carries_the_clients_authorization(stage: Stage) -> None:
    await stage.router()
    headers = {"Authorization": "Bearer s3cret", "X-Team": "blue"}
    async with stage.post("/v1/completions", LONG, headers=headers) as response:
        assert response.status == 200
    for seen in (*stage.prefillers[0].seen, *stage.decoders[0].seen):
        assert seen.headers["Authorization"] == "Bearer s3cret"
        assert seen.headers["X-Team"] == "blue"
