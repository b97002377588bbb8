"""A node without Kubernetes: gives pods addresses and volumes, and runs them as processes.

    with Node(run_directory) as node:
        node.configuration = configuration_of(manifests)
        pod = node.add(pods_of(manifests)[0])
        pod.start()
        pod.wait_ready(timeout=30)

Nothing here knows where the pods came from: rendered files today, an API server another day.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from dpd_local import environment
from dpd_local.addresses import AddressBlock
from dpd_local.mounts import materialise
from dpd_local.pods import Configuration, Pod, PodError
from dpd_local.processes import Process
from dpd_local.running import RunningPod, State

# Settings of the machine's, not the user's, without which libraries may not work on it.
PASSED_ON = ("OPENBLAS_CORETYPE",)
# A Unix socket's path has at most 107 characters, and LMCache adds 78 to its pod's TMPDIR. So a
# pod's directory is a number, to which a link with the pod's name leads.
LONGEST_RUN_DIRECTORY = 22


def _ignore(_: RunningPod) -> None:
    pass


class Node:
    """Runs pods below one directory; ends all of them when closed.

    Attributes:
        configuration: the ConfigMaps and Secrets that pods may name, read when a pod starts.
        pods: name → running pod, in the order of adding.
    """

    def __init__(
        self,
        directory: Path,
        *,
        path: Sequence[Path] = (),
        host_paths: Mapping[str, Path] | None = None,
        on_change: Callable[[RunningPod], None] = _ignore,
    ) -> None:
        """Make an empty node.

        Args:
            directory: for the pods' volumes and logs; made when missing. Keep it short.
            path: directories that come first on the PATH of every pod.
            host_paths: hostPath → local directory, for those that are elsewhere.
            on_change: called after each change of a pod's state, in a thread of the pod's.
        """
        if len(str(directory)) > LONGEST_RUN_DIRECTORY:
            raise PodError(
                f"run directory {directory} has {len(str(directory))} characters, and sockets "
                f"below it need it at {LONGEST_RUN_DIRECTORY} or fewer; choose a shorter one"
            )
        directory.mkdir(parents=True, exist_ok=True)
        self.directory, self.configuration = directory, Configuration({}, {})
        self.pods: dict[str, RunningPod] = {}
        self._addresses = AddressBlock()
        self._path, self._host_paths = path, dict(host_paths or {})
        self._on_change = on_change
        self._places = 0

    def address(self, name: str) -> str:
        """Return the IP that a pod of this name has or will have."""
        return self._addresses.address(name)

    def add(
        self,
        pod: Pod,
        *,
        environment: Mapping[str, str] | None = None,
        python_path: Iterable[Path] = (),
    ) -> RunningPod:
        """Take a pod, without starting it.

        Args:
            pod: its spec is read again at every start.
            environment: variables on top of the pod's own, taken as they are.
            python_path: directories put before the pod's own PYTHONPATH.
        """
        if pod.name in self.pods:
            raise PodError(f"there is a pod {pod.name} already")
        extra, first = dict(environment or {}), [str(path) for path in python_path]
        starts = iter(range(1, 1_000_000))

        def launch() -> Process:
            return self._launch(pod, next(starts), extra, first)

        running = RunningPod(
            pod,
            ip=self.address(pod.name),
            log=self.directory / f"{pod.name}.log",
            launch=launch,
            on_change=self._on_change,
        )
        self.pods[pod.name] = running
        return running

    def close(self, grace: float = 10) -> None:
        """Stop all pods at once, giving them `grace` seconds; none of their processes is left."""
        running = [pod for pod in self.pods.values() if pod.state is not State.PENDING]
        for pod in running:
            pod.request_stop(grace)
        for pod in running:
            pod.wait_exit()
        self._addresses.close()

    def __enter__(self) -> Self:
        """Return the node."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the node."""
        self.close()

    def _launch(
        self, pod: Pod, start: int, extra: Mapping[str, str], python_path: Sequence[str]
    ) -> Process:
        ip = self.address(pod.name)
        self._places += 1
        place = self.directory / str(self._places)
        place.mkdir()
        known_as = pod.name if start == 1 else f"{pod.name}.{start}"
        (self.directory / known_as).symlink_to(place.name)
        mounts = materialise(pod, self.configuration, ip, place, self._host_paths)
        container = pod.container
        variables = environment.resolve(pod, self.configuration, ip)
        command = [
            mounts.rewrite(environment.expand(str(word), variables))
            for word in [*(container.get("command") or []), *(container.get("args") or [])]
        ]
        if not container.get("command"):
            raise PodError(f"pod {pod.name}: no command, and there is no image to know it from")
        base = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        base["PATH"] = ":".join([*map(str, self._path), "/usr/local/bin", "/usr/bin", "/bin"])
        base["LANG"] = "C.UTF-8"
        final = base | {name: mounts.rewrite(value) for name, value in variables.items()}
        final.update(extra)
        if python_path:
            own = [final["PYTHONPATH"]] if final.get("PYTHONPATH") else []
            final["PYTHONPATH"] = ":".join([*python_path, *own])
        directory = container.get("workingDir")
        return Process(
            command,
            environment=final,
            directory=Path(mounts.rewrite(directory)) if directory else place,
            log=self.directory / f"{pod.name}.log",
        )
