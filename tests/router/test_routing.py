"""Which path a request takes, and that the answer says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.router.conftest import Stage
from transformers import AutoTokenizer

from dpd_router.config import Routing
from dpd_router.counting import Counted, Direct
from dpd_router.deciding import decide

WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("mode", "tokens", "code", "prompts"),
    [
        ("threshold", (4095,), "short_prompt", ()),
        ("threshold", (4096,), "long_prompt", (0,)),
        ("threshold", (4097,), "long_prompt", (0,)),
        ("threshold", (10, 4096, 20, 5000), "long_prompt", (1, 3)),
        ("threshold", (4000, 4000), "short_prompt", ()),
        ("always", (1,), "mode_always", (0,)),
        ("always", (1, 0, 2), "mode_always", (0, 2)),
        ("always", (0,), "empty_prompt", ()),
        ("never", (9999,), "mode_never", ()),
    ],
)
def test_the_decision_follows_mode_and_threshold(
    mode: Any, tokens: tuple[int, ...], code: str, prompts: tuple[int, ...]
) -> None:
    decision = decide(Counted(tokens), Routing(mode, 4096), paired=True)
    assert (decision.code, decision.prompts) == (code, prompts)
    assert decision.path == ("disaggregated" if prompts else "direct")


def test_a_threshold_of_zero_disaggregates_every_prompt_that_has_tokens() -> None:
    assert decide(Counted((1,)), Routing("threshold", 0), paired=True).prompts == (0,)
    assert decide(Counted((0,)), Routing("threshold", 0), paired=True).prompts == ()


@pytest.mark.parametrize("mode", ["always", "threshold"])
def test_what_cannot_be_transferred_goes_direct_in_every_mode(mode: Any) -> None:
    counted = Counted((5000,), Direct("echo", "why"))
    decision = decide(counted, Routing(mode, 10), paired=True)
    assert (decision.code, decision.reason, decision.prompts) == ("echo", "why", ())


def count_chat(folder: Path, **options: Any) -> int:
    """The length of a chat's prompt by transformers alone."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = options.pop("messages")
    return len(tokenizer.apply_chat_template(messages, add_generation_prompt=True, **options))


@pytest.mark.parametrize("offset", [-1, 0, 1])
@pytest.mark.parametrize("route", ["chat", "text", "ids"])
async def test_the_boundary_lies_at_the_engines_own_count(
    stage: Stage, route: str, offset: int
) -> None:
    messages = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": "hello there you"},
    ]
    if route == "chat":
        tokens = count_chat(stage.folder, messages=messages)
        path, body = "/v1/chat/completions", {"messages": messages}
    elif route == "text":
        tokens = len(AutoTokenizer.from_pretrained(stage.folder).encode("some words here"))
        path, body = "/v1/completions", {"prompt": "some words here"}
    else:
        tokens = 9
        path, body = "/v1/completions", {"prompt": [5] * 9}
    await stage.router(threshold=tokens - offset)
    async with stage.post(path, body) as response:
        assert response.status == 200
        headers = response.headers
    assert headers["x-dpd-prompt-tokens"] == str(tokens)
    if offset >= 0:
        assert headers["x-dpd-path"] == "disaggregated"
        assert headers["x-dpd-reason"] == f"{tokens} tokens >= threshold {tokens - offset}"
        assert float(headers["x-dpd-prefill-seconds"]) >= 0
        assert float(headers["x-dpd-transfer-seconds"]) >= 0
    else:
        assert headers["x-dpd-path"] == "direct"
        assert headers["x-dpd-reason"] == f"{tokens} tokens < threshold {tokens + 1}"
        assert "x-dpd-prefill-seconds" not in headers
    assert len(stage.prefillers[0].seen) == (1 if offset >= 0 else 0)


@pytest.mark.parametrize(
    "more",
    [
        {"tools": [WEATHER] * 60},
        {"documents": [{"title": "t", "text": "long text " * 300}]},
        {"chat_template_kwargs": {"thinking": "very deep " * 300}},
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "b", "reasoning": "thought " * 300},
                {"role": "user", "content": "c"},
            ]
        },
    ],
    ids=["tools", "documents", "kwargs", "reasoning"],
)
async def test_everything_that_the_template_adds_counts(stage: Stage, more: dict[str, Any]) -> None:
    await stage.router(threshold=500)
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with stage.post("/v1/chat/completions", body) as response:
        assert response.headers["x-dpd-path"] == "direct"
    async with stage.post("/v1/chat/completions", body | more) as response:
        assert response.headers["x-dpd-path"] == "disaggregated"
        assert int(response.headers["x-dpd-prompt-tokens"]) >= 500


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ({"prompt": [1] * 50, "echo": True}, "echo needs the whole prompt on one engine"),
        (
            {"prompt": [1] * 50, "prompt_logprobs": 0},
            "prompt_logprobs need the whole prompt on one engine",
        ),
        ({"prompt_embeds": "AAAA"}, "prompt_embeds have no tokens"),
        ({"prompt": [1] * 50, "max_tokens": 0}, "max_tokens allows no token"),
        ({"prompt": [1] * 50, "max_tokens": 1.5}, "max_tokens is not a number of tokens"),
        ({"prompt": [1] * 50, "max_tokens": 60}, "50 tokens are more than the 40 that fit"),
        ({"prompt": ["a", 1]}, "the prompt cannot be counted"),
    ],
)
async def test_what_a_prefiller_cannot_do_goes_straight_with_its_reason(
    stage: Stage, body: dict[str, Any], reason: str
) -> None:
    await stage.router(mode="always", max_len=100)
    async with stage.post("/v1/completions", body) as response:
        assert response.headers["x-dpd-path"] == "direct"
        assert response.headers["x-dpd-reason"] == reason
    assert stage.prefillers[0].seen == []
    assert stage.decoders[0].seen[0].body == body


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}},
        {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
        {"type": "no\r\nSet-Cookie: such"},
    ],
)
async def test_images_and_the_like_go_straight_to_a_decoder(
    stage: Stage, part: dict[str, Any]
) -> None:
    await stage.router(mode="always")
    content = [{"type": "text", "text": "word " * 50}, part]
    body = {"messages": [{"role": "user", "content": content}]}
    async with stage.post("/v1/chat/completions", body) as response:
        assert response.headers["x-dpd-path"] == "direct"
        assert response.headers["x-dpd-reason"] == "a message has parts that are not text"
        assert "x-dpd-prompt-tokens" not in response.headers
    assert stage.decoders[0].seen[0].body == body


@pytest.mark.parametrize(
    "more",
    [
        {"chat_template": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}"},
        {"chat_template": "{% for i in range(99999) %}{{ 'word ' * 99999 }}{% endfor %}"},
        {"chat_template_kwargs": {"chat_template": "{{ 'a' * 15000000000 }}"}},
    ],
)
async def test_a_clients_own_template_is_never_run_and_goes_straight_to_a_decoder(
    stage: Stage, more: dict[str, Any]
) -> None:
    await stage.router(mode="always")
    body = {"messages": [{"role": "user", "content": "word " * 50}]} | more
    async with stage.post("/v1/chat/completions", body) as response:
        assert response.headers["x-dpd-path"] == "direct"
        assert response.headers["x-dpd-reason"] == "the request brings its own chat template"
        assert "x-dpd-prompt-tokens" not in response.headers
    assert stage.decoders[0].seen[0].body == body
    assert stage.prefillers[0].seen == []


@pytest.mark.parametrize("limit", [b"NaN", b"Infinity", b"-Infinity", b"1e400"])
@pytest.mark.parametrize("max_len", [100, None])
@pytest.mark.parametrize("key", [b"max_tokens", b"max_completion_tokens"])
async def test_a_limit_that_is_no_number_is_for_the_engine_to_refuse(
    stage: Stage, limit: bytes, max_len: int | None, key: bytes
) -> None:
    await stage.router(mode="always", max_len=max_len)
    raw = b'{"messages": [{"role": "user", "content": "hi"}], "%s": %s}' % (key, limit)
    headers = {"Content-Type": "application/json"}
    async with stage.post("/v1/chat/completions", data=raw, headers=headers) as response:
        assert response.status == 200
        assert response.headers["x-dpd-path"] == "direct"
        assert response.headers["x-dpd-reason"] == f"{key.decode()} is not a number of tokens"
    assert stage.decoders[0].seen[0].raw == raw
    assert stage.prefillers[0].seen == []


async def test_a_body_that_is_not_declared_as_json_is_for_the_engine_to_refuse(
    stage: Stage,
) -> None:
    await stage.router(mode="always")
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with stage.post("/v1/completions", data=b'{"prompt": "a b"}', headers=headers) as reply:
        assert reply.headers["x-dpd-reason"] == "the content type is not JSON"
    assert stage.decoders[0].seen[0].headers["Content-Type"] == headers["Content-Type"]
    assert stage.prefillers[0].seen == []


async def test_mode_never_needs_no_prefiller(stage: Stage) -> None:
    stage.prefillers.clear()
    await stage.router(mode="never")
    async with stage.client.get(stage.url + "/ready") as response:
        assert response.status == 200
    async with stage.post("/v1/completions", {"prompt": [1] * 5000}) as response:
        assert response.headers["x-dpd-reason"] == "mode is never"
        assert response.headers["x-dpd-prompt-tokens"] == "5000"


async def test_several_prompts_report_the_sum_that_usage_has(stage: Stage) -> None:
    await stage.router()
    async with stage.post("/v1/completions", {"prompt": [[1] * 30, [2] * 5]}) as response:
        assert response.headers["x-dpd-prompt-tokens"] == "35"
        assert response.headers["x-dpd-reason"] == "30 tokens >= threshold 20"
    assert [seen.body["prompt"] for seen in stage.prefillers[0].seen] == [[1] * 30]


async def test_a_count_that_differs_from_the_engines_is_counted_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    router = await stage.router()
    stage.prefillers[0].does.prompt_tokens = 31
    async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
        assert response.status == 200
    value = router.metrics.registry.get_sample_value
    assert value("dpd_router_count_mismatches_total") == 1
    assert "the engine counted 31 prompt tokens and the router 30" in caplog.text
    stage.prefillers[0].does.prompt_tokens = 30
    async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
        assert response.status == 200
    assert value("dpd_router_count_mismatches_total") == 1
