"""vLLM plugin for disaggregated prefill and decode with LMCache's PD backend."""

from __future__ import annotations

__version__ = "0.1.0"
