"""Turns a HyperPod InferenceEndpointConfig with pdSpec into values of the dpd chart."""

from __future__ import annotations

import sys

try:
    import yaml as _yaml  # noqa: F401 - every module reads or writes it
except ImportError:
    sys.exit("dpd_convert: this Python has no PyYAML; pip install pyyaml")

from .chart import Chart, read_chart
from .conversion import Conversion, Left
from .converting import convert
from .errors import ConvertError
from .reading import Manifest, read_manifest
from .reporting import comment, report
from .writing import to_yaml, trimmed

__all__ = [
    "Chart",
    "Conversion",
    "ConvertError",
    "Left",
    "Manifest",
    "comment",
    "convert",
    "read_chart",
    "read_manifest",
    "report",
    "to_yaml",
    "trimmed",
]
