"""What the report says of values that could be taken for something else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Convert
from .rendering import Helm

ENVIRONMENT = "spec.worker.environmentVariables"
ROLES = {"prefill": "prefillSpec", "decode": "decodingSpec"}


def variable(name: str, value: str) -> dict[str, Any]:
    return {"name": name, "value": value}


def carried(convert: Convert, path: str) -> list[str]:
    """What the report says that a field became."""
    lines = convert().section("Carried over:")
    return [line.partition(" -> ")[2] for line in lines if line.startswith(f"  {path} -> ")]


def test_of_a_variable_given_twice_the_last_counts_and_the_others_are_said(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["environmentVariables"] = [
        variable("PYTHONHASHSEED", "1"),
        variable("VLLM_LOGGING_LEVEL", "DEBUG"),
        variable("VLLM_LOGGING_LEVEL", "INFO"),
        variable("AWS_SECRET_ACCESS_KEY", "abc"),
        {"name": "AWS_SECRET_ACCESS_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
        variable("PYTHONHASHSEED", "2"),
    ]
    converted = convert()
    for value in ('{"name": "PYTHONHASHSEED", "value": "1"}', "AWS_SECRET_ACCESS_KEY"):
        assert "Kubernetes takes the last" in converted.reason(ENVIRONMENT, value)
    assert "DEBUG" in converted.report and "abc" not in converted.report
    found = helm.render(converted.text).container("decode")["env"]
    assert len({one["name"] for one in found}) == len(found)
    values = {one["name"]: one.get("value") for one in found}
    assert (values["PYTHONHASHSEED"], values["VLLM_LOGGING_LEVEL"]) == ("2", "INFO")


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ([variable("PYTHONHASHSEED", "0")], "model.hashSeed (the default)"),
        ([variable("PD_BUFFER_SIZE", "8589934592")], "kvTransfer.bufferSize (the default)"),
        (
            [variable("A", "1"), variable("PD_BUFFER_SIZE", "8388608")],
            "engines.env, kvTransfer.buff",
        ),
        ([variable("HF_ENDPOINT", "http://hub")], "engines.env, router.env"),
        (
            [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
            "model.source.huggingFace.tokenSecret",
        ),
    ],
)
def test_the_environment_became_what_it_holds_and_nothing_else(
    convert: Convert, spec: dict[str, Any], variables: list[dict[str, Any]], said: str
) -> None:
    spec["modelSourceConfig"] = {
        "modelSourceType": "huggingface",
        "huggingFaceModel": {"modelId": "Qwen/Qwen3-32B"},
    }
    spec["worker"]["environmentVariables"] = variables
    (line,) = carried(convert, ENVIRONMENT)
    assert line.startswith(said) and ("(the default)" in line) == ("(the default)" in said)


def test_a_seed_that_is_no_number_is_not_said_to_be_the_default(
    convert: Convert, spec: dict[str, Any]
) -> None:
    for seed in ("random", "4294967296"):
        spec["worker"]["environmentVariables"] = [variable("PYTHONHASHSEED", seed)]
        assert carried(convert, ENVIRONMENT) == []


def test_growing_memory_is_left_out_as_the_chart_refuses_it(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    grows = variable("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")
    spec["worker"]["environmentVariables"] = [grows, variable("PYTORCH_ALLOC_CONF", "backend:a")]
    converted = convert()
    reason = converted.reason(ENVIRONMENT, json.dumps(grows))
    assert reason.startswith("remove expandable_segments")
    names = [one["name"] for one in helm.render(converted.text).container("prefill")["env"]]
    assert "PYTORCH_ALLOC_CONF" in names and "PYTORCH_CUDA_ALLOC_CONF" not in names


def test_a_grpc_probe_is_left_out_since_engines_speak_http(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["probes"] = {"livenessProbe": {"grpc": {"port": 8081}}}
    converted = convert()
    assert "engines speak HTTP" in converted.reason(
        "spec.worker.probes.livenessProbe", '{"grpc": {"port": 8081}}'
    )
    assert carried(convert, "spec.worker.probes") == []
    probe = helm.render(converted.text).container("decode")["livenessProbe"]
    assert probe["httpGet"] == {"path": "/health", "port": "http"}


def test_instance_types_that_the_chart_does_not_know_are_named(
    convert: Convert, spec: dict[str, Any]
) -> None:
    assert "does not know" not in convert().notes()
    spec["instanceType"] = "ml.p9.96xlarge"
    assert "the chart does not know ml.p9.96xlarge: " in convert().notes()


@pytest.mark.parametrize(
    ("size", "prefill", "decode", "said"),
    [
        (8, 8, 8, []),
        (4, 8, 4, ["a prefill engine is split over 4 GPUs", "asks for 8 a pod: the chart refuses"]),
        (16, 8, 8, ["a decode engine is split over 16 GPUs", "asks for 8 a pod: it spans 2 nodes"]),
        (8, 4, 8, ["a prefill engine is split over 8 GPUs", "asks for 4 a pod: the chart refuses"]),
    ],
)
def test_a_split_over_other_gpus_than_a_pod_asks_for_is_said(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    size: int,
    prefill: int,
    decode: int,
    said: list[str],
) -> None:
    spec["worker"]["args"] = ["/opt/ml/model", f"--tensor-parallel-size={size}"]
    for role, gpus in (("prefill", prefill), ("decode", decode)):
        spec["pdSpec"][ROLES[role]]["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    converted = convert()
    assert all(part in converted.notes() for part in said)
    assert ("split over" in converted.notes()) == bool(said)
    if any("refuses" in part for part in said):
        assert f"model.tensorParallelSize: {size} needs" in helm.refusal(converted.text)
    elif not said:
        helm.render(converted.text)
