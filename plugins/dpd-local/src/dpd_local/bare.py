"""How long the demo's engines take to start by themselves, to compare the demo's start with."""

from __future__ import annotations

import time
import urllib.request
from contextlib import closing

from dpd_local.cluster import Cluster
from dpd_local.pods import Pod
from dpd_local.running import State

_PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def run() -> int:
    """Start the prefiller, the decoder and the colocated engine at once; print the seconds.

    Their commands and environments are the demo's; there is no router and nobody probes them but
    a loop that asks for /health.
    """
    edit = {name: _without_probes for name in ("prefill", "decode", "colocated")}
    with closing(Cluster(colocated=True, edit=edit, hold=["router"])) as cluster:
        engines = [name for name in cluster.node.pods if name != "router-0"]
        began = time.monotonic()
        cluster.start()
        waiting = list(engines)
        while waiting:
            for name in list(waiting):
                if cluster.pod(name).state is State.ENDED:
                    print(cluster.pod(name).report("ended"))
                    return 1
                if _healthy(cluster.url(name)):
                    waiting.remove(name)
                    print(f"{name:<13}{time.monotonic() - began:6.1f} s", flush=True)
            time.sleep(0.2)
    return 0


def _without_probes(pod: Pod) -> None:
    for probe in _PROBES:
        pod.container.pop(probe, None)


def _healthy(base_url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{base_url}/health", timeout=1):
            return True
    except OSError:
        return False
