"""`ci/generate` and its check, on a copy of the checkout's relevant part."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose generated files are up to date."""
    for folder in ("charts", "schema", "plugins", "ci"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "README.md", tmp_path / "README.md")
    assert generate(tmp_path).returncode == 0
    return tmp_path


def generate(checkout: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """Run the copy."""
    command = [sys.executable, str(checkout / "ci" / "generate"), *flags]
    return subprocess.run(command, capture_output=True, text=True)


def test_the_check_passes_right_after_generating(checkout: Path) -> None:
    done = generate(checkout, "--check")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_check_names_what_has_drifted_and_writes_nothing(checkout: Path) -> None:
    schema = checkout / "charts/dpd/values.schema.json"
    schema.write_text("{}", encoding="utf-8")
    extra = checkout / "charts/dpd/files/plugins/dpd-vllm/dpd_vllm/left_over.py"
    extra.write_text("", encoding="utf-8")
    added = checkout / "plugins/dpd-router/src/dpd_router/added.py"
    added.write_text("", encoding="utf-8")
    done = generate(checkout, "--check")
    assert done.returncode == 1
    assert done.stdout.splitlines() == [
        "drifted: charts/dpd/files/plugins/dpd-router/dpd_router/added.py",
        "drifted: charts/dpd/files/plugins/dpd-vllm/dpd_vllm/left_over.py",
        "drifted: charts/dpd/values.schema.json",
    ]
    assert schema.read_text(encoding="utf-8") == "{}"


def test_generating_removes_what_nothing_generates_any_more(checkout: Path) -> None:
    extra = checkout / "charts/dpd/files/plugins/dpd-vllm/dpd_vllm/left_over.py"
    extra.write_text("", encoding="utf-8")
    generate(checkout)
    assert not extra.exists()


def test_compiled_files_are_not_copied(checkout: Path) -> None:
    cache = checkout / "plugins/dpd-router/src/dpd_router/__pycache__"
    cache.mkdir()
    (cache / "x.cpython-311.pyc").write_bytes(b"\0")
    assert generate(checkout, "--check").returncode == 0


def test_the_metadata_beside_a_copy_names_its_entry_point(checkout: Path) -> None:
    copies = checkout / "charts/dpd/files/plugins/dpd-vllm"
    script = (
        "import importlib.metadata as m; "
        "found = m.entry_points(group='vllm.general_plugins'); "
        "print([(e.name, e.value) for e in found], m.version('dpd-vllm'))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={"PYTHONPATH": str(copies)},
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[('dpd', 'dpd_vllm.plugin:register')] 0.1.0", done.stderr


def test_descriptions_in_the_schema_are_the_comments_of_the_values(checkout: Path) -> None:
    schema = json.loads((checkout / "charts/dpd/values.schema.json").read_text(encoding="utf-8"))
    ports = schema["definitions"]["kvTransfer"]["properties"]["ports"]["properties"]
    assert ports["notify"]["description"] == "Port on which a router hears that KV has landed."
    timeouts = schema["definitions"]["router"]["properties"]["timeouts"]["properties"]
    assert timeouts["idleSeconds"]["description"].startswith(
        "Seconds without a byte from a decoder"
    )
