"""Reading single values from a Prometheus text endpoint."""

from __future__ import annotations

import re
import urllib.request

_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


def value(base_url: str, name: str, **labels: str) -> float:
    """Return the sum of the samples `name` that carry all of `labels`; 0.0 if there is none.

    Args:
        base_url: of a pod; /metrics is added.
        name: the sample's full name, "_total" included.
        labels: label → value.
    """
    with urllib.request.urlopen(f"{base_url}/metrics", timeout=30) as response:
        return total(response.read().decode(), name, **labels)


def total(text: str, name: str, **labels: str) -> float:
    """Return the same from a text that was read already."""
    return sum(
        float(sample[3])
        for sample in _SAMPLE.finditer(text)
        if sample[1] == name and labels.items() <= dict(_LABEL.findall(sample[2] or "")).items()
    )
