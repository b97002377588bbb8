"""Requests whose prompt tokens the router and the engine must count alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

# The engines' limit in these cases, in tokens.
MAX_LEN = 8192


@dataclass(frozen=True)
class Case:
    """A request; refused if the engine answers it with an error before it computes anything.

    not_counted is why the router leaves one to the engine that the engine takes.
    """

    name: str
    model: str
    route: str
    body: dict[str, Any]
    refused: bool = False
    truncated: bool = False
    not_counted: str = ""


USER = {"role": "user", "content": "tell me about zebras"}
SYSTEM = {"role": "system", "content": "you are terse"}
CALL = {
    "type": "function",
    "function": {"arguments": '{"city": "Köln", "days": 3}', "name": "weather"},
    "id": "call_1",
}
FUNCTION_WITH_MORE = {"more": 1, "name": "weather", "arguments": "[1, 2]"}
HISTORY = [
    SYSTEM,
    USER,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain", "name": "weather"},
    {"role": "assistant", "content": "it rains", "reasoning": "the tool said so"},
    {"role": "user", "content": [{"type": "text", "text": "and"}, {"type": "text", "text": "now"}]},
]
TOOL = {
    "function": {
        "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        "name": "weather",
    },
    "cache": "kept",
    "type": "function",
}
FOR_TOKENIZER = {
    "padding": "max_length",
    "truncation": True,
    "max_length": 3,
    "return_tensors": "pt",
    "tokenizer_kwargs": {"stride": 1},
}
TOOLS = [
    {
        "type": "function",
        "function": {"name": f"tool_{i}", "description": "does things " * 5, "parameters": {}},
    }
    for i in range(60)
]


def _completions() -> list[Case]:
    prompts: dict[str, Any] = {
        "text": "some words here",
        "unicode": "Zürich 🦓 と 漢字 \u0000 \ud83e",
        "newlines": "a\n\n\r\n  b\t",
        "special-tokens": "<|im_start|>user</s>",
        "long": "lorem ipsum " * 200,
        "texts": ["a", "b c d", ""],
        "ids": [5, 6, 7],
        "id-lists": [[1, 2], [3], [4, 5, 6]],
        "one-id": [0],
    }
    cases = [
        Case(f"{model}-{name}", model, "completions", {"prompt": prompt, "max_tokens": 4})
        for model in ("chatml", "parts")
        for name, prompt in prompts.items()
        if name != "unicode"
    ]
    text = prompts["text"]
    more: dict[str, dict[str, Any]] = {
        "no-limit": {},
        "null-limit": {"max_tokens": None},
        "no-special": {"add_special_tokens": False},
        "special": {"add_special_tokens": True},
        "unicode": {"prompt": "Zürich 🦓 と 漢字"},
        "options": {"n": 2, "temperature": 0, "stop": ["x"], "logprobs": 2, "min_tokens": 3},
    }
    cases += [
        Case(f"parts-{name}", "parts", "completions", {"prompt": text, **extra})
        for name, extra in more.items()
    ]
    cuts: dict[str, dict[str, Any]] = {
        "cut-short": {"truncate_prompt_tokens": 2},
        "cut-longer-than-prompt": {"truncate_prompt_tokens": 500},
        "cut-to-what-fits": {"prompt": "word " * 9000, "truncate_prompt_tokens": -1},
        "cut-beside-output": {
            "prompt": [7] * 9000,
            "truncate_prompt_tokens": -1,
            "max_tokens": 100,
        },
        "cut-ids": {"prompt": [1, 2, 3, 4, 5], "truncate_prompt_tokens": 3},
        "cut-several": {"prompt": ["a b c d e f", "g"], "truncate_prompt_tokens": 3},
    }
    cases += [
        Case(f"parts-{name}", "parts", "completions", {"prompt": text, **extra}, truncated=True)
        for name, extra in cuts.items()
    ]
    refused: dict[str, dict[str, Any]] = {
        "empty-text": {"prompt": ""},
        "no-prompt": {},
        "null-prompt": {"prompt": None},
        "no-prompts": {"prompt": []},
        "mixed": {"prompt": ["a", 1]},
        "number": {"prompt": 5},
        "negative-id": {"prompt": [1, -2]},
        "object": {"prompt": {"a": 1}},
        "too-long": {"prompt": [1] * (MAX_LEN + 1)},
        "too-long-with-output": {"prompt": [1] * MAX_LEN, "max_tokens": 1},
        "too-long-with-default-output": {"prompt": [1] * (MAX_LEN - 15)},
        "cut-too-little": {"prompt": "a b", "truncate_prompt_tokens": MAX_LEN, "max_tokens": 9},
        "cut-negative": {"prompt": "a b", "truncate_prompt_tokens": -2},
        "cut-word": {"prompt": "a b", "truncate_prompt_tokens": "few"},
    }
    cases += [
        Case(f"parts-refused-{name}", "parts", "completions", body, refused=True)
        for name, body in refused.items()
    ]
    return cases


def _chats() -> list[Case]:
    user: dict[str, Any] = {"messages": [USER]}
    everywhere: dict[str, dict[str, Any]] = {
        "one": user,
        "empty-content": {"messages": [{"role": "user", "content": ""}]},
        "parts": {"messages": [HISTORY[-1]]},
        "no-generation-prompt": user | {"add_generation_prompt": False},
        "special": user | {"add_special_tokens": True},
        "limits": user | {"max_tokens": 4000, "max_completion_tokens": 3},
    }
    cases = [
        Case(f"{model}-chat-{name}", model, "chat", body)
        for model in ("chatml", "parts", "strict", "named")
        for name, body in everywhere.items()
    ]
    chatml: dict[str, dict[str, Any]] = {
        "system": {"messages": [SYSTEM, USER]},
        "history": {"messages": HISTORY},
        "tools": user | {"tools": [TOOL]},
        "many-tools": user | {"tools": TOOLS},
        "no-tools": user | {"tools": []},
        "required-of-none": user | {"tools": [], "tool_choice": "required"},
        "tool-required": user | {"tools": [TOOL], "tool_choice": "required"},
        "tool-auto": user | {"tools": [TOOL], "tool_choice": "auto"},
        "tool-none": user | {"tools": [TOOL], "tool_choice": "none"},
        "tool-named": user
        | {
            "tools": [TOOL],
            "tool_choice": {"type": "function", "function": {"name": "weather"}},
        },
        "tool-history": {"messages": HISTORY, "tools": [TOOL, *TOOLS[:2]]},
        "documents": user | {"documents": [{"title": "T", "text": "long text " * 30}]},
        "kwargs": user | {"chat_template_kwargs": {"thinking": True, "unused": 1}},
        "kwargs-null": user | {"chat_template_kwargs": {"thinking": None}},
        "kwargs-no-template": user | {"chat_template_kwargs": {"chat_template": None}},
        "kwargs-auto": user | {"chat_template_kwargs": {"thinking": "auto"}},
        "kwargs-tools": user | {"chat_template_kwargs": {"tools": [{"a": 1}]}},
        "kwargs-own-fields": user | {"chat_template_kwargs": {"add_generation_prompt": False}},
        "kwargs-tokenize": user | {"chat_template_kwargs": {"tokenize": True}},
        "kwargs-tokenize-number": user | {"chat_template_kwargs": {"tokenize": 1}},
        "kwargs-tokenize-false": user | {"chat_template_kwargs": {"tokenize": False}},
        "kwargs-tokenize-null": user | {"chat_template_kwargs": {"tokenize": None}},
        "kwargs-return-dict": user | {"chat_template_kwargs": {"return_dict": True}},
        "kwargs-for-tokenizer": user | {"chat_template_kwargs": FOR_TOKENIZER},
        "kwargs-for-tokenizer-null": user
        | {"chat_template_kwargs": {"tokenize": True, "max_length": None, "padding": "auto"}},
        "kwargs-bos": user | {"chat_template_kwargs": {"bos_token": "<|im_end|>"}},
        "effort": user | {"reasoning_effort": "high"},
        "effort-none": user | {"reasoning_effort": "none"},
        "continue": {
            "messages": [USER, {"role": "assistant", "content": "zebras are"}],
            "continue_final_message": True,
            "add_generation_prompt": False,
        },
        "names": {"messages": [USER | {"name": "ann"}, SYSTEM | {"name": "sys"}]},
        "developer": {"messages": [{"role": "developer", "content": "be kind"}, USER]},
        "own-role": {"messages": [{"role": "critic", "content": "hm"}]},
        "refusal-parts": {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "refusal", "refusal": "no"},
                        {"type": "text", "text": "but"},
                    ],
                },
            ]
        },
        "own-role-parts": {
            "messages": [
                {
                    "role": "critic",
                    "content": [
                        "plain",
                        {"type": "thinking", "thinking": "hm", "closed": True},
                        {"type": "input_text", "text": "in"},
                        {"type": "output_text", "text": "out"},
                    ],
                }
            ]
        },
        "unknown-keys": {"messages": [USER | {"cache_control": {"type": "x"}}], "zzz": 1},
        "reasoning-content-only": {
            "messages": [USER, {"role": "assistant", "content": "x", "reasoning_content": "deep"}]
        },
        "no-content": {
            "messages": [USER, {"role": "assistant", "tool_calls": [CALL, CALL | {"id": "2"}]}]
        },
        "empty-calls": {
            "messages": [USER, {"role": "assistant", "content": "x", "tool_calls": []}]
        },
        "no-arguments": {
            "messages": [
                USER,
                {
                    "role": "assistant",
                    "content": "",
                    "tool_calls": [
                        {
                            "id": "c",
                            "type": "function",
                            "function": {"name": "f", "arguments": ""},
                        }
                    ],
                },
            ]
        },
        "extra-in-calls": {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "tool_calls": [{"index": 0} | CALL]},
                {"role": "assistant", "tool_calls": [CALL | {"function": FUNCTION_WITH_MORE}]},
            ]
        },
        "response-format": user | {"response_format": {"type": "json_object"}},
        "unicode": {"messages": [{"role": "user", "content": "Zürich 🦓"}], "tools": [TOOL]},
    }
    cases += [Case(f"chatml-{name}", "chatml", "chat", body) for name, body in chatml.items()]
    tokenized = {"tokenize": True, "return_dict": True}
    own_ways: dict[str, dict[str, Any]] = {
        "cut": {"truncation": True, "max_length": 3},
        "limit-alone": {"max_length": 3},
        "not-cut": {"truncation": False},
        "padded": {"padding": "max_length", "max_length": 40},
        "more": {"tokenizer_kwargs": {"split_special_tokens": True}},
    }
    cases += [
        Case(
            f"strict-tokenized-{name}",
            "strict",
            "chat",
            user | {"chat_template_kwargs": tokenized | options},
            not_counted="tokenizer_options",
        )
        for name, options in own_ways.items()
    ]
    cases += [
        Case(
            "strict-tokenized-special",
            "strict",
            "chat",
            user | {"chat_template_kwargs": tokenized, "add_special_tokens": True},
        ),
        Case("named-tools", "named", "chat", user | {"tools": [TOOL]}),
        Case("parts-cut", "parts", "chat", user | {"truncate_prompt_tokens": 4}, truncated=True),
        Case(
            "chatml-cut-to-what-fits",
            "chatml",
            "chat",
            {
                "messages": [{"role": "user", "content": "word " * 9000}],
                "truncate_prompt_tokens": -1,
                "max_completion_tokens": 40,
                "max_tokens": 7,
            },
            truncated=True,
        ),
    ]
    refused: dict[str, tuple[str, dict[str, Any]]] = {
        "no-messages": ("chatml", {"messages": []}),
        "missing-messages": ("chatml", {}),
        "no-role": ("chatml", {"messages": [{"content": "x"}]}),
        "number-content": ("chatml", {"messages": [{"role": "user", "content": 5}]}),
        "wrong-turn": ("strict", {"messages": [USER, USER]}),
        "no-template": ("none", user),
        "bad-arguments": (
            "chatml",
            {
                "messages": [
                    USER,
                    {
                        "role": "assistant",
                        "tool_calls": [
                            CALL | {"function": {"name": "f", "arguments": "{not json"}}
                        ],
                    },
                ]
            },
        ),
        "own-template": ("chatml", user | {"chat_template": "{{ messages[0].content }}"}),
        "bad-template": ("chatml", user | {"chat_template": "{% for"}),
        "empty-template": ("chatml", user | {"chat_template": ""}),
        "template-by-name": ("named", user | {"chat_template": "default"}),
        "kwargs-template": ("chatml", user | {"chat_template_kwargs": {"chat_template": "x"}}),
        "kwargs-mask": (
            "chatml",
            user | {"chat_template_kwargs": {"return_assistant_tokens_mask": True}},
        ),
        "kwargs-conversation": ("chatml", user | {"chat_template_kwargs": {"conversation": []}}),
        "tokenized-tensors": (
            "chatml",
            user | {"chat_template_kwargs": {"tokenize": True, "return_tensors": "np"}},
        ),
        "kwargs-auto-template": (
            "chatml",
            user | {"chat_template_kwargs": {"chat_template": "auto"}},
        ),
        "continue-and-generate": (
            "chatml",
            user | {"continue_final_message": True, "add_generation_prompt": True},
        ),
        "continue-by-default-generate": ("chatml", user | {"continue_final_message": True}),
        "too-long": ("chatml", {"messages": [{"role": "user", "content": "word " * 9000}]}),
        "image": (
            "chatml",
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "data:,"}}],
                    }
                ]
            },
        ),
    }
    cases += [
        Case(f"refused-{name}", model, "chat", body, refused=True)
        for name, (model, body) in refused.items()
    ]
    return cases


CASES = _completions() + _chats()
