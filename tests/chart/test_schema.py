"""Which values the schema takes and refuses, and whether a refusal names the place."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from .conftest import CHART, Helm, Values

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

# The place and the value there.
BAD: list[tuple[str, Any]] = [
    ("prefil", {}),
    ("lmcache", {"pd_peer_init_ports": [7300]}),
    ("model.nam", "x"),
    ("model.name", ""),
    ("model.name", "two words"),
    ("model.name", "--port=1"),
    ("model.maxLen", "16k"),
    ("model.maxLen", 0),
    ("model.dtype", "fp8"),
    ("model.tensorParallelSize", 0),
    ("model.tensorParallelSize", "8"),
    ("model.revision", 1234567),
    ("image.tag", 1.1),
    ("image.tag", 20260830),
    ("image.digest", "latest"),
    ("image.pullPolicy", "Sometimes"),
    ("image.registry", "example.com"),
    ("prefill.image.tag", 1.1),
    ("router.image.tag", 2220000.0),
    ("instanceTypes.0", "P5"),
    ("prefill.tensorParalelSize", 8),
    ("prefill.replicas", -1),
    ("prefill.replicas", "two"),
    ("decode.args.0", 16),
    ("decode.args", "--max-num-seqs=16"),
    ("env.0.value", 1),
    ("env.0", {"value": "no name"}),
    ("env.0", {"name": "A", "secretKeyRef": {"name": "s", "key": "k"}}),
    ("prefill.env.0", {"name": "A", "configMapKeyRef": {"name": "s", "key": "k"}}),
    ("env.0", {"name": "A", "valueFrom": {"secretRef": {"name": "s"}}}),
    ("env", {"A": "b"}),
    ("prefill.resources.limit", {}),
    ("prefill.resources.limits.nvidia.com/gpu", 0.5),
    ("prefill.resources.limits.memory", "lots"),
    ("router.thresold", 4096),
    ("router.threshold", -1),
    ("router.threshold", 4096.5),
    ("router.threshold", "4096"),
    ("router.mode", "sometimes"),
    ("router.timeouts.transferSecond", 1),
    ("router.timeouts.transferSeconds", 0),
    ("router.engines.decode.0", "http://decode:8000"),
    ("router.engines.decode.0", "decode"),
    ("router.service.port", 70000),
    ("kvTransfer.backend", "libfabric"),
    ("kvTransfer.bufferSize", "2Gi"),
    ("kvTransfer.bufferSize", "2147483648"),
    ("kvTransfer.bufferSize", 0),
    ("kvTransfer.bufferDevice", "gpu"),
    ("kvTransfer.chunkSize", 100),
    ("kvTransfer.ports.init", 80),
    ("kvTransfer.ports.init", [7300, 7301]),
    ("kvTransfer.ports.handshake", 7300),
    ("placement.sameAZ", True),
    ("placement.sameZone", "yes"),
    ("commonLabels.team", 5),
    ("commonLabels.team", "two words"),
    ("commonLabels", {"-team": "a"}),
    ("decode.podLabels.team", "a" * 64),
    ("decode.podLabels", {"Example.com/team": "a"}),
    ("prefill.nodeSelector.pool", "a/b"),
    ("router.annotations", {"two words": "a"}),
    ("router.podAnnotations", {"a" * 64: "a"}),
    ("kvTransfer.pullTimeoutSeconds", 19),
    ("fullnameOverride", "Not_A_Name"),
    ("enabled", "yes"),
]

GOOD: list[tuple[str, Any]] = [
    ("global", {"anything": {"of": ["the", "parent"]}}),
    ("enabled", True),
    ("model.tensorParallelSize", 8),
    ("image.tag", "1.10"),
    ("instanceTypes.0", "p5e.48xlarge"),
    ("prefill.replicas", None),
    ("prefill.replicas", 0),
    ("prefill.startupProbe", None),
    ("prefill.affinity", {"nodeAffinity": {"a field of a later Kubernetes": 1}}),
    ("prefill.resources.limits.vpc.amazonaws.com/efa", "32"),
    ("prefill.resources.requests.cpu", None),
    ("decode.tolerations.0", {"key": "x", "operator": "Exists"}),
    (
        "decode.volumes.0",
        {"name": "v", "csi": {"driver": "s3.csi.aws.com", "volumeAttributes": {"a": "b"}}},
    ),
    ("env.0", {"name": "A", "valueFrom": {"fileKeyRef": {"path": "x"}}}),
    ("env.0", {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
    ("commonLabels", {"example.com/a.b_c-d": "A.b_c-9", "empty": ""}),
    ("router.annotations", {"example.com/a": "any text: {}"}),
    ("kvTransfer.pullTimeoutSeconds", 20),
    ("securityContext.runAsUser", None),
    ("podSecurityContext", {"sysctls": [{"name": "a", "value": "b"}]}),
    ("router.threshold", 0),
    ("router.timeouts.connectSeconds", 0.5),
    ("router.engines.prefill.0", "[fd00::1]:8000"),
    ("router.engines.prefill.0", "10.0.0.1:8000"),
    ("kvTransfer.bufferSize", 34359738368),
]

# Keys that hold dots themselves.
DOTTED = {"nvidia.com/gpu", "vpc.amazonaws.com/efa"}


def parts(place: str) -> list[str]:
    """The keys of a place."""
    for name in DOTTED:
        if place.endswith(name):
            return [*place.removesuffix(f".{name}").split("."), name]
    return place.split(".")


def nest(place: str, value: Any) -> Values:
    """Values that hold one thing, at a place."""
    for key in reversed(parts(place)):
        value = [value] if key == "0" else {key: value}
    return value


def merged(defaults: Any, values: Any) -> Any:
    """Values over defaults, as Helm merges them, but for nulls."""
    if not (isinstance(defaults, dict) and isinstance(values, dict)):
        return values
    return {**defaults, **{key: merged(defaults.get(key), values[key]) for key in values}}


@pytest.mark.parametrize(("place", "value"), BAD, ids=lambda it: str(it))
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, place: str, value: Any) -> None:
    *above, last = parts(place)
    error = helm.refusal(nest(place, value))
    assert "values don't meet the specifications of the schema" in error
    if helm.program.name == "helm3":  # writes a.b.c, and an unknown key beside its parent
        at, below = ".".join([*above, last]), f"{'.'.join(above) or '(root)'}: "
    else:  # writes /a/b/c, with / in a key as ~1
        at = "".join("/" + key.replace("/", "~1") for key in [*above, last])
        below = f"at '{'/' if above else ''}{'/'.join(above)}': "
    assert at in error or (below in error and last in error), error


@pytest.mark.parametrize(("place", "value"), GOOD, ids=lambda it: str(it))
def test_a_good_value_is_taken(place: str, value: Any) -> None:
    # By the schema alone: not each of these fits the other values.
    errors = Draft7Validator(SCHEMA).iter_errors(merged(DEFAULTS, nest(place, value)))
    assert [error.message for error in errors] == []


@pytest.mark.parametrize(
    ("reference", "helm4_says", "helm3_says"),
    [
        (
            {"secretKeyRef": {"name": "s", "key": "k"}},
            "at '/decode/env/0': additional properties 'secretKeyRef' not allowed",
            "decode.env.0: Additional property secretKeyRef is not allowed",
        ),
        (
            {"configMapKeyRef": {"name": "s", "key": "k"}},
            "at '/decode/env/0': additional properties 'configMapKeyRef' not allowed",
            "decode.env.0: Additional property configMapKeyRef is not allowed",
        ),
        (
            {"valueFrom": {"secretKeyRef": {"name": "s"}}},
            "at '/decode/env/0/valueFrom/secretKeyRef': missing property 'key'",
            "decode.env.0.valueFrom.secretKeyRef: key is required",
        ),
        (
            {"valueFrom": {"secretKeyRef": {"key": "k"}}},
            "at '/decode/env/0/valueFrom/secretKeyRef': missing property 'name'",
            "decode.env.0.valueFrom.secretKeyRef: name is required",
        ),
    ],
)
def test_a_reference_in_an_environment_is_refused_in_these_words(
    helms: dict[str, Helm], reference: Values, helm4_says: str, helm3_says: str
) -> None:
    values = {"decode": {"env": [{"name": "A", **reference}]}}
    assert helm4_says in helms["helm4"].refusal(values)
    assert helm3_says in helms["helm3"].refusal(values)


@pytest.mark.parametrize(
    ("place", "value", "helm4_says", "helm3_says"),
    [
        (
            "decode.podLabels",
            {"-team": "a"},
            "at '/decode/podLabels': additional properties '-team' not allowed",
            "decode.podLabels: Additional property -team is not allowed",
        ),
        (
            "commonLabels.team",
            "two words",
            "at '/commonLabels/team': 'two words' does not match pattern ",
            "commonLabels.team: Does not match pattern ",
        ),
        (
            "router.annotations",
            {"two words": "a"},
            "at '/router/annotations': additional properties 'two words' not allowed",
            "router.annotations: Additional property two words is not allowed",
        ),
        (
            "kvTransfer.pullTimeoutSeconds",
            19,
            "at '/kvTransfer/pullTimeoutSeconds': minimum: got 19, want 20",
            "kvTransfer.pullTimeoutSeconds: Must be greater than or equal to 20",
        ),
    ],
)
def test_labels_and_times_are_refused_in_these_words(
    helms: dict[str, Helm], place: str, value: Any, helm4_says: str, helm3_says: str
) -> None:
    assert helm4_says in helms["helm4"].refusal(nest(place, value))
    assert helm3_says in helms["helm3"].refusal(nest(place, value))


def test_the_schema_needs_no_other_document() -> None:
    references = re.findall(r'"\$ref": "(.*?)"', json.dumps(SCHEMA))
    assert references
    assert all(
        re.fullmatch(r"#/definitions/\w+", r) and r.split("/")[2] in SCHEMA["definitions"]
        for r in references
    )


def test_every_map_that_lists_its_keys_takes_no_others() -> None:
    passed_through = []

    def walk(schema: Any, path: str) -> None:
        if isinstance(schema, dict):
            if (
                isinstance(schema.get("properties"), dict)
                and schema.get("additionalProperties") is not False
            ):
                passed_through.append(path)
            for key, part in schema.items():
                walk(part, f"{path}/{key}")
        elif isinstance(schema, list):
            for part in schema:
                walk(part, path)

    walk(SCHEMA, "")
    assert passed_through == [
        "/definitions/volumes/items",
        "/definitions/volumeMounts/items",
    ]
