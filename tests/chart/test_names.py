"""Names of objects: distinct, legal (A21), and of nobody else's variables (A24)."""

from __future__ import annotations

import re

import pytest

from .conftest import Helm, Manifests

LEGAL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check(manifests: Manifests) -> None:
    names = [name for kind, name in manifests if kind != "PersistentVolume"]  # may be longer
    assert all(LEGAL.fullmatch(name) for name in names), names
    assert len({name for kind, name in manifests if kind == "Deployment"}) == 3
    # Room for the suffixes of a StatefulSet's pods, should an engine become one.
    assert all(len(name) <= 52 for kind, name in manifests if kind == "Deployment")
    references = {
        volume["configMap"]["name"]
        for kind, _ in manifests
        if kind == "Deployment"
        for deployment in [o for (k, _), o in manifests.items() if k == "Deployment"]
        for volume in deployment["spec"]["template"]["spec"]["volumes"]
        if "configMap" in volume
    }
    assert references == {name for kind, name in manifests if kind == "ConfigMap"}


@pytest.mark.parametrize(
    "release",
    [
        "dpd",
        "vllm",
        "lmcache",
        "x" * 53,
        "a" * 34 + "-" * 11 + "b",
        "a" * 40 + "--c",
        "my-dpd-release",
    ],
)
def test_any_release_name_gives_legal_and_distinct_names(helm4: Helm, release: str) -> None:
    check(helm4.render(release=release))


@pytest.mark.parametrize("name", ["f" * 63, "a" * 35 + "-" + "b" * 27, "x"])
def test_any_override_gives_legal_and_distinct_names(helm4: Helm, name: str) -> None:
    check(helm4.render({"fullnameOverride": name}))


def test_two_long_releases_do_not_share_names(helm4: Helm) -> None:
    one, two = (helm4.render(release="x" * 52 + last) for last in "ab")
    assert not set(one) & set(two)


def test_a_short_name_is_not_hashed(helm4: Helm) -> None:
    assert ("Deployment", "llama-dpd-decode") in helm4.render(release="llama")
    assert ("Deployment", "dpd-decode") in helm4.render(release="dpd")


@pytest.mark.parametrize("release", ["7b", "a.b"])
def test_a_release_that_no_service_can_be_named_after_needs_an_override(
    helm4: Helm, release: str
) -> None:
    assert "fullnameOverride" in helm4.refusal(release=release)
    check(helm4.render({"fullnameOverride": "llama"}, release=release))


@pytest.mark.parametrize("name", ["true", "null", "1e3", "0123"])
def test_a_release_or_namespace_that_looks_like_another_type_stays_text(
    helm: Helm, name: str
) -> None:
    manifests = helm.render({"fullnameOverride": "x"}, "--namespace", name, release=name)
    for manifest in manifests.values():
        assert manifest["metadata"]["namespace"] == name
        assert manifest["metadata"]["labels"]["app.kubernetes.io/instance"] == name
    pod = manifests.one("Deployment", "-decode")["spec"]["template"]
    assert pod["metadata"]["labels"]["app.kubernetes.io/instance"] == name


def test_a_longest_name_still_leaves_room_for_objects_of_a_model(helm4: Helm) -> None:
    fsx = {"fileSystemId": "fs-0123", "dnsName": "fs.example", "mountName": "abc"}
    values = {"model": {"source": {"type": "fsx", "fsx": fsx}}}
    manifests = helm4.render(values, release="x" * 53)
    check(manifests)
    assert "PersistentVolumeClaim" in {kind for kind, _ in manifests}


def test_everything_mounted_is_a_volume_and_every_volume_is_mounted(helm4: Helm) -> None:
    manifests = helm4.render()
    for component in ("router", "prefill", "decode"):
        pod = manifests.pod(component)
        mounts = [mount["name"] for mount in manifests.container(component)["volumeMounts"]]
        assert sorted(mounts) == sorted(volume["name"] for volume in pod["volumes"])
        assert ("ServiceAccount", pod["serviceAccountName"]) in manifests


@pytest.mark.parametrize("release", ["vllm", "lmcache", "dpd", "nixl"])
def test_no_release_gives_its_pods_the_variables_of_services(helm4: Helm, release: str) -> None:
    # A Service "vllm" would set VLLM_PORT to a tcp:// address (A24).
    manifests = helm4.render({"fullnameOverride": release}, release=release)
    for component in ("router", "prefill", "decode"):
        assert manifests.pod(component)["enableServiceLinks"] is False
