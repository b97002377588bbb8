"""Volumes and init containers of the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .conversion import Conversion
from .shapes import maps


def convert(conversion: Conversion) -> None:
    """Write what kubernetes.* says of pods, as far as the volumes exist without the operator."""
    volumes = conversion.maps("kubernetes.volumes")
    containers = conversion.maps("kubernetes.initContainers")
    known = {volume.get("name") for volume in volumes}
    kept = []
    for container in containers:
        if missing := sorted(_mounts(container) - known):
            reason = (
                f"it mounts {', '.join(missing)}, which HyperPod's operator makes; the chart "
                "brings the model by model.source. Write it into engines.initContainers with "
                "volumes of your own if it is still needed"
            )
            conversion.leave("kubernetes.initContainers", container, reason)
        else:
            kept.append(container)
    if kept:
        conversion.set("engines.initContainers", kept)
        conversion.note(
            "engines.initContainers run as user 1000 of the pod; give those that need root a "
            "securityContext of their own"
        )
    used = set().union(*map(_mounts, kept))
    there = {volume["name"] for volume in conversion.values.get("engines", {}).get("volumes", [])}
    for volume in volumes:
        name = volume.get("name")
        is_model = _holds_model(conversion, name)
        if name not in there and (name in used or not is_model):
            conversion.set("engines.volumes", [volume])
    if account := conversion.get("kubernetes.serviceAccountName"):
        _write_account(conversion, account)


def _mounts(container: Mapping[str, Any]) -> set[str]:
    mounts = maps(container.get("volumeMounts"), f"volumeMounts of {container.get('name')}")
    return {str(mount.get("name")) for mount in mounts}


def _holds_model(conversion: Conversion, name: Any) -> bool:
    kind = conversion.get("modelSourceConfig.modelSourceType")
    mounted: bool = conversion.get("worker.modelVolumeMount.name") == name
    return kind == "kubernetesVolume" and mounted


def _write_account(conversion: Conversion, account: str) -> None:
    """Write the account; with a copy from S3 the router reads the bucket, too."""
    components = ["engines"]
    if conversion.written("model.source.s3.access") == "copy" and (
        conversion.written("model.source.type") == "s3"
    ):
        components.append("router")
    for component in components:
        conversion.set(f"{component}.serviceAccount", {"create": False, "name": account})
