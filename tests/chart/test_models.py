"""The numbers of models that the chart knows, counted from their shapes.

Layers, hidden size, heads, KV heads, head size, inner size and vocabulary are those of each model's
config.json. Weights are in bfloat16, 2 bytes a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from .conftest import CHART

KNOWN: dict[str, dict[str, Any]] = yaml.safe_load(
    (CHART / "files" / "models.yaml").read_text(encoding="utf-8")
)
# In eight bits and with layers of other kinds: what their files have together.
BY_FILES = {"deepseek-ai/DeepSeek-V3": 688586727753, "deepseek-ai/DeepSeek-R1": 688586727753}


@dataclass(frozen=True)
class Config:
    """What a config.json says; `extra` are heads' norms ("norm") or biases ("bias")."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    experts: int = 0
    tied: bool = False
    extra: str = ""

    def numbers(self) -> int:
        """All weights."""
        queries, keys = self.heads * self.head_size, self.kv_heads * self.head_size
        layer = 2 * self.hidden * (queries + keys) + 2 * self.hidden
        layer += {"norm": 2 * self.head_size, "bias": queries + 2 * keys, "": 0}[self.extra]
        layer += 3 * self.hidden * self.inner * (self.experts or 1) + self.experts * self.hidden
        return self.layers * layer + self.hidden + self.vocabulary * self.hidden * (2 - self.tied)


CONFIGS = {
    "meta-llama/Llama-3.1-8B-Instruct": Config(32, 4096, 32, 8, 128, 14336, 128256),
    "meta-llama/Llama-3.1-70B-Instruct": Config(80, 8192, 64, 8, 128, 28672, 128256),
    "meta-llama/Llama-3.3-70B-Instruct": Config(80, 8192, 64, 8, 128, 28672, 128256),
    "meta-llama/Llama-3.1-405B-Instruct": Config(126, 16384, 128, 8, 128, 53248, 128256),
    "meta-llama/Llama-3.2-1B-Instruct": Config(16, 2048, 32, 8, 64, 8192, 128256, tied=True),
    "meta-llama/Llama-3.2-3B-Instruct": Config(28, 3072, 24, 8, 128, 8192, 128256, tied=True),
    "mistralai/Mistral-7B-Instruct-v0.3": Config(32, 4096, 32, 8, 128, 14336, 32768),
    "mistralai/Mistral-Small-24B-Instruct-2501": Config(40, 5120, 32, 8, 128, 32768, 131072),
    "mistralai/Mixtral-8x7B-Instruct-v0.1": Config(32, 4096, 32, 8, 128, 14336, 32000, experts=8),
    "Qwen/Qwen2.5-7B-Instruct": Config(28, 3584, 28, 4, 128, 18944, 152064, extra="bias"),
    "Qwen/Qwen2.5-14B-Instruct": Config(48, 5120, 40, 8, 128, 13824, 152064, extra="bias"),
    "Qwen/Qwen2.5-32B-Instruct": Config(64, 5120, 40, 8, 128, 27648, 152064, extra="bias"),
    "Qwen/Qwen2.5-72B-Instruct": Config(80, 8192, 64, 8, 128, 29568, 152064, extra="bias"),
    "Qwen/Qwen3-4B": Config(36, 2560, 32, 8, 128, 9728, 151936, tied=True, extra="norm"),
    "Qwen/Qwen3-8B": Config(36, 4096, 32, 8, 128, 12288, 151936, extra="norm"),
    "Qwen/Qwen3-14B": Config(40, 5120, 40, 8, 128, 17408, 151936, extra="norm"),
    "Qwen/Qwen3-32B": Config(64, 5120, 64, 8, 128, 25600, 151936, extra="norm"),
    "Qwen/Qwen3-30B-A3B": Config(48, 2048, 32, 4, 128, 768, 151936, experts=128, extra="norm"),
    "Qwen/Qwen3-235B-A22B": Config(94, 4096, 64, 4, 128, 1536, 151936, experts=128, extra="norm"),
}


def test_every_model_is_written_down_here() -> None:
    assert {*KNOWN} == {*CONFIGS, *BY_FILES}


@pytest.mark.parametrize("name", CONFIGS)
def test_the_numbers_of_a_model_are_those_of_its_config(name: str) -> None:
    config = CONFIGS[name]
    assert KNOWN[name] == {
        "layers": config.layers,
        "heads": config.heads,
        "kvHeads": config.kv_heads,
        "headSize": config.head_size,
        "weightBytes": 2 * config.numbers(),
    }


@pytest.mark.parametrize("name", BY_FILES)
def test_a_model_with_mla_has_one_latent_of_512_and_64(name: str) -> None:
    sizes = {
        "layers": 61,
        "heads": 128,
        "headSize": 512 + 64,
        "mla": True,
        "weightBytes": BY_FILES[name],
    }
    assert KNOWN[name] == sizes
