"""Where the manifest and the chart mount the model, and folders that programs write to."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath

from .conversion import Conversion

DEFAULT = "/opt/ml/model"
# Folders in which the chart's containers can write; the rest of their file system is read-only.
_WRITABLE = ("/home/dpd", "/tmp", "/dev/shm")


def mounted_at(conversion: Conversion) -> str:
    """Return the folder at which the manifest mounts the model."""
    folder: str = conversion.get("worker.modelVolumeMount.mountPath") or DEFAULT
    return folder.rstrip("/") or "/"


@dataclass(frozen=True)
class Folders:
    """The model's folder in the containers.

    Attributes:
        old: that of the manifest.
        new: that of the chart; empty when the model has none.
    """

    old: str
    new: str = ""

    def moved(self, text: str) -> str:
        """Return a text in which the new folder stands for the old one, wherever it is named."""
        if not self.new:
            return text
        return re.sub(rf"(?<![\w/.]){re.escape(self.old)}(?![\w.-])", lambda _: self.new, text)


def make_writable(conversion: Conversion, name: str, folder: str) -> None:
    """Mount a folder where the manifest's containers could write, and the chart's could not."""
    mounted = [mount["mountPath"] for mount in conversion.written("engines.volumeMounts") or []]
    if _within(folder, (*_WRITABLE, *mounted)):
        return
    volume = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    conversion.set("engines.volumes", [{"name": volume, "emptyDir": {}}])
    conversion.set("engines.volumeMounts", [{"name": volume, "mountPath": folder}])


def _within(folder: str, places: Iterable[str]) -> bool:
    path = PurePosixPath(folder)
    return any(path.is_relative_to(place) for place in places)
