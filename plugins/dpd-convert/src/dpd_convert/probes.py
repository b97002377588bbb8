"""The probes of the engines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .conversion import Conversion
from .shapes import a_map

_HANDLERS = ("exec", "httpGet", "tcpSocket")
# What Kubernetes takes when a probe does not say it; the chart's own probes say other things.
_UNSAID: Mapping[str, Any] = {"periodSeconds": 10, "timeoutSeconds": 1, "failureThreshold": 3}


def convert(conversion: Conversion) -> None:
    """Write the probes, on the port that the chart's engines have."""
    port = conversion.get("worker.modelInvocationPort.containerPort")
    name = conversion.get("worker.modelInvocationPort.name") or "http"
    for probe, given in conversion.map("worker.probes").items():
        default = conversion.chart.values["engines"].get(probe)
        if not probe.endswith("Probe") or not isinstance(default, dict):
            conversion.leave(
                f"worker.probes.{probe}", given, "not a probe of Kubernetes; remove it"
            )
        elif given is not None:
            given = a_map(given, f"spec.worker.probes.{probe}")
            if given.get("grpc") is not None:
                reason = "engines speak HTTP and no gRPC; the chart's own probe applies"
                conversion.leave(f"worker.probes.{probe}", given, reason)
            else:
                conversion.set(f"engines.{probe}", _probe(given, default, (port, str(port), name)))


def _probe(given: Mapping[str, Any], default: Mapping[str, Any], ports: tuple[Any, ...]) -> Any:
    """Return a probe that laid over the chart's default means what it meant alone."""
    out = {key: value for key, value in _UNSAID.items() if key in default} | dict(given)
    for handler in _HANDLERS:
        action = given.get(handler)
        if isinstance(action, dict) and action.get("port") in ports:
            action = action | {"port": "http"}
        if handler == "httpGet" and isinstance(action, dict):
            action = {"path": "/", **action}
        if action is not None:
            out[handler] = action
        elif handler in default:
            out[handler] = None
    return out
