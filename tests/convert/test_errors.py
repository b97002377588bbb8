"""Input that cannot be converted: the message names the fault and the way out."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpd_convert import (
    ConvertError,
    Manifest,
    comment,
    convert,
    read_chart,
    report,
    to_yaml,
    trimmed,
)
from dpd_convert.__main__ import main
from dpd_local.places import ROOT

from .conftest import SAMPLE, Convert
from .filled import CHOICES, filled, leaves, with_changed

Refusal = Callable[..., str]


def test_text_that_is_not_yaml(refusal: Refusal) -> None:
    message = refusal("a: [1\nb: 2")
    assert message.startswith("FILE is not YAML: ") and message.endswith("; correct it there")


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", "nothing"),
        ("kind: Deployment\nmetadata: {name: a}", "Deployment"),
        ("kind: Service\n---\njust: this", 'Service, a document without kind ({"just": "this"})'),
    ],
)
def test_no_manifest_of_the_kind(refusal: Refusal, text: str, found: str) -> None:
    assert refusal(text) == (
        f"FILE has no InferenceEndpointConfig, but {found}; give a manifest of that kind"
    )


def test_several_manifests(refusal: Refusal, manifest: dict[str, Any]) -> None:
    other = copy.deepcopy(manifest)
    other["metadata"]["name"] = "second"
    assert refusal(yaml.safe_dump_all([manifest, other])) == (
        "FILE has 2 of kind InferenceEndpointConfig (llama33-70b-dpd, second); give each in a "
        "file of its own, since each becomes a release of its own"
    )


def test_other_documents_beside_the_one_are_named(
    manifest: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = {"kind": "Secret", "metadata": {"name": "hub"}}
    for documents in ([secret, manifest], [{"kind": "List", "items": [manifest, secret]}]):
        file = tmp_path / "all.yaml"
        file.write_text(yaml.safe_dump_all(documents), encoding="utf-8")
        assert main([str(file)]) == 0
        assert "also has Secret hub, which the chart does not make" in capsys.readouterr().err


def test_a_manifest_of_another_group(refusal: Refusal, manifest: dict[str, Any]) -> None:
    manifest["apiVersion"] = "example.com/v1"
    assert refusal() == (
        "FILE: apiVersion is example.com/v1, but an InferenceEndpointConfig of HyperPod has "
        "inference.sagemaker.aws.amazon.com/v1; correct it, or give another manifest"
    )


@pytest.mark.parametrize("missing", ["absent", None, {}])
def test_a_manifest_without_pd_spec(refusal: Refusal, spec: dict[str, Any], missing: Any) -> None:
    spec["pdSpec"] = missing
    if missing == "absent":
        del spec["pdSpec"]
    message = refusal()
    assert message.startswith("FILE: spec.pdSpec is missing, so this endpoint has no prefill")
    assert message.endswith("Add a pdSpec with prefillSpec and decodingSpec first")


@pytest.mark.parametrize(
    "path",
    [
        "modelName",
        "modelSourceConfig.modelSourceType",
        "modelSourceConfig.s3Storage",
        "pdSpec.decodingSpec",
        "pdSpec.prefillSpec",
        "worker.image",
    ],
)
def test_what_the_crd_requires_is_missing(
    refusal: Refusal, spec: dict[str, Any], path: str
) -> None:
    *parents, last = path.split(".")
    place = spec
    for parent in parents:
        place = place[parent]
    del place[last]
    assert refusal() == (
        f"FILE: spec.{path} is missing, which an InferenceEndpointConfig must have; add it"
    )


@pytest.mark.parametrize("amount", ["15OOGi", "-1", True, [1]])
@pytest.mark.parametrize("name", ["memory", "hugepages-2Mi"])
def test_an_amount_that_is_none(
    refusal: Refusal, spec: dict[str, Any], name: str, amount: Any
) -> None:
    spec["pdSpec"]["decodingSpec"]["resources"]["requests"][name] = amount
    assert refusal() == (
        f"spec.pdSpec.decodingSpec.resources.requests.{name} is {amount!r}, which is no amount "
        "like 2, 500m or 64Gi; correct it"
    )


@pytest.mark.parametrize(
    ("path", "value", "shown"),
    [
        ("pdSpec.routingThreshold", "many", '"many", but must be of the kind integer'),
        ("pdSpec.routingThreshold", True, "true, but must be of the kind integer"),
        ("pdSpec.topologySpec", "near", '"near", but must be of the kind map'),
        ("worker.args", "--a", '"--a", but must be of the kind list'),
        ("kvCacheSpec.enableL1Cache", "yes", '"yes", but must be of the kind true or false'),
    ],
)
def test_a_value_of_another_kind(
    refusal: Refusal, spec: dict[str, Any], path: str, value: Any, shown: str
) -> None:
    *parents, last = path.split(".")
    place = spec
    for parent in parents:
        place = place[parent]
    place[last] = value
    assert refusal() == f"FILE: spec.{path} is {shown}; correct it"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("instanceType", "P5 x", 'spec.instanceType is "P5 x", which instanceTypes does'),
        ("modelName", "-a", 'spec.modelName is "-a", which model.name does'),
        ("pdSpec.routingThreshold", -1, "spec.pdSpec.routingThreshold is -1, which router.thre"),
    ],
)
def test_a_value_that_the_chart_would_refuse(
    refusal: Refusal, spec: dict[str, Any], path: str, value: Any, said: str
) -> None:
    *parents, last = path.split(".")
    place = spec
    for parent in parents:
        place = place[parent]
    place[last] = value
    message = refusal()
    assert message.startswith(f"FILE: {said}") and message.endswith("not take; correct it")


def test_a_source_that_the_crd_has_not(refusal: Refusal, spec: dict[str, Any]) -> None:
    spec["modelSourceConfig"]["modelSourceType"] = "gcs"
    assert refusal() == (
        "FILE: spec.modelSourceConfig.modelSourceType is gcs, but must be one of s3, fsx, "
        "huggingface, kubernetesVolume; correct it"
    )


def test_a_volume_that_is_not_there(refusal: Refusal, spec: dict[str, Any]) -> None:
    spec["modelSourceConfig"] = {"modelSourceType": "kubernetesVolume"}
    assert refusal() == (
        "FILE: spec.worker.modelVolumeMount.name is model-weights, but spec.kubernetes.volumes has "
        "no volume of that name; add it, or correct the name"
    )


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml cannot be read: No such file or directory; give a manifest" in (
        capsys.readouterr().err
    )


def test_a_file_that_is_not_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "binary"
    file.write_bytes(b"\xff\xfe\x00")
    assert main([str(file)]) == 1
    assert "is not text in UTF-8; give a manifest in YAML" in capsys.readouterr().err


def test_a_place_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAMPLE), "--output", str(tmp_path / "none" / "values.yaml")]) == 1
    assert "values.yaml cannot be written: No such file or directory" in capsys.readouterr().err


def test_a_folder_that_is_not_the_chart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(SAMPLE), "--chart", str(tmp_path)]) == 1
    assert "is not the dpd chart" in capsys.readouterr().err


def test_without_pyyaml_it_is_one_line() -> None:
    """Without its packages, as -S makes it, Python has none."""
    done = subprocess.run(
        [sys.executable, "-S", "-m", "dpd_convert", str(SAMPLE)],
        env={"PYTHONPATH": str(ROOT / "plugins" / "dpd-convert" / "src")},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "dpd_convert: this Python has no PyYAML; pip install pyyaml\n"
    readme = (ROOT / "plugins" / "dpd-convert" / "README.md").read_text(encoding="utf-8")
    assert "`pip install pyyaml`" in readme


def test_no_password_is_shown(convert: Convert, spec: dict[str, Any]) -> None:
    spec["kvCacheSpec"] = {
        "enableL2Cache": True,
        "l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": "redis://u:s3cret@r:1"},
    }
    converted = convert()
    assert "s3cret" not in converted.text + converted.report


CHART = read_chart()
FILLED = {choice: filled(choice) for choice in CHOICES}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.text(max_size=5),
    st.lists(st.text(max_size=3), max_size=2),
    st.dictionaries(st.text(max_size=3), st.none() | st.text(max_size=3), max_size=2),
)


@pytest.mark.parametrize("url", ["[", "redis://host:port"])
def test_an_address_that_is_none_is_said(url: str) -> None:
    place = ("spec", "kvCacheSpec", "l2CacheSpec", "l2CacheLocalUrl")
    told = []
    for manifest in FILLED.values():
        try:
            convert(Manifest("filled.yaml", with_changed(manifest, place, url)), CHART)
        except ConvertError as error:
            told.append(str(error))
    assert told
    assert all("l2CacheLocalUrl is no URL (" in each for each in told)


@given(data=st.data(), choice=st.sampled_from(list(CHOICES)), value=JUNK)
@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_is_wrong_it_is_said_in_words(
    data: st.DataObject, choice: str, value: Any
) -> None:
    """Any content of a field, or of a map or list above it, is converted or refused in words."""
    manifest = FILLED[choice]
    paths = [path for path, _ in leaves(manifest["spec"])]
    path = data.draw(st.sampled_from(paths))
    path = path[: data.draw(st.integers(1, len(path)))]
    try:
        changed = with_changed(manifest, ("spec", *path), value)
        conversion = convert(Manifest("filled.yaml", changed), CHART)
        values = trimmed(conversion.values, CHART.values)
        to_yaml(values, comment(conversion, "v.yaml"))
        report(conversion, values, "v.yaml")
    except ConvertError as error:
        assert len(str(error).split()) > 6
