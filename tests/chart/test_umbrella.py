"""The chart as a dependency of another (A07)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm


@pytest.fixture
def umbrella(tmp_path: Path) -> Path:
    """A chart that depends on dpd, on a condition."""
    folder = tmp_path / "umbrella"
    shutil.copytree(CHART, folder / "charts" / "dpd")
    dependency = {"name": "dpd", "version": ">=0.0.0-0", "condition": "dpd.enabled"}
    chart = {
        "apiVersion": "v2",
        "name": "umbrella",
        "version": "1.0.0",
        "dependencies": [dependency],
    }
    (folder / "Chart.yaml").write_text(json.dumps(chart), encoding="utf-8")
    return folder


def write(umbrella: Path, values: Any) -> None:
    """Write the parent chart's own values."""
    (umbrella / "values.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")


@pytest.mark.parametrize(
    "values",
    [{}, {"global": {"x": 1}, "dpd": {"global": {"y": [2]}}}, {"dpd": {"enabled": True}}],
    ids=str,
)
def test_it_renders_as_it_does_alone(helm: Helm, umbrella: Path, values: Any) -> None:
    write(umbrella, values)
    assert helm.render(chart=umbrella) == helm.render()


def test_it_can_be_switched_off(helm: Helm, umbrella: Path) -> None:
    write(umbrella, {"dpd": {"enabled": False}})
    assert helm.render(chart=umbrella) == {}


def test_an_unknown_key_is_still_refused(helm: Helm, umbrella: Path) -> None:
    write(umbrella, {"dpd": {"prefil": {}}})
    assert "prefil" in helm.refusal(chart=umbrella)


def test_large_numbers_of_the_parent_keep_their_digits(helm: Helm, umbrella: Path) -> None:
    write(umbrella, {"dpd": {"kvTransfer": {"bufferSize": 34359738368, "bufferDevice": "cpu"}}})
    assert helm.render(chart=umbrella).config("decode")["pd_buffer_size"] == 34359738368


def test_a_null_takes_a_default_away(helm: Helm, umbrella: Path) -> None:
    write(umbrella, {})
    manifests = helm.render({"dpd": {"decode": {"startupProbe": None}}}, chart=umbrella)
    assert "startupProbe" not in manifests.container("decode")
    assert "startupProbe" in manifests.container("prefill")


def test_a_null_in_the_parents_own_values_leaves_no_hole(helm: Helm, umbrella: Path) -> None:
    write(umbrella, {"dpd": {"decode": {"startupProbe": None}}})
    probe = helm.render(chart=umbrella).container("decode").get("startupProbe")
    # Helm 4 forgets such nulls (A10), so that the default stays.
    assert probe == (
        None if helm.program.name == "helm3" else helm.render().container("decode")["startupProbe"]
    )


@pytest.mark.parametrize(
    ("aliases", "release"),
    [
        (("large", "small"), "demo"),
        # Both are in the release's name, in which the chart's own would be enough.
        (("a", "b"), "labs"),
    ],
)
def test_two_models_in_one_release_keep_apart(
    helm: Helm, umbrella: Path, aliases: tuple[str, str], release: str
) -> None:
    chart = json.loads((umbrella / "Chart.yaml").read_text(encoding="utf-8"))
    dependency = {"name": "dpd", "version": ">=0.0.0-0"}
    chart["dependencies"] = [{**dependency, "alias": alias} for alias in aliases]
    (umbrella / "Chart.yaml").write_text(json.dumps(chart), encoding="utf-8")
    write(umbrella, {aliases[1]: {"model": {"name": "Qwen/Qwen3-8B"}}})
    manifests = helm.render(
        chart=umbrella, release=release
    )  # which fails if two objects have one name
    pods = {
        name: manifest["spec"]["template"]["metadata"]["labels"].items()
        for (kind, name), manifest in manifests.items()
        if kind == "Deployment"
    }
    assert len(pods) == 6
    for (kind, name), manifest in manifests.items():
        if kind == "Service":
            chosen = manifest["spec"]["selector"].items()
            assert [pod for pod, labels in pods.items() if chosen <= labels] == [name]
