"""Starting and ending the process tree of one container."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from dpd_local import shim


class Process:
    """A command with everything it starts, ended as a whole; see `shim` for how.

    Attributes:
        exit_code: None while it runs; 128 + N when signal N ended it.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], directory: Path, log: Path
    ) -> None:
        """Start `command` in `directory` with exactly `environment`, both outputs to `log`."""
        self.exit_code: int | None = None
        with log.open("ab") as output:
            self._shim = subprocess.Popen(
                [sys.executable, "-I", "-S", shim.__file__, *command],
                env=dict(environment),
                cwd=directory,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._exit = os.pidfd_open(self._shim.pid)

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait at most `timeout` seconds for the end; return the exit code, or None if running."""
        if self.exit_code is None:
            poll = select.poll()
            poll.register(self._exit, select.POLLIN)
            if poll.poll(None if timeout is None else max(0.0, timeout) * 1000):
                self.exit_code = self._shim.wait()
        return self.exit_code

    def request_stop(self, grace: float) -> None:
        """Ask the command to end: SIGTERM now, SIGKILL to what is left after `grace` seconds."""
        pipe = self._shim.stdin
        assert pipe is not None
        if not pipe.closed:
            try:
                pipe.write(f"{grace}\n".encode())
                pipe.close()
            except BrokenPipeError:
                pass  # it ended by itself

    def processes(self) -> list[int]:
        """Return the ids of the command's living processes, the command's own first."""
        return shim.descendants(self._shim.pid)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the command; SIGSTOP and SIGCONT are useful too."""
        for process in self.processes():
            shim.send(process, number)
