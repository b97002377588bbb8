"""Numbers reach the manifests as the digits that were written, whichever way they came."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import CHART, Helm, Manifests

BIG = [1073741824, 34359738368]


def text_of(manifests: Manifests, component: str) -> str:
    """The configuration file of a component as it is written."""
    (text,) = manifests.one("ConfigMap", f"-{component}")["data"].values()
    return text


def check_buffer(manifests: Manifests, size: int) -> None:
    for role in ("prefill", "decode"):
        assert f"\npd_buffer_size: {size}\n" in text_of(manifests, role)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_as_default(
    helm: Helm, chart_copy: Callable[..., Path], size: int
) -> None:
    chart = chart_copy("values.yaml", "bufferSize: 8589934592", f"bufferSize: {size}")
    check_buffer(helm.render(chart=chart), size)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_in_a_file(helm: Helm, size: int) -> None:
    check_buffer(helm.render({"kvTransfer": {"bufferSize": size}}), size)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_on_the_command_line(helm: Helm, size: int) -> None:
    check_buffer(helm.render(None, "--set", f"kvTransfer.bufferSize={size}"), size)


def test_a_buffer_size_given_as_a_string_is_refused_by_name(helm: Helm) -> None:
    error = helm.refusal(None, "--set-string", "kvTransfer.bufferSize=34359738368")
    assert "bufferSize" in error


@pytest.mark.parametrize("flags", [["--set", "model.maxLen=1048576"], []], ids=["set", "file"])
def test_a_million_tokens(helm: Helm, flags: list[str]) -> None:
    manifests = helm.render(None if flags else {"model": {"maxLen": 1048576}}, *flags)
    for role in ("prefill", "decode"):
        assert "--max-model-len=1048576" in manifests.container(role)["args"]
    assert "maxLen: 1048576\n" in text_of(manifests, "router")


def test_a_threshold_in_exponent_form_is_a_number_in_a_file(helm: Helm) -> None:
    manifests = helm.render("router: {threshold: 4.096e3}")
    assert "threshold: 4096\n" in text_of(manifests, "router")


@pytest.mark.parametrize(
    "flags", [["--set", "router.threshold=4096.5"], ["--set-string", "router.threshold=4096"]]
)
def test_a_threshold_that_is_no_whole_number_is_refused_by_name(
    helm: Helm, flags: list[str]
) -> None:
    assert "threshold" in helm.refusal(None, *flags)


def test_every_other_number_keeps_its_digits(helm: Helm) -> None:
    manifests = helm.render(
        {
            "model": {"hashSeed": 4294967295, "maxLen": 100000000},
            "router": {
                "threshold": 99999999,
                "timeouts": {"connectSeconds": 0.25, "idleSeconds": 86400},
                "resources": {"limits": {"memory": 137438953472}},
            },
            "kvTransfer": {"pullTimeoutSeconds": 86400},
            "shm": {"size": 17179869184},
            "resources": {"requests": {"memory": 2199023255552}},
        }
    )
    assert manifests.env("decode")["PYTHONHASHSEED"] == "4294967295"
    router = text_of(manifests, "router")
    assert "threshold: 99999999\n" in router
    assert "connectSeconds: 0.25\n" in router
    assert "idleSeconds: 86400\n" in router
    assert "dpd_pull_timeout_seconds: 86400" in text_of(manifests, "decode")
    assert manifests.container("router")["resources"]["limits"]["memory"] == 137438953472
    volumes = manifests.one("Deployment", "-decode")["spec"]["template"]["spec"]["volumes"]
    (shm,) = [volume["emptyDir"] for volume in volumes if volume["name"] == "shm"]
    assert shm["sizeLimit"] == 17179869184
    assert manifests.container("decode")["resources"]["requests"]["memory"] == 2199023255552


def test_no_default_render_holds_a_number_in_exponent_form(helm: Helm, tmp_path: Path) -> None:
    _, out, _ = helm.run(None, release="demo", chart=CHART)
    plugins = out.index("kind: ConfigMap\nmetadata:\n  name: demo-dpd-engine-plugin")
    assert plugins > 0
    for line in out.splitlines():
        assert not line.strip().endswith(tuple(f"e+{n:02}" for n in range(6, 20))), line
