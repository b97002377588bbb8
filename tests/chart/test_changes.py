"""What a change restarts, and what an upgrade may never change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHART, Helm, Manifests, Values


def pods(manifests: Manifests) -> dict[str, Any]:
    """Pod templates by component: where one changes, its pods restart."""
    return {
        o["metadata"]["labels"]["app.kubernetes.io/component"]: o["spec"]["template"]
        for (kind, _), o in manifests.items()
        if kind == "Deployment"
    }


def selectors(manifests: Manifests) -> dict[tuple[str, str], Any]:
    return {
        key: o["spec"]["selector"]
        for key, o in manifests.items()
        if key[0] in ("Deployment", "Service")
    }


@pytest.mark.parametrize(
    ("values", "restarted"),
    [
        ({"router": {"threshold": 100}}, {"router"}),
        ({"router": {"timeouts": {"idleSeconds": 5}}}, {"router"}),
        ({"router": {"replicas": 3, "service": {"port": 8080}}}, set()),
        ({"decode": {"args": ["--max-num-seqs=8"]}}, {"decode"}),
        ({"prefill": {"args": ["--max-num-seqs=8"]}}, {"prefill"}),
        ({"prefill": {"replicas": 3}}, set()),
        ({"args": ["--max-num-seqs=8"]}, {"prefill", "decode"}),
        ({"env": [{"name": "A", "value": "b"}]}, {"router", "prefill", "decode"}),
        ({"kvTransfer": {"bufferSize": 1073741824}}, {"prefill", "decode"}),
        ({"kvTransfer": {"ports": {"notify": 7600}}}, {"router"}),
        ({"kvTransfer": {"ports": {"init": 9000}}}, {"router", "decode"}),
        ({"placement": {"separateNodes": False}}, {"prefill", "decode"}),
        ({"shm": {"size": "1Gi"}}, {"prefill", "decode"}),
    ],
    ids=lambda it: str(sorted(it) if isinstance(it, set) else it),
)
def test_a_change_restarts_only_the_pods_that_it_concerns(
    helm4: Helm, values: Values, restarted: set[str]
) -> None:
    before, after = pods(helm4.render()), pods(helm4.render(values))
    assert {name for name in before if before[name] != after[name]} == restarted


@pytest.mark.parametrize("old", ["\nversion: 0.1.0", 'appVersion: "0.1.0"'])
def test_a_new_version_of_the_chart_alone_restarts_nothing(
    helm: Helm, chart_copy: Callable[..., Path], old: str
) -> None:
    newer = helm.render(chart=chart_copy("Chart.yaml", old, old.replace("0.1.0", "0.9.9+build.1")))
    assert pods(newer) == pods(helm.render())
    assert selectors(newer) == selectors(helm.render())
    assert newer != helm.render()


@pytest.mark.parametrize(
    ("plugin", "restarted"),
    [("dpd-router/dpd_router", {"router"}), ("dpd-vllm/dpd_vllm", {"prefill", "decode"})],
)
def test_new_plugin_code_restarts_the_pods_that_run_it(
    helm4: Helm, chart_copy: Callable[..., Path], plugin: str, restarted: set[str]
) -> None:
    changed = chart_copy(f"files/plugins/{plugin}/__init__.py", '"""', '"""Changed. ')
    before, after = pods(helm4.render()), pods(helm4.render(chart=changed))
    assert {name for name in before if before[name] != after[name]} == restarted


def test_selectors_never_change(helm: Helm) -> None:
    before = selectors(helm.render({"fullnameOverride": "fixed"}))
    after = selectors(
        helm.render(
            {
                "fullnameOverride": "fixed",
                "nameOverride": "renamed",
                "commonLabels": {"team": "search"},
                "router": {"podLabels": {"a": "b"}},
                "decode": {"podLabels": {"a": "b"}},
            }
        )
    )
    assert before == after


def test_two_renders_are_equal_byte_for_byte(helm: Helm) -> None:
    assert helm.run(None, release="demo", chart=CHART) == helm.run(
        None, release="demo", chart=CHART
    )


def test_no_template_asks_the_cluster_the_clock_or_chance() -> None:
    for path in (CHART / "templates").iterdir():
        text = path.read_text(encoding="utf-8")
        assert not [
            word for word in ("lookup", "rand", "now ", "uuidv4", "genCA") if word in text
        ], path
