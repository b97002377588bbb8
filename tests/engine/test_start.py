"""Each wiring mistake ends the pod at start with a message naming the setting; none is Ready."""

from __future__ import annotations

import copy
import socket
from collections.abc import Callable, Iterator

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


def edits(*functions: Callable[[Pod], None]) -> Callable[[Pod], None]:
    def edit(pod: Pod) -> None:
        for function in functions:
            function(pod)

    return edit


# The environment and the file are read at once, and all that is wrong in them is said at once.
MISREAD = "decode-0"
# LMCache is loaded before a key that it does not know is seen.
UNKNOWN = "decode-2"
FILES = {
    MISREAD: {"pd_role": "sender", "chunk_size": 128, "pd_peer_init_port": []},
    UNKNOWN: {"pd_peer_init_ports": [7300]},
}
TAKEN = "decode-3"  # nothing is wrong with it, but another has its port
EDITS = {
    MISREAD: edits(
        set_env("PYTHONHASHSEED", None),
        set_env("LMCACHE_CHUNK_SIZE", "64"),
        set_env("LMCACHE_PD_PEER_HOST", "0.0.0.0"),
        set_env("LMCACHE_ENABLE_NIXL", "true"),
    ),
    "prefill-0": set_kv_role("kv_consumer"),
    "prefill-1": set_env("DPD_ROLE", "decoder"),
    # No NIXL transport of this name: LMCache itself would go on in "degraded mode".
    "decode-1": set_env("UCX_TLS", "none_such"),
}
MESSAGES = {
    MISREAD: [
        "PYTHONHASHSEED is not set",
        "LMCACHE_CHUNK_SIZE is '64' in the environment",
        "LMCACHE_PD_PEER_HOST is 0.0.0.0",
        "LMCACHE_ENABLE_NIXL is set: LMCache ignores it",
        "pd_role of ",
        "chunk_size of ",
        "pd_peer_init_port of ",
    ],
    "prefill-0": ["kv_role of --kv-transfer-config"],
    "prefill-1": ["DPD_ROLE is 'decoder'"],
    "decode-1": ["LMCache could not start and would recompute every prompt"],
    UNKNOWN: ["pd_peer_init_ports of "],
    TAKEN: ["the receiver can't listen on IP:7300"],
}


def with_decoders_file(cluster: Cluster, changed: dict[str, object]) -> Configuration:
    """What pods mount, with changes in the decoder's lmcache.yaml."""
    manifests = copy.deepcopy(cluster.manifests)
    for manifest in manifests:
        if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"].endswith("-decode"):
            config = yaml.safe_load(manifest["data"]["lmcache.yaml"])
            manifest["data"]["lmcache.yaml"] = yaml.safe_dump(config | changed)
    return configuration_of(manifests)


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    with (
        Cluster(
            prefill=2, decode=4, edit=EDITS, hold=ALL, wait=False, programs=PROGRAMS
        ) as cluster,
        socket.create_server((cluster.pod(TAKEN).ip, 7300)),
    ):
        for name in MESSAGES:
            cluster.node.configuration = with_decoders_file(cluster, FILES.get(name, {}))
            cluster.pod(name).start()
        yield cluster


@pytest.mark.parametrize("name", MESSAGES)
def test_a_mistake_ends_the_pod_with_a_message(started: Cluster, name: str) -> None:
    pod = started.pod(name)
    assert pod.wait_exit(timeout=300) != 0
    log = pod.log_text().replace(pod.ip, "IP")
    assert [message for message in MESSAGES[name] if message not in log] == []
    assert pod.state is State.ENDED
