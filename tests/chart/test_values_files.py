"""What each file of values/ makes, written down by hand."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from .conftest import ROOT, Helm, Manifests

GIB = 1 << 30


@dataclass(frozen=True)
class Pools:
    """The two pools of a file: engines, and what one engine of either asks for.

    None engines are as many as an autoscaler says.
    """

    prefill: int | None
    decode: int | None
    tensor_parallel: int
    max_len: int
    threshold: int
    buffer: int
    devices: dict[str, Any] = field(default_factory=dict)


P5 = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32, "hugepages-2Mi": "5120Mi"}
P5EN = P5 | {"vpc.amazonaws.com/efa": 16}
B200 = P5 | {"vpc.amazonaws.com/efa": 8}
G6E = {"nvidia.com/gpu": 1, "vpc.amazonaws.com/efa": 1}

FILES = {
    "llama-3.3-70b-2xp5": Pools(1, 1, 8, 16384, 4096, 8 * GIB, P5),
    "llama-3.3-70b-2xp5en": Pools(1, 1, 8, 65536, 4096, 20 * GIB, P5EN),
    "llama-3.3-70b-2xp6-b200": Pools(1, 1, 8, 131072, 4096, 30 * GIB, B200),
    "llama-3.3-70b-rag-3to1": Pools(3, 1, 8, 32768, 2048, 12800 * (1 << 20), P5),
    "llama-3.3-70b-chat-1to3": Pools(1, 3, 8, 16384, 4096, 8 * GIB, P5),
    "llama-3.3-70b-1xp5": Pools(1, 1, 4, 16384, 4096, 8 * GIB, {"nvidia.com/gpu": 4}),
    "llama-3.3-70b-autoscaled": Pools(None, None, 8, 16384, 4096, 8 * GIB, P5),
    "llama-3.1-8b-2xg6e": Pools(1, 1, 1, 16384, 2048, 8 * GIB, G6E),
    "local-cpu": Pools(1, 1, 1, 16384, 256, 128 * (1 << 20)),
}

# The files of model sources: what engines call the model, and the kind of their volume.
SOURCES = {
    "model-from-s3": ("/model", "hostPath", "emptyDir"),
    "model-from-s3-mount": ("/model/llama-3-3-70b-instruct", "persistentVolumeClaim", None),
    "model-from-fsx": ("/model/models/llama-3-3-70b-instruct", "persistentVolumeClaim", None),
    "model-from-pvc": ("/model/llama-3-3-70b-instruct", "persistentVolumeClaim", None),
    "model-from-nvme": ("/model", "hostPath", None),
    "model-from-image": ("/model/llama-3-3-70b-instruct", "image", None),
}

# Files that go over any of these and change one thing.
OVER = {"engines-as-root"}


def rendered(helm: Helm, name: str) -> Manifests:
    return helm.render((ROOT / "values" / f"{name}.yaml").read_text(encoding="utf-8"))


def test_every_file_is_written_down_here() -> None:
    assert {path.stem for path in (ROOT / "values").glob("*.yaml")} == {*FILES, *SOURCES, *OVER}


@pytest.mark.parametrize("name", FILES)
def test_a_file_makes_its_pools(helm4: Helm, name: str) -> None:
    pools, manifests = FILES[name], rendered(helm4, name)
    for role, engines in (("prefill", pools.prefill), ("decode", pools.decode)):
        assert manifests.one("Deployment", f"-{role}")["spec"].get("replicas") == engines
        container = manifests.container(role)
        assert container["resources"].get("limits", {}) == pools.devices
        args = container["args"]
        assert f"--tensor-parallel-size={pools.tensor_parallel}" in args
        assert f"--max-model-len={pools.max_len}" in args
        assert manifests.config(role)["pd_buffer_size"] == pools.buffer
    assert manifests.config("router")["routing"] == {
        "mode": "threshold",
        "threshold": pools.threshold,
    }
    assert len(manifests.config("router")["decode"]["initPorts"]) == pools.tensor_parallel


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_takes_the_model_from_its_source(helm4: Helm, name: str) -> None:
    path, kind, routers = SOURCES[name]
    manifests = rendered(helm4, name)
    for component in ("prefill", "decode", "router"):
        pod = manifests.one("Deployment", f"-{component}")["spec"]["template"]["spec"]
        (volume,) = [v for v in pod["volumes"] if v["name"] == "model"]
        expected = routers if component == "router" and routers else kind
        assert set(volume) == {"name", expected}
        (mount,) = [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "model"]
        assert mount.items() >= {"mountPath": "/model", "readOnly": True}.items()
        # A copy on a node's disk is one of several there.
        assert ("subPath" in mount) == (name == "model-from-s3" and component != "router")
    for role in ("prefill", "decode"):
        args = manifests.container(role)["args"]
        assert args[0] == path
        assert "--served-model-name=meta-llama/Llama-3.3-70B-Instruct" in args
    assert manifests.config("router")["model"]["tokenizer"] == path


@pytest.mark.parametrize("name", SOURCES)
def test_a_file_of_a_source_goes_over_one_of_a_size(helm4: Helm, name: str) -> None:
    flags = (f"--values={ROOT / 'values' / 'llama-3.3-70b-2xp5en.yaml'}",)
    source = (ROOT / "values" / f"{name}.yaml").read_text(encoding="utf-8")
    manifests = helm4.render(source, *flags)
    args = manifests.container("decode")["args"]
    assert args[0] == SOURCES[name][0]
    assert "--max-model-len=65536" in args


def test_one_node_is_one_node(helm4: Helm) -> None:
    manifests = rendered(helm4, "llama-3.3-70b-1xp5")
    for role in ("prefill", "decode"):
        pod = manifests.one("Deployment", f"-{role}")["spec"]["template"]["spec"]
        keys = [
            term["topologyKey"]
            for term in pod["affinity"]["podAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]
        ]
        assert "kubernetes.io/hostname" in keys
        assert "podAntiAffinity" not in pod["affinity"]
        assert pod["hostIPC"] is True
        assert manifests.config(role)["nixl_backends"] == ["UCX"]


def test_an_autoscaled_release_is_behind_a_load_balancer(helm4: Helm) -> None:
    manifests = rendered(helm4, "llama-3.3-70b-autoscaled")
    text = (ROOT / "values" / "llama-3.3-70b-autoscaled.yaml").read_text(encoding="utf-8")
    comment = " ".join(re.findall("^# (.*)$", text, re.M))
    (placeholders,) = re.findall("Put your own in the place of the values of (.*?)[.] ", comment)
    for key in re.split(", | and ", placeholders):
        assert re.search(rf"\b{key}: ", text), key
    # What a trigger of KEDA's goes by: CPU is told by metrics-server.
    needs = {"prometheus": "a Prometheus", "cpu": "metrics-server"}
    numbers = {}
    for component in ("prefill", "decode", "router"):
        assert "replicas" not in manifests.workload(component)["spec"]
        spec = manifests.one("ScaledObject", f"-{component}")["spec"]
        numbers[component] = (spec["minReplicaCount"], spec["maxReplicaCount"])
        assert all(needs[trigger["type"]] in comment for trigger in spec["triggers"])
        asked = [t["metadata"].get("serverAddress") for t in spec["triggers"]]
        assert set(asked) == {
            None if component == "router" else "http://prometheus-operated.monitoring:9090"
        }
        # Whoever asks for numbers must be let in to where they are.
        policy = manifests.one("NetworkPolicy", f"-{component}")["spec"]["ingress"][0]
        monitoring = {"kubernetes.io/metadata.name": "monitoring"}
        assert {"namespaceSelector": {"matchLabels": monitoring}} in policy["from"]
    assert numbers == {"prefill": (1, 4), "decode": (1, 4), "router": (2, 4)}
    ingress = manifests.one("Ingress", "-router")
    assert ingress["spec"]["ingressClassName"] == "alb"
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == ["llm.example.com"]
    annotations = ingress["metadata"]["annotations"]
    assert annotations["alb.ingress.kubernetes.io/listen-ports"] == '[{"HTTPS": 443}]'
    assert annotations["alb.ingress.kubernetes.io/healthcheck-path"] == "/ready"
    clients = manifests.one("NetworkPolicy", "-router")["spec"]["ingress"][0]["from"]
    assert {"ipBlock": {"cidr": "10.0.0.0/16"}} in clients


def test_engines_as_root_say_how_to_find_out(helm4: Helm) -> None:
    text = (ROOT / "values" / "engines-as-root.yaml").read_text(encoding="utf-8")
    (workload,) = re.findall(r"kubectl exec deployment/(\S+) -- sh -c 'ulimit -l'", text)
    manifests = helm4.render(release="dpd")
    # kubectl takes a pod's first container.
    pod = manifests["Deployment", workload]["spec"]["template"]["spec"]
    assert "/opt/venv/bin/vllm" in pod["containers"][0]["command"]
    (symptom,) = re.findall('The symptom is "(.*?)" in the log', text)
    code = ROOT / "plugins" / "dpd-vllm" / "src" / "dpd_vllm" / "connector.py"
    assert symptom in code.read_text(encoding="utf-8")


def test_engines_as_root_can_lock_memory_and_nothing_else_changes(helm4: Helm) -> None:
    size = f"--values={ROOT / 'values' / 'llama-3.3-70b-2xp5.yaml'}"
    root = (ROOT / "values" / "engines-as-root.yaml").read_text(encoding="utf-8")
    before, after = helm4.render("{}", size), helm4.render(root, size)
    for role in ("prefill", "decode"):
        changed, was = after.pod(role)["securityContext"], before.pod(role)["securityContext"]
        assert changed == was | {"runAsUser": 0, "runAsNonRoot": False}
        assert {**after.pod(role), "securityContext": was} == before.pod(role)
        assert after.container(role)["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]},
        }
    assert after.pod("router") == before.pod("router")


@pytest.mark.parametrize("path", sorted((ROOT / "values").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_file_for_a_cluster_is_short(path: Path) -> None:
    if path.stem != "local-cpu":
        longest = 40 if "autoscaled" in path.stem else 25
        assert len(path.read_text(encoding="utf-8").splitlines()) < longest
