"""Every address that a pod is told is one of the release's, and may be reached (A34)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from .conftest import Helm, Manifests, Values

# host:port, where the host is a name and not an address or a port of a URL's example.
ADDRESS = re.compile(r"(?<![\w./-])([a-z][a-z0-9-]*):(\d{2,5})(?![\w.])")

PORTS = {"init": 9000, "alloc": 9100, "notify": 9200}
CASES: dict[str, Values] = {
    "defaults": {},
    "renamed": {
        "fullnameOverride": "other",
        "kvTransfer": {"ports": PORTS},
        "decode": {"replicas": 2},
    },
    "over TCP": {"kvTransfer": {"backend": "UCX", "ports": PORTS}, "router": {"replicas": 2}},
    "over two nodes": {"model": {"tensorParallelSize": 16}, "kvTransfer": {"ports": PORTS}},
    "in stages": {"model": {"tensorParallelSize": 4, "pipelineParallelSize": 2}},
}


@pytest.fixture(scope="module", params=CASES, ids=str)
def manifests(request: pytest.FixtureRequest, helm4: Helm) -> Manifests:
    return helm4.render(CASES[request.param])


def texts(value: Any) -> Iterator[str]:
    """Every text within a value."""
    if isinstance(value, dict):
        for part in value.values():
            yield from texts(part)
    elif isinstance(value, list):
        for part in value:
            yield from texts(part)
    elif isinstance(value, str):
        yield value


def told(manifests: Manifests) -> set[tuple[str, int]]:
    """Every host and port in the configuration, environment or arguments of any pod."""
    found: set[tuple[str, int]] = set()
    for component in ("router", "prefill", "decode"):
        container = manifests.container(component)
        sources = [manifests.config(component), container["env"], container.get("args", [])]
        for text in texts(sources):
            found |= {(host, int(port)) for host, port in ADDRESS.findall(text)}
    return found


def listening(manifests: Manifests, component: str) -> set[int]:
    return {port["containerPort"] for port in manifests.container(component)["ports"]}


def is_admitted(manifests: Manifests, source: str, target: str, port: int) -> bool:
    """Whether the target's NetworkPolicy lets pods of the source reach a port."""
    labels = manifests.template(source)["metadata"]["labels"]
    policy = manifests.one("NetworkPolicy", f"-{target}")["spec"]
    chosen = policy["podSelector"]["matchLabels"].items()
    assert chosen <= manifests.template(target)["metadata"]["labels"].items()
    for rule in policy["ingress"]:
        peers = [peer.get("podSelector", {}).get("matchLabels") for peer in rule.get("from", [{}])]
        if not any(peer is None or peer.items() <= labels.items() for peer in peers):
            continue
        for entry in rule.get("ports", [{}]):
            first = entry.get("port", 1)
            if first <= port <= entry.get("endPort", 65535 if "port" not in entry else first):
                return True
    return False


def test_every_host_and_port_is_that_of_a_service_and_of_the_pods_behind_it(
    manifests: Manifests,
) -> None:
    addresses = told(manifests)
    assert {port for _, port in addresses} == {8000}
    assert {host.rsplit("-", 1)[1] for host, _ in addresses} == {"prefill", "decode"}
    for host, port in addresses:
        service = manifests[("Service", host)]["spec"]
        component = service["selector"]["app.kubernetes.io/component"]
        labels = manifests.template(component)["metadata"]["labels"].items()
        # The controller of a LeaderWorkerSet adds this one.
        group = {"leaderworkerset.sigs.k8s.io/worker-index": "0"}
        assert (service["selector"].items() - group.items()) <= labels
        assert service["clusterIP"] == "None"  # so that a port of the Service is that of the pod
        (entry,) = [entry for entry in service["ports"] if entry["port"] == port]
        named = {p["name"]: p["containerPort"] for p in manifests.container(component)["ports"]}
        assert named[entry["targetPort"]] == port
        assert f"--port={port}" in manifests.container(component)["args"]
        assert is_admitted(manifests, "router", component, port)


def test_the_receivers_ports_are_what_the_router_says_and_may_be_reached(
    manifests: Manifests,
) -> None:
    said, listened = manifests.config("router")["decode"], manifests.config("decode")
    assert said["initPorts"] == listened["pd_peer_init_port"]
    assert said["allocPorts"] == listened["pd_peer_alloc_port"]
    ports = [*said["initPorts"], *said["allocPorts"]]
    assert len(ports) == len(set(ports))
    assert listening(manifests, "decode") == {8000, *ports}
    for port in ports:
        assert is_admitted(manifests, "prefill", "decode", port)


def test_routers_reach_the_first_ranks_port_of_releases_and_no_other_kv_port(
    manifests: Manifests,
) -> None:
    said = manifests.config("router")["decode"]
    first, *others = said["allocPorts"]
    assert is_admitted(manifests, "router", "decode", first)
    for port in (*others, *said["initPorts"]):
        assert not is_admitted(manifests, "router", "decode", port)


def test_prefillers_reach_the_port_of_notices(manifests: Manifests) -> None:
    notify = manifests.config("router")["notify"]["port"]
    assert listening(manifests, "router") == {8000, notify}
    assert is_admitted(manifests, "prefill", "router", notify)


def test_clients_reach_the_router(manifests: Manifests) -> None:
    service = manifests.one("Service", "-router")["spec"]
    labels = manifests.template("router")["metadata"]["labels"].items()
    assert service["selector"].items() <= labels
    named = {p["name"]: p["containerPort"] for p in manifests.container("router")["ports"]}
    (entry,) = service["ports"]
    assert named[entry["targetPort"]] == manifests.config("router")["listen"]["port"] == 8000
    (first, *_) = manifests.one("NetworkPolicy", "-router")["spec"]["ingress"]
    assert "from" not in first and first["ports"] == [{"protocol": "TCP", "port": 8000}]


def test_decoders_and_prefillers_reach_nothing_else(manifests: Manifests) -> None:
    assert not is_admitted(manifests, "prefill", "decode", 8000) or (
        manifests.config("decode")["nixl_backends"] == ["UCX"]  # which takes any port
    )
    assert not is_admitted(manifests, "decode", "router", 9200)


def test_given_ports_are_those_that_are_used(helm4: Helm) -> None:
    manifests = helm4.render(CASES["renamed"])
    assert manifests.config("router")["decode"]["initPorts"] == list(range(9000, 9008))
    assert manifests.config("router")["decode"]["allocPorts"] == list(range(9100, 9108))
    assert manifests.config("router")["notify"] == {"port": 9200}
    assert told(manifests) == {("other-prefill", 8000), ("other-decode", 8000)}
