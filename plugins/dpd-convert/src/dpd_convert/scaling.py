"""Autoscaling by KEDA."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .conversion import Conversion
from .shapes import maps
from .table import SECTIONS, TABLE

# KEDA's name of each kind of trigger.
_TYPES = {"cloudWatchTrigger": "aws-cloudwatch", "prometheusTrigger": "prometheus"}
# What HyperPod takes when a manifest does not say it.
_MOST = 5
_SECONDS = 300


def convert(conversion: Conversion) -> None:
    """Write the autoscaling of each component that has one."""
    places = {key: place for section in SECTIONS for place, key in section.below.items()}
    for key, place in places.items():
        if spec := conversion.get(place):
            _convert_one(conversion, spec, place, key)
    _keep_one_of_each_role(conversion, places)


def _keep_one_of_each_role(conversion: Conversion, places: Mapping[str, str]) -> None:
    """Take 1 for the least of a role that may have none while the other has engines."""
    roles = [key for key in places if not key.startswith("router.")]
    none = [key for key in roles if conversion.written(f"{key}.minReplicas") == 0]
    if len(none) == 1:
        conversion.set(f"{none[0]}.minReplicas", 1)
        reason = "1 was taken: the router gets ready only when engines of both roles answer"
        conversion.leave(f"{places[none[0]]}.minReplicaCount", 0, reason)


def _convert_one(conversion: Conversion, spec: dict[str, Any], place: str, key: str) -> None:
    triggers = []
    for field, kind in _TYPES.items():
        one, several = spec.get(field), spec.get(f"{field}List")
        if several and one:
            reason = f"{field}List goes before it"
            conversion.leave(f"{place}.{field}", one, reason)
        for trigger in several or ([one] if one else []):
            triggers.append(_trigger(conversion, trigger, f"{place}.{field}", kind, key))
    if not triggers:
        reason = (
            "it has no trigger, so that nothing would scale; set "
            f"{key}.type to hpa or keda with one of the chart's own measures"
        )
        conversion.leave(place, spec, reason)
        return
    settings: dict[str, Any] = {
        "type": "keda",
        "minReplicas": spec.get("minReplicaCount", 1),
        "maxReplicas": spec.get("maxReplicaCount", _MOST),
        "scaleDownSeconds": _scale_down_seconds(conversion, spec, place, key),
    }
    # The chart's own measures are not the manifest's.
    own = "cpuPercent" if key.startswith("router.") else "queueDepth"
    conversion.set(key, settings | {own: None, "triggers": triggers})


def _scale_down_seconds(
    conversion: Conversion, spec: Mapping[str, Any], place: str, key: str
) -> int:
    """Return the one time of ours for KEDA's two; its cooldown only counts down to 0 engines."""
    given = {
        field: int(spec[field])
        for field in ("scaleDownStabilizationTime", "cooldownPeriod")
        if spec.get(field) is not None
    }
    taken = next(iter(given.values()), _SECONDS)
    if spec.get("minReplicaCount") == 0:
        taken = max(given.values(), default=_SECONDS)
    for field, seconds in given.items():
        if seconds != taken:
            reason = f"{key}.scaleDownSeconds is one time, and {taken} was taken"
            conversion.leave(f"{place}.{field}", seconds, reason)
    return taken


def _trigger(
    conversion: Conversion, given: dict[str, Any], path: str, kind: str, key: str
) -> dict[str, Any]:
    """Return a trigger as KEDA has it; which field goes where is said by the table."""
    metadata: dict[str, str] = {}
    trigger: dict[str, Any] = {"type": kind, "metadata": metadata}
    given = {"useCachedMetrics": True, "minValue": 0, **given}
    for field, value in given.items():
        row = TABLE.get(f"{path}.{field}")
        for target in row.keys if row and value is not None else ():
            name = target.rpartition(".")[2]
            if field == "dimensions":
                part = "name" if name == "dimensionName" else "value"
                dimensions = maps(value, f"spec.{path}.{field}")
                metadata[name] = ";".join(str(one.get(part)) for one in dimensions)
            elif ".metadata." in target:
                metadata[name] = _text(value)
            else:
                trigger[name] = "AverageValue" if value == "Average" else value
    region = _region(conversion, str(given.get("serverAddress", "")))
    if kind == "aws-cloudwatch" or given.get("serverAddress"):
        if region:
            metadata["awsRegion"] = region
        else:
            conversion.note(f"set awsRegion in the metadata of {key}.triggers; KEDA needs it")
        conversion.note(
            f"{key}.triggers read from AWS: give KEDA's operator the right to, or name a "
            "TriggerAuthentication in authenticationRef of each"
        )
    else:
        conversion.note(f"set serverAddress in the metadata of {key}.triggers to your Prometheus")
    return trigger


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _region(conversion: Conversion, address: str) -> str | None:
    """Return the AWS region that the manifest names, if any."""
    if found := re.search(r"aps-workspaces\.([a-z0-9-]+)\.", address):
        return found[1]
    if region := conversion.get("modelSourceConfig.s3Storage.region"):
        return str(region)
    zone = str(conversion.get("pdSpec.topologySpec.availabilityZone") or "")
    if found := re.fullmatch(r"([a-z]+(?:-[a-z]+)+-[0-9]+)[a-z]", zone):
        return found[1]
    return None
