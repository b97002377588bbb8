"""A prefiller and a decoder of two revisions, as in the middle of an upgrade."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.conftest import PROGRAMS, Engines, completion, token_ids

from dpd_local import Cluster, metrics
from dpd_router.probing import revision_in

pytestmark = pytest.mark.slow

NEWER = "ba9876543210"


@pytest.fixture(scope="module")
def upgrading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    newer = {"decode": {"DPD_REVISION": NEWER}}
    with Cluster(pod_env=newer, programs=PROGRAMS) as cluster:
        yield Engines(cluster, tmp_path_factory.mktemp("none"))


def revision_of(cluster: Cluster, pod: str) -> str:
    with urllib.request.urlopen(f"{cluster.url(pod)}/metrics") as page:
        return revision_in(page.read().decode())


def test_an_engine_tells_its_revision_before_any_request(upgrading: Engines) -> None:
    cluster = upgrading.cluster
    assert revision_of(cluster, "decode-0") == NEWER
    (charts,) = (
        variable["value"]
        for variable in cluster.pod("prefill-0").pod.spec["containers"][0]["env"]
        if variable["name"] == "DPD_REVISION"
    )
    assert revision_of(cluster, "prefill-0") == charts != NEWER
    for pod, role in (("prefill-0", "prefill"), ("decode-0", "decode")):
        assert metrics.value(cluster.url(pod), "dpd:engine_info", role=role) == 1


def test_the_router_does_not_pair_them_and_says_so(upgrading: Engines) -> None:
    answer = upgrading.routed(completion(token_ids(3000, seed=1)))
    assert answer.headers["x-dpd-path"] == "direct"
    assert answer.headers["x-dpd-reason"] == "no prefiller of the decoder's revision"
    assert len(answer.token_ids) == 16
    url = upgrading.cluster.url("router")
    labels = {"path": "direct", "reason": "no_matching_prefiller"}
    assert metrics.value(url, "dpd_router_requests_total", **labels) == 1


def test_the_decoder_refuses_what_the_prefiller_sends_all_the_same(
    upgrading: Engines, notices: Any
) -> None:
    transfer = notices.transfer_id()
    upgrading.prefill("prefill-0", token_ids(700, seed=2), transfer)
    notice = notices.wait(transfer, seconds=30)
    assert notice is not None
    assert f"and {NEWER} on the decoder" in notice.error
    assert "revision is " in notice.error
