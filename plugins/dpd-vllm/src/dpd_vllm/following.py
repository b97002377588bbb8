"""The preStop hook of an engine's pods that follow its first: wait until that one has ended.

A stopping engine lets its running requests end, which takes the GPUs of all its pods. But vLLM's
followers (`--headless`) stop when they are told to, and do not hear of the leader's end at all.

usage: python3 -m dpd_vllm.following MASTER_PORT
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

POLL_SECONDS = 0.5
_ESTABLISHED = "01"


def connected(port: int) -> bool:
    """Tell whether this pod has a connection to a port of another.

    Read from the kernel, since the leader's name is gone from DNS as soon as it is to stop.
    """
    for table in Path("/proc/net").glob("tcp*"):  # a kernel without IPv6 has one of the two
        for line in table.read_text(encoding="ascii").splitlines()[1:]:
            _, _, remote, state, *_ = line.split()
            if state == _ESTABLISHED and int(remote.rpartition(":")[2], 16) == port:
                return True
    return False


def main(port: int) -> None:
    """Return once no connection to the leader's master port is left; each rank holds one."""
    while connected(port):
        time.sleep(POLL_SECONDS)


if __name__ == "__main__":
    main(int(sys.argv[1]))
