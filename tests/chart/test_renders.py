"""Every values file in values/, with both versions of Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART, ROOT, Helm

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


def test_a_cpu_run_asks_for_no_device_and_no_place(helm4: Helm) -> None:
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


def test_a_template_holds_one_resource() -> None:
    for path in (CHART / "templates").glob("*.yaml"):
        kinds = [
            line
            for line in path.read_text(encoding="utf-8").splitlines()
            if line.startswith("kind:")
        ]
        assert len(kinds) == (0 if path.name == "validate.yaml" else 1), path


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


def test_every_value_is_explained_by_one_sentence_above_it() -> None:
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    groups = {"model", "image", "shm", "prefill", "decode", "router", "kvTransfer", "placement"}
    groups |= {"timeouts", "engines", "service", "ports"}
    inside_object: int | None = None
    for before, line in zip(["", *lines], lines, strict=False):
        depth = len(line) - len(line.lstrip())
        key = line.strip().partition(":")[0]
        if not line.strip() or line.strip().startswith(("#", "-")):
            continue
        if inside_object is not None and depth > inside_object:
            continue
        inside_object = None
        if key in groups:
            continue
        assert before.strip().startswith("# ") and before.endswith("."), line
        if line.endswith(":"):
            inside_object = depth


def test_every_value_is_in_the_schema_and_read_by_a_template() -> None:
    templates = "".join(p.read_text(encoding="utf-8") for p in (CHART / "templates").iterdir())
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    for group, content in values.items():
        keys = [group, *(content if isinstance(content, dict) else [])]
        for key in keys:
            assert (
                key in templates or group == "global" or group.lower().endswith("securitycontext")
            ), (group, key)
