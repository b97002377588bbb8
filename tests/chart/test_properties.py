"""What the schema takes makes manifests that Kubernetes takes, or a refusal that names a key."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from dpd_ci.artefacts import kubeconform_flags, kubernetes_versions

from .conftest import BIN, ROOT, Helm, Values
from .places import (
    DEFAULTS,
    SCHEMA,
    Place,
    chart_without_code,
    every_place,
    fitting_at,
    merged,
    put,
    schema_at,
)

FILES: list[Path | None] = [None, *sorted((ROOT / "values").glob("*.yaml"))]
# Of all files together: CI tries more of them. Another seed tries others.
EXAMPLES = int(os.environ.get("DPD_EXAMPLES") or 100)
SEED = int(os.environ.get("DPD_SEED") or 0)
VERSION = kubernetes_versions()[-1]

Changes = list[tuple[Place, Any]]
CHANGE = st.sampled_from(every_place()).flatmap(
    lambda place: fitting_at(place).map(lambda value: (place, value))
)


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.stem if f else "defaults")
def test_what_the_schema_takes_renders_or_is_refused_by_name(
    helms: dict[str, Helm], file: Path | None, tmp_path: Path
) -> None:
    chart = chart_without_code(tmp_path)
    base = yaml.safe_load(file.read_text(encoding="utf-8")) if file else {}
    tried: list[tuple[str, Changes]] = []

    def manifests(version: str, changes: Changes) -> str | None:
        return rendered(helms[version], chart, changed(base, changes))

    def attempt(version: str, changes: Changes) -> None:
        try:
            made = manifests(version, changes)
        except AssertionError:
            changes = least(changes, lambda fewer: raises(lambda: manifests(version, fewer)))
            hypothesis.note(f"{version}: {changes}")
            manifests(version, changes)
            raise
        if made is not None:
            (tmp_path / f"{len(tried)}.manifest.yaml").write_text(made, encoding="utf-8")
            tried.append((version, changes))

    search(attempt, seed=SEED * len(FILES) + FILES.index(file))
    told = []
    for number, problem in refused_by_kubernetes(tmp_path):
        version, changes = tried[number]
        told.append(f"{problem}\n  {version}: {changes}")
    assert not told, "\n".join(told)
    assert len(tried) >= EXAMPLES / len(FILES) / 10  # most are refused, but not nearly all


def changed(base: Values, changes: Changes) -> Values:
    """Values of which some are replaced."""
    for place, value in changes:
        base = put(base, place, value)
    return base


def rendered(helm: Helm, chart: Path, values: Values) -> str | None:
    """What the values make; None when they are rightly refused."""
    flags = ("--kube-version", VERSION)
    text = yaml.safe_dump(values, default_style='"')  # the YAML of Python would take y for a text
    status, out, error = helm.run(text, *flags, release="demo", chart=chart)
    if status:
        check_refusal(error, values)
        return None
    for hole in ("<nil>", "%!", "map["):
        assert hole not in out or hole in json.dumps(values, ensure_ascii=False), out
    return out


def check_refusal(error: str, values: Values) -> None:
    """A refusal is the schema's, which is right, or the chart's, each line of which names a key."""
    if "values don't meet the specifications of the schema" in error:
        assert list(Draft7Validator(SCHEMA).iter_errors(merged(DEFAULTS, values))), error
        return
    _, said, lines = error.partition("these values cannot be used:\n")
    assert said, error
    for line in lines.split("\n\n")[0].splitlines():
        assert names_a_key(line), error


def names_a_key(line: str) -> bool:
    """Whether a line of a refusal starts with a dash and a key that the values may have."""
    found = re.match(r"- ([A-Za-z0-9.]+)[^\s:]*: ", line)
    keys = found[1].rstrip(".").split(".") if found else []
    while keys and schema_at(keys) is None:  # inside what the schema passes through
        keys.pop()
    return bool(keys)


def refused_by_kubernetes(folder: Path) -> list[tuple[int, str]]:
    """The numbers of the manifests that do not conform, and why."""
    command = [BIN / "kubeconform", *kubeconform_flags(BIN.parent, VERSION)]
    files = list(folder.glob("*.manifest.yaml"))
    done = subprocess.run([*command, *files], capture_output=True, text=True)
    wrong = re.findall(r"^\S*/(\d+)\.manifest\.yaml - (.*)$", done.stdout, re.MULTILINE)
    assert wrong or done.returncode == 0, done.stdout + done.stderr
    return [(int(number), problem) for number, problem in wrong]


def least(changes: Changes, fails: Callable[[Changes], bool]) -> Changes:
    """The changes without those that a failure does not need."""
    for change in list(changes):
        fewer = [other for other in changes if other is not change]
        changes = fewer if fails(fewer) else changes
    return changes


def raises(call: Callable[[], object]) -> bool:
    try:
        call()
    except AssertionError:
        return True
    return False


def search(attempt: Callable[[str, Changes], None], seed: int) -> None:
    """Tries a file's share of the examples, the same ones in every run with this seed."""
    settings = hypothesis.settings(
        max_examples=-(-EXAMPLES // len(FILES)),
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],  # shrinking takes minutes; `least` takes seconds
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        print_blob=False,
    )
    given = hypothesis.given(
        version=st.sampled_from(["helm3", "helm4"]),
        changes=st.lists(CHANGE, min_size=1, max_size=6),
    )
    hypothesis.seed(seed)(settings(given(attempt)))()
