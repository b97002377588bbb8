"""Small tokenizers made on the spot, each with another kind of chat template."""

from __future__ import annotations

import json
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
    "{% if max_length is defined %}at most {{ max_length }}\n{% endif %}"
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
NAMED = {
    "default": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}",
    "tool_use": "{% for t in tools %}{{ t | tojson(indent=2) }}\n{% endfor %}"
    "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}",
}
TEMPLATES: dict[str, str | dict[str, str] | None] = {
    "chatml": CHATML,
    "parts": PARTS,
    "strict": STRICT,
    "named": NAMED,
    "none": None,
}
# Enough of a model for an engine's front end to start beside the tokenizer.
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 1200,
    "max_position_embeddings": 16384,
    "torch_dtype": "float32",
}


def make_tokenizer(folder: Path, template: str | dict[str, str] | None, *, bos: bool) -> Path:
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
        tokenizer_object=backend,
        bos_token="<s>",
        eos_token="</s>",
        pad_token="</s>",
        chat_template=template,
    )
    tokenizer.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(MODEL))
    return folder
