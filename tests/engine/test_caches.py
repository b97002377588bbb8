"""Prefillers take KV from their caches, and what they send from there is as good as computed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.engine.conftest import PROGRAMS, Engines, Notices, completion, token_ids

from dpd_local import Cluster, metrics

pytestmark = pytest.mark.slow

LENGTH = 3000  # tokens: 24 blocks of the prefiller's GPU cache, 12 pages of the receive buffer


@pytest.fixture(scope="module")
def caching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Prefillers with room for five prompts on the GPU, and a decoder with room for five."""
    folder = tmp_path_factory.mktemp("faults")
    with Cluster(
        prefill=2,
        colocated=True,
        programs=PROGRAMS,
        set_json={
            "prefill.args": ["--num-gpu-blocks-override=130"],
            "kvTransfer.bufferSize": 64 << 20,
            "cache.l2": {"type": "file", "address": str(tmp_path_factory.mktemp("l2"))},
        },
        timeout=400,
    ) as cluster:
        yield Engines(cluster, folder)


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


def test_a_prompt_gone_from_the_gpu_comes_from_host_memory(
    caching: Engines, notices: Notices
) -> None:
    right = caching.colocated(completion(token_ids(LENGTH, seed=1))).token_ids
    assert served(caching, notices, "prefill-0", seed=1) == right
    for seed in range(2, 8):  # push it off the GPU, and out of the decoder's buffer
        served(caching, notices, "prefill-0", seed=seed)
    before = from_cache(caching, "prefill-0")
    assert served(caching, notices, "prefill-0", seed=1) == right
    assert from_cache(caching, "prefill-0") - before == LENGTH - 1


def test_a_prompt_that_another_prefiller_computed_comes_from_the_shared_store(
    caching: Engines, notices: Notices
) -> None:
    body = completion(token_ids(LENGTH, seed=21))
    right = caching.colocated(body).token_ids
    assert served(caching, notices, "prefill-0", seed=21) == right
    for seed in range(22, 28):  # out of the decoder's buffer
        served(caching, notices, "prefill-0", seed=seed)
    before = from_cache(caching, "prefill-1")
    assert served(caching, notices, "prefill-1", seed=21) == right
    assert from_cache(caching, "prefill-1") - before == LENGTH - 1
