"""Each wrong setting of the environment or of LMCache ends the engine at start with a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.wired import OF_ROLE, ROLES, SHARED, Change, Pod

from dpd_vllm.wiring import WiringError, read_wiring


@pytest.fixture
def pod(tmp_path: Path) -> Pod:
    return Pod(tmp_path)


@ROLES
def test_what_the_chart_writes_is_taken(pod: Pod, role: str) -> None:
    wired = pod.read(role)
    assert (wired.role, wired.config_file) == (role, pod.file)
    assert (wired.allocation_timeout, wired.pull_timeout) == (30.0, 300.0)
    assert wired.config == SHARED | OF_ROLE[role]


def test_an_engine_without_a_role_is_not_ours(pod: Pod) -> None:
    assert read_wiring({}) is None
    assert read_wiring({"LMCACHE_ENABLE_NIXL": "true"}) is None


@ROLES
@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"DPD_ROLE": "decoder"}, "DPD_ROLE is 'decoder': it must be prefill or decode"),
        (
            {"PYTHONHASHSEED": None},
            "PYTHONHASHSEED is not set: chunk keys of prefill and decode would never match. Set "
            "one number on every engine (model.hashSeed)",
        ),
        (
            {"PYTHONHASHSEED": "random"},
            "PYTHONHASHSEED is random: chunk keys of prefill and decode would never match. Set "
            "one number on every engine (model.hashSeed)",
        ),
        (
            {"LMCACHE_CONFIG_FILE": None},
            "LMCACHE_CONFIG_FILE is not set: LMCache would run without PD",
        ),
        ({"DPD_CHUNK_SIZE": None}, "DPD_CHUNK_SIZE is not set: it must be a whole number"),
        ({"DPD_CHUNK_SIZE": "2k"}, "DPD_CHUNK_SIZE is 2k: it must be a whole number"),
        (
            {"DPD_CHUNK_SIZE": "128"},
            "chunk_size of FILE is 256: it must be 128 with DPD_CHUNK_SIZE=128",
        ),
        (
            {"DPD_KV_BACKEND": "LIBFABRIC"},
            "nixl_backends of FILE is ['UCX']: it must be ['LIBFABRIC'] with "
            "DPD_KV_BACKEND=LIBFABRIC",
        ),
        (
            {"LMCACHE_CHUNK_SIZE": "128"},
            "LMCACHE_CHUNK_SIZE is '128' in the environment, but chunk_size is 256 in FILE: every "
            "engine must have the same. Remove it from the environment",
        ),
        (
            {"LMCACHE_ENABLE_PD": "yes"},
            "LMCACHE_ENABLE_PD is 'yes' in the environment, but enable_pd is True in FILE: every "
            "engine must have the same. Remove it from the environment",
        ),
        (
            {"LMCACHE_PD_BUFFER_SIZE": "2Gi"},
            "LMCACHE_PD_BUFFER_SIZE is '2Gi' in the environment, but pd_buffer_size is 34359738368 "
            "in FILE: every engine must have the same. Remove it from the environment",
        ),
    ],
)
def test_a_wrong_environment_is_refused(pod: Pod, role: str, env: Change, message: str) -> None:
    assert pod.refusal(role, env) == message


@ROLES
@pytest.mark.parametrize(
    "name",
    [
        "LMCACHE_ENABLE_NIXL",
        "LMCACHE_ENABLE_XPYD",
        "LMCACHE_NIXL_ROLE",
        "LMCACHE_NIXL_RECEIVER_HOST",
        "LMCACHE_NIXL_PEER_PORT",
        "NIXL_ROLE",
        "NIXL_RECEIVER_PORT",
    ],
)
def test_a_name_of_an_older_lmcache_is_refused(pod: Pod, role: str, name: str) -> None:
    assert pod.refusal(role, {name: "x"}) == (
        f"{name} is set: LMCache ignores it since 0.3 and would run without PD. Remove it; the "
        "chart writes the settings it stands for"
    )


@ROLES
@pytest.mark.parametrize("name", ["NIXL_LOG_LEVEL", "NIXL_TELEMETRY_ENABLE", "UCX_TLS"])
def test_other_names_of_nixl_and_ucx_pass(pod: Pod, role: str, name: str) -> None:
    pod.read(role, {name: "x"})


def test_an_override_that_says_the_same_passes(pod: Pod) -> None:
    pod.read("prefill", {"LMCACHE_CHUNK_SIZE": "256"})


@ROLES
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"enable_pd": None},
            "enable_pd of FILE is None: it must be True with DPD_ROLE={role}",
        ),
        (
            {"enable_pd": "yes"},
            "enable_pd of FILE is 'yes': it must be True with DPD_ROLE={role}",
        ),
        (
            {"pd_role": "decoder"},
            "pd_role of FILE is 'decoder': it must be '{pd_role}' with DPD_ROLE={role}",
        ),
        (
            {"transfer_channel": None},
            "transfer_channel of FILE is None: it must be 'nixl' with DPD_ROLE={role}",
        ),
        (
            {"save_decode_cache": True},
            "save_decode_cache of FILE is True: it must be False with DPD_ROLE={role}",
        ),
        (
            {"chunk_size": 512},
            "chunk_size of FILE is 512: it must be 256 with DPD_CHUNK_SIZE=256",
        ),
        (
            {"nixl_backends": None},
            "nixl_backends of FILE is None: it must be ['UCX'] with DPD_KV_BACKEND=UCX",
        ),
        (
            {"use_layerwise": True},
            "use_layerwise of FILE is true: LMCache's PD does not support it",
        ),
        (
            {"pd_buffer_size": "1e9"},
            "pd_buffer_size of FILE is '1e9': it must be a whole number of bytes",
        ),
        (
            {"pd_buffer_size": 1e9},
            "pd_buffer_size of FILE is 1000000000.0: it must be a whole number of bytes",
        ),
        (
            {"pd_buffer_size": 0},
            "pd_buffer_size of FILE is 0: it must be a whole number of bytes",
        ),
        (
            {"pd_buffer_device": "gpu"},
            "pd_buffer_device of FILE is 'gpu': it must be cpu or cuda",
        ),
        (
            {"extra_config": None},
            "extra_config.dpd_allocation_timeout_seconds of FILE is None: it must be a number of "
            "seconds above 0\n"
            "extra_config.dpd_pull_timeout_seconds of FILE is None: it must be a number of "
            "seconds above 0",
        ),
        (
            {"extra_config": ["x"]},
            "extra_config.dpd_allocation_timeout_seconds of FILE is None: it must be a number of "
            "seconds above 0\n"
            "extra_config.dpd_pull_timeout_seconds of FILE is None: it must be a number of "
            "seconds above 0",
        ),
        (
            {
                "extra_config": {
                    "dpd_allocation_timeout_seconds": 30,
                    "dpd_pull_timeout_seconds": "5m",
                }
            },
            "extra_config.dpd_pull_timeout_seconds of FILE is '5m': it must be a number of seconds "
            "above 0",
        ),
        (
            {
                "extra_config": {
                    "dpd_allocation_timeout_seconds": 0,
                    "dpd_pull_timeout_seconds": 300,
                }
            },
            "extra_config.dpd_allocation_timeout_seconds of FILE is 0: it must be a number of "
            "seconds above 0",
        ),
    ],
)
def test_a_wrong_configuration_is_refused(
    pod: Pod, role: str, config: Change, message: str
) -> None:
    pd_role = {"prefill": "sender", "decode": "receiver"}[role]
    expected = message.replace("{role}", role).replace("{pd_role}", pd_role)
    assert pod.refusal(role, config=config) == expected


def test_all_that_is_wrong_is_said_at_once(pod: Pod) -> None:
    env = {"PYTHONHASHSEED": None, "NIXL_ROLE": "sender", "LMCACHE_PD_PEER_HOST": "0.0.0.0"}
    config = {"chunk_size": 128, "pd_peer_init_port": []}
    assert [line.split(" is ")[0] for line in pod.refusal("decode", env, config).splitlines()] == [
        "NIXL_ROLE",
        "PYTHONHASHSEED",
        "chunk_size of FILE",
        "LMCACHE_PD_PEER_HOST",
        "pd_peer_init_port of FILE",
    ]


@pytest.mark.parametrize(("role", "other"), [("prefill", "receiver"), ("decode", "sender")])
def test_the_other_roles_configuration_is_refused(pod: Pod, role: str, other: str) -> None:
    wanted = "sender" if other == "receiver" else "receiver"
    assert pod.refusal(role, config={"pd_role": other}) == (
        f"pd_role of FILE is '{other}': it must be '{wanted}' with DPD_ROLE={role}"
    )


def test_a_file_that_is_not_there_or_no_yaml_is_refused(pod: Pod) -> None:
    with pytest.raises(WiringError, match=r"^LMCACHE_CONFIG_FILE .*lmcache.yaml can't be read: "):
        read_wiring(pod.env("prefill"))
    for text, words in (("a: [", "can't be read: "), ("- a", "holds no settings")):
        pod.file.write_text(text)
        with pytest.raises(WiringError, match=words):
            read_wiring(pod.env("prefill"))


@pytest.mark.parametrize("host", [None, "", "0.0.0.0", "::", "localhost", "decode-0.decode.svc"])
def test_a_receiver_must_have_an_address_of_its_own(pod: Pod, host: str | None) -> None:
    assert pod.refusal("decode", {"LMCACHE_PD_PEER_HOST": host}) == (
        f"LMCACHE_PD_PEER_HOST is {host or 'not set'}: the receiver binds it and prefillers "
        "connect to it, so it must be the pod's own IP address"
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"pd_peer_init_port": None},
            "pd_peer_init_port of FILE is None: it must list one port for each rank",
        ),
        (
            {"pd_peer_alloc_port": 7400},
            "pd_peer_alloc_port of FILE is 7400: it must list one port for each rank",
        ),
        (
            {"pd_peer_alloc_port": "[7400, 7401]"},
            "pd_peer_alloc_port of FILE is '[7400, 7401]': it must list one port for each rank",
        ),
        (
            {"pd_peer_init_port": []},
            "pd_peer_init_port of FILE is []: it must list one port for each rank",
        ),
        (
            {"pd_peer_init_port": [65535, 65536]},
            "pd_peer_init_port of FILE lists 65536, which is no port number",
        ),
        (
            {"pd_peer_init_port": ["7300", 7301]},
            "pd_peer_init_port of FILE lists '7300', which is no port number",
        ),
        (
            {"pd_peer_init_port": [7300, 7300]},
            "pd_peer_init_port of FILE lists 7300, which is used twice",
        ),
        (
            {"pd_peer_alloc_port": [7301, 7302]},
            "pd_peer_alloc_port of FILE lists 7301, which is used twice",
        ),
    ],
)
def test_wrong_port_lists_are_refused(pod: Pod, config: Change, message: str) -> None:
    assert pod.refusal("decode", config=config) == message
