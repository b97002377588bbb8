"""Rendered in which every field of the CRD is set."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIELDS = dict(
    line.split("\t")
    for line in (Path(__file__).parent / "fields.tsv").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
)

_SELECTOR = {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a"]}]}
_PAIRS = {"requests": {"cpu": "90", "memory": "1000Gi"}, "limits": {"nvidia.com/gpu": "8"}}

# Fields that take more than any text, number, list or map.
_GIVEN: dict[str, Any] = {
    "modelName": "Some-Model",
    "instanceType": "ml.p5.48xlarge",
    "instanceTypes": ["ml.p5.48xlarge", "ml.p5e.48xlarge"],
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [_SELECTOR]}
    },
    "kubernetes.initContainers": [{"name": "first", "image": "example.com/a:1"}],
    "kubernetes.volumes": [
        {"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}},
        {"name": "more", "emptyDir": {}},
    ],
    "kvCacheSpec.l2CacheSpec.l2CacheBackend": "redis",
    "kvCacheSpec.l2CacheSpec.l2CacheLocalUrl": "redis://redis:6379",
    "loadBalancer.healthCheckPath": "/health",
    "modelSourceConfig.fsxStorage.fileSystemId": "fs-0123456789abcdef0",
    "modelSourceConfig.fsxStorage.dnsName": "fs.example.com",
    "modelSourceConfig.fsxStorage.mountName": "m1",
    "modelSourceConfig.huggingFaceModel.modelId": "someone/some-model",
    "modelSourceConfig.s3Storage.bucketName": "some-bucket",
    "modelSourceConfig.s3Storage.region": "us-west-2",
    "pdSpec.prefillSpec.args": ["--enforce-eager"],
    "pdSpec.prefillSpec.nodeSelector": {"pool": "a"},
    "pdSpec.prefillSpec.replicas": 1,
    "pdSpec.prefillSpec.resources": _PAIRS,
    "pdSpec.decodingSpec.args": ["--max-num-seqs=8"],
    "pdSpec.decodingSpec.nodeSelector": {"pool": "b"},
    "pdSpec.decodingSpec.replicas": 1,
    "pdSpec.decodingSpec.resources": _PAIRS | {"requests": {"cpu": "80", "memory": "1000Gi"}},
    "pdSpec.routingThreshold": 2000,
    "pdSpec.topologySpec.availabilityZone": "us-west-2b",
    "tags[].name": "team",
    "tags[].value": "search",
    "tlsConfig.customCertificateConfig.domainName": "llm.example.com",
    "worker.args": ["/opt/ml/model", "--tensor-parallel-size=8"],
    "worker.command": ["/opt/venv/bin/vllm", "serve"],
    "worker.environmentVariables[].name": "SOME_NAME",
    "worker.environmentVariables[].value": "some value",
    "worker.image": "example.com/vllm:1",
    "worker.modelInvocationPort.containerPort": 8081,
    "worker.modelVolumeMount.mountPath": "/opt/ml/model",
    "worker.modelVolumeMount.name": "weights",
    "worker.probes": {"livenessProbe": {"httpGet": {"path": "/health", "port": 8081}}},
    "worker.resources": _PAIRS,
}
_ANY = {"string": "text", "integer": 7, "number": 2.5, "boolean": True, "object": {}, "array": []}

# Fields of which a manifest has one at a time, and what each choice leaves out.
_TRIGGERS = ("cloudWatchTrigger", "prometheusTrigger")
CHOICES: dict[str, tuple[str, tuple[str, ...]]] = {
    "s3, one type": ("s3", ("instanceTypes", "nodeAffinity", *(f"{t}List" for t in _TRIGGERS))),
    "fsx, types": ("fsx", ("instanceType", "nodeAffinity", *_TRIGGERS)),
    "hub, affinity": ("huggingface", ("instanceType", "instanceTypes", *_TRIGGERS)),
    "volume": ("kubernetesVolume", ("instanceTypes", "nodeAffinity", *_TRIGGERS)),
}


def filled(choice: str) -> dict[str, Any]:
    """A manifest with every field that the choice allows."""
    source, without = CHOICES[choice]
    spec: dict[str, Any] = {}
    for path, kind in FIELDS.items():
        parts = path.split(".")
        if any(part.removesuffix("[]") in without for part in parts):
            continue
        if path == "worker.environmentVariables[].valueFrom":
            continue  # a variable has a value or this
        value = _GIVEN.get(path, _ANY[kind])
        _put(spec, parts, source if path.endswith("modelSourceType") else copy.deepcopy(value))
    return {
        "apiVersion": "inference.sagemaker.aws.amazon.com/v1",
        "kind": "InferenceEndpointConfig",
        "metadata": {"name": "filled"},
        "spec": spec,
    }


def _put(place: dict[str, Any], parts: list[str], value: Any) -> None:
    """Set a field, and the maps and lists above it."""
    for part in parts[:-1]:
        if part.endswith("[]"):
            items = place.setdefault(part[:-2], [])
            if not items:
                items.append({})
            place = items[0]
        else:
            place = place.setdefault(part, {})
    place.setdefault(parts[-1], value)


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every text, number and truth value in a manifest, with the keys that lead to it."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield from leaves(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from leaves(part, (*path, index))
    else:
        yield path, value


def with_changed(manifest: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """A copy of a manifest with another value in one place."""
    changed = copy.deepcopy(manifest)
    place: Any = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return changed
