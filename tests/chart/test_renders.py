"""Every values file in values/, with both versions of Helm."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd_ci.documents import documented

from .conftest import CHART, ROOT, Helm, Values

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
FILES = sorted((ROOT / "values").glob("*.yaml"))


@pytest.mark.parametrize("file", [None, *FILES], ids=lambda f: f.stem if f else "defaults")
def test_helm_3_and_helm_4_render_the_same(helms: dict[str, Helm], file: Path | None) -> None:
    text = file.read_text(encoding="utf-8") if file else None
    assert helms["helm3"].render(text) == helms["helm4"].render(text)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem)
def test_a_values_file_says_for_whom_it_is(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# For ")


def test_hyperpods_sample_is_said_in_under_25_lines(helm4: Helm) -> None:
    text = (ROOT / "values" / "llama-3.3-70b-2xp5.yaml").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 25
    manifests = helm4.render(text)
    devices = {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 32, "hugepages-2Mi": "5120Mi"}
    for role, own in (
        ("prefill", ["--enforce-eager", "--max-num-seqs=16"]),
        ("decode", ["--max-num-seqs=32"]),
    ):
        container: dict[str, Any] = manifests.container(role)
        assert container["args"][-len(own) - 1 :] == ["--gpu-memory-utilization=0.75", *own]
        assert container["resources"] == {
            "requests": {"cpu": "96", "memory": "1500Gi", **devices},
            "limits": devices,
        }
    assert manifests.config("decode")["pd_buffer_size"] == 8589934592
    assert manifests.config("router")["routing"] == {"mode": "threshold", "threshold": 4096}


def test_a_cpu_run_asks_for_no_device_and_no_place(helm4: Helm) -> None:  # A33
    manifests = helm4.render((ROOT / "values" / "local-cpu.yaml").read_text(encoding="utf-8"))
    for role in ("prefill", "decode"):
        pod = manifests.one("Deployment", f"-{role}")["spec"]["template"]["spec"]
        assert "affinity" not in pod
        assert manifests.container(role)["resources"] == {"requests": {}, "limits": {}}
        assert manifests.config(role)["nixl_backends"] == ["UCX"]
        assert manifests.container(role)["command"][0] == "vllm"


def test_templates_are_short() -> None:
    lengths = {
        p.name: len(p.read_text(encoding="utf-8").splitlines())
        for p in (CHART / "templates").iterdir()
    }
    assert {name: lines for name, lines in lengths.items() if lines > 150} == {}


# Values that between them make an object of every template.
EVERYTHING: list[Values] = [
    {
        "model": {
            "source": {
                "type": "fsx",
                "fsx": {"fileSystemId": "fs-0123", "dnsName": "fs.example", "mountName": "abc"},
            }
        },
        "engines": {"autoscaling": {"type": "hpa"}},
        "prefill": {"serviceAccount": {"annotations": {"a": "b"}}},
        "decode": {"serviceAccount": {"annotations": {"a": "b"}}},
        "router": {
            "autoscaling": {"type": "hpa"},
            "ingress": {"enabled": True},
            "httpRoute": {"enabled": True, "parentRefs": [{"name": "gateway"}]},
        },
    },
    {
        "model": {"tensorParallelSize": 16},
        "engines": {"autoscaling": {"type": "keda"}},
        "router": {"autoscaling": {"type": "keda"}},
        "prometheusAddress": "http://prometheus",
    },
]


def test_a_template_holds_one_resource_and_each_is_used(helm4: Helm) -> None:
    made: set[str] = set()
    for values in EVERYTHING:
        _, out, error = helm4.run(values)
        sources = re.findall(r"^# Source: dpd/templates/(.*)$", out, re.MULTILINE)
        assert len(sources) == len(set(sources)), error
        made |= set(sources)
    assert made == {p.name for p in (CHART / "templates").glob("*.yaml")} - {"validate.yaml"}


def test_a_plugin_mounted_by_its_items_is_the_package_again(helm4: Helm) -> None:
    manifests = helm4.render()
    for component, plugin in (("router", "dpd-router"), ("decode", "dpd-vllm")):
        pod = manifests.one("Deployment", f"-{component}")["spec"]["template"]["spec"]
        (volume,) = [v["configMap"] for v in pod["volumes"] if v["name"] == "plugin"]
        data = manifests[("ConfigMap", volume["name"])]["data"]
        mounted = {item["path"]: data[item["key"]] for item in volume["items"]}
        source = CHART / "files" / "plugins" / plugin
        files = [path for path in source.rglob("*") if path.is_file()]
        assert len(files) > 10
        assert mounted == {str(p.relative_to(source)): p.read_text(encoding="utf-8") for p in files}


def leaves(values: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every place of the values that holds no further places."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, key))
        else:
            yield (*above, key)


def test_every_value_is_explained_by_one_sentence_above_it() -> None:
    explained = dict(documented(CHART / "values.yaml"))
    assert [key for key, sentence in explained.items() if not sentence.endswith(".")] == []
    for place in leaves(DEFAULTS):
        # What is Kubernetes' own, such as a probe, is explained as a whole.
        above = [place[:depth] for depth in range(1, len(place) + 1)]
        assert any(part in explained for part in above), place


def test_every_explained_value_is_read_by_a_template() -> None:
    templates = "".join(p.read_text(encoding="utf-8") for p in (CHART / "templates").iterdir())
    places = [place for place, _ in documented(CHART / "values.yaml") if place != ("global",)]
    for place in places:  # the times of the router are read together
        name = "timeouts" if place[:2] == ("router", "timeouts") else place[-1]
        assert re.search(rf"\b{name}\b", templates), place
