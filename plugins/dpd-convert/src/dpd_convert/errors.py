"""What can be wrong with the input."""

from __future__ import annotations


class ConvertError(ValueError):
    """The input cannot be converted; the message names the fault and the way out."""
