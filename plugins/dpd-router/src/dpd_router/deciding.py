"""Whether a counted request goes through a prefiller, and in which words."""

from __future__ import annotations

from dataclasses import dataclass

from .config import Routing
from .counting import Counted


@dataclass(frozen=True, slots=True)
class Decision:
    """code is a metric label, reason the sentence for a human.

    prompts are the indexes of the prompts whose KV a prefiller computes; empty means direct.
    """

    code: str
    reason: str
    prompts: tuple[int, ...] = ()

    @property
    def path(self) -> str:
        """The value of the x-dpd-path header."""
        return "disaggregated" if self.prompts else "direct"


# KV of one revision means nothing to another: explicit, for it makes decoders read long prompts.
UNPAIRED = Decision("no_matching_prefiller", "no prefiller of the decoder's revision")


def decide(counted: Counted, routing: Routing, *, paired: bool) -> Decision:
    """Choose the path of a request.

    Args:
        counted: its tokens.
        routing: what the configuration says.
        paired: whether a prefiller and a decoder of one revision are there.
    """
    wanted = _wanted(counted, routing)
    return UNPAIRED if wanted.prompts and not paired else wanted


def _wanted(counted: Counted, routing: Routing) -> Decision:
    if routing.mode == "never":
        return Decision("mode_never", "mode is never")
    if counted.direct is not None:
        return Decision(counted.direct.code, counted.direct.text)
    if routing.mode == "always":
        chosen = tuple(i for i, tokens in enumerate(counted.tokens) if tokens > 0)
        if chosen:
            return Decision("mode_always", "mode is always", chosen)
        return Decision("empty_prompt", "the prompt has no tokens")
    threshold = routing.threshold
    long = tuple(i for i, n in enumerate(counted.tokens) if n >= threshold and n > 0)
    longest = max(counted.tokens, default=0)
    if long:
        return Decision("long_prompt", f"{longest} tokens >= threshold {threshold}", long)
    return Decision("short_prompt", f"{longest} tokens < threshold {threshold}")
