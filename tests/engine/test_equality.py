"""Disaggregated answers are the colocated engine's, token for token, and are made from its KV."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.conftest import Engines, completion, post, token_ids

from dpd_local import model, places
from dpd_router import lmcache

pytestmark = pytest.mark.slow

CHAT = "/v1/chat/completions"
THRESHOLD = 256  # router.threshold of values/local-cpu.yaml
# Around a block of 16, a chunk of 256 and the threshold; several chunks; several prefill steps.
LENGTHS = [15, 16, 17, 255, 256, 257, 895, 4096, 8000]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": f"tool_{number}",
            "description": "Looks up one of the numbered tables and returns the row it finds.",
            "parameters": {"type": "object", "properties": {"row": {"type": "integer"}}},
        },
    }
    for number in range(12)
]


def text(tokens: int, seed: int) -> str:
    return model.text(places.cache() / "models" / "tiny", tokens, seed=seed)


def chat(content: str, **more: Any) -> dict[str, Any]:
    body = completion(None, messages=[{"role": "user", "content": content}], **more)
    del body["prompt"]
    return body


@pytest.mark.parametrize("length", LENGTHS)
def test_a_completion_is_equal_and_its_kv_was_sent(engines: Engines, length: int) -> None:
    body = completion(token_ids(length, seed=length))
    before = engines.external_tokens()
    routed, alone = engines.both(body)
    received = engines.external_tokens() - before
    assert routed.token_ids == alone.token_ids
    assert len(routed.token_ids) == 16
    assert routed.headers["x-dpd-path"] == ("disaggregated" if length >= THRESHOLD else "direct")
    # vLLM computes the last prompt token itself, to have logits.
    assert received == (length - 1 if length >= THRESHOLD else 0)


@pytest.mark.parametrize("length", LENGTHS)
def test_a_transfer_of_any_length_lands_and_is_equal(
    engines: Engines, notices: Any, length: int
) -> None:
    prompt = token_ids(length, seed=5000 + length)
    transfer = notices.transfer_id()
    assert engines.prefill("prefill-0", prompt, transfer)["status"] == 200
    assert notices.wait(transfer, seconds=5) == lmcache.Notice(req_id=transfer)
    before = engines.external_tokens()
    decoded = engines.decoded(completion(prompt))
    assert engines.external_tokens() - before == length - 1
    assert decoded.token_ids == engines.colocated(completion(prompt)).token_ids


@pytest.mark.parametrize("length", LENGTHS)
def test_a_chat_is_equal(engines: Engines, length: int) -> None:
    body = chat(text(length, seed=length))
    routed, alone = engines.both(body, CHAT)
    assert routed.token_ids == alone.token_ids


@pytest.mark.parametrize("length", [40, 2000])
@pytest.mark.parametrize("path", ["/v1/completions", CHAT])
def test_a_streamed_answer_is_equal(engines: Engines, path: str, length: int) -> None:
    words = text(length, seed=7)
    body = chat(words) if path == CHAT else completion(words)
    streamed = engines.routed({**body, "stream": True}, path)
    assert streamed.token_ids == engines.colocated(body, path).token_ids


def test_zeroed_kv_changes_the_answer(engines: Engines) -> None:
    """The negative control: without it, equal tokens could come from a silent recomputation."""
    body = completion(token_ids(1500, seed=77))
    with engines.fault("decode-0", "zero-on-arrival"):
        zeroed = engines.routed(body)
    assert zeroed.headers["x-dpd-path"] == "disaggregated"
    assert zeroed.token_ids != engines.colocated(body).token_ids


BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "a string": ("/v1/completions", completion("one two three " * 40)),
    "strings": ("/v1/completions", completion(["one two", "three four " * 50])),
    "token ids": ("/v1/completions", completion(token_ids(300, seed=3))),
    "lists of token ids": (
        "/v1/completions",
        completion([token_ids(300, seed=4), token_ids(20, seed=5), token_ids(700, seed=6)]),
    ),
    "no special tokens": ("/v1/completions", completion("a b " * 99, add_special_tokens=False)),
    "truncated": ("/v1/completions", completion("a b " * 400, truncate_prompt_tokens=300)),
    "a chat": (CHAT, chat("short")),
    "a chat with tools": (CHAT, chat("short", tools=TOOLS, tool_choice="none")),
    "a system prompt": (
        CHAT,
        {
            **chat(""),
            "messages": [
                {"role": "system", "content": "be brief " * 60},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "part one"},
                        {"type": "text", "text": "part two"},
                    ],
                },
            ],
        },
    ),
    "a history": (
        CHAT,
        {
            **chat(""),
            "messages": [
                {"role": "user", "content": "first " * 30},
                {"role": "assistant", "content": "answer " * 30},
                {"role": "user", "content": "second " * 30},
            ],
        },
    ),
    "a continued answer": (
        CHAT,
        {
            **chat(""),
            "add_generation_prompt": False,
            "continue_final_message": True,
            "messages": [
                {"role": "user", "content": "say it"},
                {"role": "assistant", "content": "so be it"},
            ],
        },
    ),
}


@pytest.mark.parametrize("name", BODIES)
def test_the_router_counts_prompt_tokens_as_the_engine_does(engines: Engines, name: str) -> None:
    path, body = BODIES[name]
    answer, alone = engines.both(body, path)
    counted = int(answer.headers["x-dpd-prompt-tokens"])
    assert counted == answer.prompt_tokens == alone.prompt_tokens


@pytest.mark.parametrize("change", [-1, 0, 1])
def test_the_threshold_is_the_engines_count(engines: Engines, change: int) -> None:
    body = completion(token_ids(THRESHOLD + change, seed=900 + change))
    path = engines.routed(body).headers["x-dpd-path"]
    assert path == ("direct" if change < 0 else "disaggregated")


def test_several_prompts_in_one_request_keep_their_order(engines: Engines) -> None:
    body = completion([token_ids(n, seed=50 + n) for n in (600, 20, 300)], return_token_ids=True)
    routed = post(engines.cluster.url("router") + "/v1/completions", body)
    alone = post(engines.cluster.url("colocated-0") + "/v1/completions", body)
    assert [(c["index"], c["token_ids"]) for c in routed["choices"]] == [
        (c["index"], c["token_ids"]) for c in alone["choices"]
    ]


def test_several_choices_of_one_long_prompt_all_come(engines: Engines) -> None:
    body = completion(token_ids(800, seed=60), n=3, temperature=1.0, seed=5)
    routed = post(engines.cluster.url("router") + "/v1/completions", body)
    assert [choice["index"] for choice in routed["choices"]] == [0, 1, 2]
    assert all(choice["finish_reason"] == "length" for choice in routed["choices"])


@pytest.mark.parametrize(
    "more",
    [
        {"min_tokens": 8},
        {"stop_token_ids": list(range(500))},  # the first token ends the answer
        {"logprobs": 2},
        {"max_tokens": 1},
    ],
    ids=["min_tokens", "stop at once", "logprobs", "one token"],
)
def test_options_of_the_answer_do_not_disturb_the_prefill_leg(
    engines: Engines, more: dict[str, Any]
) -> None:
    body = completion(token_ids(400, seed=70), **more)
    routed, alone = engines.both(body)
    assert routed.headers["x-dpd-path"] == "disaggregated"
    assert routed.token_ids == alone.token_ids


def test_a_forced_tool_choice_takes_the_disaggregated_path(engines: Engines) -> None:
    body = chat("call it " * 40, tools=TOOLS, max_tokens=60)
    body["tool_choice"] = {"type": "function", "function": {"name": "tool_3"}}
    routed = post(engines.cluster.url("router") + CHAT, body)
    alone = post(engines.cluster.url("colocated-0") + CHAT, body)
    assert routed["status"] == alone["status"] == 200, (routed, alone)
    assert routed["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "tool_3"
    assert (
        routed["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
        == alone["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    )


@pytest.mark.parametrize("more", [{"echo": True, "logprobs": 1}, {"prompt_logprobs": 1}])
def test_logprobs_of_a_prompt_are_computed_though_its_kv_is_there(
    engines: Engines, notices: Any, more: dict[str, Any]
) -> None:
    prompt = token_ids(600, seed=7100 + len(more))
    transfer = notices.transfer_id()
    assert engines.prefill("prefill-0", prompt, transfer)["status"] == 200
    notice = notices.wait(transfer, seconds=30)
    assert notice is not None
    assert notice.error == ""
    body = completion(prompt, max_tokens=4, **more)
    routed = post(engines.cluster.url("router") + "/v1/completions", body)
    alone = post(engines.cluster.url("colocated-0") + "/v1/completions", body)
    assert routed["status"] == 200, routed
    for part in ("text", "logprobs", "prompt_logprobs"):
        assert routed["choices"][0][part] == alone["choices"][0][part]
    # The KV was left for who wants it.
    before = engines.external_tokens()
    engines.decoded(completion(prompt))
    assert engines.external_tokens() - before == len(prompt) - 1


def test_a_null_limit_is_the_engines_own_affair(engines: Engines) -> None:
    body = completion(token_ids(400, seed=72), max_tokens=None, stop_token_ids=list(range(500)))
    routed = post(engines.cluster.url("router") + "/v1/completions", body)
    alone = post(engines.cluster.url("colocated-0") + "/v1/completions", body)
    assert routed["status"] == alone["status"], (routed, alone)


def test_an_engines_refusal_reaches_the_client_unchanged(engines: Engines) -> None:
    for body in (
        completion(token_ids(500, seed=1), model="other"),
        completion(token_ids(17000, seed=1)),
    ):
        routed = post(engines.cluster.url("router") + "/v1/completions", body)
        alone = post(engines.cluster.url("colocated-0") + "/v1/completions", body)
        assert routed["status"] == alone["status"] >= 400
        assert routed["error"]["type"] == alone["error"]["type"]


def test_no_request_line_of_the_log_is_missing(engines: Engines) -> None:
    """HyperPod's runbook greps for these."""
    engines.routed(completion(token_ids(640, seed=640)))
    log = engines.cluster.pod("router").log_text()
    assert "Conditional routing: estimated_tokens=640, threshold=256, disaggregate=True" in log
    for part in ("prefill selection:", "prefill time (TTFT):", "Routing request ", " to decoder "):
        assert part in log


def test_both_engines_use_nixl_and_none_is_degraded(engines: Engines) -> None:
    for name in ("prefill-0", "prefill-1", "decode-0"):
        log = engines.cluster.pod(name).log_text()
        assert "Backend UCX was instantiated" in log
        assert "degraded mode" not in log
    bodies = [completion(token_ids(300 + 50 * i, seed=300 + i)) for i in range(16)]
    routed, alone = engines.both_of_each(bodies, at_once=8)
    assert [a.token_ids for a in routed] == [a.token_ids for a in alone]


def test_the_local_values_are_what_these_tests_assume() -> None:
    values = (Path(places.LOCAL_VALUES)).read_text()
    assert json.dumps({"threshold": THRESHOLD})[1:-1].replace('"', "") in values
