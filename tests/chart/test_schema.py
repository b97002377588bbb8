"""Which values the schema takes and refuses, and whether a refusal names the place."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from .conftest import CHART, ROOT, Helm, Values

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

# The place and the value there.
BAD: list[tuple[str, Any]] = [
    # A08: misspelt, outdated and unknown keys
    ("prefil", {}),
    ("lmcache", {"pd_peer_init_ports": [7300]}),
    ("args", ["--max-num-seqs=16"]),
    ("env", []),
    ("resources", {}),
    ("volumes", []),
    ("hfTokenSecret", "x"),
    ("model.nam", "x"),
    ("model.path", "/models"),
    ("model.source.type", "gcs"),
    ("model.source.s3.buckett", "x"),
    ("image.registry", "example.com"),
    ("engines.arg", []),
    ("engines.shm.sizeLimit", "1Gi"),
    ("engines.autoscaling.enabled", True),
    ("engines.autoscaling.cpuPercent", 50),
    ("engines.tensorParallelSize", 8),
    ("prefill.tensorParalelSize", 8),
    ("prefill.resources.limit", {}),
    ("router.thresold", 4096),
    ("router.timeouts.transferSecond", 1),
    ("router.engines.encode", []),
    ("router.autoscaling.queueDepth", 4),
    ("kvTransfer.ports.handshake", 7300),
    ("cache.l1.size", 10),
    ("cache.l3", {}),
    ("placement.sameAZ", True),
    ("networkPolicy.ingress", []),
    # Numbers and names that cannot be
    ("model.name", ""),
    ("model.name", "two words"),
    ("model.name", "--port=1"),
    ("model.maxLen", "16k"),
    ("model.maxLen", 0),
    ("model.dtype", "fp8"),
    ("model.tensorParallelSize", 0),
    ("model.tensorParallelSize", "8"),
    ("model.pipelineParallelSize", 0),
    ("model.revision", 1234567),
    ("model.shape.layers", 0),
    ("model.source.path", "/absolute"),
    ("model.source.huggingFace.tokenSecret", "hf-token"),
    ("model.source.huggingFace.cacheHostPath", "mnt/hf"),
    ("model.source.s3.bucket", "s3://bucket"),
    ("model.source.s3.access", "csi"),
    ("model.source.fsx.fileSystemId", "0123"),
    ("model.source.image.pullPolicy", "Sometimes"),
    ("image.tag", True),
    ("router.image.tag", "two words"),
    ("image.digest", "latest"),
    ("image.pullPolicy", "Sometimes"),
    ("instanceTypes.0", "P5"),
    ("instanceTypes", "ml.p5.48xlarge"),
    ("engines.replicas", -1),
    ("engines.drainSeconds", 1.5),
    ("engines.hostIPC", "yes"),
    ("engines.shm.size", "lots"),
    ("engines.autoscaling.type", "vpa"),
    ("engines.autoscaling.queueDepth", 0),
    ("engines.strategy.type", "Surge"),
    ("engines.topologySpreadConstraints.0", {"topologyKey": "zone"}),
    ("engines.serviceAccount.name", "Not_A_Name"),
    ("engines.startupProbe.successThreshold", 2),
    ("decode.livenessProbe.successThreshold", 3),
    ("router.readinessProbe.terminationGracePeriodSeconds", 30),
    ("engines.readinessProbe.periodSeconds", 0),
    ("prefill.readinessProbe.timeoutSeconds", 0),
    ("decode.readinessProbe.failureThreshold", 0),
    ("router.readinessProbe.successThreshold", 0),
    ("prefill.replicas", -1),
    ("prefill.replicas", "two"),
    ("decode.args.0", 16),
    ("decode.args", "--max-num-seqs=16"),
    ("engines.env.0.value", 1),
    ("engines.env.0", {"value": "no name"}),
    ("engines.env.0", {"name": "A", "secretKeyRef": {"name": "s", "key": "k"}}),
    ("prefill.env.0", {"name": "A", "configMapKeyRef": {"name": "s", "key": "k"}}),
    ("engines.env.0", {"name": "A", "valueFrom": {"secretRef": {"name": "s"}}}),
    ("engines.env", {"A": "b"}),
    # Kubernetes takes texts alone, here as in the chart's own containers.
    ("engines.sidecars.0", {"name": "s", "image": "i", "args": [8080]}),
    ("prefill.sidecars.0.env.0.value", 1),
    ("decode.sidecars.0.image", 5),
    ("router.sidecars.0.imagePullPolicy", "always"),
    ("engines.initContainers.0.ports.0.containerPort", "80"),
    ("prefill.initContainers.0.resources.limits.memory", "1Gib"),
    ("decode.sidecars.0", {"name": "a", "image": "i", "volumeMounts": [{"name": "no-path"}]}),
    ("router.sidecars.0", {"name": "no-image"}),
    ("decode.initContainers.0.command.0", True),
    ("router.initContainers.0.env.0.value", True),
    ("engines.envFrom.0", {"secretKeyRef": {"name": "s"}}),
    ("prefill.resources.limits.nvidia.com/gpu", 0.5),
    ("prefill.resources.limits.memory", "lots"),
    ("prefill.resources.claims.0", {"request": "no name"}),
    ("decode.resources.claims.0", {"name": "gpus", "requests": "gpu"}),
    ("decode.resourceClaims.0", {"resourceClaimName": "no name"}),
    ("router.resourceClaims.0", {"name": "Not a name"}),
    ("router.threshold", -1),
    # A04: no whole number
    ("router.threshold", 4096.5),
    ("router.threshold", "4096"),
    ("router.mode", "sometimes"),
    ("router.timeouts.transferSeconds", 0),
    ("router.engines.decode.0", "http://decode:8000"),
    ("router.engines.decode.0", "decode"),
    ("router.service.port", 70000),
    ("router.ingress.enabled", "yes"),
    ("router.httpRoute.hostnames.0", "https://x"),
    ("kvTransfer.backend", "libfabric"),
    # A03: a size with a suffix
    ("kvTransfer.bufferSize", "2Gi"),
    ("kvTransfer.bufferSize", "2147483648"),
    ("kvTransfer.bufferSize", 0),
    ("kvTransfer.bufferDevice", "gpu"),
    ("kvTransfer.chunkSize", 100),
    ("kvTransfer.ports.init", 80),
    ("kvTransfer.ports.init", [7300, 7301]),
    ("kvTransfer.pullTimeoutSeconds", 19),
    ("cache.l1.sizeGiB", 0),
    ("cache.l2.type", "s3"),
    ("placement.sameZone", "yes"),
    ("placement.zone", 2),
    ("placement.networkNodeLayer", 5),
    ("placement.placementGroup.label", "two words"),
    ("placement.instanceGroups.0", "two words"),
    ("networkPolicy.enabled", "yes"),
    ("prometheusAddress", "prometheus:9090"),
    ("commonLabels.team", 5),
    ("commonLabels.team", "two words"),
    ("commonLabels", {"-team": "a"}),
    ("commonAnnotations", {"two words": "a"}),
    ("decode.podLabels.team", "a" * 64),
    ("decode.podLabels", {"Example.com/team": "a"}),
    ("prefill.nodeSelector.pool", "a/b"),
    ("router.annotations", {"two words": "a"}),
    ("router.podAnnotations", {"a" * 64: "a"}),
    ("fullnameOverride", "Not_A_Name"),
    ("enabled", "yes"),
]

GOOD: list[tuple[str, Any]] = [
    ("global", {"anything": {"of": ["the", "parent"]}}),
    ("enabled", True),
    ("model.tensorParallelSize", 8),
    ("model.shape", {"layers": 61, "headSize": 576, "mla": True}),
    ("image.tag", "1.10"),
    ("instanceTypes.0", "p5e.48xlarge"),
    ("prefill.replicas", None),
    ("prefill.replicas", 0),
    ("prefill.startupProbe", None),
    ("prefill.readinessProbe", {"successThreshold": 2, "a field of a later Kubernetes": 1}),
    ("router.livenessProbe", {"successThreshold": 1, "terminationGracePeriodSeconds": 30}),
    ("prefill.affinity", {"nodeAffinity": {"a field of a later Kubernetes": 1}}),
    ("prefill.resources.limits.vpc.amazonaws.com/efa", "32"),
    ("prefill.resources.requests.cpu", None),
    ("prefill.resources.claims.0", {"name": "gpus", "request": "gpu"}),
    ("prefill.resourceClaims.0", {"name": "gpus", "a field of a later Kubernetes": 1}),
    ("router.resourceClaims", None),
    ("decode.tolerations.0", {"key": "x", "operator": "Exists"}),
    (
        "decode.volumes.0",
        {"name": "v", "csi": {"driver": "s3.csi.aws.com", "volumeAttributes": {"a": "b"}}},
    ),
    ("decode.sidecars.0", {"name": "s", "image": "i", "a field of a later Kubernetes": 1}),
    (
        "router.sidecars.0",
        {
            "name": "s",
            "image": "i",
            "imagePullPolicy": "Always",
            "command": ["a"],
            "args": None,
            "env": [{"name": "A"}],
            "ports": [{"containerPort": 80, "protocol": "UDP"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v", "readOnly": True}],
        },
    ),
    ("engines.env.0", {"name": "A", "valueFrom": {"fileKeyRef": {"path": "x"}}}),
    ("engines.env.0", {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}),
    ("engines.envFrom.0", {"prefix": "A_", "configMapRef": {"name": "c", "optional": True}}),
    ("engines.shm.size", 17179869184),
    ("engines.podDisruptionBudget", {"minAvailable": "50%"}),
    ("engines.podDisruptionBudget", None),
    ("commonLabels", {"example.com/a.b_c-d": "A.b_c-9", "empty": ""}),
    ("commonAnnotations", {"argocd.argoproj.io/sync-options": "Prune=false"}),
    ("router.annotations", {"example.com/a": "any text: {}"}),
    ("kvTransfer.pullTimeoutSeconds", 20),
    ("securityContext.runAsUser", None),
    ("podSecurityContext", {"sysctls": [{"name": "a", "value": "b"}]}),
    ("router.threshold", 0),
    ("router.timeouts.connectSeconds", 0.5),
    ("router.engines.prefill.0", "[fd00::1]:8000"),
    ("router.engines.prefill.0", "10.0.0.1:8000"),
    ("router.httpRoute.hostnames.0", "*.example.com"),
    ("kvTransfer.bufferSize", 34359738368),
    ("cache.l1.sizeGiB", 0.5),
    ("networkPolicy.clients.0", {"ipBlock": {"cidr": "10.0.0.0/8"}}),
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


def batches() -> list[list[tuple[str, Any]]]:
    """The wrong values in as few groups as fit into one values file each."""
    groups: list[list[tuple[str, Any]]] = []
    for place, value in BAD:
        for group in groups:
            if not any(
                f"{a}.".startswith(f"{b}.") for x, _ in group for a, b in ((x, place), (place, x))
            ):
                group.append((place, value))
                break
        else:
            groups.append([(place, value)])
    return groups


BATCHES = batches()


@pytest.mark.parametrize(("place", "value"), BAD, ids=lambda it: str(it))
def test_a_wrong_value_is_refused_with_its_path(helm: Helm, place: str, value: Any) -> None:
    *above, last = parts(place)
    (batch,) = [group for group in BATCHES if (place, value) in group]
    values: Values = {}
    for other in batch:
        values = merged(values, nest(*other))
    error = helm.refusal(values)
    assert "values don't meet the specifications of the schema" in error
    if helm.program.name == "helm3":  # writes a.b.c, and an unknown key beside its parent
        at, below = ".".join([*above, last]), f"{'.'.join(above) or '(root)'}: "
    else:  # writes /a/b/c, with / in a key as ~1
        at = "'" + "".join("/" + key.replace("/", "~1") for key in [*above, last])
        below = f"at '{'/' if above else ''}{'/'.join(above)}': "
    lines = error.splitlines()
    assert any(at in line or (below in line and last in line) for line in lines), error


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


def test_the_schema_needs_no_other_document() -> None:  # A09
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
    assert sorted(passed_through) == sorted(
        [
            "/definitions/containers/items",
            "/definitions/containers/items/properties/ports/items",
            "/definitions/probe",
            "/definitions/readinessProbe",
            "/definitions/resourceClaims/items",
            "/definitions/spread/items",
            "/definitions/volumes/items",
            "/definitions/volumeMounts/items",
        ]
    )


TOP = "|".join(key for key in SCHEMA["properties"] if key not in ("global", "enabled"))
KEY = re.compile(rf"(?<![\w./$-])(?:{TOP})(?:\.[A-Za-z]\w*)+")


def named_keys(path: Path) -> set[str]:
    """The keys of values that a document or a message of the chart names."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".tpl":  # not the code around the messages
        text = "\n".join(re.findall(r'"(?:\\.|[^"\\])*"', text))
    if path.suffix == ".md":
        text = "\n".join(re.findall(r"`([^`]+)`", text))
    return set(KEY.findall(text))


def schema_of(key: str) -> Any:
    """The schema of a key, or of the Kubernetes object that it lies in; None if there is none."""
    place = SCHEMA
    for part in key.split("."):
        while "$ref" in place:
            place = SCHEMA["definitions"][place["$ref"].rsplit("/", 1)[1]]
        if "properties" not in place:
            return place
        found = place["properties"].get(part)
        if found is None:
            return place if place.get("additionalProperties") is True else None
        place = found
    return place


@pytest.mark.parametrize(
    "path",
    [
        ROOT / "README.md",
        CHART / "README.md",
        CHART / "templates" / "NOTES.txt",
        CHART / "files" / "flags.yaml",
        CHART / "files" / "environment.yaml",
        *sorted((CHART / "templates").glob("_validate*.tpl")),
    ],
    ids=lambda path: path.name,
)
def test_every_key_that_is_named_to_a_user_exists(path: Path) -> None:
    keys = named_keys(path)
    assert [key for key in sorted(keys) if schema_of(key) is None] == []
    # The one has no messages but of the others, the others put the keys together.
    together = ("_validate-containers.tpl", "_validate-kubernetes.tpl")
    assert keys or path.name in ("_validate.tpl", *together)


def test_a_key_that_does_not_exist_would_be_noticed() -> None:
    assert KEY.findall("see `router.thresold`, or $model.name") == ["router.thresold"]
    assert schema_of("router.thresold") is None
    assert schema_of("engines.resources.limits") is not None
    assert schema_of("prefill.startupProbe.httpGet.path") is not None
