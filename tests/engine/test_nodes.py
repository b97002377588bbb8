"""Engines over two nodes: a leader and a worker pod each, which pass KV rank by rank."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.conftest import PROGRAMS, Engines, completion, token_ids

from dpd_local import Cluster

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """Two stages of a pipeline, on a node of one GPU each, as the chart then has it."""
    with Cluster(
        programs=PROGRAMS,
        set_json={
            "model.pipelineParallelSize": 2,
            "engines.resources": {"limits": {"nvidia.com/gpu": 1}},
            # All nodes of this test are one machine.
            "prefill.args": ["--distributed-executor-backend=mp", "--master-port=29511"],
            "decode.args": ["--distributed-executor-backend=mp", "--master-port=29512"],
        },
        timeout=400,
    ) as cluster:
        yield Engines(cluster, tmp_path_factory.mktemp("none"))


def test_each_engine_has_a_leader_and_a_worker(spread: Engines) -> None:
    kinds = {
        manifest["metadata"]["name"]: manifest["kind"]
        for manifest in spread.cluster.manifests
        if manifest["kind"] in ("Deployment", "LeaderWorkerSet")
    }
    assert sorted(kinds.values()) == ["Deployment", "LeaderWorkerSet", "LeaderWorkerSet"]
    for name in ("prefill-0-1", "decode-0-1"):
        assert "Backend UCX was instantiated" in spread.cluster.pod(name).log_text()


@pytest.mark.parametrize("length", [257, 1500, 4096])
def test_the_kv_of_both_ranks_arrives_and_the_answer_is_equal(
    spread: Engines, engines: Engines, length: int
) -> None:
    body = completion(token_ids(length, seed=600 + length))
    before = spread.external_tokens()
    routed = spread.routed(body)
    assert routed.headers["x-dpd-path"] == "disaggregated"
    assert spread.external_tokens() - before == length - 1
    assert routed.token_ids == engines.colocated(body).token_ids


def test_the_rank_on_the_other_node_hears_of_a_release_too(spread: Engines, notices: Any) -> None:
    transfer = notices.transfer_id()
    spread.prefill("prefill-0", token_ids(700, seed=650), transfer, ranks=2)
    assert spread.pages()["wanted"] == 3  # chunks of 256 tokens, of the rank with most of them
    spread.release(transfer)
    assert spread.pages()["wanted"] == 0
