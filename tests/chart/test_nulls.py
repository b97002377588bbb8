"""A null takes a default away or is refused; it never leaves a hole in a manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from .conftest import CHART, Helm, Values

DEFAULTS: Values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))


def places(values: Any, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every key of the values, at any depth."""
    for key, value in values.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from places(value, (*above, key))


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
    elif isinstance(value, str) and ("<nil>" in value or "%!" in value) and "plugin" not in path:
        yield path


@pytest.mark.parametrize("place", list(places(DEFAULTS)), ids=".".join)
def test_any_default_may_be_null_or_the_refusal_names_it(
    helm4: Helm, place: tuple[str, ...]
) -> None:
    values: Any = None
    for key in reversed(place):
        values = {key: values}
    status, out, error = helm4.run(values, release="demo", chart=CHART)
    if status:
        assert place[-1] in error or (place[-1] in ("tag", "nodeSelector")), error
        assert "nil pointer" not in error and "wrong type" not in error, error
        return
    for document in filter(None, yaml.load_all(out, yaml.CSafeLoader)):
        if document["kind"] == "ConfigMap" and document["metadata"]["name"].endswith("-plugin"):
            continue
        assert list(holes(document, document["metadata"]["name"])) == []


def test_null_takes_a_nested_default_away(helm: Helm) -> None:
    manifests = helm.render(
        {
            "podSecurityContext": {"runAsUser": None},
            "securityContext": {"capabilities": None},
            "decode": {"startupProbe": None},
            "router": {"resources": {"requests": {"cpu": None}}},
            "kvTransfer": {"backend": "UCX"},
            "commonLabels": {"a": None},
        }
    )
    pod = manifests.one("Deployment", "-decode")["spec"]["template"]["spec"]
    assert "a" not in manifests.one("Deployment", "-decode")["metadata"]["labels"]
    assert "runAsUser" not in pod["securityContext"]
    assert "capabilities" not in manifests.container("decode")["securityContext"]
    assert "startupProbe" not in manifests.container("decode")
    assert manifests.container("router")["resources"]["requests"] == {"memory": "1Gi"}
