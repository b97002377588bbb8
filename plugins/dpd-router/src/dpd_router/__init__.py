"""An OpenAI-compatible router for disaggregated prefill and decode."""

__version__ = "0.1.0"
