"""One pod on a node: its process, its probes, its state."""

from __future__ import annotations

import enum
import re
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dpd_local.pods import Pod
from dpd_local.probes import Probe, probe_of
from dpd_local.processes import Process

# A line of a traceback that is not its last, behind whatever a logger puts before it.
_FRAME = re.compile(r"^(?:\([^)]*\) )?(?:ERROR [^\]]*\] ?)?(?: {2,}|$)")


class State(enum.StrEnum):
    """What a pod is doing; UNREADY is one that was ready before, or never got so."""

    PENDING = "pending"
    STARTING = "starting"
    READY = "ready"
    UNREADY = "not ready"
    ENDED = "ended"


class PodFailedError(RuntimeError):
    """A pod ended, or did not get ready in time; the message has its last log lines."""


class RunningPod:
    """A pod with an address, a log and, once started, a process.

    Attributes:
        pod: what was asked for; changes to its spec have effect at the next `start`.
        ip: its address.
        log: the file with both its outputs.
        state: see `State`.
        reason: why it is not ready or was ended, in words; "" when there is nothing to say.
        ready_seconds: from the start to the first readiness; None before.
    """

    def __init__(
        self,
        pod: Pod,
        *,
        ip: str,
        log: Path,
        launch: Callable[[], Process],
        on_change: Callable[[RunningPod], None],
    ) -> None:
        """Take the pod; `launch` makes its process when it is started."""
        self.pod, self.ip, self.log = pod, ip, log
        self.state, self.reason = State.PENDING, ""
        self.ready_seconds: float | None = None
        self._launch, self._on_change = launch, on_change
        self._changed = threading.Condition()
        self._process: Process | None = None
        self._started = 0.0
        self._stopping = False
        self._watcher: threading.Thread | None = None

    @property
    def name(self) -> str:
        """The pod's name, such as "decode-0"."""
        return self.pod.name

    @property
    def exit_code(self) -> int | None:
        """The last process's exit code, 128 + N for signal N; None while it runs."""
        return self._process.exit_code if self._process else None

    def url(self, port: int = 8000) -> str:
        """Return http://<ip>:<port>."""
        return f"http://{self.ip}:{port}"

    def start(self) -> None:
        """Start the container; also again, after it ended, at the same address."""
        if self.state not in (State.PENDING, State.ENDED):
            raise RuntimeError(f"pod {self.name} is running already")
        now = time.monotonic()
        probes = {
            kind: probe_of(self.pod, f"{kind}Probe", self.ip, now)
            for kind in ("startup", "readiness", "liveness")
        }
        self._started, self.ready_seconds, self._stopping = now, None, False
        self._process = self._launch()
        self._set(State.STARTING)
        self._watcher = threading.Thread(
            target=self._watch, args=(self._process, probes), name=self.name, daemon=True
        )
        self._watcher.start()

    def request_stop(self, grace: float | None = None) -> None:
        """Begin to stop it, without waiting; `grace` seconds, by default what its spec says."""
        if self._process:
            if grace is None:
                grace = float(self.pod.spec.get("terminationGracePeriodSeconds", 30))
            self._stopping = True  # what its probes say from now on is no news
            self._process.request_stop(grace)

    def stop(self, grace: float | None = None) -> int | None:
        """Stop it and return its exit code; when this returns none of its processes is left."""
        self.request_stop(grace)
        return self.wait_exit() if self._process else None

    def kill(self) -> int | None:
        """Kill it at once, as a lost node or the memory killer would; return its exit code."""
        return self.stop(grace=0)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to all its processes, such as SIGSTOP and later SIGCONT."""
        if self._process:
            self._process.signal(number)

    def processes(self) -> list[int]:
        """Return the ids of its living processes, the container's first one first."""
        return self._process.processes() if self._process else []

    def wait_ready(self, timeout: float = 300) -> None:
        """Wait until it is ready, at most `timeout` seconds.

        Raises:
            PodFailedError: it ended, or the time is over.
        """
        with self._changed:
            self._changed.wait_for(
                lambda: self.state in (State.READY, State.ENDED), timeout=max(0.0, timeout)
            )
        if self.state is not State.READY:
            what = f"is {self.state} after {time.monotonic() - self._started:.0f} s"
            if self.state is State.ENDED:
                what = f"ended with exit code {self.exit_code} before it was ready"
            raise PodFailedError(self.report(what))

    def wait_exit(self, timeout: float | None = None) -> int:
        """Wait until it has ended and return its exit code.

        Raises:
            TimeoutError: it runs on after `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self.state is State.ENDED, timeout=timeout):
                raise TimeoutError(self.report(f"still runs after {timeout} s"))
        assert self.exit_code is not None
        return self.exit_code

    def log_text(self) -> str:
        """Return all it has written so far."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def report(self, what: str, lines: int = 12) -> str:
        """Return "pod <name> <what>", why, and the last lines of its log.

        A Python traceback's frames are left out, so that the causes further up are seen as well.
        """
        reason = f" ({self.reason})" if self.reason else ""
        told = [line for line in self.log_text().splitlines() if not _FRAME.match(line)]
        tail = "".join(f"\n    {line}" for line in told[-lines:])
        return f"pod {self.name} {what}{reason}; its log ends:{tail}\n    ({self.log})"

    def _set(self, state: State, reason: str = "") -> None:
        with self._changed:
            if (state, reason) == (self.state, self.reason):
                return
            self.state, self.reason = state, reason
            if state is State.READY and self.ready_seconds is None:
                self.ready_seconds = time.monotonic() - self._started
            self._changed.notify_all()
        self._on_change(self)

    def _watch(self, process: Process, probes: Mapping[str, Probe | None]) -> None:
        """Do what is due until the process has ended; runs in a thread of its own."""
        killed_because = ""
        while True:
            started = probes["startup"] is None or probes["startup"].passed is True
            if self._stopping:
                active: Sequence[Probe] = ()
            elif started:
                active = [p for p in (probes["readiness"], probes["liveness"]) if p]
                if not probes["readiness"]:
                    self._set(State.READY)
            else:
                active = [p for p in (probes["startup"],) if p]
            pause = min((p.due for p in active), default=float("inf")) - time.monotonic()
            if process.wait(None if pause == float("inf") else pause) is not None:
                self._set(State.ENDED, killed_because)
                return
            for probe in active:
                if probe.due <= time.monotonic():
                    probe.run(time.monotonic())
                    if self.state is State.STARTING:
                        self.reason = probe.message
            if self._stopping:
                continue
            if (ready := probes["readiness"]) and ready in active:
                if ready.passed:
                    self._set(State.READY)
                elif ready.passed is False and self.state is State.READY:
                    self._set(State.UNREADY, ready.message)
            for kind in ("startup", "liveness"):
                probe_ = probes[kind]
                if probe_ in active and probe_ is not None and probe_.passed is False:
                    killed_because = f"its {kind} probe failed: {probe_.message}"
                    self.request_stop()
