"""The real Helm, version 3 and version 4, as fixtures."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "dpd"
BIN = Path(os.environ.get("DPD_CACHE") or Path.home() / ".cache" / "dpd") / "bin"

Values = dict[str, Any]


class Manifests(dict[tuple[str, str], dict[str, Any]]):
    """Rendered objects by kind and name."""

    def one(self, kind: str, suffix: str) -> dict[str, Any]:
        """The object of a kind whose name ends so."""
        found = [self[key] for key in self if key[0] == kind and key[1].endswith(suffix)]
        assert len(found) == 1, (kind, suffix, list(self))
        return found[0]

    def container(self, component: str) -> dict[str, Any]:
        """The container of a component's Deployment."""
        return self.one("Deployment", f"-{component}")["spec"]["template"]["spec"]["containers"][0]

    def env(self, component: str) -> dict[str, str | None]:
        """The literal environment of a component."""
        return {item["name"]: item.get("value") for item in self.container(component)["env"]}

    def config(self, component: str) -> dict[str, Any]:
        """The configuration file of a component, parsed."""
        (text,) = self.one("ConfigMap", f"-{component}")["data"].values()
        return yaml.safe_load(text)


@dataclass(frozen=True)
class Helm:
    """One version of Helm."""

    program: Path
    folder: Path

    def run(
        self, values: Values | str | None, *flags: str, release: str, chart: Path
    ) -> tuple[int, str, str]:
        """Run `helm template` without a network; values may be a mapping or a file's text."""
        command = [str(self.program), "template", release, str(chart), *flags]
        if values is not None:
            path = self.folder / "values.yaml"
            text = values if isinstance(values, str) else yaml.safe_dump(values, allow_unicode=True)
            path.write_text(text, encoding="utf-8")
            command += ["--values", str(path)]
        # A proxy that refuses every connection: nothing may be fetched.
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "HTTPS_PROXY": "http://127.0.0.1:9",
        }
        done = subprocess.run(
            command, capture_output=True, text=True, env={**env, "HTTP_PROXY": "http://127.0.0.1:9"}
        )
        return done.returncode, done.stdout, done.stderr

    def render(
        self,
        values: Values | str | None = None,
        *flags: str,
        release: str = "demo",
        chart: Path = CHART,
    ) -> Manifests:
        """What the values make; fails the test when they are refused."""
        status, out, error = self.run(values, *flags, release=release, chart=chart)
        assert status == 0, error
        objects = [document for document in yaml.load_all(out, yaml.CSafeLoader) if document]
        manifests = Manifests({(o["kind"], o["metadata"]["name"]): o for o in objects})
        assert len(manifests) == len(objects), "two objects have one kind and name"
        return manifests

    def refusal(
        self,
        values: Values | str | None = None,
        *flags: str,
        release: str = "demo",
        chart: Path = CHART,
    ) -> str:
        """Why the values are refused; fails the test when they are not."""
        status, out, error = self.run(values, *flags, release=release, chart=chart)
        assert status != 0, out
        return error


@pytest.fixture(params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest, tmp_path: Path) -> Helm:
    """Helm 3 and Helm 4 in turn."""
    return Helm(BIN / request.param, tmp_path)


@pytest.fixture
def helms(tmp_path: Path) -> dict[str, Helm]:
    """Both versions at once."""
    return {name: Helm(BIN / name, tmp_path) for name in ("helm3", "helm4")}


@pytest.fixture
def helm4(tmp_path: Path) -> Helm:
    """Helm 4, where the versions need not be told apart."""
    return Helm(BIN / "helm4", tmp_path)


@pytest.fixture
def chart_copy(tmp_path: Path) -> Callable[..., Path]:
    """A copy of the chart in which one text of a file is replaced by another."""

    def copy(file: str, old: str, new: str) -> Path:
        target = Path(shutil.copytree(CHART, tmp_path / "copy" / "dpd"))
        path = target / file
        text = path.read_text(encoding="utf-8")
        assert old in text
        path.write_text(text.replace(old, new), encoding="utf-8")
        return target

    return copy
