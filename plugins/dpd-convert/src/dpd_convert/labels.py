"""Labels and annotations of every object."""

from __future__ import annotations

import re
from typing import Any

from .conversion import Conversion, Left
from .shapes import a_map

_NAME = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
    r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
# Those that Helm, the chart or kubectl write.
_OWNED = re.compile(r"^(app\.kubernetes\.io|helm\.sh|meta\.helm\.sh|kubectl\.kubernetes\.io)/")


# Labels by which Kueue queues pods: those with GPUs, which wait for quota.
_QUEUE = "kueue.x-k8s.io/"
# What is too long to show, and of no use without the cluster that wrote it.
_UNSHOWN = "…"


def convert(conversion: Conversion) -> None:
    """Write tags and the manifest's own labels and annotations, as far as they can be such."""
    for tag in conversion.maps("tags"):
        _write(conversion, "commonLabels", "spec.tags", str(tag.get("name")), tag.get("value"))
    metadata: dict[str, Any] = conversion.manifest.content["metadata"]
    for field, entries in metadata.items():
        key = {"labels": "commonLabels", "annotations": "commonAnnotations"}.get(field)
        if key and entries:
            keys = (key, "engines.podLabels") if field == "labels" else (key,)
            conversion.carried.append((f"metadata.{field}", keys))
            for name, value in a_map(entries, f"metadata.{field}").items():
                _write(conversion, key, f"metadata.{field}", str(name), value)
        elif entries and field not in ("name", "namespace"):
            reason = "the cluster writes it; nothing to do"
            conversion.left.append(Left(f"metadata.{field}", _UNSHOWN, reason))
    for field in conversion.manifest.content:
        if field not in ("apiVersion", "kind", "metadata", "spec"):
            reason = "HyperPod's operator writes the status; nothing else belongs there"
            conversion.left.append(Left(field, _UNSHOWN, reason))


def _write(conversion: Conversion, key: str, path: str, name: str, value: Any) -> None:
    """Write one label or annotation, or say why not."""
    text = str(value)
    if key == "commonLabels" and name.startswith(_QUEUE):
        key = "engines.podLabels"
    if reason := _refusal(name, "" if key == "commonAnnotations" else text):
        shown = _UNSHOWN if _OWNED.match(name) else text
        conversion.left.append(Left(path, {name: shown}, reason))
    elif (conversion.written(key) or {}).get(name, text) != text:
        reason = f"{key} has this name already, with another value; write one of them"
        conversion.left.append(Left(path, {name: text}, reason))
    else:
        conversion.set(key, {name: text})


def _refusal(name: str, value: str) -> str | None:
    if _OWNED.match(name):
        return "Helm, kubectl and the chart write labels and annotations of this name themselves"
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        return "not a label that Kubernetes takes; write it in commonLabels in another form"
    return None
