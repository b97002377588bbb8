"""The body of a prefill leg: the client's request, cut down to computing the prompt's KV.

Nothing here may change the prompt's tokens: the decoder finds the KV by them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .counting import Prompt
from .parsing import Route, write

# What an engine refuses, or cannot finish, when it may generate one token only and must not
# stream; none of it changes the prompt.
_DROPPED = (
    "stream_options",
    "min_tokens",
    "best_of",
    "use_beam_search",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "return_token_ids",
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "request_id",
)


def prefill_body(
    route: Route,
    body: Mapping[str, Any],
    *,
    prompt: Prompt | None,
    truncate_to: int | None,
    transfer_params: Mapping[str, Any],
) -> bytes:
    """Return the body of a prefill leg.

    Args:
        route: which API the client called.
        body: the client's request.
        prompt: the one prompt of this leg; None for chat.
        truncate_to: the prompt limit in tokens that the client's request leads to.
        transfer_params: the KV protocol's fields.

    Raises:
        BadRequest: the client's request is nested too deeply.
    """
    leg = {key: value for key, value in body.items() if key not in _DROPPED}
    leg |= {"max_tokens": 1, "n": 1, "stream": False}
    if route == "chat":
        leg["max_completion_tokens"] = 1
        _free_tool_choice(leg)
    else:
        leg.pop("max_completion_tokens", None)
        leg["prompt"] = prompt
    if truncate_to is not None:
        # -1 means "what fits beside the output": resolved here, for the output here is shorter.
        leg["truncate_prompt_tokens"] = truncate_to
    return write({**leg, **transfer_params})


def _free_tool_choice(leg: dict[str, Any]) -> None:
    """Let the one token be anything: a forced tool call cut after it cannot be parsed.

    The tools stay, for they are part of the prompt.
    """
    choice = leg.get("tool_choice")
    if choice == "required" and not leg.get("tools"):
        leg.pop("tools", None)
    if choice == "required" or isinstance(choice, dict):
        leg["tool_choice"] = "none"
