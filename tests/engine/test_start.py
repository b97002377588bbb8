"""Each wiring mistake ends the pod at start with a message naming the setting; none is Ready."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

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
class Wrong:
    """What is wrong in one pod, and what its log must say: environment and file are read as one."""

    messages: list[str]
    edits: list[Callable[[Pod], None]] = field(default_factory=list)
    config: dict[str, object] = field(default_factory=dict)  # in its lmcache.yaml


WRONG = {
    "prefill-0": Wrong(
        [
            "PYTHONHASHSEED is not set",
            "LMCACHE_CHUNK_SIZE is '128' in the environment",
            "LMCACHE_ENABLE_NIXL is set: LMCache ignores it",
        ],
        edits=[
            set_env("PYTHONHASHSEED", None),
            set_env("LMCACHE_CHUNK_SIZE", "128"),
            set_env("LMCACHE_ENABLE_NIXL", "true"),
        ],
    ),
    "prefill-1": Wrong(["kv_role of --kv-transfer-config"], edits=[set_kv_role("kv_consumer")]),
    "decode-0": Wrong(
        [
            "pd_role of ",
            "chunk_size of ",
            "LMCACHE_PD_PEER_HOST is 0.0.0.0",
            "pd_peer_init_port of ",
        ],
        edits=[set_env("LMCACHE_PD_PEER_HOST", "0.0.0.0")],
        config={"pd_role": "sender", "chunk_size": 128, "pd_peer_init_port": []},
    ),
    "decode-1": Wrong(["pd_peer_init_ports of "], config={"pd_peer_init_ports": [7300]}),
    "decode-2": Wrong(
        # No NIXL transport of this name: LMCache itself would go on in "degraded mode".
        ["LMCache could not start and would recompute every prompt"],
        edits=[set_env("UCX_TLS", "none_such")],
    ),
}
WITHOUT_PORT = "decode-3"


def with_config(cluster: Cluster, component: str, changed: dict[str, object]) -> Configuration:
    """What pods mount, with changes in the component's lmcache.yaml."""
    manifests = copy.deepcopy(cluster.manifests)
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        if manifest["kind"] == "ConfigMap" and name.endswith(f"-{component}"):
            config = yaml.safe_load(manifest["data"]["lmcache.yaml"])
            manifest["data"]["lmcache.yaml"] = yaml.safe_dump(config | changed)
    return configuration_of(manifests)


def edit_all(edits: list[Callable[[Pod], None]]) -> Callable[[Pod], None]:
    def edit(pod: Pod) -> None:
        for one in edits:
            one(pod)

    return edit


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    """Pods with mistakes, and a decoder with none whose port is taken."""
    edits = {name: edit_all(wrong.edits) for name, wrong in WRONG.items()}
    with Cluster(
        prefill=2, decode=4, edit=edits, hold=ALL, wait=False, programs=PROGRAMS
    ) as cluster:
        taken = cluster.pod(WITHOUT_PORT)
        with socket.create_server((taken.ip, 7300)):
            for name, wrong in WRONG.items():
                cluster.node.configuration = with_config(
                    cluster, name.partition("-")[0], wrong.config
                )
                cluster.pod(name).start()
            cluster.node.configuration = configuration_of(cluster.manifests)
            taken.start()
            yield cluster


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_ends_the_pod_with_a_message(started: Cluster, name: str) -> None:
    pod = started.pod(name)
    assert pod.wait_exit(timeout=300) != 0
    assert [message for message in WRONG[name].messages if message not in pod.log_text()] == []
    assert pod.state is State.ENDED


def test_a_port_that_is_taken_ends_the_decoder(started: Cluster) -> None:
    pod = started.pod(WITHOUT_PORT)
    assert pod.wait_exit(timeout=200) != 0
    assert f"the receiver can't listen on {pod.ip}:7300" in pod.log_text()
