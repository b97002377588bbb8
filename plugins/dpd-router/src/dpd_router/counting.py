"""How many tokens a request's prompts have, exactly as the engine counts `prompt_tokens`.

Follows vLLM 0.19 (entrypoints/serve/render, renderers/params): every default below is the one of
its request models. What the engine would refuse is left to the engine: it goes straight to a
decoder, so the client sees the engine's own words.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .chatting import ChatRenderer, NotText, OwnTemplate, TokenizerOptions
from .parsing import Route
from .tokenizing import Tokenizer

_log = logging.getLogger(__name__)

Prompt = str | list[int]


@dataclass(frozen=True, slots=True)
class Direct:
    """Why a request can only go straight to a decoder; code is a metric label."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Counted:
    """The tokens of each prompt of a request, or why there is nothing to transfer.

    truncate_to is the engine's prompt limit in tokens if the client set one.
    """

    tokens: tuple[int, ...] = ()
    direct: Direct | None = None
    truncate_to: int | None = None

    @property
    def total(self) -> int:
        """What the engine will report as usage.prompt_tokens."""
        return sum(self.tokens)


class _Uncountable(Exception):
    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.direct = Direct(code, text)


class Counter:
    """Counts prompts with one model's tokenizer and chat template. Safe to call from threads."""

    def __init__(self, tokenizer: Tokenizer, *, max_len: int | None) -> None:
        self._tokenizer = tokenizer
        self._chat = ChatRenderer(tokenizer)
        self._max_len = max_len

    def count(self, route: Route, body: Mapping[str, Any]) -> Counted:
        """Count the prompts of a request body. Takes CPU time: run it off the event loop."""
        try:
            tokens = self._count_chat(body) if route == "chat" else self._count_prompts(body)
            truncate_to = self._truncate_to(route, body)
            if truncate_to is not None:
                tokens = tuple(min(n, truncate_to) for n in tokens)
            direct = self._needs_decoder(route, body, tokens)
        except _Uncountable as reason:
            return Counted(direct=reason.direct)
        except Exception as error:
            # Whatever a template or tokenizer raises, the engine raises too and answers itself.
            _log.debug("not countable: %s", error, exc_info=True)
            return Counted(direct=Direct("invalid", "the prompt cannot be counted"))
        return Counted(tokens=tokens, direct=direct, truncate_to=truncate_to)

    def _count_prompts(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        if body.get("prompt_embeds") is not None:
            raise _Uncountable("prompt_embeds", "prompt_embeds have no tokens")
        special = flag(body, "add_special_tokens", True)
        return tuple(
            len(prompt) if isinstance(prompt, list) else self._tokenizer.length(prompt, special)
            for prompt in split_prompts(body.get("prompt"))
        )

    def _count_chat(self, body: Mapping[str, Any]) -> tuple[int, ...]:
        try:
            rendered = self._chat.render(body)
        except NotText:
            raise _Uncountable("multimodal", "a message has parts that are not text") from None
        except OwnTemplate:
            # The engine refuses it itself, unless it was told to trust its clients' templates.
            text = "the request brings its own chat template"
            raise _Uncountable("own_template", text) from None
        except TokenizerOptions:
            text = "the request has options for the tokenizer"
            raise _Uncountable("tokenizer_options", text) from None
        special = flag(body, "add_special_tokens", False) and not rendered.tokenized
        return (self._tokenizer.length(rendered.text, special),)

    def _truncate_to(self, route: Route, body: Mapping[str, Any]) -> int | None:
        limit = body.get("truncate_prompt_tokens")
        if limit is None:
            return None
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < -1:
            raise _Uncountable("invalid", "truncate_prompt_tokens is not a number of tokens")
        if self._max_len is None:
            if limit == -1:
                raise _Uncountable("invalid", "truncate_prompt_tokens is -1 without model.maxLen")
            return limit
        room = self._max_len - output_limit(route, body)
        if limit > room:
            raise _Uncountable(
                "invalid", f"truncate_prompt_tokens is more than the {room} that fit"
            )
        return room if limit == -1 else limit

    def _needs_decoder(
        self, route: Route, body: Mapping[str, Any], tokens: tuple[int, ...]
    ) -> Direct | None:
        if body.get("prompt_logprobs") is not None:
            return Direct("prompt_logprobs", "prompt_logprobs need the whole prompt on one engine")
        if body.get("echo"):
            return Direct("echo", "echo needs the whole prompt on one engine")
        for key in ("max_tokens", "max_completion_tokens"):
            limit = body.get(key)
            if limit is None:
                continue
            # NaN and Infinity, which Python reads as JSON, are no whole numbers either.
            whole = limit.is_integer() if isinstance(limit, float) else isinstance(limit, int)
            if not whole:
                return Direct("invalid", f"{key} is not a number of tokens")
            if limit < 1:
                return Direct("invalid", f"{key} allows no token")
        if self._max_len is not None:
            room = self._max_len - output_limit(route, body)
            longest = max(tokens, default=0)
            if longest > room:
                return Direct("too_long", f"{longest} tokens are more than the {room} that fit")
        return None


def split_prompts(prompt: object) -> list[Prompt]:
    """Return the prompts of a completion request: it may hold one or several, text or token ids.

    Raises:
        ValueError: it has none of the four shapes.
    """
    if isinstance(prompt, str) and prompt:
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if _all_token_ids(prompt):
            return [prompt]
        if all(isinstance(item, str) for item in prompt):
            return list(prompt)
        if all(isinstance(item, list) and _all_token_ids(item) for item in prompt):
            return list(prompt)
    raise ValueError("prompt is empty or neither text, texts, token ids nor lists of token ids")


def _all_token_ids(items: list[Any]) -> bool:
    return all(type(item) is int and item >= 0 for item in items)


def output_limit(route: Route, body: Mapping[str, Any]) -> int:
    """Return the output tokens that the engine sets aside for a request (0: no limit given)."""
    if route == "completions":
        return int(body.get("max_tokens", 16) or 0)
    limit = body.get("max_completion_tokens")
    return int((body.get("max_tokens") if limit is None else limit) or 0)


def flag(body: Mapping[str, Any], key: str, default: bool) -> bool:
    """Return a boolean field of a request body.

    Raises:
        ValueError: it is something else.
    """
    value = body.get(key, default)
    if not isinstance(value, bool):
        raise ValueError(f"{key} is not true or false")
    return value
