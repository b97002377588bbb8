"""The KV connector that LMCache lacks on a CPU: vLLM's paged KV to and from LMCache's chunks.

vLLM's CPU attention keeps K and V of a block in an order that depends on the instruction set. The
order is learned once, by writing known numbers with vLLM's own op and looking where they land;
reading is then a gather, and writing uses the same op.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from lmcache.v1.memory_management import MemoryObj
from vllm import _custom_ops as ops
from vllm.v1.attention.backends.cpu_attn import _get_attn_isa

from dpd_vllm import compat

_DIGIT = 256  # a number that float32, bfloat16 and float16 all hold exactly is below this


class BlockOrder:
    """Where each element of a block stands in vLLM's CPU KV cache.

    Args:
        heads: KV heads of this rank.
        block_size: tokens of a block.
        head_dim: elements of one head.
        dtype: of the KV cache.

    Raises:
        RuntimeError: some element has no place of its own in the block.
    """

    def __init__(self, heads: int, block_size: int, head_dim: int, dtype: torch.dtype) -> None:
        self.isa = _get_attn_isa(dtype, block_size, head_dim)
        elements = heads * block_size * head_dim
        numbers = torch.arange(elements).view(block_size, heads, head_dim)
        places_k = torch.zeros(elements, dtype=torch.long)
        places_v = torch.zeros(elements, dtype=torch.long)
        slots = torch.arange(block_size, dtype=torch.long)
        weight = 1
        while weight < elements:
            digits = (numbers // weight % _DIGIT).to(dtype)
            key_cache = torch.zeros(1, heads, block_size, head_dim, dtype=dtype)
            value_cache = torch.zeros_like(key_cache)
            ops.cpu_attn_reshape_and_cache(
                digits, digits.clone(), key_cache, value_cache, slots, self.isa
            )
            places_k += key_cache.flatten().long() * weight
            places_v += value_cache.flatten().long() * weight
            weight *= _DIGIT
        # places[p] is the element that stands at p; the inverse says where each element stands.
        self.key = self._inverse(places_k, elements)
        self.value = self._inverse(places_v, elements)

    @staticmethod
    def _inverse(places: torch.Tensor, elements: int) -> torch.Tensor:
        where = torch.argsort(places)
        if not torch.equal(places[where], torch.arange(elements)):
            raise RuntimeError("dpd: the order of vLLM's CPU KV cache could not be learned")
        return where


class CPUConnector(GPUConnectorInterface):
    """Copies KV between vLLM's CPU cache and LMCache's memory objects (KV_2LTD).

    Args:
        num_layers: layers of this rank.
        hidden_dim: KV heads of this rank times head size.
    """

    def __init__(self, num_layers: int, hidden_dim: int) -> None:
        self._num_layers = num_layers
        self._hidden_dim = hidden_dim
        self._order: BlockOrder | None = None

    def get_shape(self, num_tokens: int) -> torch.Size:
        """Return the shape of a memory object for `num_tokens` tokens."""
        return torch.Size([2, self._num_layers, num_tokens, self._hidden_dim])

    def from_gpu(self, memory_obj: MemoryObj, start: int, end: int, **kwargs: Any) -> None:
        """Copy the KV of tokens `start` to `end` out of vLLM's cache."""
        slots = kwargs["slot_mapping"][start:end]
        for layer, cache in enumerate(kwargs["kvcaches"]):
            key_cache, value_cache = compat.split_kv(cache)
            order = self._learned(key_cache)
            memory_obj.tensor[0, layer] = _gather(key_cache, slots, order.key)
            memory_obj.tensor[1, layer] = _gather(value_cache, slots, order.value)

    def to_gpu(self, memory_obj: MemoryObj, start: int, end: int, **kwargs: Any) -> None:
        """Copy the KV of tokens `start` to `end` into vLLM's cache."""
        slots = kwargs["slot_mapping"][start:end].contiguous()
        for layer, cache in enumerate(kwargs["kvcaches"]):
            key_cache, value_cache = compat.split_kv(cache)
            order = self._learned(key_cache)
            _, heads, _, head_dim = key_cache.shape
            key, value = (
                memory_obj.tensor[kv, layer].view(end - start, heads, head_dim).contiguous()
                for kv in (0, 1)
            )
            ops.cpu_attn_reshape_and_cache(key, value, key_cache, value_cache, slots, order.isa)

    def batched_from_gpu(
        self, memory_objs: Sequence[MemoryObj], starts: list[int], ends: list[int], **kwargs: Any
    ) -> None:
        """Copy several chunks out of vLLM's cache."""
        for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.from_gpu(memory_obj, start, end, **kwargs)

    def batched_to_gpu(
        self, memory_objs: Sequence[MemoryObj], starts: list[int], ends: list[int], **kwargs: Any
    ) -> None:
        """Copy several chunks into vLLM's cache."""
        for memory_obj, start, end in zip(memory_objs, starts, ends, strict=True):
            self.to_gpu(memory_obj, start, end, **kwargs)

    def _learned(self, key_cache: torch.Tensor) -> BlockOrder:
        if self._order is None:
            _, heads, block_size, head_dim = key_cache.shape
            self._order = BlockOrder(heads, block_size, head_dim, key_cache.dtype)
        return self._order


def _gather(cache: torch.Tensor, slots: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Return [tokens, heads * head_dim] of a layer's K or V ([blocks, heads, block, head_dim])."""
    _, heads, block_size, head_dim = cache.shape
    blocks, token_blocks = torch.unique(slots // block_size, return_inverse=True)
    plain = cache[blocks].reshape(len(blocks), -1)[:, order]
    tokens = plain.view(len(blocks), block_size, heads * head_dim)
    return tokens[token_blocks, slots % block_size]
