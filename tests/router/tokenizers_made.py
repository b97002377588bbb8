"""Small tokenizers made on the spot, each with another kind of chat template."""

from __future__ import annotations

import random
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% if tools %}<|im_start|>system\nTools: {{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% if documents %}{% for d in documents %}[{{ d.title }}: {{ d.text }}]{% endfor %}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }}"
    "{% if message.name %} name={{ message.name }}{% endif %}\n"
    "{{ message.content }}"
    "{% for call in message.tool_calls or [] %}"
    "<tool>{{ call.function.name }}({{ call.function.arguments | tojson }}) "
    "{{ call | tojson }}</tool>{% endfor %}"
    "{% if message.tool_call_id %}(for {{ message.tool_call_id }}){% endif %}"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}"
    "<|im_end|>\n{% endfor %}"
    "{% if reasoning_effort %}effort {{ reasoning_effort }}\n{% endif %}"
    "{% if thinking is defined %}thinking {{ thinking }}\n{% endif %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
PARTS = (
    "{{ bos_token }}{% set turns = messages %}{% for m in turns[0:] %}<|{{ m['role'] }}|>"
    "{% for part in m['content'] %}{{ part['text'] | trim }};{% endfor %}\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
STRICT = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "[{{ m.role }}] {{ m.content | trim }}{{ eos_token if m.role == 'assistant' }}{% endfor %}"
)
TEMPLATES = {"chatml": CHATML, "parts": PARTS, "strict": STRICT}


def make_tokenizer(folder: Path, template: str | None, *, bos: bool) -> Path:
    """Train a byte-level BPE tokenizer on made-up words and save it.

    Args:
        folder: where to.
        template: its chat template, if any.
        bos: whether it puts a BOS token before a text.
    """
    chance = random.Random(7)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=chance.randint(2, 8))) for _ in range(400)]
    lines = [" ".join(chance.choices(words, k=12)) for _ in range(300)]
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    backend.train_from_iterator(
        lines,
        trainers.BpeTrainer(
            vocab_size=1200,
            special_tokens=special,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    if bos:
        backend.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", backend.token_to_id("<s>"))]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", chat_template=template
    )
    tokenizer.save_pretrained(folder)
    return folder
