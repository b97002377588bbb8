"""Every key of `engines` may be said again for one role, and reaches that role alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm, Manifests, Values

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

Look = Callable[[Manifests, str], Any]


def pod(key: str) -> Look:
    """A field of the pod."""
    return lambda manifests, role: manifests.pod(role).get(key)


def container(key: str) -> Look:
    """A field of the engine's container."""
    return lambda manifests, role: manifests.container(role).get(key)


def template(key: str) -> Look:
    """A field of the pod's metadata."""
    return lambda manifests, role: manifests.template(role)["metadata"].get(key)


def workload(key: str) -> Look:
    """A field of the Deployment's specification."""
    return lambda manifests, role: manifests.workload(role)["spec"].get(key)


def named(look: Look, name: str, key: str = "name") -> Look:
    """The items of a list that have this name."""
    return lambda manifests, role: [i for i in look(manifests, role) or [] if i[key] == name]


def part(look: Look, *keys: str) -> Look:
    """A field within a map."""

    def within(manifests: Manifests, role: str) -> Any:
        found = look(manifests, role)
        for key in keys:
            found = (found or {}).get(key)
        return found

    return within


def budget(manifests: Manifests, role: str) -> Any:
    return manifests.one("PodDisruptionBudget", f"-{role}")["spec"].get("maxUnavailable")


@dataclass(frozen=True)
class Trial:
    """A value of both roles, another of one role, and where each is to be seen."""

    shared: Any
    own: Any
    look: Look
    seen_shared: Any
    seen_own: Any


TOLERATION = {"key": "team", "operator": "Exists"}
SPREAD = {"maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
TERM = {"requiredDuringSchedulingIgnoredDuringExecution": []}

TRIALS: dict[str, Trial] = {
    "args": Trial(
        ["--gpu-memory-utilization=0.75", "--max-num-seqs=8"],
        ["--max_num_seqs", "16"],
        lambda m, role: m.container(role)["args"][-2:],
        ["--gpu-memory-utilization=0.75", "--max-num-seqs=8"],
        ["--max_num_seqs", "16"],
    ),
    "env": Trial(
        [{"name": "A", "value": "both"}],
        [{"name": "A", "value": "own"}],
        named(container("env"), "A"),
        [{"name": "A", "value": "both"}],
        [{"name": "A", "value": "own"}],
    ),
    "envFrom": Trial(
        [{"secretRef": {"name": "both"}}],
        [{"configMapRef": {"name": "own"}}],
        container("envFrom"),
        [{"secretRef": {"name": "both"}}],
        [{"secretRef": {"name": "both"}}, {"configMapRef": {"name": "own"}}],
    ),
    "image": Trial(
        {"tag": "both"},
        {"tag": "own"},
        container("image"),
        "lmcache/vllm-openai:both",
        "lmcache/vllm-openai:own",
    ),
    "resources": Trial(
        {"requests": {"cpu": "32"}},
        {"requests": {"cpu": "64"}},
        part(container("resources"), "requests", "cpu"),
        "32",
        "64",
    ),
    "shm": Trial(
        {"size": "32Gi"},
        {"size": "64Gi"},
        lambda m, role: named(pod("volumes"), "shm")(m, role)[0]["emptyDir"]["sizeLimit"],
        "32Gi",
        "64Gi",
    ),
    "volumes": Trial(
        [{"name": "scratch", "emptyDir": {}}],
        [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
        named(pod("volumes"), "scratch"),
        [{"name": "scratch", "emptyDir": {}}],
        [{"name": "scratch", "emptyDir": {"medium": "Memory"}}],
    ),
    "volumeMounts": Trial(
        [{"name": "scratch", "mountPath": "/scratch"}],
        [{"name": "scratch", "mountPath": "/scratch", "subPath": "own"}],
        named(container("volumeMounts"), "scratch"),
        [{"name": "scratch", "mountPath": "/scratch"}],
        [{"name": "scratch", "mountPath": "/scratch", "subPath": "own"}],
    ),
    "initContainers": Trial(
        [{"name": "first", "image": "both"}],
        [{"name": "first", "image": "own"}],
        pod("initContainers"),
        [{"name": "first", "image": "both"}],
        [{"name": "first", "image": "own"}],
    ),
    "sidecars": Trial(
        [{"name": "beside", "image": "both"}],
        [{"name": "beside", "image": "own"}],
        lambda m, role: m.pod(role)["containers"][1:],
        [{"name": "beside", "image": "both"}],
        [{"name": "beside", "image": "own"}],
    ),
    "lifecycle": Trial(
        {"preStop": {"sleep": {"seconds": 1}}},
        {"preStop": {"sleep": {"seconds": 2}}},
        container("lifecycle"),
        {"preStop": {"sleep": {"seconds": 1}}},
        {"preStop": {"sleep": {"seconds": 2}}},
    ),
    "nodeSelector": Trial(
        {"pool": "both", "disk": "nvme"},
        {"pool": "own"},
        pod("nodeSelector"),
        {"pool": "both", "disk": "nvme"},
        {"pool": "own", "disk": "nvme"},
    ),
    "tolerations": Trial(
        [TOLERATION],
        [{**TOLERATION, "key": "own"}],
        pod("tolerations"),
        [TOLERATION],
        [TOLERATION, {**TOLERATION, "key": "own"}],
    ),
    "affinity": Trial(
        {"podAntiAffinity": TERM},
        {"podAntiAffinity": {}},
        part(pod("affinity"), "podAntiAffinity"),
        TERM,
        {},
    ),
    "topologySpreadConstraints": Trial(
        [{**SPREAD, "topologyKey": "zone"}],
        [{**SPREAD, "topologyKey": "rack"}],
        pod("topologySpreadConstraints"),
        [{**SPREAD, "topologyKey": "zone"}],
        [{**SPREAD, "topologyKey": "zone"}, {**SPREAD, "topologyKey": "rack"}],
    ),
    "priorityClassName": Trial("both", "own", pod("priorityClassName"), "both", "own"),
    "schedulerName": Trial("both", "own", pod("schedulerName"), "both", "own"),
    "runtimeClassName": Trial("both", "own", pod("runtimeClassName"), "both", "own"),
    "hostIPC": Trial(True, False, pod("hostIPC"), True, None),
    "annotations": Trial(
        {"a": "both"},
        {"a": "own"},
        lambda m, role: m.workload(role)["metadata"]["annotations"],
        {"a": "both"},
        {"a": "own"},
    ),
    "podAnnotations": Trial(
        {"a": "both"}, {"a": "own"}, part(template("annotations"), "a"), "both", "own"
    ),
    "podLabels": Trial({"a": "both"}, {"a": "own"}, part(template("labels"), "a"), "both", "own"),
    "podSecurityContext": Trial(
        {"runAsUser": 2000},
        {"runAsUser": 3000},
        part(pod("securityContext"), "runAsUser"),
        2000,
        3000,
    ),
    "resourceClaims": Trial(
        [{"name": "a", "resourceClaimName": "both"}],
        [{"name": "a", "resourceClaimName": "own"}],
        pod("resourceClaims"),
        [{"name": "a", "resourceClaimName": "both"}],
        [{"name": "a", "resourceClaimName": "own"}],
    ),
    "securityContext": Trial(
        {"privileged": True, "allowPrivilegeEscalation": None},
        {"privileged": False},
        part(container("securityContext"), "privileged"),
        True,
        False,
    ),
    "serviceAccount": Trial(
        {"name": "both"}, {"name": "own"}, pod("serviceAccountName"), "both", "own"
    ),
    "strategy": Trial(
        {"rollingUpdate": {"maxUnavailable": 2}},
        {"rollingUpdate": {"maxUnavailable": "50%"}},
        part(workload("strategy"), "rollingUpdate", "maxUnavailable"),
        2,
        "50%",
    ),
    "podDisruptionBudget": Trial({"maxUnavailable": 2}, {"maxUnavailable": 3}, budget, 2, 3),
    "drainSeconds": Trial(
        60,
        120,
        lambda m, role: [a for a in m.container(role)["args"] if a.startswith("--shutdown-")],
        ["--shutdown-timeout=60"],
        ["--shutdown-timeout=120"],
    ),
    "terminationGracePeriodSeconds": Trial(
        400, 500, pod("terminationGracePeriodSeconds"), 400, 500
    ),
    "startupProbe": Trial(
        {"failureThreshold": 10},
        {"failureThreshold": 20},
        part(container("startupProbe"), "failureThreshold"),
        10,
        20,
    ),
    "readinessProbe": Trial(
        {"periodSeconds": 10}, None, part(container("readinessProbe"), "periodSeconds"), 10, None
    ),
    "livenessProbe": Trial(
        {"httpGet": {"path": "/both"}},
        {"httpGet": {"path": "/own"}},
        part(container("livenessProbe"), "httpGet", "path"),
        "/both",
        "/own",
    ),
    "autoscaling": Trial({"type": "external"}, {"type": "none"}, workload("replicas"), None, 1),
}
SHARED = {key: trial.shared for key, trial in TRIALS.items()}
OWN = {key: trial.own for key, trial in TRIALS.items()}
ROLES = ["prefill", "decode"]


def other(role: str) -> str:
    return "decode" if role == "prefill" else "prefill"


def test_every_key_of_engines_is_tried() -> None:
    assert {*TRIALS} == {*DEFAULTS["engines"]}


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("key", TRIALS)
def test_a_key_of_engines_reaches_both_roles(helm4: Helm, key: str, role: str) -> None:
    trial = TRIALS[key]
    assert trial.look(helm4.render({"engines": SHARED}), role) == trial.seen_shared


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("key", TRIALS)
def test_a_role_says_a_key_of_engines_again(helm4: Helm, key: str, role: str) -> None:
    trial = TRIALS[key]
    manifests = helm4.render({"engines": SHARED, role: OWN})
    assert trial.look(manifests, role) == trial.seen_own
    assert trial.look(manifests, other(role)) == trial.seen_shared


def without_revision(manifests: Manifests, role: str) -> Any:
    """A role's pod template but for the hash over both roles, of which the image is a part."""
    pod_template = yaml.safe_load(yaml.safe_dump(manifests.template(role)))
    for variable in pod_template["spec"]["containers"][0]["env"]:
        if variable["name"] == "DPD_REVISION":
            variable["value"] = ""
    return pod_template


@pytest.mark.parametrize("role", ROLES)
def test_what_a_role_says_reaches_no_pod_of_another_component(helm4: Helm, role: str) -> None:
    before, after = helm4.render(), helm4.render({role: OWN})
    assert without_revision(after, role) != without_revision(before, role)
    assert without_revision(after, other(role)) == without_revision(before, other(role))
    assert after.template("router") == before.template("router")
    assert "A" not in after.env("router") and "A" not in after.env(other(role))
