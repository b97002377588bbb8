"""Faults that a test switches on inside a real engine, by files in the folder DPD_FAULTS."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any


def register() -> None:
    """Wrap the two ends of a transfer: the prefiller's write, and its landing at the decoder."""
    from dpd_vllm import buffer, channel

    folder = Path(os.environ["DPD_FAULTS"])
    write, landed = channel.NixlWrites.write, buffer.ReceiveBuffer.landed

    def slow_write(self: Any, *args: Any) -> None:
        delay = folder / "write-delay-seconds"
        if delay.exists():
            time.sleep(float(delay.read_text()))
        write(self, *args)

    def zeroed(self: Any, ticket: int) -> bool:
        if (folder / "zero-on-arrival").exists():
            for _, page in self._tickets[ticket].expected:
                page.tensor.zero_()
        return landed(self, ticket)

    channel.NixlWrites.write = slow_write  # type: ignore[method-assign]
    buffer.ReceiveBuffer.landed = zeroed  # type: ignore[method-assign]
