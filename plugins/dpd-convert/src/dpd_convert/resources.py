"""What an engine's pod asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .conversion import Conversion
from .errors import ConvertError
from .shapes import a_map

ROLES = {"prefill": "pdSpec.prefillSpec", "decode": "pdSpec.decodingSpec"}
GPU = "nvidia.com/gpu"
EFA = "vpc.amazonaws.com/efa"
HUGEPAGES = "hugepages-2Mi"


def convert(conversion: Conversion) -> None:
    """Write resources, node selectors and numbers of the roles, and the split over their GPUs."""
    node = conversion.chart.node(conversion.written("instanceTypes"))
    asked = {role: _asked(conversion, at) for role, at in ROLES.items()}
    _leave_claims(conversion)
    if unknown := conversion.chart.unknown(conversion.written("instanceTypes")):
        conversion.note(
            f"the chart does not know {', '.join(unknown)}: a pod gets what the manifest asks for, "
            "and 16Gi of /dev/shm; set what is missing in engines.resources and engines.shm.size"
        )
    _split_model(conversion, asked, node)
    ranks = conversion.written("model.tensorParallelSize") * conversion.written(
        "model.pipelineParallelSize"
    )
    _compare(conversion, asked, node, ranks)
    resources = {role: _beyond(found, node, ranks) for role, found in asked.items()}
    _write_both(conversion, "resources", resources)
    selectors = {role: conversion.get(f"{at}.nodeSelector") for role, at in ROLES.items()}
    _write_both(conversion, "nodeSelector", selectors)
    _say_added(conversion, asked, node)
    _choose_backend(conversion, asked)
    for role, at in ROLES.items():
        replicas = conversion.get(f"{at}.replicas")
        if replicas is None:
            continue
        if conversion.written(f"{role}.autoscaling.type") == "keda":
            reason = (
                f"KEDA says how many; {role}.autoscaling.minReplicas is how many it starts with"
            )
            conversion.leave(f"{at}.replicas", replicas, reason)
        else:
            conversion.set(f"{role}.replicas", replicas)


def _write_both(conversion: Conversion, key: str, roles: Mapping[str, Any]) -> None:
    """Write what both roles have once, and what they do not have in common for each."""
    if roles["prefill"] == roles["decode"]:
        if roles["prefill"]:
            conversion.set(f"engines.{key}", roles["prefill"])
        return
    for role, value in roles.items():
        if value:
            conversion.set(f"{role}.{key}", value)


def _is_device(name: str) -> bool:
    """Whether requests must equal limits, so that the chart needs it in limits only."""
    return "/" in name or name.startswith("hugepages-")


def _asked(conversion: Conversion, at: str) -> dict[str, Any]:
    """Return a role's resources with each device once, as a whole number, in limits."""
    resources = conversion.map(f"{at}.resources")
    out: dict[str, Any] = {"requests": {}, "limits": {}}
    for kind in ("requests", "limits"):
        for name, amount in a_map(resources.get(kind), f"spec.{at}.resources.{kind}").items():
            if amount is None:
                continue
            if "/" in name and not str(amount).isdecimal():
                raise ConvertError(
                    f"spec.{at}.resources.{kind}.{name} is {amount!r}, but devices come in whole "
                    "numbers; correct it"
                )
            if not conversion.chart.is_amount(amount):
                raise ConvertError(
                    f"spec.{at}.resources.{kind}.{name} is {amount!r}, which is no amount like 2, "
                    "500m or 64Gi; correct it"
                )
            amount = int(amount) if "/" in name else amount
            out["limits" if _is_device(name) else kind][name] = amount
    return out


def _leave_claims(conversion: Conversion) -> None:
    """Say that containers name claims that the manifest has no field to give their pods."""
    for role, at in ROLES.items():
        if claims := conversion.map(f"{at}.resources").get("claims"):
            reason = f"set {role}.resources.claims, with {role}.resourceClaims for the pods"
            conversion.leave(f"{at}.resources.claims", claims, reason)


def _split_model(conversion: Conversion, asked: Mapping[str, Any], node: Mapping[str, int]) -> None:
    """Write the tensor parallel size of a manifest that leaves it to vLLM, or to its image."""
    if "tensorParallelSize" in conversion.values.get("model", {}):
        return
    gpus = asked["decode"]["limits"].get(GPU) or node.get("gpus") or 1
    size = max(1, gpus // conversion.written("model.pipelineParallelSize"))
    conversion.set("model.tensorParallelSize", size)
    if size > 1:
        conversion.note(
            f"spec.worker.args has no --tensor-parallel-size, for which vLLM takes 1, but a pod "
            f"has {gpus} GPUs; model.tensorParallelSize is {size}, so that all are used"
        )


def _compare(
    conversion: Conversion, asked: Mapping[str, Any], node: Mapping[str, int], ranks: int
) -> None:
    """Say where a pod asks for other GPUs than an engine is split over."""
    for role, at in ROLES.items():
        gpus = asked[role]["limits"].get(GPU)
        if not gpus or gpus == ranks:
            continue
        whole = gpus < ranks and ranks % gpus == 0 and gpus >= node.get("gpus", 0)
        conversion.note(
            f"a {role} engine is split over {ranks} GPUs (model.tensorParallelSize times "
            f"model.pipelineParallelSize), but spec.{at}.resources asks for {gpus} a pod: "
            + (f"it spans {ranks // gpus} nodes" if whole else "the chart refuses that; change one")
        )


def _beyond(asked: Mapping[str, Any], node: Mapping[str, int], ranks: int) -> dict[str, Any]:
    """Return what the instance type does not give by itself to an engine on a whole node."""
    limits = dict(asked["limits"])
    if node.get("gpus") == limits.get(GPU) and ranks >= limits.get(GPU, 0) > 0:
        given = {
            GPU: node.get("gpus"),
            EFA: node.get("efa"),
            HUGEPAGES: f"{node.get('hugepagesMiB')}Mi",
        }
        limits = {name: amount for name, amount in limits.items() if given.get(name) != amount}
    return {kind: part for kind, part in {**asked, "limits": limits}.items() if part}


def _choose_backend(conversion: Conversion, asked: Mapping[str, Any]) -> None:
    """Write how KV moves when neither role has EFA devices: what LIBFABRIC did is TCP then."""
    catalogue = conversion.chart.instances
    types = [name.removeprefix("ml.") for name in conversion.written("instanceTypes")]
    given = any(catalogue.get(name, {}).get("efa") for name in types)
    if not any(found["limits"].get(EFA, given) for found in asked.values()):
        conversion.set("kvTransfer.backend", "UCX")
        conversion.note(
            f"neither role asks for {EFA}, so KV goes over TCP, by kvTransfer.backend UCX; ask for "
            "EFA devices in engines.resources.limits and set it to LIBFABRIC if the nodes have some"
        )


def _say_added(conversion: Conversion, asked: Mapping[str, Any], node: Mapping[str, int]) -> None:
    """Say what the instance type gives beside what the manifest asks for."""
    facts = {
        "gpus": GPU,
        "efa": EFA,
        "hugepagesMiB": HUGEPAGES,
        "vcpus": "cpu",
        "memoryGiB": "memory",
    }
    for role, at in ROLES.items():
        found = asked[role]["requests"] | asked[role]["limits"]
        if missing := [
            name for fact, name in facts.items() if node.get(fact) and name not in found
        ]:
            conversion.note(
                f"spec.{at}.resources does not ask for {', '.join(missing)}; {role} pods get the "
                "instance type's share. Set 0 in resources.limits to go without a device"
            )
