"""A release of the chart, run as local processes.

    from dpd_local import Cluster, metrics

    with Cluster(prefill=2, colocated=True) as cluster:       # everything is ready here
        cluster.url("router")                                 # http://127.x.y.2:8000
        cluster.pod("decode-0").log_text()
        metrics.value(cluster.url("decode-0"), "vllm:prompt_tokens_by_source_total",
                      source="external_kv_transfer")

A mistake in the wiring, and the pod that must end because of it:

    def break_it(pod: Pod) -> None:
        pod.spec["containers"][0]["env"].append({"name": "PYTHONHASHSEED", "value": "random"})

    others = ["decode", "router"]
    with Cluster(edit={"prefill-0": break_it}, hold=others, wait=False) as cluster:
        assert cluster.pod("prefill-0").wait_exit(timeout=120) != 0

A fault inside an engine: `python_path={"prefill-1": [folder]}` puts `folder` before the pod's own
PYTHONPATH (a plugin there needs its dist-info beside it), `pod_env={"decode": {...}}` adds
variables; a key is a pod's name, or a component's for all its pods.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from dpd_local import model, places
from dpd_local.colocated import colocated_from
from dpd_local.node import Node
from dpd_local.pods import Manifest, Pod, configuration_of, pods_of
from dpd_local.render import render
from dpd_local.running import RunningPod, State

Edit = Callable[[Pod], None]
T = TypeVar("T")

# The hostPath that values/local-cpu.yaml mounts; the cache folder has the same layout.
HOST_PATH = "/var/lib/dpd"
PORT = 8000


def _ignore(_: RunningPod) -> None:
    pass


class Cluster:
    """The pods of one release with addresses, logs and states.

    Attributes:
        manifests: all that Helm rendered.
        node: runs the pods.
        directory: the pods' volumes and logs (`<pod>.log`).
        keep: whether a temporary directory stays when the cluster is closed.
    """

    def __init__(
        self,
        *,
        values: Sequence[Path] = (places.LOCAL_VALUES,),
        set_json: Mapping[str, Any] | None = None,
        prefill: int = 1,
        decode: int = 1,
        colocated: bool = False,
        pod_env: Mapping[str, Mapping[str, str]] | None = None,
        python_path: Mapping[str, Sequence[Path]] | None = None,
        edit: Mapping[str, Edit] | None = None,
        hold: Collection[str] = (),
        wait: bool = True,
        timeout: float = 300,
        directory: Path | None = None,
        programs: Path | None = None,
        on_change: Callable[[RunningPod], None] = _ignore,
    ) -> None:
        """Render the chart and prepare its pods; `with` (or `start`) starts them.

        Args:
            values: values files.
            set_json: key path → value on top, such as {"router.threshold": 512}.
            prefill: replicas of the prefiller.
            decode: replicas of the decoder.
            colocated: also run the reference engine, "colocated-0".
            pod_env: pod or component → variables on top of the rendered ones.
            python_path: pod or component → directories before the pod's own PYTHONPATH.
            edit: pod or component → function that changes the rendered pod in place.
            hold: pods or components that `start` leaves to `pod(name).start()`.
            wait: whether `with` waits until every started pod is ready.
            timeout: how long `wait_ready` waits for all of them, seconds.
            directory: for volumes and logs, short and empty; by default a temporary one, which
                goes when the cluster is closed without an error.
            programs: the folder with the vllm and python3 that pods run, such as
                ~/.cache/dpd/engine-next/bin; by default the running Python's.
            on_change: called after each change of a pod's state, in another thread.

        Raises:
            RenderError: the chart refused the values.
        """
        self._temporary, self.keep = directory is None, False
        self.directory = directory or Path(tempfile.mkdtemp(prefix="dpd-", dir="/tmp"))
        self._hold, self._wait, self._timeout = hold, wait, timeout
        model.ensure(places.cache() / "models" / "tiny")
        (places.cache() / "vllm").mkdir(exist_ok=True)
        self.node = Node(
            self.directory,
            path=[programs or places.programs()],
            host_paths={HOST_PATH: places.cache()},
            on_change=on_change,
        )
        try:
            self.manifests = self._render(values, set_json or {}, prefill, decode)
            self.node.configuration = configuration_of(self.manifests)
            pods = pods_of(self.manifests, self.node.address)
            if colocated:
                pods.append(colocated_from(next(p for p in pods if p.component == "decode")))
            for pod in pods:
                for change in _of(pod, edit):
                    change(pod)
                self.node.add(
                    pod,
                    environment={k: v for env in _of(pod, pod_env) for k, v in env.items()},
                    python_path=[path for paths in _of(pod, python_path) for path in paths],
                )
        except BaseException:
            self.close()
            raise

    def start(self) -> None:
        """Start all pods that are not held."""
        for pod in self.node.pods.values():
            if not {pod.name, pod.pod.component} & set(self._hold):
                pod.start()

    def wait_ready(self, timeout: float | None = None) -> None:
        """Wait until every started pod is ready.

        Raises:
            PodFailedError: one ended, or `timeout` seconds (default: the cluster's) are over.
        """
        deadline = time.monotonic() + (self._timeout if timeout is None else timeout)
        waiting = [pod for pod in self.node.pods.values() if pod.state is not State.PENDING]
        # An ended pod fails the wait at once, although another is waited for first.
        while any(pod.state is not State.READY for pod in waiting):
            for pod in waiting:
                if pod.state is State.ENDED or time.monotonic() > deadline:
                    pod.wait_ready(0)
            time.sleep(0.05)

    def pod(self, name: str) -> RunningPod:
        """Return a pod by its name, such as "decode-0"; "router" is short for "router-0".

        Raises:
            KeyError: no such pod; names those there are.
        """
        for known in (name, f"{name}-0"):
            if known in self.node.pods:
                return self.node.pods[known]
        raise KeyError(f"no pod {name}; there are {', '.join(self.node.pods)}")

    def url(self, name: str, port: int = PORT) -> str:
        """Return the base URL of a pod: http://<its IP>:<port>."""
        return self.pod(name).url(port)

    def close(self, grace: float = 10) -> None:
        """Stop all pods; no process is left, nor the temporary directory unless to be kept."""
        self.node.close(grace)
        if self._temporary and not self.keep:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Self:
        """Start the pods, and wait for them unless told not to."""
        try:
            self.start()
            if self._wait:
                self.wait_ready()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the cluster; after an error the directory stays, for its logs."""
        self.keep |= kind is not None and issubclass(kind, Exception)
        self.close()

    def _render(
        self, values: Sequence[Path], set_json: Mapping[str, Any], prefill: int, decode: int
    ) -> list[Manifest]:
        settings: dict[str, Any] = {}
        # There is no cluster DNS, so the router is told the addresses.
        for component, replicas in (("prefill", prefill), ("decode", decode)):
            names = [f"{component}-{ordinal}" for ordinal in range(replicas)]
            settings[f"{component}.replicas"] = replicas
            settings[f"router.engines.{component}"] = [
                f"{self.node.address(name)}:{PORT}" for name in names
            ]
        return render(places.helm(), places.CHART, values, settings | dict(set_json))


def _of(pod: Pod, given: Mapping[str, T] | None) -> list[T]:
    """Return what was given for the pod's component and for the pod itself."""
    names = dict.fromkeys((pod.component, pod.name))
    return [given[name] for name in names if given and name in given]
