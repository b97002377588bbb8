"""The sample manifest, and what becomes of a manifest."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dpd_convert import __main__ as program

from .rendering import Helm

HERE = Path(__file__).parent
SAMPLE = HERE / "sample.yaml"

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Converted:
    """What the program wrote."""

    text: str
    report: str

    @property
    def values(self) -> dict[str, Any]:
        return yaml.safe_load(self.text)

    def reason(self, path: str, value: str) -> str:
        """Why a field with this value is not carried over."""
        lines = self.section("Not carried over:")
        assert f"  {path}: {value}" in lines, self.report
        return lines[lines.index(f"  {path}: {value}") + 1].strip()

    def section(self, title: str) -> list[str]:
        """The lines of a part of the report."""
        parts = [part.splitlines() for part in self.report.split("\n\n")]
        return next((part[1:] for part in parts if part[0] == title), [])

    def notes(self) -> str:
        return "\n".join(self.section("To know before installing:"))


Convert = Callable[..., Converted]


@pytest.fixture
def manifest() -> Manifest:
    """The sample, to change."""
    return copy.deepcopy(yaml.safe_load(SAMPLE.read_text(encoding="utf-8")))


@pytest.fixture
def spec(manifest: Manifest) -> dict[str, Any]:
    """Its spec."""
    return manifest["spec"]


@pytest.fixture
def convert(
    manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[], Converted]:
    """Runs the program on the manifest as it is by then."""

    def run() -> Converted:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump(manifest, sort_keys=False), encoding="utf-8")
        status = program.main([str(file)])
        out, error = capsys.readouterr()
        assert status == 0, error
        return Converted(out, error)

    return run


@pytest.fixture
def refusal(
    manifest: Manifest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Runs the program on a text, or on the manifest, and returns why it refuses."""

    def run(text: str | None = None) -> str:
        file = tmp_path / "manifest.yaml"
        file.write_text(yaml.safe_dump(manifest) if text is None else text, encoding="utf-8")
        status = program.main([str(file)])
        out, error = capsys.readouterr()
        assert status == 1 and not out, out
        assert error.startswith("dpd_convert: "), error
        return error.removeprefix("dpd_convert: ").replace(str(file), "FILE").strip()

    return run


@pytest.fixture
def helm(tmp_path: Path) -> Helm:
    """The real Helm; that its versions render alike is tested with the chart."""
    return Helm(tmp_path)
