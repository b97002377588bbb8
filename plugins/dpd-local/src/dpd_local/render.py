"""The chart, rendered by the real Helm."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dpd_local.pods import Manifest


class RenderError(RuntimeError):
    """Helm refused; the message is Helm's own."""


def render(
    helm: Path,
    chart: Path,
    values: Sequence[Path] = (),
    set_json: Mapping[str, Any] | None = None,
    release: str = "dpd",
    namespace: str = "default",
) -> list[Manifest]:
    """Return what `helm template` makes of the chart, in Helm's order.

    Args:
        helm: the program.
        chart: the chart's folder.
        values: values files, later ones win.
        set_json: key path → value, wins over the files.
        release: the release's name.
        namespace: where it goes.

    Raises:
        RenderError: the chart or its schema refused the values.
    """
    command = [str(helm), "template", release, str(chart), "--namespace", namespace]
    for file in values:
        command += ["--values", str(file)]
    for key, value in (set_json or {}).items():
        command += ["--set-json", f"{key}={json.dumps(value)}"]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise RenderError(result.stderr.strip())
    return [manifest for manifest in yaml.safe_load_all(result.stdout) if manifest]
