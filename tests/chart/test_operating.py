"""OPERATING.md and its neighbours: their examples fit the render, their links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.readme.document import OPERATING, anchors, links, section

from .conftest import BIN, CHART, ROOT, Helm, Manifests

COMPONENTS = ("router", "prefill", "decode")


def example(kind: str) -> dict[str, Any]:
    """The YAML of a document that begins with this key or is of this kind."""
    blocks = re.findall(r"^```yaml\n(.*?)^```$", OPERATING, re.M | re.S)
    documents = [yaml.safe_load(block) for block in blocks]
    (found,) = [d for d in documents if kind in (d.get("kind"), next(iter(d)))]
    return dict(found)


def monitored(manifests: Manifests) -> Iterator[dict[str, Any]]:
    """The Services that the ServiceMonitor selects."""
    wanted = example("ServiceMonitor")["spec"]["selector"]["matchLabels"]
    for (kind, _), manifest in manifests.items():
        if kind == "Service" and wanted.items() <= manifest["metadata"]["labels"].items():
            yield manifest


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_service_monitor_finds_every_component_by_its_port(helm4: Helm, nodes: int) -> None:
    manifests = helm4.render({"model": {"tensorParallelSize": 8 * nodes}}, release="dpd")
    (endpoint,) = example("ServiceMonitor")["spec"]["endpoints"]
    found = {}
    for service in monitored(manifests):
        component = service["metadata"]["labels"]["app.kubernetes.io/component"]
        found[component] = service["metadata"]["name"]
        (port,) = [p for p in service["spec"]["ports"] if p["name"] == endpoint["port"]]
        ports = {p["name"]: p["containerPort"] for p in manifests.container(component)["ports"]}
        assert ports[port["targetPort"]] == 8000
        labels = manifests.template(component)["metadata"]["labels"]
        # Of an engine over several nodes a label says which pods serve HTTP; LWS writes it.
        selector = dict(service["spec"]["selector"])
        first = selector.pop("leaderworkerset.sigs.k8s.io/worker-index", None)
        assert first == ("0" if nodes > 1 and component != "router" else None)
        assert selector.items() <= labels.items()
    assert found == {component: f"dpd-{component}" for component in COMPONENTS}
    assert endpoint["path"] == "/metrics"


def test_autoscalers_ask_by_labels_that_the_service_monitor_writes(helm4: Helm) -> None:
    """Those of the target, as the operator takes them over: namespace, service and pod."""
    targets = {"queueDepth": 4, "inFlightTokens": 1000, "ttftSeconds": 1}
    asked = {"engines": {"autoscaling": {"type": "hpa", **targets}}}
    manifests = helm4.render(asked, "--namespace=inference", release="dpd")
    (router,) = [s for s in monitored(manifests) if s["metadata"]["name"].endswith("-router")]
    own = {"namespace": "inference", "service": router["metadata"]["name"]}
    for role in ("prefill", "decode"):
        metrics = manifests.one("HorizontalPodAutoscaler", f"-{role}")["spec"]["metrics"]
        external = [m["external"]["metric"] for m in metrics if m["type"] == "External"]
        assert len(external) == 2
        for metric in external:
            labels = metric["selector"]["matchLabels"]
            assert own.items() <= labels.items()
            assert set(labels) - set(own) <= {"role", "path"}  # the router's own


def test_keda_asks_by_the_names_that_pods_of_a_deployment_have(helm4: Helm) -> None:
    text = (ROOT / "values" / "llama-3.3-70b-autoscaled.yaml").read_text(encoding="utf-8")
    manifests = helm4.render(text, "--namespace=inference", release="dpd")
    for role in ("prefill", "decode"):
        (query, *_) = [
            trigger["metadata"]["query"]
            for trigger in manifests.one("ScaledObject", f"-{role}")["spec"]["triggers"]
        ]
        matchers = dict(re.findall(r'(\w+)=~?"([^"]*)"', query))
        assert matchers["namespace"] == "inference"
        assert re.fullmatch(matchers["pod"], f"dpd-{role}-7c9f4b8d5-x2xkq")
        assert not re.fullmatch(matchers["pod"], "dpd-router-7c9f4b8d5-x2xkq")


def test_prometheus_is_let_in_as_the_example_says(helm4: Helm) -> None:
    values = example("networkPolicy")
    (peer,) = values["networkPolicy"]["metrics"]
    manifests = helm4.render(values)
    for role in ("prefill", "decode"):
        rule = manifests.one("NetworkPolicy", f"-{role}")["spec"]["ingress"][0]
        assert peer in rule["from"]
        assert rule["ports"] == [{"protocol": "TCP", "port": 8000}]
    # The router is open to all as long as its clients are not listed.
    assert "from" not in manifests.one("NetworkPolicy", "-router")["spec"]["ingress"][0]


def test_a_folder_of_the_node_is_as_the_text_says(helm4: Helm) -> None:
    text = section("## Weights kept on the nodes", OPERATING)
    (made,) = re.findall(r"`install -d -o (\d+) -g (\d+) (\S+)`", text)
    user, group, folder = int(made[0]), int(made[1]), made[2]
    assert f"User {user}, as which pods run" in text
    source = {"huggingFace": {"cacheHostPath": folder}}
    manifests = helm4.render({"model": {"source": source}})
    for component in COMPONENTS:
        pod = manifests.pod(component)
        security = pod["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (user, group)
        volumes = {v["name"]: v["hostPath"] for v in pod["volumes"] if "hostPath" in v}
        if component == "router":
            assert volumes == {}
            continue
        # Of type Directory, which Kubernetes does not make.
        ((name, volume),) = volumes.items()
        assert volume == {"path": folder, "type": "Directory"}
        mounts = {m["name"]: m for m in manifests.container(component)["volumeMounts"]}
        assert mounts[name]["mountPath"] == manifests.env(component)["HF_HOME"]
        assert not mounts[name].get("readOnly")


def test_the_share_of_a_gpu_is_computed_where_no_argument_says_it(helm4: Helm) -> None:
    """Of the 80 GiB of a GPU, 15 for the buffer of the example in OPERATING.md are 0.1875."""
    (size,) = re.findall(r"`bufferSize: (\d+)`", section("## Sizing", OPERATING))
    text = (ROOT / "values" / "llama-3.3-70b-2xp5.yaml").read_text(encoding="utf-8")
    values = yaml.safe_load(text)
    values["kvTransfer"]["bufferSize"] = int(size)
    for share in ("0.75", "0.71"):
        manifests = helm4.render(values)
        for role in ("prefill", "decode"):
            shares = [a for a in manifests.container(role)["args"] if a.startswith("--gpu-memory")]
            assert shares == [f"--gpu-memory-utilization={share}"]
        values["engines"]["args"] = []


@pytest.fixture(scope="module")
def packaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The documents of the chart's package, by their place in it."""
    folder = tmp_path_factory.mktemp("package")
    command = [BIN / "helm4", "package", CHART, "--destination", folder]
    subprocess.run(command, check=True, capture_output=True)
    (package,) = folder.glob("dpd-*.tgz")
    with tarfile.open(package) as tar:
        tar.extractall(folder, filter="data")
    return {
        str(path.relative_to(folder / "dpd")): path.read_text(encoding="utf-8")
        for path in (folder / "dpd").glob("*.md")
    }


def test_the_package_has_the_documents(packaged: dict[str, str]) -> None:
    assert set(packaged) == {"README.md", "OPERATING.md", "MIGRATION.md"}


@pytest.mark.parametrize("document", ["README.md", "OPERATING.md", "MIGRATION.md"])
def test_every_link_leads_to_a_place_in_the_package_or_to_the_web(
    packaged: dict[str, str], document: str
) -> None:
    """Whoever sees the chart in a registry does not have the project around it."""
    for link in links(packaged[document]):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        assert (file or document) in packaged, link
        assert not anchor or anchor in anchors(packaged[file or document]), link


@pytest.mark.parametrize("document", ["README.md", "OPERATING.md", "MIGRATION.md"])
def test_what_is_named_of_the_repository_is_there(packaged: dict[str, str], document: str) -> None:
    named = re.findall(r"`((?:values|plugins)/[^`*]*)`", packaged[document])
    for path in named:
        assert Path(ROOT / path).exists(), path
