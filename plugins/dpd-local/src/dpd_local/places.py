"""Where things are: the cache, the tools in it, this checkout."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
CHART = ROOT / "charts" / "dpd"
LOCAL_VALUES = ROOT / "values" / "local-cpu.yaml"


def cache() -> Path:
    """Return the cache folder: $DPD_CACHE, or ~/.cache/dpd."""
    return Path(os.environ.get("DPD_CACHE") or Path.home() / ".cache" / "dpd")


def helm() -> Path:
    """Return the helm to render with: the cache's, or the one on PATH.

    Raises:
        FileNotFoundError: neither exists.
    """
    installed = cache() / "bin" / "helm"
    found = installed if installed.exists() else shutil.which("helm")
    if not found:
        raise FileNotFoundError(f"no helm in {installed.parent} nor on PATH; run ci/install")
    return Path(found)


def programs() -> Path:
    """Return the folder of the running Python's programs, vllm among them."""
    return Path(sys.prefix) / "bin"
