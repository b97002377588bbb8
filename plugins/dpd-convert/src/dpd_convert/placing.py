"""On which nodes the engines run, and which prompts go where."""

from __future__ import annotations

from .conversion import Conversion

_ZONE = "topology.kubernetes.io/zone"


def convert(conversion: Conversion) -> None:
    """Write instance types, placement and the threshold."""
    if kind := conversion.get("instanceType"):
        conversion.set("instanceTypes", [kind])
    elif not conversion.get("instanceTypes"):
        conversion.set("instanceTypes", [])
    zone = conversion.get("pdSpec.topologySpec.availabilityZone")
    group = conversion.get("pdSpec.topologySpec.placementGroup")
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
