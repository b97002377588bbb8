"""How the pods come up, for someone who watches or for a log."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

from dpd_local.running import RunningPod, State


class Progress:
    """Shows one line per pod.

    On a terminal the lines are redrawn every second with the time that has passed; elsewhere a
    line is printed for each change of a pod's state.
    """

    def __init__(self, output: TextIO = sys.stdout) -> None:
        """Show on `output`."""
        self._output = output
        self._redraw = output.isatty()
        self._lock = threading.Lock()
        self._pods: dict[str, RunningPod] = {}
        self._began = time.monotonic()
        self._drawn = 0
        self._over = threading.Event()

    def __enter__(self) -> Progress:
        """Begin to redraw."""
        if self._redraw:
            threading.Thread(target=self._tick, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        """Draw the last state and leave it there."""
        self._over.set()
        if self._redraw:
            self._draw()

    def on_change(self, pod: RunningPod) -> None:
        """Take a change of a pod's state."""
        if self._over.is_set():
            return
        with self._lock:
            self._pods[pod.name] = pod
        if self._redraw:
            self._draw()
        else:
            passed = time.monotonic() - self._began
            print(f"  {passed:6.1f} s  {_line(pod)}", file=self._output, flush=True)

    def _tick(self) -> None:
        while not self._over.wait(1):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            passed = time.monotonic() - self._began
            up = f"\x1b[{self._drawn}A" if self._drawn else ""
            lines = []
            for pod in self._pods.values():
                seconds = passed if pod.ready_seconds is None else pod.ready_seconds
                lines.append(f"\x1b[2K  {seconds:6.1f} s  {_line(pod)}\n")
            self._output.write(up + "".join(lines))
            self._output.flush()
            self._drawn = len(lines)


def _line(pod: RunningPod) -> str:
    state = str(pod.state)
    if pod.state is State.ENDED:
        state = f"ended with exit code {pod.exit_code}"
    return f"{pod.name:<13}{pod.ip:<17}{state}"
