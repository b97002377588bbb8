"""The first process of a pod: starts its command, and ends all that came of it.

Run by path, with the standard library only: `python -I -S shim.py COMMAND [ARGUMENT...]`.

Standard input is a pipe from the runner. A line on it says "stop, and take so many seconds"; its
end says that the runner is gone, however it died. Then, and when this process itself gets SIGTERM,
the command gets SIGTERM, and what is left after the grace period SIGKILL. As a child subreaper
this process stays the ancestor of everything the command leaves behind, whatever sessions it
opened, so nothing escapes.

Exit status: the command's own, 128 + N when signal N ended it, 127 when it could not be started.
"""

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

UNSAID_GRACE_SECONDS = 5.0  # when no runner says how long
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None).prctl


def main(command: list[str]) -> int:
    """Run `command` until it ends, or until standard input says so; return its exit status."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    wake_out, wake_in = os.pipe()
    os.set_blocking(wake_in, False)
    signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    first = start(command)
    status: int | None = None
    deadline: float | None = None
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(wake_out, select.POLLIN)
    while status is None:
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if left == 0.0:
            kill_descendants()
            left = 50.0
        for descriptor, _ in poll.poll(left):
            if descriptor == 0:
                deadline = time.monotonic() + grace_seconds()
                poll.unregister(0)
            elif signal.SIGTERM not in os.read(wake_out, 4096):
                continue
            elif deadline is None:
                deadline = time.monotonic() + UNSAID_GRACE_SECONDS
            send(first, signal.SIGTERM)
        status = reap(first)
    while kill_descendants():
        time.sleep(0.005)
        reap(first)
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def start(command: list[str]) -> int:
    """Start `command` in a session of its own; return its process id."""
    parent = os.getpid()
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(137)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.execvpe(command[0], command, os.environ)
    except OSError as error:
        print(f"cannot run {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def grace_seconds() -> float:
    """Read the grace period from standard input; its end means that nobody is there to say."""
    try:
        return float(os.read(0, 64))
    except ValueError:
        return UNSAID_GRACE_SECONDS


def reap(first: int) -> int | None:
    """Collect every process that has ended; return the wait status of `first` if it did."""
    found = None
    while True:
        try:
            child, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if child == 0:
            return found
        if child == first:
            found = status


def kill_descendants() -> bool:
    """Send SIGKILL to every living descendant; return whether there was one."""
    living = descendants(os.getpid())
    for process in living:
        send(process, signal.SIGKILL)
    return bool(living)


def send(process: int, number: int) -> None:
    """Send a signal to a process, which may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, number)


def descendants(ancestor: int) -> list[int]:
    """Return the ids of all processes, zombies excepted, that descend from `ancestor`."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as stat:
                    state, parent = stat.read().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z":
                children.setdefault(int(parent), []).append(int(entry))
    found = list(children.get(ancestor, ()))
    for process in found:
        found.extend(children.get(process, ()))
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
