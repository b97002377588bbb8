"""A null takes a default away or is refused; it never leaves a hole in a manifest (A10)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
import yaml
from jsonschema import Draft7Validator

from .conftest import BIN, CHART, Helm, Values

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SCHEMAS = BIN.parent / "schemas"
# Nulls in one values file: few enough that one seldom hides another, many enough to be quick.
TOGETHER = 12

Place = tuple[str, ...]


def places(values: Any, above: Place = ()) -> Iterator[Place]:
    """Every key of the values, at any depth."""
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


def is_taken(place: Place) -> bool:
    """Whether the schema takes a null, which removes a default, or is a role's own."""
    if place[0] == "prefill":
        return Draft7Validator(SCHEMA).is_valid({**DEFAULTS, **nulls((place,))})
    at = SCHEMA
    for key in place[:-1]:
        at = at.get("properties", {}).get(key, {})
        while "$ref" in at:
            at = SCHEMA["definitions"][at["$ref"].rsplit("/", 1)[1]]
    return place[-1] not in at.get("required", [])


def nulls(batch: tuple[Place, ...]) -> Values:
    """A values file with a null at each place."""
    values: Values = {}
    for place in batch:
        at = values
        for key in place[:-1]:
            at = at.setdefault(key, {})
        at[place[-1]] = None
    return values


def holes(value: Any, path: str = "") -> Iterator[str]:
    """Where a manifest has a null, or a text that was made from one."""
    if value is None or value in ("null", "<nil>", "%!s(<nil>)"):
        yield path
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from holes(part, f"{path}.{key}")
    elif isinstance(value, list):
        for part in value:
            yield from holes(part, path)
    elif isinstance(value, str) and ("<nil>" in value or "%!" in value):
        yield path


# A key of engines may also be null in a role, where the chart has no default for Helm to remove.
PLACES = [*places(DEFAULTS), *(("prefill", key) for key in DEFAULTS["engines"])]
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")
# Places of which a null leaves nothing that Kubernetes could use, in two groups that do not nest.
NO_HANDLER = (
    ("image", "tag"),
    *((component, probe, "httpGet") for component in ("engines", "router") for probe in PROBES),
    *((component, "lifecycle", "preStop", "sleep") for component in ("engines", "router")),
)
NO_FIELD = (
    ("podSecurityContext", "seccompProfile", "type"),
    *((*place, "port") for place in NO_HANDLER if place[-1] == "httpGet"),
    *((*place, "seconds") for place in NO_HANDLER if place[-1] == "sleep"),
)
TAKEN = [p for p in PLACES if is_taken(p) and p not in NO_HANDLER + NO_FIELD]
REFUSED = [place for place in PLACES if not is_taken(place)]


def batches(found: list[Place]) -> list[tuple[Place, ...]]:
    """Places in groups in which none lies within another."""
    groups: list[list[Place]] = []
    for place in found:
        for group in groups:
            apart = all(a != b[: len(a)] for x in group for a, b in ((x, place), (place, x)))
            if apart and len(group) < TOGETHER:
                group.append(place)
                break
        else:
            groups.append([place])
    return [tuple(group) for group in groups]


@cache
def refusal_of_a_batch(helm: Helm, batch: tuple[Place, ...]) -> str:
    return helm.refusal(nulls(batch))


@pytest.mark.parametrize("place", REFUSED, ids=".".join)
def test_a_null_that_the_schema_refuses_is_named(helm4: Helm, place: Place) -> None:
    (batch,) = [group for group in batches(REFUSED) if place in group]
    error = refusal_of_a_batch(helm4, batch)
    assert "nil pointer" not in error
    missing = rf"at '{''.join('/' + key for key in place[:-1])}': missing propert"
    (line,) = [line for line in error.splitlines() if missing in line] or [""]
    at = "/".join(("", *place))
    assert f"'{place[-1]}'" in line or f"at '{at}': got null" in error, error


@pytest.mark.parametrize("batch", batches(TAKEN), ids=lambda batch: "+".join(map(".".join, batch)))
def test_any_other_default_may_be_null(helm4: Helm, batch: tuple[Place, ...]) -> None:
    status, out, error = helm4.run(nulls(batch))
    assert status == 0, error
    for document in filter(None, yaml.load_all(out, yaml.CSafeLoader)):
        name = document["metadata"]["name"]
        if not name.endswith("-plugin"):  # source code may hold anything
            assert list(holes(document, name)) == []


def test_what_nulls_leave_is_what_kubernetes_takes(helm4: Helm) -> None:
    manifests = "\n---\n".join(helm4.run(nulls(batch))[1] for batch in batches(TAKEN))
    newest = max(path.name for path in SCHEMAS.iterdir() if path.name[0].isdigit())
    kinds = f"{SCHEMAS / newest}/{{{{ .ResourceKind }}}}{{{{ .KindSuffix }}}}.json"
    command = [BIN / "kubeconform", "-strict", "-ignore-missing-schemas", "-summary"]
    done = subprocess.run(
        [*command, "-kubernetes-version", newest, "-schema-location", kinds],
        input=manifests,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "Valid: 0" not in done.stdout


def test_nulls_that_leave_no_handler_are_named_by_the_chart(helm4: Helm) -> None:
    error = helm4.refusal(nulls(NO_HANDLER))
    assert "- prefill.image: lmcache/vllm-openai has neither tag nor digest" in error
    for place in NO_HANDLER[1:]:
        key = ".".join(place[:-1])
        assert f"- {key}: has none of httpGet, exec and the like; add one" in error, error


def test_nulls_of_fields_that_kubernetes_needs_are_named_by_the_chart(helm4: Helm) -> None:
    error = helm4.refusal(nulls(NO_FIELD))
    for place in NO_FIELD:
        assert f"- {'.'.join(place)}: missing, but Kubernetes needs it; set it" in error, error


def test_null_takes_a_nested_default_away(helm: Helm) -> None:
    manifests = helm.render(
        {
            "podSecurityContext": {"runAsUser": None},
            "securityContext": {"capabilities": None},
            "decode": {
                "startupProbe": None,
                "livenessProbe": {"httpGet": None, "exec": {"command": ["true"]}},
                "resources": {"requests": {"memory": None}},
            },
            "router": {"resources": {"requests": {"cpu": None}, "limits": {"memory": None}}},
            "kvTransfer": {"backend": "UCX"},
            "commonLabels": {"a": None},
        }
    )
    assert "a" not in manifests.workload("decode")["metadata"]["labels"]
    assert "runAsUser" not in manifests.pod("decode")["securityContext"]
    decode = manifests.container("decode")
    assert "capabilities" not in decode["securityContext"]
    assert "startupProbe" not in decode
    assert decode["livenessProbe"] == {
        "exec": {"command": ["true"]},
        "periodSeconds": 10,
        "timeoutSeconds": 10,
        "failureThreshold": 6,
    }
    assert decode["resources"]["requests"] == {"cpu": "96", "nvidia.com/gpu": 8}
    assert manifests.container("router")["resources"] == {
        "requests": {"memory": "1Gi"},
        "limits": {},
    }
    assert "startupProbe" in manifests.container("prefill")


def test_null_takes_a_limit_of_cpu_away_again(helm: Helm) -> None:
    limits = {"engines": {"resources": {"limits": {"cpu": "8"}}}}
    assert helm.render(limits).container("decode")["resources"]["limits"]["cpu"] == "8"
    both = {**limits, "decode": {"resources": {"limits": {"cpu": None}}}}
    manifests = helm.render(both)
    assert "cpu" not in manifests.container("decode")["resources"]["limits"]
    assert manifests.container("prefill")["resources"]["limits"]["cpu"] == "8"
