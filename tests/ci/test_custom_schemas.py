"""Custom resources are checked as strictly as Kubernetes' own objects."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from dpd_ci.artefacts import kubeconform_flags, kubernetes_versions
from dpd_ci.cache import cache_root
from dpd_ci.custom_schemas import json_schemas, strict

SCALED: dict[str, Any] = {
    "apiVersion": "keda.sh/v1alpha1",
    "kind": "ScaledObject",
    "metadata": {"name": "a", "labels": {"b": "c"}},
    "spec": {
        "scaleTargetRef": {"name": "a"},
        "minReplicaCount": 0,
        "triggers": [{"type": "prometheus", "metadata": {"threshold": "4"}}],
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {}}}},
    },
}
ROUTE: dict[str, Any] = {
    "apiVersion": "gateway.networking.k8s.io/v1",
    "kind": "HTTPRoute",
    "metadata": {"name": "a"},
    "spec": {
        "parentRefs": [{"name": "gateway"}],
        "rules": [{"backendRefs": [{"name": "router", "port": 80}], "timeouts": {"request": "0s"}}],
    },
}
POD: dict[str, Any] = {
    "containers": [{"name": "a", "image": "b", "ports": [{"containerPort": 8000}]}]
}
SET: dict[str, Any] = {
    "apiVersion": "leaderworkerset.x-k8s.io/v1",
    "kind": "LeaderWorkerSet",
    "metadata": {"name": "a"},
    "spec": {
        "leaderWorkerTemplate": {"size": 2, "workerTemplate": {"spec": POD}},
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {"maxUnavailable": "50%"},
        },
    },
}
APPLICATION: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "Application",
    "metadata": {"name": "a"},
    "spec": {
        "project": "default",
        "destination": {"namespace": "a", "server": "https://kubernetes.default.svc"},
        "source": {
            "repoURL": "https://example.com/a.git",
            "helm": {"valuesObject": {"any": {"key": 1}}},
        },
    },
}
APPLICATIONS: dict[str, Any] = {
    "apiVersion": "argoproj.io/v1alpha1",
    "kind": "ApplicationSet",
    "metadata": {"name": "a"},
    "spec": {
        "generators": [{"list": {"elements": [{"model": "a"}]}}],
        "template": {"metadata": {"name": "{{.model}}"}, "spec": APPLICATION["spec"]},
    },
}


def conforms(version: str, manifest: dict[str, Any], folder: Path) -> tuple[bool, str]:
    """Whether kubeconform, called as `make test` does, takes a manifest; and what it says."""
    file = folder / "manifest.yaml"
    file.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    program = cache_root() / "bin" / "kubeconform"
    command = [program, *kubeconform_flags(cache_root(), version), file]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode == 0, done.stdout + done.stderr


def changed(manifest: Any, path: str, value: Any) -> Any:
    """A copy in which the value at a dotted path is another."""
    key, _, rest = path.partition(".")
    if isinstance(manifest, list):
        return [changed(manifest[0], rest, value) if rest else value, *manifest[1:]]
    inner = changed(manifest.get(key, {}), rest, value) if rest else value
    return {**manifest, key: inner}


@pytest.mark.parametrize("version", kubernetes_versions())
@pytest.mark.parametrize(
    "manifest", [SCALED, ROUTE, SET, APPLICATION, APPLICATIONS], ids=lambda it: it["kind"]
)
def test_a_right_custom_resource_is_taken(
    version: str, manifest: dict[str, Any], tmp_path: Path
) -> None:
    taken, says = conforms(version, manifest, tmp_path)
    assert taken and "Valid: 1" in says, says


@pytest.mark.parametrize(
    ("manifest", "path", "value", "names"),
    [
        (SCALED, "spec.minReplicas", 1, "minReplicas"),
        (SCALED, "spec.triggers.0.metadata", {"threshold": 4}, "threshold"),
        (SCALED, "spec.scaleTargetRef", {}, "name"),
        (SCALED, "metadata.labels", {"b": 1}, "/metadata/labels/b"),
        (SCALED, "metadata.label", {}, "label"),
        (SCALED, "spec.cooldownPeriod", None, "cooldownPeriod"),
        (ROUTE, "spec.parentRefs.0.port", 70000, "port"),
        (ROUTE, "spec.rules.0.timeouts.request", "1 minute", "request"),
        (ROUTE, "spec.rules.0.timeouts.idle", "1m", "idle"),
        (SET, "spec.leaderWorkerTemplate.workerTemplate.spec.container", [], "container"),
        (SET, "spec.leaderWorkerTemplate.size", "2", "size"),
        (
            SET,
            "spec.rolloutStrategy.rollingUpdateConfiguration.maxUnavailable",
            [1],
            "maxUnavailable",
        ),
        (APPLICATION, "spec.source.helm.value", "", "value"),
        (APPLICATION, "spec.syncPolicy.automated.prune", "yes", "prune"),
        (APPLICATIONS, "spec.template.spec.project", 1, "project"),
    ],
    ids=lambda it: it if isinstance(it, str) else "",
)
def test_a_wrong_one_is_refused_with_its_place(
    manifest: dict[str, Any], path: str, value: Any, names: str, tmp_path: Path
) -> None:
    taken, says = conforms(kubernetes_versions()[-1], changed(manifest, path, value), tmp_path)
    assert not taken and names in says, says


def test_a_kind_without_a_schema_is_refused(tmp_path: Path) -> None:
    job = {**SCALED, "kind": "ScaledJob"}
    taken, says = conforms(kubernetes_versions()[-1], job, tmp_path)
    assert not taken and "could not find schema" in says, says


@pytest.mark.parametrize("version", kubernetes_versions())
@pytest.mark.parametrize(
    "name",
    [
        "persistentvolume-v1",
        "persistentvolumeclaim-v1",
        "networkpolicy-networking-v1",
        "ingress-networking-v1",
        "horizontalpodautoscaler-autoscaling-v2",
        "poddisruptionbudget-policy-v1",
    ],
)
def test_the_kinds_of_kubernetes_itself_are_there(version: str, name: str) -> None:
    assert (cache_root() / "schemas" / version / f"{name}.json").exists()


def test_only_an_object_that_says_so_takes_other_keys() -> None:
    schema = strict(
        {
            "type": "object",
            "required": ["shut"],
            "properties": {
                "shut": {"type": "object", "properties": {"a": {"type": "integer"}}},
                "open": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                "map": {"type": "object", "additionalProperties": {"type": "string"}},
                "list": {"type": "array", "items": {"type": "object"}},
                "either": {"x-kubernetes-int-or-string": True},
            },
            # narrows what is said above, and names no keys of its own
            "anyOf": [{"properties": {"shut": {"required": ["a"]}}}, {"required": ["open"]}],
        }
    )
    validator = Draft7Validator(schema)

    def takes(value: Any) -> bool:
        return bool(validator.is_valid(value))

    assert takes({"shut": {"a": 1}, "open": {"b": {}}, "map": {"c": "d"}, "list": [{}]})
    assert takes({"shut": {}, "open": {}, "either": "5%"})
    assert not takes({"shut": {}})
    assert not takes({"open": {}})
    assert not takes({"shut": {"a": 1, "b": 1}})
    assert not takes({"shut": {"a": 1}, "map": {"c": 1}})
    assert not takes({"shut": {"a": 1}, "list": [{"a": 1}]})
    assert not takes({"shut": {"a": 1}, "either": 0.5})
    assert not takes({"shut": {"a": 1}, "other": 1})


def test_each_version_has_its_file_and_a_keyword_not_known_is_an_error() -> None:
    versions = [
        {"name": name, "schema": {"openAPIV3Schema": {"type": "object", "properties": {}}}}
        for name in ("v1", "v2")
    ]
    crd = {"spec": {"group": "a.b", "names": {"kind": "Thing"}, "versions": versions}}
    assert list(json_schemas(crd, "metadata.json")) == ["a.b/thing_v1.json", "a.b/thing_v2.json"]
    with pytest.raises(ValueError, match="nullable"):
        strict({"type": "string", "nullable": True})
