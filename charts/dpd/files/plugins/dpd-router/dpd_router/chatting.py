"""From chat messages to the text the engine tokenizes.

Follows vLLM 0.19's chat_utils and HfRenderer for text; anything else than text is NotText.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from .templates import ContentFormat, content_format, template_variables
from .tokenizing import Tokenizer

_TEXT_PARTS = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "thinking": "thinking",
    "refusal": "refusal",
}
# Parts of these types are dropped when they hold null.
_SKIPPED_WHEN_NULL = ("text", "refusal")
# What transformers' rendering hands on to the tokenizer, if it tokenizes at all.
_FOR_THE_TOKENIZER = ("padding", "truncation", "max_length", "return_tensors", "tokenizer_kwargs")
# Never options of the template: the template itself, and what form the result has.
_NOT_OPTIONS = ("chat_template", "tokenize", "tools", "return_dict", *_FOR_THE_TOKENIZER)


class NotText(Exception):
    """A message has a part that is not text."""


class OwnTemplate(Exception):
    """The request brings its own chat template: a program that the router does not run."""


class TokenizerOptions(Exception):
    """The request has the template's text tokenized in a way of its own, such as cut."""


class Rendered(NamedTuple):
    """The prompt of a chat.

    With `tokenized` the engine tokenizes it while rendering: never with special tokens.
    """

    text: str
    tokenized: bool


class ChatRenderer:
    """Renders chat requests with one tokenizer's template. Safe to call from threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._format = lru_cache(maxsize=32)(content_format)
        self._variables = lru_cache(maxsize=32)(template_variables)

    def render(self, body: Mapping[str, Any]) -> Rendered:
        """Return the prompt of a chat request.

        Raises:
            NotText: a message holds an image, audio, or something else than text.
            OwnTemplate: the request brings a chat template.
            TokenizerOptions: the request has options for the tokenizer, and they count.
            Exception: whatever a bad message or template leads to.
        """
        wanted = _options(body)
        own = body.get("chat_template_kwargs") or {}
        if body.get("chat_template") is not None or own.get("chat_template") is not None:
            raise OwnTemplate
        tools = wanted.pop("tools", None)
        tokenized = bool(wanted.pop("tokenize", False))
        if tokenized and not wanted.keys().isdisjoint(_FOR_THE_TOKENIZER):
            raise TokenizerOptions
        template = self._tokenizer.template(tools)
        conversation = parse_messages(body["messages"], self._format(template))
        accepted = self._variables(template) | self._tokenizer.template_options()
        options = {k: v for k, v in wanted.items() if k in accepted and k not in _NOT_OPTIONS}
        text = self._tokenizer.apply_template(conversation, template, options | {"tools": tools})
        return Rendered(text, tokenized)


def _options(body: Mapping[str, Any]) -> dict[str, Any]:
    own = body.get("chat_template_kwargs") or {}
    if not isinstance(own, dict):
        raise ValueError("chat_template_kwargs is not an object")
    fields = {
        "add_generation_prompt": body.get("add_generation_prompt", True),
        "continue_final_message": body.get("continue_final_message", False),
        "documents": body.get("documents"),
        "reasoning_effort": body.get("reasoning_effort"),
    }
    defaults = {"tools": tool_dicts(body), "tokenize": False}
    return _set_values(defaults) | _set_values(own | _set_values(fields))


def _set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in values.items() if v is not None and v != "auto"}


def tool_dicts(body: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools as templates see them: own fields first, absent ones as null."""
    tools = body.get("tools")
    if tools is None or (not tools and body.get("tool_choice") == "required"):
        return None
    return [
        {
            "type": tool.get("type", "function"),
            "function": {
                "name": tool["function"]["name"],
                "description": tool["function"].get("description"),
                "parameters": tool["function"].get("parameters"),
            }
            | _without(tool["function"], "name", "description", "parameters"),
        }
        | _without(tool, "type", "function")
        for tool in tools
    ]


def _without(values: Mapping[str, Any], *keys: str) -> dict[str, Any]:
    return {k: v for k, v in values.items() if k not in keys}


def parse_messages(messages: list[Any], form: ContentFormat) -> list[dict[str, Any]]:
    """Turn a request's messages into the conversation that chat templates expect."""
    return [_parse_message(message, form) for message in messages]


def _parse_message(message: Mapping[str, Any], form: ContentFormat) -> dict[str, Any]:
    role = message["role"]
    content = message.get("content")
    parts = [] if content is None else [content] if isinstance(content, str) else content
    if not isinstance(parts, list):
        raise ValueError("a message's content is neither text nor a list")
    texts = [text for part in parts if (text := _part_text(part)) is not None]
    parsed: dict[str, Any] = {"role": role}
    if form == "openai":
        parsed["content"] = [{"type": "text", "text": text} for text in texts]
    else:
        parsed["content"] = "\n".join(texts)
    if role == "assistant":
        if message.get("tool_calls"):
            parsed["tool_calls"] = [_tool_call(call) for call in message["tool_calls"]]
        if message.get("reasoning") is not None:
            parsed["reasoning"] = parsed["reasoning_content"] = message["reasoning"]
    elif role == "tool" and "tool_call_id" in message:
        parsed["tool_call_id"] = message["tool_call_id"]
    if isinstance(message.get("name"), str):
        parsed["name"] = message["name"]
    if role == "developer":
        parsed["tools"] = message.get("tools")
    return parsed


def _part_text(part: object) -> str | None:
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise ValueError("a message part is neither text nor an object")
    kind = part.get("type")
    if kind not in _TEXT_PARTS or part.get("uuid") is not None:
        raise NotText
    text = part.get(_TEXT_PARTS[kind])
    if text is None and kind in _SKIPPED_WHEN_NULL:
        return None
    if not isinstance(text, str):
        raise ValueError(f"a message part of type {kind} holds no text")
    return text


def _tool_call(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a past tool call with parsed arguments, as templates expect it."""
    function = call["function"]
    arguments = function.get("arguments")
    if not arguments:
        arguments = {}
    elif isinstance(arguments, str):
        arguments = json.loads(arguments)
    parsed = {"arguments": arguments, "name": function["name"]}
    parsed |= _without(function, "arguments", "name")
    known = {"id": call["id"], "function": parsed, "type": call["type"]}
    return known | _without(call, "id", "function", "type")
