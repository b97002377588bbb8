"""The chart, rendered by the real Helm from values that the program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from dpd_local.places import CHART, helm
from dpd_local.render import RenderError, render


class Rendered(dict[tuple[str, str], dict[str, Any]]):
    """Objects by kind and name."""

    def one(self, kind: str, suffix: str) -> dict[str, Any]:
        """The object of a kind whose name ends so."""
        (found,) = [self[key] for key in self if key[0] == kind and key[1].endswith(suffix)]
        return found

    def pod(self, component: str) -> dict[str, Any]:
        """The specification of a component's pods."""
        return self.one("Deployment", f"-{component}")["spec"]["template"]["spec"]

    def container(self, component: str) -> dict[str, Any]:
        """The chart's own container of a component."""
        return self.pod(component)["containers"][0]

    def config(self, component: str) -> dict[str, Any]:
        """The configuration file of a component."""
        (text,) = self.one("ConfigMap", f"-{component}")["data"].values()
        return yaml.safe_load(text)


class Helm:
    """Renders values; the folder is for their file."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "values.yaml"

    def render(self, values: str, release: str = "demo") -> Rendered:
        """What the values make; fails the test when they are refused."""
        self._file.write_text(values, encoding="utf-8")
        objects = render(helm(), CHART, [self._file], release=release)
        return Rendered({(o["kind"], o["metadata"]["name"]): o for o in objects})

    def refusal(self, values: str) -> str:
        """Why the values are refused; fails the test when they are not."""
        try:
            self.render(values)
        except RenderError as error:
            return str(error)
        raise AssertionError("they are not refused")
