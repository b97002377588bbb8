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
SHARED = 512  # tokens that all prompts start with
BLOCKS = 20  # of a prompt on a prefiller's GPU, beside those shared
CHUNKS = 10  # of a prompt in the decoder's buffer, beside those shared
OTHERS = 13  # prompts that push an earlier one off the GPU, and out of the decoder's buffer


def from_cache(engines: Engines, prefiller: str) -> float:
    """Tokens whose KV a prefiller did not compute because LMCache had it."""
    return metrics.value(
        engines.cluster.url(prefiller),
        "vllm:prompt_tokens_by_source_total",
        source="external_kv_transfer",
    )


def prompt_of(seed: int) -> list[int]:
    """Prompts share their first chunks, as those with one system prompt do."""
    return token_ids(SHARED, seed=9000) + token_ids(LENGTH - SHARED, seed=seed)


def served(engines: Engines, notices: Notices, prefiller: str, seed: int) -> list[int]:
    """The decoder's tokens for a prompt whose KV this prefiller sent, all of it."""
    prompt = prompt_of(seed)
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
        seed: engines.colocated(completion(prompt_of(seed))).token_ids for seed in (9001, 9002)
    }
    for seed, tokens in right.items():
        assert served(engines, notices, "prefill-0", seed) == tokens
    for seed in range(9003, 9003 + OTHERS):
        served(engines, notices, "prefill-0", seed)
    # The one that computed a prompt has it in host memory, the other one finds it in the store. The
    # first chunks, which all share, never left the GPU of the first one.
    for seed, prefiller in ((9001, "prefill-0"), (9002, "prefill-1")):
        before = from_cache(engines, prefiller)
        assert served(engines, notices, prefiller, seed) == right[seed]
        shared = SHARED if prefiller == "prefill-0" else 0
        assert from_cache(engines, prefiller) - before == LENGTH - shared - 1
