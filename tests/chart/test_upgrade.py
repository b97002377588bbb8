"""An upgrade from a released chart: what Kubernetes lets nobody change is as it was (A15).

`released/<version>/<values file>.yaml` is what that version rendered, without the plugins' code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import ROOT, Helm, Manifests

RELEASED = sorted((Path(__file__).parent / "released").glob("*/*.yaml"))


@pytest.fixture(scope="module", params=RELEASED, ids=lambda p: f"{p.parent.name}-{p.stem}")
def released(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def before(released: Path) -> Manifests:
    documents = yaml.load_all(released.read_text(encoding="utf-8"), yaml.CSafeLoader)
    return Manifests({(o["kind"], o["metadata"]["name"]): o for o in documents})


@pytest.fixture(scope="module")
def after(released: Path, helm4: Helm) -> Manifests:
    values = ROOT / "values" / released.name
    return helm4.render(values.read_text(encoding="utf-8") if values.exists() else None)


def immutable(manifest: dict[str, Any]) -> Any:
    """The fields of an object that no update may change."""
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Deployment":
            return spec["selector"]
        case "Service":
            return spec.get("clusterIP"), spec.get("type", "ClusterIP"), spec["selector"]
        case "PersistentVolumeClaim":
            return spec
        case "PersistentVolume":
            return spec.get("csi"), spec.get("hostPath"), spec["claimRef"]
        case "ConfigMap":
            return manifest.get("immutable", False)
        case "ServiceAccount":
            return None
    raise AssertionError(f"say what is immutable in a {manifest['kind']}")


def test_there_is_something_to_upgrade_from(before: Manifests) -> None:
    kinds = sorted(kind for kind, _ in before)
    assert (
        kinds == ["ConfigMap"] * 5 + ["Deployment"] * 3 + ["Service"] * 3 + ["ServiceAccount"] * 2
    )


def test_every_object_is_still_there(before: Manifests, after: Manifests) -> None:
    assert set(before) <= set(after)


def test_nothing_immutable_changes(before: Manifests, after: Manifests) -> None:
    for key, manifest in before.items():
        assert immutable(after[key]) == immutable(manifest), key
        assert after[key]["apiVersion"] == manifest["apiVersion"], key


def test_pods_keep_their_service_accounts_and_ports(before: Manifests, after: Manifests) -> None:
    for component in ("router", "prefill", "decode"):
        account = before.pod(component)["serviceAccountName"]
        assert after.pod(component)["serviceAccountName"] == account
        # Routers and engines of both versions meet while the upgrade goes on.
        assert after.container(component)["ports"] == before.container(component)["ports"]


def test_pods_of_the_old_and_the_new_version_are_of_one_service(
    before: Manifests, after: Manifests
) -> None:
    for (kind, name), service in after.items():
        if kind == "Service":
            component = name.rsplit("-", 1)[1]
            for manifests in (before, after):
                labels = manifests.template(component)["metadata"]["labels"]
                assert service["spec"]["selector"].items() <= labels.items()
