"""From rendered manifests to pods, and the ConfigMaps and Secrets that they read."""

from __future__ import annotations

import base64
import copy
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Manifest = dict[str, Any]


class PodError(ValueError):
    """A manifest asks for something that cannot be run here; the message names it."""


@dataclass
class Pod:
    """One pod, ready to be run on a node.

    Attributes:
        name: unique on its node.
        metadata: the manifest's metadata (labels, annotations, namespace).
        spec: the manifest's PodSpec, as rendered; tests may change it before the pod starts.
    """

    name: str
    metadata: dict[str, Any]
    spec: dict[str, Any]
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))

    @property
    def component(self) -> str:
        """The label app.kubernetes.io/component, or ""."""
        return str(self.metadata.get("labels", {}).get("app.kubernetes.io/component", ""))

    @property
    def container(self) -> dict[str, Any]:
        """The pod's only container.

        Raises:
            PodError: it has several, or init containers.
        """
        containers = self.spec.get("containers") or []
        if len(containers) != 1 or self.spec.get("initContainers"):
            raise PodError(
                f"pod {self.name}: {len(containers)} containers and "
                f"{len(self.spec.get('initContainers') or [])} init containers; only a pod with "
                "one container and no init container can be run here"
            )
        found: dict[str, Any] = containers[0]
        return found


@dataclass(frozen=True)
class Configuration:
    """The ConfigMaps and Secrets of one namespace: name → key → value."""

    config_maps: dict[str, dict[str, bytes]]
    secrets: dict[str, dict[str, bytes]]


def pods_of(manifests: Iterable[Manifest], address: Callable[[str], str] = str) -> list[Pod]:
    """Return the pods of all workloads among the manifests, in their order.

    A replica is named by its component label and ordinal, "prefill-0", or by its workload's name
    when it has no such label. Of a LeaderWorkerSet that is the leader; "prefill-0-1" follows it.

    Args:
        manifests: Deployments, StatefulSets, LeaderWorkerSets and bare Pods; others are left out.
        address: where the pods of a group find a leader, by its pod's name.
    """
    found: list[Pod] = []
    for manifest in manifests:
        if manifest["kind"] == "Pod":
            found.append(_pod(manifest["metadata"]["name"], manifest))
        elif manifest["kind"] in ("Deployment", "StatefulSet"):
            template = manifest["spec"]["template"]
            labels = template.get("metadata", {}).get("labels", {})
            base = labels.get("app.kubernetes.io/component", manifest["metadata"]["name"])
            replicas = manifest["spec"].get("replicas", 1)
            found += [_pod(f"{base}-{ordinal}", template) for ordinal in range(replicas)]
        elif manifest["kind"] == "LeaderWorkerSet":
            found += _groups(manifest, address)
    names = [pod.name for pod in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise PodError(f"two pods have the name {', '.join(sorted(twice))}")
    return found


def configuration_of(manifests: Iterable[Manifest]) -> Configuration:
    """Return the ConfigMaps and Secrets among `manifests`."""
    config_maps: dict[str, dict[str, bytes]] = {}
    secrets: dict[str, dict[str, bytes]] = {}
    for manifest in manifests:
        plain, encoded = "data", "binaryData"
        target = config_maps
        if manifest["kind"] == "Secret":
            plain, encoded, target = "stringData", "data", secrets
        elif manifest["kind"] != "ConfigMap":
            continue
        texts = {key: value.encode() for key, value in (manifest.get(plain) or {}).items()}
        blobs = {
            key: base64.b64decode(value) for key, value in (manifest.get(encoded) or {}).items()
        }
        target[manifest["metadata"]["name"]] = blobs | texts
    return Configuration(config_maps, secrets)


def _groups(manifest: Manifest, address: Callable[[str], str]) -> list[Pod]:
    """Return the pods of a LeaderWorkerSet, with the variables that its webhook adds."""
    group = manifest["spec"]["leaderWorkerTemplate"]
    worker = group["workerTemplate"]
    leader = group.get("leaderTemplate") or worker
    labels = leader.get("metadata", {}).get("labels", {})
    base = labels.get("app.kubernetes.io/component", manifest["metadata"]["name"])
    found = []
    for ordinal in range(manifest["spec"].get("replicas", 1)):
        first = f"{base}-{ordinal}"
        for index in range(group["size"]):
            pod = _pod(f"{first}-{index}" if index else first, worker if index else leader)
            given = {
                "LWS_LEADER_ADDRESS": address(first),
                "LWS_GROUP_SIZE": str(group["size"]),
                "LWS_WORKER_INDEX": str(index),
            }
            # They come first, so that the container's own variables may refer to them.
            own = pod.container.setdefault("env", [])
            own[:0] = [{"name": name, "value": value} for name, value in given.items()]
            found.append(pod)
    return found


def _pod(name: str, template: Manifest) -> Pod:
    metadata = copy.deepcopy(template.get("metadata") or {})
    return Pod(name=name, metadata=metadata, spec=copy.deepcopy(template["spec"]))
