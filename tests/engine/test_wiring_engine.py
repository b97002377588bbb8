"""vLLM's own settings, and what LMCache made of its file, against what the chart asked for."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tests.engine.wired import ROLES, Change, Pod

from dpd_vllm.wiring import Wiring, WiringError, check_engine, check_loaded, check_vllm_version


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


# ---- vLLM's own settings ----


@pytest.mark.parametrize("version", ["0.19.0", "0.19.0+cpu", "0.25.1"])
@pytest.mark.parametrize("own_kv_layout", [True, False])
def test_a_vllm_that_lmcache_reads_rightly_is_taken(version: str, own_kv_layout: bool) -> None:
    check_vllm_version(version, own_kv_layout)


@pytest.mark.parametrize(
    "version", ["0.26rc1", "0.26.0", "0.26.0rc1", "0.32.0", "0.32.0+cu129", "1.0.0"]
)
def test_a_vllm_that_lmcache_reads_wrongly_is_refused_unless_we_read_it(version: str) -> None:
    check_vllm_version(version, own_kv_layout=True)
    with pytest.raises(WiringError) as refused:
        check_vllm_version(version, own_kv_layout=False)
    assert str(refused.value) == (
        f"vLLM is {version}: from 0.26 on, LMCacheConnectorV1 returns wrong KV without an error "
        "(LMCache#4463). Use an image with vLLM 0.25 or older, such as lmcache/vllm-openai:v0.4.3"
    )


def engine_refusal(wired: Wiring, **changed: Any) -> str:
    with pytest.raises(WiringError) as refused:
        engine(wired, **changed)
    return str(refused.value).replace(str(wired.config_file), "FILE")


def engine(wired: Wiring, **changed: Any) -> None:
    """Check an engine of two ranks as the chart starts it."""
    usual: Change = {
        "kv_role": {"prefill": "kv_producer", "decode": "kv_consumer"}[wired.role],
        "ranks": 2,
        "prefix_caching": wired.role == "prefill",
        "block_size": 128,
    }
    check_engine(wired, **usual | changed)


@ROLES
def test_the_charts_command_line_is_taken(pod: Pod, role: str) -> None:
    engine(pod.read(role))


@ROLES
def test_adapters_are_refused(pod: Pod, role: str) -> None:
    assert engine_refusal(pod.read(role), lora=True) == (
        "--enable-lora is on: chunk keys do not hold the adapter, so KV of one adapter would be "
        "read by another. Start the engines without it"
    )


@ROLES
def test_stages_of_mla_are_refused(pod: Pod, role: str) -> None:
    assert engine_refusal(pod.read(role), mla_stages=2) == (
        "--pipeline-parallel-size is 2: of a model with MLA the first rank alone sends KV, and "
        "layers of later stages would be missing. Set model.pipelineParallelSize to 1"
    )


@ROLES
@pytest.mark.parametrize("kv_role", [None, "kv_both"])
def test_a_wrong_kv_role_is_refused(pod: Pod, role: str, kv_role: str | None) -> None:
    wanted = "kv_producer" if role == "prefill" else "kv_consumer"
    assert engine_refusal(pod.read(role), kv_role=kv_role) == (
        f"kv_role of --kv-transfer-config is {kv_role}: with DPD_ROLE={role} it must be {wanted}"
    )


@pytest.mark.parametrize("ranks", [1, 2, 8])
def test_each_rank_of_a_decoder_needs_its_own_ports(pod: Pod, ranks: int) -> None:
    lists = {
        "pd_peer_init_port": [7300 + rank for rank in range(ranks)],
        "pd_peer_alloc_port": [7400 + rank for rank in range(ranks)],
    }
    engine(pod.read("decode", config=lists), ranks=ranks)
    for key, ports in lists.items():
        longer = pod.read("decode", config=lists | {key: [*ports, 7999]})
        assert engine_refusal(longer, ranks=ranks) == (
            f"{key} of FILE lists {ranks + 1} ports: tensor parallel x pipeline parallel is "
            f"{ranks}, and each rank needs its own"
        )


def test_one_port_for_eight_ranks_is_refused(pod: Pod) -> None:
    wired = pod.read("decode", config={"pd_peer_init_port": [7300], "pd_peer_alloc_port": [7400]})
    assert engine_refusal(wired, ranks=8) == (
        "pd_peer_init_port of FILE lists 1 ports: tensor parallel x pipeline parallel is 8, and "
        "each rank needs its own"
    )


def test_prefix_caching_is_refused_on_a_decoder_alone(pod: Pod) -> None:
    engine(pod.read("prefill"), prefix_caching=True)
    assert engine_refusal(pod.read("decode"), prefix_caching=True) == (
        "--enable-prefix-caching is on: vLLM's own cache would hide received KV from LMCache. "
        "Start the decoder with --no-enable-prefix-caching"
    )


@ROLES
def test_a_chunk_must_be_whole_blocks(pod: Pod, role: str) -> None:
    assert engine_refusal(pod.read(role), block_size=96) == (
        "chunk_size of FILE is 256: it must be a multiple of vLLM's --block-size, which is 96"
    )


# ---- what LMCache made of the file ----


def load(pod: Pod, monkeypatch: pytest.MonkeyPatch, **env: str) -> tuple[Change, set[str]]:
    """Have LMCache's own code load the file; returns its settings and their names."""
    from lmcache.v1 import config

    for name in [name for name in os.environ if name.startswith("LMCACHE_")]:
        monkeypatch.delenv(name)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    loaded = config.LMCacheEngineConfig.from_file(str(pod.file))
    loaded.update_config_from_env()
    return vars(loaded), set(config._CONFIG_DEFINITIONS)


@ROLES
def test_lmcache_loads_what_the_file_says(
    pod: Pod, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = pod.read(role)
    check_loaded(wired, *load(pod, monkeypatch))


@pytest.mark.parametrize(
    ("name", "value", "key", "loaded", "asked"),
    [
        ("LMCACHE_ENABLE_PD", "yes", "enable_pd", "False", "True"),
        ("LMCACHE_CHUNK_SIZE", "128", "chunk_size", "128", "256"),
        ("LMCACHE_PD_PEER_INIT_PORT", "7300", "pd_peer_init_port", "[7300]", "[7300, 7301]"),
    ],
)
def test_a_setting_that_the_environment_changed_is_refused(
    pod: Pod,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    key: str,
    loaded: str,
    asked: str,
) -> None:
    wired = pod.read("decode")
    got, known = load(pod, monkeypatch, **{name: value})
    with pytest.raises(WiringError) as refused:
        check_loaded(wired, got, known)
    assert str(refused.value) == (
        f"{key} is {loaded} in LMCache but {asked} in {pod.file}: {name} or "
        f"lmcache.{key} in kv_connector_extra_config overrides it. Remove that"
    )


def test_a_key_that_this_lmcache_does_not_know_is_refused(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = pod.read("prefill", config={"pd_bufer_size": 1})
    with pytest.raises(WiringError) as refused:
        check_loaded(wired, *load(pod, monkeypatch))
    assert str(refused.value) == (
        f"pd_bufer_size of {pod.file} is unknown to this LMCache, which would ignore it"
    )


def test_layerwise_transfer_is_refused_from_the_environment_too(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    wired = pod.read("prefill")
    with pytest.raises(WiringError) as refused:
        check_loaded(wired, *load(pod, monkeypatch, LMCACHE_USE_LAYERWISE="true"))
    assert str(refused.value) == (
        "use_layerwise is true in LMCache: its PD does not support it. Remove "
        "LMCACHE_USE_LAYERWISE and lmcache.use_layerwise in kv_connector_extra_config"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LMCACHE_PD_PEER_INIT_PORT", "7300,7301"),
        ("LMCACHE_PD_PEER_INIT_PORT", "[7300, 7301]"),  # can't be parsed: the file's list stays
        ("LMCACHE_PD_BUFFER_SIZE", "2Gi"),  # the same
    ],
)
def test_an_environment_that_changes_nothing_is_no_matter(
    pod: Pod, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    check_loaded(pod.read("decode"), *load(pod, monkeypatch, **{name: value}))
