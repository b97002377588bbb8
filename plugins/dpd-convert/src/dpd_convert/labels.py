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


def convert(conversion: Conversion) -> None:
    """Write tags and the manifest's own labels and annotations, as far as they can be such."""
    for tag in conversion.maps("tags"):
        name, value = str(tag.get("name")), str(tag.get("value"))
        if reason := _refusal(name, value):
            conversion.leave("tags", tag, reason)
        else:
            conversion.set("commonLabels", {name: value})
    metadata: dict[str, Any] = conversion.manifest.content["metadata"]
    for field, entries in metadata.items():
        if field in ("name", "namespace") or not entries:
            continue
        key = {"labels": "commonLabels", "annotations": "commonAnnotations"}.get(field)
        if key is None:
            reason = "the cluster writes it; nothing to do"
            conversion.left.append(Left(f"metadata.{field}", entries, reason))
            continue
        conversion.carried.append((f"metadata.{field}", (key,)))
        for name, value in a_map(entries, f"metadata.{field}").items():
            reason = _refusal(name, str(value) if field == "labels" else "")
            if reason:
                conversion.left.append(Left(f"metadata.{field}", {name: value}, reason))
            else:
                conversion.set(key, {name: str(value)})
    if status := conversion.manifest.content.get("status"):
        reason = "HyperPod's operator writes it; nothing to do"
        conversion.left.append(Left("status", status, reason))


def _refusal(name: str, value: str) -> str | None:
    if _OWNED.match(name):
        return "Helm, kubectl and the chart write labels and annotations of this name themselves"
    if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
        return "not a label that Kubernetes takes; write it in commonLabels in another form"
    return None
