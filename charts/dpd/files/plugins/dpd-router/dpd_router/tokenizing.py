"""The model's tokenizer, loaded the way the engine loads it but without torch."""

from __future__ import annotations

import os
from typing import Any, Protocol

# Read by transformers when it is imported: without them it would import torch, which takes
# seconds and hundreds of megabytes for nothing.
os.environ.setdefault("USE_TORCH", "0")
os.environ.setdefault("USE_TF", "0")
os.environ.setdefault("USE_FLAX", "0")
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Tokenizer(Protocol):
    """What counting needs of a tokenizer."""

    def length(self, text: str, special_tokens: bool) -> int:
        """Return the number of tokens of a text, with or without the model's special tokens."""
        ...

    def template(self, tools: list[Any] | None) -> str:
        """Return the model's chat template for a request with these tools.

        Raises:
            ValueError: the model has none.
        """
        ...

    def apply_template(
        self, conversation: list[dict[str, Any]], template: str, options: dict[str, Any]
    ) -> str:
        """Render a conversation to text."""
        ...

    def template_options(self) -> frozenset[str]:
        """Return the names that rendering takes whatever the template uses."""
        ...


class HfTokenizer:
    """A Hugging Face tokenizer."""

    def __init__(self, tokenizer: Any) -> None:
        import inspect

        from transformers import PreTrainedTokenizer

        self._tokenizer = tokenizer
        variadic = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        self._options = frozenset(
            parameter.name
            for method in (PreTrainedTokenizer.apply_chat_template, tokenizer.apply_chat_template)
            for parameter in inspect.signature(method).parameters.values()
            if parameter.kind not in variadic
        )

    def length(self, text: str, special_tokens: bool) -> int:
        """Return the number of tokens of a text.

        Never truncates: truncation is a state of the shared tokenizer, and threads would race.
        """
        return len(self._tokenizer.encode(text, add_special_tokens=special_tokens, verbose=False))

    def template(self, tools: list[Any] | None) -> str:
        """Return the model's chat template for a request with these tools."""
        return str(self._tokenizer.get_chat_template(None, tools=tools))

    def apply_template(
        self, conversation: list[dict[str, Any]], template: str, options: dict[str, Any]
    ) -> str:
        """Render a conversation to text."""
        rendered: str = self._tokenizer.apply_chat_template(
            conversation=conversation, chat_template=template, tokenize=False, **options
        )
        return rendered

    def template_options(self) -> frozenset[str]:
        """Return the parameters of apply_chat_template."""
        return self._options


def load_tokenizer(name: str, revision: str | None) -> HfTokenizer:
    """Load a tokenizer by model id or folder. Takes seconds: run it off the event loop.

    Raises:
        OSError, ValueError: there is no such model, or it cannot be loaded.
    """
    from transformers import AutoTokenizer

    return HfTokenizer(
        AutoTokenizer.from_pretrained(name, revision=revision or "main", truncation_side="left")
    )
