"""On which nodes the engines run, and which prompts go where."""

from __future__ import annotations

from .conversion import Conversion

_ZONE = "topology.kubernetes.io/zone"


def convert(conversion: Conversion) -> None:
    """Write instance types, placement and the threshold."""
    if kind := conversion.get("instanceType"):
        conversion.set("instanceTypes", [kind])
    elif not conversion.texts("instanceTypes"):
        conversion.set("instanceTypes", [])
    zone = _zone(conversion)
    group = _group(conversion)
    label = conversion.written("placement.placementGroup.label")
    if affinity := conversion.get("nodeAffinity"):
        conversion.set("engines.affinity.nodeAffinity", affinity)
        selector = {_ZONE: zone, label: group}
        if selector := {name: value for name, value in selector.items() if value}:
            conversion.set("engines.nodeSelector", selector)
        conversion.note(
            "engines.affinity.nodeAffinity replaces the chart's own, so that "
            "placement.healthyNodesOnly and other values that choose nodes have no effect"
        )
    else:
        if zone:
            conversion.set("placement.zone", zone)
        if group:
            conversion.set("placement.placementGroup.name", group)
    if group:
        conversion.note(f"nodes of the placement group need the label {label}={group}")
    threshold = conversion.get("pdSpec.routingThreshold")
    if threshold == 0:
        conversion.set("router.mode", "always")
    else:
        if threshold is not None:
            conversion.set("router.threshold", threshold)
        conversion.note(
            f"router.threshold, {conversion.written('router.threshold')}, counts tokens, where "
            "HyperPod counted characters / 4; texts differ in how many that is"
        )


def _zone(conversion: Conversion) -> str | None:
    """Return the zone of the manifest, when nodes can have it as a label."""
    at = "pdSpec.topologySpec.availabilityZone"
    zone: str | None = conversion.get(at)
    if not zone or conversion.chart.is_zone(zone):
        return zone
    reason = "not the name of a zone, which nodes have as a label; set placement.zone to a name"
    conversion.leave(at, zone, f"{reason} such as us-west-2a, no id (usw2-az1) and no region")
    return None


def _group(conversion: Conversion) -> str | None:
    """Return the placement group of the manifest, when nodes can have it as a label."""
    at = "pdSpec.topologySpec.placementGroup"
    group: str | None = conversion.get(at)
    if not group or conversion.chart.takes("placement.placementGroup.name", group):
        return group
    reason = "nodes cannot have it as a label; give them another one that can be, and set"
    conversion.leave(at, group, f"{reason} placement.placementGroup.name to that")
    return None
