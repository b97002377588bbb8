"""The chart in a registry and under Argo CD: what its examples and its README say, run."""

from __future__ import annotations

import re
import shlex
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import BIN, CHART, ROOT, Helm

EXAMPLES = sorted((ROOT / "values" / "argocd").glob("*.yaml"))
VERSION = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["version"]


def chart_source(example: Path) -> dict[str, Any]:
    """The source of an example that is the chart."""
    spec = yaml.safe_load(example.read_text(encoding="utf-8"))["spec"]
    sources = spec.get("template", {"spec": spec})["spec"]["sources"]
    (found,) = [source for source in sources if "chart" in source]
    return dict(found)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_names_this_chart_in_this_version(example: Path) -> None:
    source = chart_source(example)
    assert (source["chart"], source["targetRevision"]) == ("dpd", VERSION)
    assert example.read_text(encoding="utf-8").startswith("# For ")


def test_a_parameter_of_the_example_arrives(helm: Helm) -> None:
    source = chart_source(ROOT / "values" / "argocd" / "application.yaml")
    # Argo CD calls `helm template --set name=value` for each parameter without forceString.
    flags = [f"--set={p['name']}={p['value']}" for p in source["helm"]["parameters"]]
    routing = helm.render(None, *flags, release=source["helm"]["releaseName"]).config("router")
    assert routing["routing"] == {"mode": "threshold", "threshold": 2048}


@pytest.mark.parametrize("file", ["llama-3.3-70b.yaml", "qwen.yaml"])
def test_a_release_of_the_set_may_be_named_after_any_file(
    helm4: Helm, tmp_path: Path, file: str
) -> None:
    """Argo CD's functions here are Helm's, too; filenameNormalized leaves a-z, 0-9, - and dots."""
    example = yaml.safe_load((ROOT / "values/argocd/applicationset.yaml").read_text("utf-8"))
    name = example["spec"]["template"]["metadata"]["name"].replace(".path.", ".Values.path.")
    (tmp_path / "Chart.yaml").write_text("{apiVersion: v2, name: names, version: 0.1.0}", "utf-8")
    (tmp_path / "templates").mkdir()
    (tmp_path / "templates" / "name.yaml").write_text(f"name: {name}", "utf-8")
    command = [BIN / "helm4", "template", tmp_path, "--set-string"]
    value = f"path.filenameNormalized={file}"
    done = subprocess.run([*command, value], capture_output=True, text=True, check=True)
    release = yaml.safe_load(done.stdout)["name"]
    assert helm4.render(None, release=release).one("Service", "-router")


def commands() -> list[str]:
    """The commands of the chart's README."""
    text = (CHART / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```bash\n(.*?)^```$", text, re.M | re.S)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    """A real OCI registry on this machine, empty."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([BIN / "registry", "-port", str(port)], stderr=subprocess.DEVNULL) as run:
        try:
            until = time.monotonic() + 10
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    assert time.monotonic() < until, "the registry does not start"
                    time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            run.terminate()


def test_the_commands_of_its_readme_work(registry: str, tmp_path: Path) -> None:
    lines = [line for line in commands() if line.startswith("helm ")]
    assert len(lines) == 5
    plain = {"push": ["--plain-http"], "install": ["--plain-http"]}
    for line in lines:
        line = line.replace("registry.example.com", registry).replace("/tmp", str(tmp_path))
        _helm, verb, *rest = shlex.split(line)
        far = any(word.startswith("oci://") for word in rest)
        installs = verb in ("install", "upgrade")  # there is no cluster to install into
        shown = "template" if installs else verb
        command = [BIN / "helm4", shown, *rest, *(plain[verb] if far else [])]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}: {done.stderr}"
        if installs:
            assert "name: dpd-router" in done.stdout
    assert (tmp_path / f"dpd-{VERSION}.tgz").exists()


def test_a_number_is_handed_over_of_a_workload_that_the_autoscaler_then_owns(helm4: Helm) -> None:
    (handover,) = [line for line in commands() if "kubectl" in line]
    (upgrade,) = [line for line in commands() if line.startswith("helm upgrade ")]
    words = shlex.split(upgrade)
    sets = [words[at : at + 2] for at, word in enumerate(words) if word in ("-f", "--set")]
    flags = [part for pair in sets for part in pair]
    flags[1] = str(ROOT / flags[1])
    manifests = helm4.render(None, *flags, release=words[2])
    held = yaml.safe_load(shlex.split(handover)[1])
    workload = manifests.workload("prefill")
    assert (held["apiVersion"], held["kind"]) == (workload["apiVersion"], workload["kind"])
    assert held["metadata"]["name"] == workload["metadata"]["name"]
    assert "replicas" not in workload["spec"]
    autoscaler = manifests.one("HorizontalPodAutoscaler", "-prefill")
    assert held["spec"] == {"replicas": autoscaler["spec"]["minReplicas"]}
    # kubectl takes every flag, up to the server that is not there.
    line = f"export PATH={BIN}:$PATH; {handover} --server=http://127.0.0.1:9"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True)
    assert done.returncode != 0
    assert "refused" in done.stderr, done.stderr
