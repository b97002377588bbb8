"""Runs a command with its output in a log, while a line on the terminal says how long it takes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path


class CommandFailed(Exception):
    """A command ended with a status other than 0; the text says which, and shows its last lines."""


class Clock:
    """Prints lines that start with the seconds since the program began.

    Attributes:
        stopping: why commands that still run are to be ended, in whatever threads; None at first.
    """

    def __init__(self, beat_seconds: float = 20.0) -> None:
        self._start = time.monotonic()
        self._beat_seconds = beat_seconds
        self._tty = sys.stdout.isatty()
        self.stopping: BaseException | None = None

    @property
    def seconds(self) -> float:
        """Seconds since this clock was made."""
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Prints one line."""
        clear = "\r\033[K" if self._tty else ""
        print(f"{clear}[{self.seconds:5.0f} s] {text}", flush=True)

    def watch(self, process: subprocess.Popen[bytes], note: Callable[[], str]) -> int:
        """Waits for a process, showing `note()` every second on a terminal, else now and then.

        Returns:
            The exit status of the process.

        Raises:
            BaseException: `stopping`, once there is one.
        """
        beat = 1.0 if self._tty else self._beat_seconds
        due = self.seconds + beat
        while self.stopping is None:
            try:
                return process.wait(timeout=0.5)
            except subprocess.TimeoutExpired:
                if self.seconds < due:
                    continue
                due += beat
                if self._tty:
                    line = f"[{self.seconds:5.0f} s] … {note()}"
                    print(f"\r\033[K{line[:100]}", end="", flush=True)
                else:
                    self.say(f"… {note()}")
        raise self.stopping


def run(
    command: Sequence[str | Path],
    *,
    clock: Clock,
    log: Path,
    note: Callable[[], str],
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    pass_fds: tuple[int, ...] = (),
) -> int:
    """Runs a command to its end, appending all that it prints to `log`.

    Args:
        command: the program and its arguments.
        clock: shows that it still runs.
        log: gets the command line and its output.
        note: a few words for the clock to show.
        env: environment on top of this program's own.
        cwd: where to run it.
        pass_fds: descriptors that it keeps open: with a lock's, the lock outlives a killed parent.

    Returns:
        The exit status, 127 when there is no such program.
    """
    words = [str(word) for word in command]
    with log.open("ab") as output:
        output.write(f"$ {' '.join(words)}\n".encode())
        output.flush()
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                pass_fds=pass_fds,
            )
        except FileNotFoundError:
            output.write(f"{words[0]}: not found\n".encode())
            return 127
        try:
            return clock.watch(process, note)
        except BaseException as stop:
            _end(process, interrupted=isinstance(stop, KeyboardInterrupt))
            raise


def _end(process: subprocess.Popen[bytes], *, interrupted: bool) -> None:
    """Lets a child clean up as on Ctrl-C, which a terminal that `interrupted` us sent to it too."""
    if not interrupted:
        process.send_signal(signal.SIGINT)
    for harder in (process.terminate, process.kill):
        try:
            process.wait(timeout=15)
            return
        except subprocess.TimeoutExpired:
            harder()
    process.wait()


def tail(log: Path, lines: int) -> str:
    """The last `lines` lines of a log."""
    text = log.read_text(encoding="utf-8", errors="replace")
    return "\n".join(text.splitlines()[-lines:])
