"""Counts requests with vLLM's own front end; run as a process of its own.

Reads JSON from standard input: {"cases": [[folder, route, body], …], "max_len": N}. Writes to the
file named by its argument for each case {"tokens": [[ids], …], "text": the prompt} or
{"error": text}.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from vllm.config import ModelConfig, VllmConfig
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.entrypoints.openai.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.render.serving import OpenAIServingRender
from vllm.renderers import renderer_from_config


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
        trust_request_chat_template=True,
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


async def main() -> None:
    asked = json.load(sys.stdin)
    front_ends: dict[str, OpenAIServingRender] = {}
    answers = []
    for folder, route, body in asked["cases"]:
        if folder not in front_ends:
            front_ends[folder] = make_front_end(folder, asked["max_len"])
        answers.append(await count(front_ends[folder], route, body))
    with open(sys.argv[1], "w") as out:
        json.dump(answers, out)


if __name__ == "__main__":
    asyncio.run(main())
