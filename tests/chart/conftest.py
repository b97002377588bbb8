"""The real Helm, version 3 and version 4, as fixtures."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "charts" / "dpd"
BIN = Path(os.environ.get("DPD_CACHE") or Path.home() / ".cache" / "dpd") / "bin"

Values = dict[str, Any]
Done = tuple[int, str, str]

WORKLOADS = ("Deployment", "LeaderWorkerSet")


class Manifests(dict[tuple[str, str], dict[str, Any]]):
    """Rendered objects by kind and name. Renders are shared between tests: read them only."""

    def one(self, kind: str, suffix: str) -> dict[str, Any]:
        """The object of a kind whose name ends so."""
        found = [self[key] for key in self if key[0] == kind and key[1].endswith(suffix)]
        assert len(found) == 1, (kind, suffix, list(self))
        return found[0]

    def workload(self, component: str) -> dict[str, Any]:
        """The Deployment or LeaderWorkerSet of a component."""
        found = [
            self[key] for key in self if key[0] in WORKLOADS and key[1].endswith(f"-{component}")
        ]
        assert len(found) == 1, (component, list(self))
        return found[0]

    def template(self, component: str) -> dict[str, Any]:
        """The pod template of a component; that of the leader when an engine spans nodes."""
        spec = self.workload(component)["spec"]
        return (
            spec["template"]
            if "template" in spec
            else spec["leaderWorkerTemplate"]["leaderTemplate"]
        )

    def pod(self, component: str) -> dict[str, Any]:
        """The specification of a component's pods."""
        return self.template(component)["spec"]

    def container(self, component: str) -> dict[str, Any]:
        """The container of a component's pods that is the chart's own."""
        return self.pod(component)["containers"][0]

    def env(self, component: str) -> dict[str, str | None]:
        """The literal environment of a component."""
        return {item["name"]: item.get("value") for item in self.container(component)["env"]}

    def config(self, component: str) -> dict[str, Any]:
        """The configuration file of a component, parsed."""
        return yaml.safe_load(self.config_text(component))

    def config_text(self, component: str) -> str:
        """The configuration file of a component as it is written."""
        (text,) = self.one("ConfigMap", f"-{component}")["data"].values()
        return text


@lru_cache(maxsize=128)
def template(
    program: Path, release: str, chart: Path, flags: tuple[str, ...], values: str | None
) -> Done:
    """Run `helm template` without a network; values are the text of a file."""
    command = [str(program), "template", release, str(chart), *flags]
    # A proxy that refuses every connection: nothing may be fetched (A09). No render lasts long
    # enough for its garbage to matter.
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GOGC": "off"}
    env |= dict.fromkeys(("HTTPS_PROXY", "HTTP_PROXY"), "http://127.0.0.1:9")
    if values is not None:
        command += ["--values", "-"]
    done = subprocess.run(command, input=values or "", capture_output=True, text=True, env=env)
    return done.returncode, done.stdout, done.stderr


@lru_cache(maxsize=32)
def parsed(out: str) -> Manifests:
    """The objects of a render."""
    objects = [document for document in yaml.load_all(out, yaml.CSafeLoader) if document]
    manifests = Manifests({(o["kind"], o["metadata"]["name"]): o for o in objects})
    assert len(manifests) == len(objects), "two objects have one kind and name"
    return manifests


@dataclass(frozen=True)
class Helm:
    """One version of Helm."""

    program: Path

    def run(
        self, values: Values | str | None, *flags: str, release: str = "demo", chart: Path = CHART
    ) -> Done:
        """Exit status, output and errors; values may be a mapping or a file's text."""
        text = values
        if isinstance(values, dict):
            text = yaml.safe_dump(values, allow_unicode=True, sort_keys=False)
        # Copies of the chart change from test to test.
        run = template if chart == CHART else template.__wrapped__
        return run(self.program, release, chart, flags, text)

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
        return parsed(out)

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


@pytest.fixture(scope="session", params=["helm3", "helm4"])
def helm(request: pytest.FixtureRequest) -> Helm:
    """Helm 3 and Helm 4 in turn."""
    return Helm(BIN / request.param)


@pytest.fixture(scope="session")
def helms() -> dict[str, Helm]:
    """Both versions at once."""
    return {name: Helm(BIN / name) for name in ("helm3", "helm4")}


@pytest.fixture(scope="session")
def helm4() -> Helm:
    """Helm 4, where the versions need not be told apart."""
    return Helm(BIN / "helm4")


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
