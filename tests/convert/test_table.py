"""Every field of the CRD is carried over or named, and the table says which."""

from __future__ import annotations

from typing import Any

import pytest

from dpd_convert import (
    Conversion,
    Manifest,
    comment,
    convert,
    read_chart,
    report,
    to_yaml,
    trimmed,
)
from dpd_convert.__main__ import main
from dpd_convert.table import SECTIONS, TABLE, find, markdown

from .filled import CHOICES, FIELDS, filled, leaves, with_changed
from .rendering import Helm

CHART = read_chart()
KINDS = {
    "string": "text",
    "integer": "integer",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "map",
}


def converted(manifest: dict[str, Any]) -> Conversion:
    return convert(Manifest("filled.yaml", manifest), CHART)


def written(manifest: dict[str, Any]) -> tuple[str, str]:
    """Values and report of a manifest."""
    conversion = converted(manifest)
    values = trimmed(conversion.values, CHART.values)
    return to_yaml(values, comment(conversion, "v.yaml")), report(conversion, values, "v.yaml")


@pytest.mark.parametrize("path", FIELDS)
def test_the_table_has_a_line_for_the_field(path: str) -> None:
    row = find(path)
    assert row is not None
    if row.path == path:
        assert row.kind == KINDS[FIELDS[path]] or path.endswith("List")
        assert (row.how == "left") == (not row.keys and row.how not in ("group", "worked"))
        assert row.keys or row.remark or row.how == "group"


def test_the_table_has_no_field_that_the_crd_has_not() -> None:
    assert set(TABLE) <= set(FIELDS)


def test_the_table_names_keys_that_the_chart_has() -> None:
    engines = CHART.values["engines"]
    values = {**CHART.values, "prefill": {**engines, "replicas": 1}}
    values["decode"] = values["prefill"]
    for row in TABLE.values():
        for key in row.keys:
            found: Any = values
            for part in key.partition("[]")[0].split("."):
                assert part in found or found == {}, key
                found = found.get(part, {})


@pytest.mark.parametrize("choice", CHOICES)
def test_a_manifest_with_every_field_gives_a_complete_report(choice: str, helm: Helm) -> None:
    manifest = filled(choice)
    values, text = written(manifest)
    named = [
        line.strip().removeprefix("spec.").partition(" -> ")[0].partition(": ")[0]
        for line in text.splitlines()
        if line.startswith("  spec.")
    ]
    for path, _ in leaves(manifest["spec"]):
        field = ".".join(str(key) for key in path).replace(".0", "[0]")
        assert any(field == one or field.startswith((f"{one}.", f"{one}[")) for one in named), field
    helm.render(values)


@pytest.mark.parametrize("choice", CHOICES)
def test_no_value_is_lost_without_a_word(choice: str) -> None:
    """Whichever value of a full manifest changes, values or report change."""
    manifest = filled(choice)
    before = written(manifest)
    for path, value in leaves(manifest["spec"]):
        if path[-1] == "modelSourceType" or (choice == "volume" and value == "weights"):
            continue  # names that must be those of another place
        if isinstance(value, bool):
            other: Any = not value
        elif isinstance(value, str):
            amount = value.endswith("Gi")
            other = f"1{value}" if amount else f"{value}1"
            other = "redis" if value == "tieredstorage" else other
        else:
            other = value + 1
        if path == ("modelSourceConfig", "huggingFaceModel", "modelId"):
            other = "someone/other"
        changed = with_changed(manifest, ("spec", *path), other)
        assert written(changed) != before, path


@pytest.mark.parametrize("choice", CHOICES)
def test_an_unknown_field_is_named_wherever_it_is(choice: str) -> None:
    manifest = filled(choice)
    places = {path[:-1] for path, _ in leaves(manifest["spec"])}
    groups = [path for path in places if all(isinstance(key, str) for key in path)]
    for path in groups:
        field = ".".join((*path, "surprise"))
        row = find(field)
        if row is not None:
            continue  # in a map that is Kubernetes' own, or left as a whole with its value
        changed = with_changed(manifest, ("spec", *path, "surprise"), "x")
        left = {one.path: one.reason for one in converted(changed).left}
        assert left[f"spec.{field}"].startswith("not a field of InferenceEndpointConfig")


def test_an_unknown_field_of_a_trigger_is_named() -> None:
    manifest = filled("fsx, types")
    scaling = manifest["spec"]["pdSpec"]["autoScalingSpec"]["prefillAutoScaling"]
    scaling["cloudWatchTriggerList"][0]["surprise"] = 1
    left = [one.path for one in converted(manifest).left]
    at = "spec.pdSpec.autoScalingSpec.prefillAutoScaling.cloudWatchTriggerList[0].surprise"
    assert at in left


def test_what_the_cluster_wrote_is_named() -> None:
    manifest = filled("fsx, types")
    manifest["metadata"] |= {"uid": "1-2", "generation": 3}
    manifest["status"] = {"state": "Ready"}
    left = {one.path for one in converted(manifest).left}
    assert {"metadata.uid", "metadata.generation", "status"} <= left


@pytest.mark.parametrize("choice", CHOICES)
def test_nothing_is_said_to_be_carried_over_of_what_is_left_as_a_whole(choice: str) -> None:
    _, text = written(filled(choice))
    chosen = {"s3": "s3Storage", "fsx": "fsxStorage", "huggingface": "huggingFaceModel"}
    field = chosen.get(CHOICES[choice][0])
    for other in chosen.values():
        lines = [line for line in text.splitlines() if f"Config.{other}." in line and "->" in line]
        assert bool(lines) == (other == field)


@pytest.mark.parametrize("choice", CHOICES)
def test_no_field_is_said_to_be_both_carried_over_and_left(choice: str) -> None:
    """But for lists, of which some items may be left."""
    carried, left = (part.splitlines()[1:] for part in written(filled(choice))[1].split("\n\n")[:2])
    named = {line.strip().partition(" -> ")[0] for line in carried}
    again = {line.strip().partition(": ")[0] for line in left if line.startswith("  spec.")} & named
    assert again <= {"spec.worker.args", "spec.worker.environmentVariables"}


def test_the_table_is_printed_as_markdown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--table"]) == 0
    text = capsys.readouterr().out
    assert text == markdown() + "\n"
    lines = text.splitlines()
    rows = [row for section in SECTIONS for row in section.rows if row.how != "group"]
    cells = [line.split(" | ") for line in lines if line.startswith("| `")]
    assert [line[0].strip("| `") for line in cells] == [row.path for row in rows]
    assert all(len(line) == 3 for line in cells)
    assert lines.count("|---|---|---|") == len(SECTIONS)
    assert "| `pdSpec.topologySpec.sameAZ` | `placement.sameZone` |  |" in lines


def test_reasons_say_more_than_no() -> None:
    for row in TABLE.values():
        if row.how == "left":
            assert len(row.remark.split()) >= 6, row.path
