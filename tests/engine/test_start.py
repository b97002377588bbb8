"""Each wiring mistake ends the pod at start with a message naming the setting; none is Ready."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import yaml
from tests.engine.conftest import PROGRAMS

from dpd_local import Cluster, Pod
from dpd_local.pods import Configuration, configuration_of
from dpd_local.running import State

pytestmark = pytest.mark.slow

ALL = ["prefill", "router", "decode"]


def set_env(name: str, value: str | None) -> Callable[[Pod], None]:
    """Give a variable of the engine another value, or none."""

    def edit(pod: Pod) -> None:
        container = pod.spec["containers"][0]
        container["env"] = [entry for entry in container["env"] if entry["name"] != name]
        if value is not None:
            container["env"].append({"name": name, "value": value})

    return edit


def set_kv_role(role: str) -> Callable[[Pod], None]:
    def edit(pod: Pod) -> None:
        args = pod.spec["containers"][0]["args"]
        for number, arg in enumerate(args):
            args[number] = arg.replace("kv_producer", role).replace("kv_consumer", role)

    return edit


@dataclass(frozen=True)
class Mistake:
    """What is wrong in one pod, and what its log must say."""

    edit: Callable[[Pod], None]
    message: str


MISTAKES = {
    "prefill-0": Mistake(set_env("PYTHONHASHSEED", None), "PYTHONHASHSEED is not set"),
    "prefill-1": Mistake(
        set_env("LMCACHE_CHUNK_SIZE", "128"), "LMCACHE_CHUNK_SIZE is '128' in the environment"
    ),
    "prefill-2": Mistake(set_env("DPD_ROLE", "decoder"), "DPD_ROLE is 'decoder'"),
    "prefill-3": Mistake(
        set_env("LMCACHE_ENABLE_NIXL", "true"), "LMCACHE_ENABLE_NIXL is set: LMCache ignores it"
    ),
    "prefill-4": Mistake(set_kv_role("kv_consumer"), "kv_role of --kv-transfer-config"),
    "decode-0": Mistake(set_env("DPD_ROLE", "prefill"), "pd_role of "),
    "decode-1": Mistake(set_env("LMCACHE_PD_PEER_HOST", "0.0.0.0"), "LMCACHE_PD_PEER_HOST is"),
    "decode-2": Mistake(
        # No NIXL transport of this name: LMCache itself would go on in "degraded mode".
        set_env("UCX_TLS", "none_such"),
        "LMCache could not start and would recompute every prompt",
    ),
}


@pytest.fixture(scope="module")
def wrong() -> Iterator[Cluster]:
    edits = {name: mistake.edit for name, mistake in MISTAKES.items()}
    with Cluster(
        prefill=5, decode=3, edit=edits, hold=["router"], wait=False, programs=PROGRAMS
    ) as cluster:
        yield cluster


@pytest.mark.parametrize("name", MISTAKES)
def test_a_wiring_mistake_ends_the_pod_with_a_message(wrong: Cluster, name: str) -> None:
    pod = wrong.pod(name)
    assert pod.wait_exit(timeout=300) != 0
    assert MISTAKES[name].message in pod.log_text()
    assert pod.state is State.ENDED


CONFIGS: dict[str, tuple[dict[str, object], str]] = {
    "decode-0": ({"chunk_size": 128}, "chunk_size of "),
    "decode-1": ({"pd_peer_init_port": []}, "pd_peer_init_port of "),
    "decode-2": ({"pd_peer_init_ports": [7300]}, "pd_peer_init_ports of "),
}
WITHOUT_PORT = "decode-3"


def with_config(cluster: Cluster, changed: dict[str, object]) -> Configuration:
    """What pods mount, with changes in the decoder's lmcache.yaml."""
    manifests = copy.deepcopy(cluster.manifests)
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"].endswith("-decode"):
            config = yaml.safe_load(manifest["data"]["lmcache.yaml"])
            manifest["data"]["lmcache.yaml"] = yaml.safe_dump(config | changed)
    return configuration_of(manifests)


@pytest.fixture(scope="module")
def misled() -> Iterator[Cluster]:
    """Decoders with a mistake in the file that each mounts, and one whose port is taken."""
    with Cluster(decode=4, hold=ALL, wait=False, programs=PROGRAMS) as cluster:
        for name, (changed, _) in CONFIGS.items():
            cluster.node.configuration = with_config(cluster, changed)
            cluster.pod(name).start()
        cluster.node.configuration = with_config(cluster, {})
        pod = cluster.pod(WITHOUT_PORT)
        with socket.create_server((pod.ip, 7300)):
            pod.start()
            yield cluster


@pytest.mark.parametrize("name", CONFIGS)
def test_a_mistake_in_the_configuration_file_ends_the_pod(misled: Cluster, name: str) -> None:
    pod = misled.pod(name)
    assert pod.wait_exit(timeout=200) != 0
    assert CONFIGS[name][1] in pod.log_text()


def test_a_port_that_is_taken_ends_the_decoder(misled: Cluster) -> None:
    pod = misled.pod(WITHOUT_PORT)
    assert pod.wait_exit(timeout=200) != 0
    assert f"the receiver can't listen on {pod.ip}:7300" in pod.log_text()
