"""The bodies of vLLM 0.19's answers, field by field in its order and form."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, Gauge, ProcessCollector, generate_latest

MODEL = "tiny"
REVISION = "0123456789ab"
CREATED = 1764000000
BOOT_ID = "0123456789abcdef0123456789abcdef"


class Answers:
    """The bodies of vLLM 0.19's answers, field by field in its order."""

    @staticmethod
    def completion(texts: list[str], prompt_tokens: int, request_id: str) -> dict[str, Any]:
        return {
            "id": f"cmpl-{request_id}",
            "object": "text_completion",
            "created": CREATED,
            "model": MODEL,
            "choices": [
                {
                    "index": index,
                    "text": text,
                    "logprobs": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "token_ids": None,
                    "prompt_logprobs": None,
                    "prompt_token_ids": None,
                }
                for index, text in enumerate(texts)
            ],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": Answers.usage(prompt_tokens, len(texts)),
            "kv_transfer_params": None,
        }

    @staticmethod
    def chat(text: str, prompt_tokens: int, request_id: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{request_id}",
            "object": "chat.completion",
            "created": CREATED,
            "model": MODEL,
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": text,
                        "refusal": None,
                        "annotations": None,
                        "audio": None,
                        "function_call": None,
                        "tool_calls": [],
                        "reasoning": None,
                    },
                    "logprobs": None,
                    "finish_reason": "length",
                    "stop_reason": None,
                    "token_ids": None,
                }
            ],
            "service_tier": None,
            "system_fingerprint": None,
            "usage": Answers.usage(prompt_tokens, 1),
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "kv_transfer_params": None,
        }

    @staticmethod
    def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
        return {
            "prompt_tokens": prompt_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
            "completion_tokens": completion_tokens,
            "prompt_tokens_details": None,
        }

    @staticmethod
    def completion_event(text: str, request_id: str, finish: str | None) -> bytes:
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": finish,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }
        return Answers.event(
            {
                "id": f"cmpl-{request_id}",
                "object": "text_completion",
                "created": CREATED,
                "model": MODEL,
                "choices": [choice],
                "usage": None,
            }
        )

    @staticmethod
    def first_chat_event(request_id: str) -> bytes:
        choice = {
            "index": 0,
            "delta": {"role": "assistant", "content": ""},
            "logprobs": None,
            "finish_reason": None,
        }
        return Answers.event(
            {
                "id": f"chatcmpl-{request_id}",
                "object": "chat.completion.chunk",
                "created": CREATED,
                "model": MODEL,
                "choices": [choice],
                "prompt_token_ids": None,
            }
        )

    @staticmethod
    def chat_event(text: str, request_id: str, finish: str | None) -> bytes:
        choice = {
            "index": 0,
            "delta": {"content": text},
            "logprobs": None,
            "finish_reason": finish,
        }
        if finish is not None:
            choice["stop_reason"] = None
        choice["token_ids"] = None
        return Answers.event(
            {
                "id": f"chatcmpl-{request_id}",
                "object": "chat.completion.chunk",
                "created": CREATED,
                "model": MODEL,
                "choices": [choice],
            }
        )

    @staticmethod
    def usage_event(kind: str, prompt_tokens: int, tokens: int, request_id: str) -> bytes:
        chat = kind == "chat"
        return Answers.event(
            {
                "id": f"{'chatcmpl' if chat else 'cmpl'}-{request_id}",
                "object": "chat.completion.chunk" if chat else "text_completion",
                "created": CREATED,
                "model": MODEL,
                "choices": [],
                "usage": {
                    "prompt_tokens": prompt_tokens,
                    "total_tokens": prompt_tokens + tokens,
                    "completion_tokens": tokens,
                },
            }
        )

    @staticmethod
    def event(document: dict[str, Any]) -> bytes:
        return b"data: " + Answers.json(document) + b"\n\n"

    @staticmethod
    def json(document: dict[str, Any]) -> bytes:
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    DONE = b"data: [DONE]\n\n"

    @staticmethod
    def released() -> bytes:
        return msgspec.msgpack.encode({"type": "Done", "boot_id": BOOT_ID})

    @staticmethod
    def reserved(prompts: int) -> bytes:
        answer = {"type": "Reserved", "boot_id": BOOT_ID, "prompts": prompts}
        return msgspec.msgpack.encode(answer)

    @staticmethod
    def refused(reason: str) -> bytes:
        answer = {"type": "Refused", "boot_id": BOOT_ID, "reason": reason, "then": "fail"}
        return msgspec.msgpack.encode(answer)

    @staticmethod
    def error(status: int, message: str, kind: str, param: str | None = None) -> dict[str, Any]:
        return {"error": {"message": message, "type": kind, "param": param, "code": status}}

    @staticmethod
    def metrics(role: str, revision: str | None) -> bytes:
        """A page of the engine's metrics; without a revision that of an engine without dpd-vllm."""
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        labels = ["model_name", "engine"]
        running = Gauge(
            "vllm:num_requests_running",
            "Number of requests in model execution batches.",
            labels,
            registry=registry,
        )
        running.labels(MODEL, "0").set(0)
        if revision is not None:
            info = Gauge(
                "dpd:engine_info",
                "The revision that prefillers and decoders have alike, and the role.",
                [*labels, "revision", "role"],
                registry=registry,
            )
            info.labels(MODEL, "0", revision, role).set(1)
        return generate_latest(registry)

    @staticmethod
    def models() -> dict[str, Any]:
        permission = {
            "id": "modelperm-1",
            "object": "model_permission",
            "created": CREATED,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": MODEL,
            "object": "model",
            "created": CREATED,
            "owned_by": "vllm",
            "root": "/models/tiny",
            "parent": None,
            "max_model_len": 16384,
            "permission": [permission],
        }
        return {"object": "list", "data": [card]}
