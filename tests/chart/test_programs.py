"""What the chart writes is what the programs in the pods take."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpd_router.app import MAX_BODY_BYTES
from dpd_router.config import parse
from dpd_vllm.wiring import read_wiring

from .conftest import ROOT, Helm

FILES = sorted((ROOT / "values").glob("*.yaml"))


@pytest.fixture(params=[None, *FILES], ids=lambda f: f.stem if f else "defaults")
def values(request: pytest.FixtureRequest) -> str | None:
    """Each values file's text, and no values."""
    return request.param.read_text(encoding="utf-8") if request.param else None


def test_the_router_takes_its_configuration(helm4: Helm, values: str | None) -> None:
    manifests = helm4.render(values)
    config = parse(manifests.config("router"))
    (address,) = config.decode
    assert ("Service", address.partition(":")[0]) in manifests
    assert config.listen.port == 8000
    ranks = [a for a in manifests.container("decode")["args"] if a.startswith("--tensor-")]
    assert ranks == [f"--tensor-parallel-size={len(config.receiver.init_ports)}"]
    spec = manifests.one("Deployment", "-router")["spec"]["template"]["spec"]
    assert spec["terminationGracePeriodSeconds"] >= config.timeouts.drain + 5


def test_the_plugin_takes_the_wiring_of_both_roles(
    helm4: Helm, values: str | None, tmp_path: Path
) -> None:
    manifests = helm4.render(values)
    for role in ("prefill", "decode"):
        file = tmp_path / f"{role}.yaml"
        file.write_text(manifests.one("ConfigMap", f"-{role}")["data"]["lmcache.yaml"])
        env = {name: value for name, value in manifests.env(role).items() if value is not None}
        assert env["LMCACHE_CONFIG_FILE"] == "/etc/dpd/lmcache.yaml"
        env = {name: value.replace("$(POD_IP)", "127.0.0.1") for name, value in env.items()}
        wiring = read_wiring({**env, "LMCACHE_CONFIG_FILE": str(file)})
        assert wiring is not None
        assert wiring.role == role
        assert wiring.allocation_timeout == 30
        assert wiring.pull_timeout == 300


def test_an_nginx_lets_through_bodies_as_large_as_the_router_takes(helm4: Helm) -> None:
    manifests = helm4.render({"router": {"ingress": {"enabled": True, "className": "nginx"}}})
    annotations = manifests.one("Ingress", "-router")["metadata"]["annotations"]
    size = annotations["nginx.ingress.kubernetes.io/proxy-body-size"]
    assert size == f"{MAX_BODY_BYTES >> 20}m"
