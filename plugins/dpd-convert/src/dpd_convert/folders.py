"""Where the manifest and the chart mount the model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .conversion import Conversion

DEFAULT = "/opt/ml/model"


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
