"""Counts requests with vLLM's own front end; run as a process of its own.

Reads JSON from standard input: {"cases": [[folder, route, body], …], "templates": […],
"max_len": N}. Writes JSON to the file named by its argument: under "cases" for each
{"tokens": [[ids], …], "text": the prompt} or {"error": text}, under "templates" for each
[content format, [variables]], under "answers" the bodies that its answers have, under "metrics"
those of dpd-vllm before any request.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from prometheus_client import Counter, Gauge, Histogram, generate_latest
from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.openai.chat_completion import protocol as chats
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion import protocol as completions
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.engine import protocol as common
from vllm.entrypoints.openai.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.render.serving import OpenAIServingRender
from vllm.renderers import renderer_from_config
from vllm.renderers.hf import _detect_content_format, _resolve_chat_template_kwargs

from dpd_vllm.stats import TransferMetrics


def make_front_end(folder: str, max_len: int) -> OpenAIServingRender:
    model = ModelConfig(
        model=folder, tokenizer=folder, max_model_len=max_len, dtype="float32", enforce_eager=True
    )
    return OpenAIServingRender(
        model,
        renderer_from_config(VllmConfig(model_config=model)),
        None,
        None,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
        trust_request_chat_template=False,
        enable_auto_tools=True,
        tool_parser="hermes",
    )


async def count(front_end: OpenAIServingRender, route: str, body: dict[str, Any]) -> dict[str, Any]:
    try:
        if route == "chat":
            request = ChatCompletionRequest.model_validate(body)
            result = await front_end.render_chat(request)
        else:
            request = CompletionRequest.model_validate(body)
            result = await front_end.render_completion(request)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if isinstance(result, ErrorResponse):
        return {"error": result.error.message}
    inputs = result[1] if route == "chat" else result
    return {
        "tokens": [list(i["prompt_token_ids"]) for i in inputs],
        "text": inputs[0].get("prompt"),
    }


def answers() -> dict[str, str]:
    """The engine's answers as its serving code puts them together, as JSON texts."""
    named = {"created": 1764000000, "model": "tiny"}
    usage = common.UsageInfo(prompt_tokens=7, completion_tokens=1, total_tokens=8)
    text = {"finish_reason": "length", "stop_reason": None}
    choice = completions.CompletionResponseChoice(index=0, text="hi", **text)
    part = completions.CompletionResponseStreamChoice(index=0, text="hi", **text)
    message = chats.ChatMessage(role="assistant", content="hi")
    chat_choice = chats.ChatCompletionResponseChoice(index=0, message=message, **text)

    def chat_event(delta: Any, **more: Any) -> Any:
        piece = chats.ChatCompletionResponseStreamChoice(
            index=0, delta=delta, logprobs=None, **more
        )
        return chats.ChatCompletionStreamResponse(
            id="chatcmpl-r", object="chat.completion.chunk", choices=[piece], **named
        )

    first = chat_event(common.DeltaMessage(role="assistant", content=""), finish_reason=None)
    first.prompt_token_ids = None
    delta = common.DeltaMessage(content="hi")
    built = {
        "completion": completions.CompletionResponse(
            id="cmpl-r", choices=[choice], usage=usage, **named
        ).model_dump(),
        "chat": chats.ChatCompletionResponse(
            id="chatcmpl-r", choices=[chat_choice], usage=usage, **named
        ).model_dump(),
        "error": ErrorResponse(
            error=common.ErrorInfo(message="m", type="T", param="p", code=400)
        ).model_dump(),
        "models": common.ModelList(
            data=[
                common.ModelCard(
                    id="tiny",
                    created=1764000000,
                    max_model_len=16384,
                    root="/models/tiny",
                    permission=[common.ModelPermission(id="modelperm-1", created=1764000000)],
                )
            ]
        ).model_dump(),
    }
    texts = {k: json.dumps(v, ensure_ascii=False, separators=(",", ":")) for k, v in built.items()}
    completion_event = completions.CompletionStreamResponse(id="cmpl-r", choices=[part], **named)
    usage_event = completions.CompletionStreamResponse(
        id="cmpl-r", choices=[], usage=usage, **named
    )
    chat_usage = chats.ChatCompletionStreamResponse(
        id="chatcmpl-r", object="chat.completion.chunk", choices=[], usage=usage, **named
    )
    more = {"finish_reason": "length", "stop_reason": None, "token_ids": None}
    return texts | {
        "completion_event": completion_event.model_dump_json(exclude_unset=False),
        "completion_usage": usage_event.model_dump_json(exclude_unset=False, exclude_none=True),
        "first_chat_event": first.model_dump_json(exclude_unset=True),
        "chat_event": chat_event(delta, finish_reason=None, token_ids=None).model_dump_json(
            exclude_unset=True
        ),
        "last_chat_event": chat_event(delta, **more).model_dump_json(exclude_unset=True),
        "chat_usage": chat_usage.model_dump_json(exclude_unset=True, exclude_none=True),
    }


def metrics(model: ModelConfig) -> str:
    """What dpd-vllm puts on the engine's page, with the labels that vLLM gives it."""
    types = {Gauge: Gauge, Counter: Counter, Histogram: Histogram}
    config = VllmConfig(model_config=model)
    TransferMetrics(config, types, ["model_name", "engine"], {0: ["tiny", "0"]})
    lines = generate_latest().decode().splitlines(keepends=True)
    return "".join(line for line in lines if "dpd:engine_info" in line)


async def main() -> None:
    asked = json.load(sys.stdin)
    front_ends: dict[str, OpenAIServingRender] = {}
    counts = []
    for folder, route, body in asked["cases"]:
        if folder not in front_ends:
            front_ends[folder] = make_front_end(folder, asked["max_len"])
        counts.append(await count(front_ends[folder], route, body))
    templates = [
        [_detect_content_format(t, default="string"), sorted(_resolve_chat_template_kwargs(t))]
        for t in asked["templates"]
    ]
    with open(sys.argv[1], "w") as out:
        json.dump(
            {
                "cases": counts,
                "templates": templates,
                "answers": answers(),
                "metrics": metrics(next(iter(front_ends.values())).model_config),
            },
            out,
        )


if __name__ == "__main__":
    asyncio.run(main())
