"""Numbers reach the manifests as the digits that were written, whichever way they came (A01)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import Helm, Manifests, Values

BIG = [1073741824, 34359738368]
# Leaves room on the GPU for the larger one.
ROOM = "engines.args={--gpu-memory-utilization=0.5}"


def check_buffer(manifests: Manifests, size: int) -> None:
    for role in ("prefill", "decode"):
        assert f"\npd_buffer_size: {size}\n" in manifests.config_text(role)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_as_default(
    helm: Helm, chart_copy: Callable[..., Path], size: int
) -> None:
    chart = chart_copy("values.yaml", "bufferSize: 8589934592", f"bufferSize: {size}")
    check_buffer(helm.render(None, "--set", ROOM, chart=chart), size)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_in_a_file(helm: Helm, size: int) -> None:
    check_buffer(helm.render({"kvTransfer": {"bufferSize": size}}, "--set", ROOM), size)


@pytest.mark.parametrize("size", BIG)
def test_a_buffer_size_given_on_the_command_line(helm: Helm, size: int) -> None:
    flags = ("--set", f"kvTransfer.bufferSize={size}", "--set", ROOM)
    check_buffer(helm.render(None, *flags), size)


def test_a_buffer_size_given_as_a_string_is_refused_by_name(helm: Helm) -> None:
    error = helm.refusal(None, "--set-string", "kvTransfer.bufferSize=34359738368")
    assert "bufferSize" in error


@pytest.mark.parametrize("flags", [["--set", "model.maxLen=1048576"], []], ids=["set", "file"])
def test_a_million_tokens(helm: Helm, flags: list[str]) -> None:
    # A prompt of a million tokens has 40 GiB of KV on each rank, which host memory holds.
    values: Values = {"kvTransfer": {"bufferSize": 42949672960, "bufferDevice": "cpu"}}
    manifests = helm.render(values if flags else {**values, "model": {"maxLen": 1048576}}, *flags)
    for role in ("prefill", "decode"):
        assert "--max-model-len=1048576" in manifests.container(role)["args"]
    assert "maxLen: 1048576\n" in manifests.config_text("router")


def test_a_million_tokens_given_as_default(helm: Helm, chart_copy: Callable[..., Path]) -> None:
    chart = chart_copy("values.yaml", "maxLen: 16384", "maxLen: 1048576")
    values: Values = {"kvTransfer": {"bufferSize": 42949672960, "bufferDevice": "cpu"}}
    manifests = helm.render(values, chart=chart)
    assert "--max-model-len=1048576" in manifests.container("decode")["args"]
    assert "maxLen: 1048576\n" in manifests.config_text("router")


@pytest.mark.parametrize("flags", [True, False], ids=["set", "file"])
def test_ports_of_kv(helm: Helm, flags: bool) -> None:
    ports = {"init": 60000, "alloc": 61000, "notify": 62000}
    sets = [x for name, port in ports.items() for x in ("--set", f"kvTransfer.ports.{name}={port}")]
    manifests = helm.render(None, *sets) if flags else helm.render({"kvTransfer": {"ports": ports}})
    ranks = ",".join(str(port) for port in range(60000, 60008))
    assert f"\npd_peer_init_port: [{ranks}]\n" in manifests.config_text("decode")
    assert f"\n  initPorts: [{ranks}]\n" in manifests.config_text("router")
    assert "\nnotify:\n  port: 62000\n" in manifests.config_text("router")


# ---- Forms of a number (A03, A04) ----


def test_a_size_in_exponent_form_is_a_number_in_a_file(helm: Helm) -> None:
    check_buffer(helm.render("kvTransfer: {bufferSize: 2.5e9}"), 2500000000)


def test_a_size_in_exponent_form_is_a_text_on_the_command_line(helm: Helm) -> None:
    assert "bufferSize" in helm.refusal(None, "--set", "kvTransfer.bufferSize=2.5e9")


def test_a_threshold_in_exponent_form_is_a_number_in_a_file(helm: Helm) -> None:
    manifests = helm.render("router: {threshold: 4.096e3}")
    assert "threshold: 4096\n" in manifests.config_text("router")


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
            "model": {
                "hashSeed": 4294967295,
                "maxLen": 100000000,
                "shape": {"layers": 1, "weightBytes": 1},
            },
            "instanceTypes": ["x9.metal"],  # of those that the chart knows none has such memory
            "router": {
                "threshold": 99999999,
                "timeouts": {"connectSeconds": 0.25, "idleSeconds": 86400},
                "resources": {"limits": {"memory": 137438953472}},
            },
            "kvTransfer": {
                "pullTimeoutSeconds": 86400,
                "bufferSize": 1099511627776,
                "bufferDevice": "cpu",
            },
            "engines": {
                "shm": {"size": 17179869184},
                "resources": {
                    "requests": {"memory": 10995116277760},
                    "limits": {"nvidia.com/gpu": 8, "vpc.amazonaws.com/efa": 1},
                },
                "drainSeconds": 86000,
                "terminationGracePeriodSeconds": 86400,
                "podSecurityContext": {"runAsUser": 1000720000},
            },
        }
    )
    assert manifests.env("decode")["PYTHONHASHSEED"] == "4294967295"
    router = manifests.config_text("router")
    assert "threshold: 99999999\n" in router
    assert "connectSeconds: 0.25\n" in router
    assert "idleSeconds: 86400\n" in router
    assert "dpd_pull_timeout_seconds: 86400" in manifests.config_text("decode")
    assert "pd_buffer_size: 1099511627776\n" in manifests.config_text("decode")
    assert manifests.container("router")["resources"]["limits"]["memory"] == 137438953472
    pod = manifests.pod("decode")
    (shm,) = [volume["emptyDir"] for volume in pod["volumes"] if volume["name"] == "shm"]
    assert shm["sizeLimit"] == "17179869184"
    assert pod["securityContext"]["runAsUser"] == 1000720000
    assert pod["terminationGracePeriodSeconds"] == 86400
    assert "--shutdown-timeout=86000" in manifests.container("decode")["args"]
    assert manifests.container("decode")["resources"]["requests"]["memory"] == 10995116277760


def test_no_default_render_holds_a_number_in_exponent_form(helm: Helm) -> None:
    code, out, err = helm.run(None)
    assert code == 0, err
    for line in out.splitlines():
        assert not line.strip().endswith(tuple(f"e+{n:02}" for n in range(6, 20))), line


# ---- What --set makes of a value, which Argo CD's helm.parameters are passed by ----


def test_numbers_and_booleans_of_helm_parameters_are_typed_by_set(helm: Helm) -> None:
    parameters = {
        "prefill.replicas": "3",
        "router.threshold": "2048",
        "kvTransfer.bufferSize": "4294967296",
        "cache.l1.enabled": "false",
        "placement.separateNodes": "false",
        "model.servedName": "llama",
        "decode.args[0]": "--max-num-seqs=32",
        "engines.resources.limits.vpc\\.amazonaws\\.com/efa": "16",
    }
    flags = [x for name, value in parameters.items() for x in ("--set", f"{name}={value}")]
    manifests = helm.render(None, *flags)
    assert manifests.workload("prefill")["spec"]["replicas"] == 3
    assert manifests.config("router")["routing"]["threshold"] == 2048
    assert manifests.config("router")["model"]["name"] == "llama"
    sender = manifests.config("prefill")
    assert (sender["pd_buffer_size"], sender["local_cpu"]) == (4294967296, False)
    assert "podAntiAffinity" not in manifests.pod("decode")["affinity"]
    decode = manifests.container("decode")
    assert decode["args"][-1] == "--max-num-seqs=32"
    assert decode["resources"]["limits"]["vpc.amazonaws.com/efa"] == 16


@pytest.mark.parametrize(
    "parameter",
    ["prefill.replicas=3", "router.service.port=8080", "cache.l1.enabled=false", "model.maxLen=1"],
)
def test_a_number_or_boolean_forced_to_be_text_is_refused_by_name(
    helm: Helm, parameter: str
) -> None:
    key = parameter.partition("=")[0]
    error = helm.refusal(None, "--set-string", parameter)
    assert key in error or f"'/{key.replace('.', '/')}'" in error, error
