"""Prefillers take KV from their caches, and what they send from there is as good as computed."""

from __future__ import annotations

import pytest
from tests.engine.conftest import (
    PAGES,
    PREFILL_BLOCKS,
    Engines,
    Notices,
    completion,
    token_ids,
)

from dpd_local import metrics

pytestmark = pytest.mark.slow

LENGTH = 3000  # tokens
BLOCKS = 24  # of a prompt on a prefiller's GPU
CHUNKS = 12  # of a prompt: its pages of the receive buffer
OTHERS = 11  # prompts that push an earlier one off the GPU, and out of the decoder's buffer


def from_cache(engines: Engines, prefiller: str) -> float:
    """Tokens whose KV a prefiller did not compute because LMCache had it."""
    return metrics.value(
        engines.cluster.url(prefiller),
        "vllm:prompt_tokens_by_source_total",
        source="external_kv_transfer",
    )


def served(engines: Engines, notices: Notices, prefiller: str, seed: int) -> list[int]:
    """The decoder's tokens for a prompt whose KV this prefiller sent, all of it."""
    prompt = token_ids(LENGTH, seed=seed)
    transfer = notices.transfer_id()
    assert engines.prefill(prefiller, prompt, transfer)["status"] == 200
    notice = notices.wait(transfer, seconds=5)
    assert notice is not None and not notice.error
    before = engines.external_tokens()
    answer = engines.decoded(completion(prompt))
    assert engines.external_tokens() - before == LENGTH - 1
    return answer.token_ids


def test_prompts_gone_from_the_gpu_come_from_host_memory_and_from_the_shared_store(
    engines: Engines, notices: Notices
) -> None:
    assert (OTHERS + 1) * BLOCKS > PREFILL_BLOCKS
    assert (OTHERS + 1) * CHUNKS > PAGES
    right = {
        seed: engines.colocated(completion(token_ids(LENGTH, seed=seed))).token_ids
        for seed in (9001, 9002)
    }
    for seed, tokens in right.items():
        assert served(engines, notices, "prefill-0", seed) == tokens
    for seed in range(9003, 9003 + OTHERS):
        served(engines, notices, "prefill-0", seed)
    # The one that computed a prompt has it in host memory, the other one finds it in the store.
    for seed, prefiller in ((9001, "prefill-0"), (9002, "prefill-1")):
        before = from_cache(engines, prefiller)
        assert served(engines, notices, prefiller, seed) == right[seed]
        assert from_cache(engines, prefiller) - before == LENGTH - 1
