"""A tiny Llama, made on the spot, whose answers depend on every token of the prompt.

It is float32, so that two engines that see the same KV give the same tokens, and its weights are
large (standard deviation 0.2), so that a wrong KV changes the answer. Nothing is downloaded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SEED = 20260
VOCABULARY = 2048
MAX_POSITIONS = 32768
BOS, EOS, PAD = "<|begin|>", "<|end|>", "<|pad|>"
ROLES = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")

CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": MAX_POSITIONS,
    "initializer_range": 0.2,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500000.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}

CHAT_TEMPLATE = """\
{{- bos_token }}
{%- if tools %}<|system|>Tools: {{ tools | tojson }}<|end|>{% endif %}
{%- for message in messages %}
{{- '<|' + message['role'] + '|>' }}
{%- if message['content'] %}{{ message['content'] }}{% endif %}
{%- if message['tool_calls'] %}{{ message['tool_calls'] | tojson }}{% endif %}
{{- '<|end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"""


def ensure(directory: Path) -> Path:
    """Make the model in `directory`, unless it is there already and of the present recipe.

    Args:
        directory: where the model belongs; its parent is made when missing.

    Returns:
        `directory`, holding config.json, model.safetensors, tokenizer.json and
        tokenizer_config.json.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    recipe = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    stamp = directory / "recipe.sha256"
    with (directory.parent / f".{directory.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == recipe:
            return directory
        with tempfile.TemporaryDirectory(dir=directory.parent) as scratch:
            made = Path(scratch) / "model"
            made.mkdir()
            _write_weights(made)
            _write_tokenizer(made)
            (made / "config.json").write_text(json.dumps(CONFIG, indent=1))
            (made / "recipe.sha256").write_text(recipe)
            if directory.exists():
                shutil.rmtree(directory)
            made.rename(directory)
    return directory


def text(directory: Path, tokens: int, seed: int = 0) -> str:
    """Return words that the model's tokenizer counts as exactly `tokens` tokens.

    Args:
        directory: a model made by `ensure`.
        tokens: tokens of the whole prompt, the beginning-of-text token included; at least 1.
        seed: another seed gives other words from the first one on.
    """
    from tokenizers import Tokenizer

    vocabulary = Tokenizer.from_file(str(directory / "tokenizer.json")).get_vocab()
    whole = sorted(word for word in set(_words()) if f"Ġ{word}" in vocabulary)
    return "".join(f" {word}" for word in random.Random(seed).choices(whole, k=tokens - 1))


def _words() -> Iterator[str]:
    """Yield a corpus of invented words, the first ones far more often than the last."""
    rng = random.Random(SEED)
    words = {
        "".join(rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(length))
        for length in (2, 3, 4)
        for _ in range(800)
    }
    for rank, word in enumerate(sorted(words, key=lambda word: (len(word), word))):
        yield from [word] * (2 + 2000 // (rank + 10))


def _write_tokenizer(directory: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[BOS, EOS, PAD, *ROLES],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((f" {word}" for word in _words()), trainer)
    # Like Llama 3: a completion gets its first token here, a chat gets it from the template.
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", special_tokens=[(BOS, tokenizer.token_to_id(BOS))]
    )
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "model_max_length": MAX_POSITIONS,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _write_weights(directory: Path) -> None:
    import numpy as np
    from safetensors.numpy import save_file

    rng = np.random.default_rng(SEED)
    hidden, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    queries = CONFIG["num_attention_heads"] * CONFIG["head_dim"]
    keys = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]

    def matrix(rows: int, columns: int) -> Any:
        weights = rng.standard_normal((rows, columns), dtype=np.float32)
        return weights * np.float32(CONFIG["initializer_range"])

    ones = np.ones(hidden, dtype=np.float32)
    tensors = {
        "model.embed_tokens.weight": matrix(VOCABULARY, hidden),
        "lm_head.weight": matrix(VOCABULARY, hidden),
        "model.norm.weight": ones,
    }
    for index in range(CONFIG["num_hidden_layers"]):
        layer = f"model.layers.{index}"
        tensors |= {
            f"{layer}.input_layernorm.weight": ones,
            f"{layer}.post_attention_layernorm.weight": ones,
            f"{layer}.self_attn.q_proj.weight": matrix(queries, hidden),
            f"{layer}.self_attn.k_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.v_proj.weight": matrix(keys, hidden),
            f"{layer}.self_attn.o_proj.weight": matrix(hidden, queries),
            f"{layer}.mlp.gate_proj.weight": matrix(inner, hidden),
            f"{layer}.mlp.up_proj.weight": matrix(inner, hidden),
            f"{layer}.mlp.down_proj.weight": matrix(hidden, inner),
        }
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
