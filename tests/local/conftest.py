"""Small real pods for the runner."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dpd_local import Node, Pod

Script = Callable[..., Pod]


@pytest.fixture
def node() -> Iterator[Node]:
    """A node in a directory that is short enough for sockets."""
    with (
        tempfile.TemporaryDirectory(prefix="dpd-", dir="/tmp") as directory,
        Node(Path(directory) / "run", path=[Path(sys.executable).parent]) as made,
    ):
        yield made


@pytest.fixture
def script() -> Script:
    """Make a pod that runs a Python script; further arguments are the container's fields."""

    def make(name: str, code: str, **container: Any) -> Pod:
        pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
        env = [pod_ip, {"name": "PYTHONUNBUFFERED", "value": "1"}, *container.pop("env", [])]
        main = {"name": "main", "command": ["python3", "-c", code], "env": env, **container}
        return Pod(name=name, metadata={}, spec={"containers": [main]})

    return make
