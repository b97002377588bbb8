"""Names of objects: distinct, legal, and the same in every place that uses them."""

from __future__ import annotations

import re

import pytest

from .conftest import Helm, Manifests

LEGAL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


def check(manifests: Manifests) -> None:
    names = [name for _, name in manifests]
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
def test_any_release_name_gives_legal_and_distinct_names(helm: Helm, release: str) -> None:
    check(helm.render(release=release))


@pytest.mark.parametrize("name", ["f" * 63, "a" * 35 + "-" + "b" * 27, "x"])
def test_any_override_gives_legal_and_distinct_names(helm: Helm, name: str) -> None:
    check(helm.render({"fullnameOverride": name}))


def test_two_long_releases_do_not_share_names(helm4: Helm) -> None:
    one, two = (helm4.render(release="x" * 52 + last) for last in "ab")
    assert not set(one) & set(two)


def test_a_short_name_is_not_hashed(helm4: Helm) -> None:
    assert ("Deployment", "llama-dpd-decode") in helm4.render(release="llama")
    assert ("Deployment", "dpd-decode") in helm4.render(release="dpd")


@pytest.mark.parametrize("release", ["7b", "a.b"])
def test_a_release_that_no_service_can_be_named_after_needs_an_override(
    helm: Helm, release: str
) -> None:
    assert "fullnameOverride" in helm.refusal(release=release)
    check(helm.render({"fullnameOverride": "llama"}, release=release))


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


def test_every_address_in_the_configuration_is_one_of_the_release(helm: Helm) -> None:
    manifests = helm.render(
        {
            "fullnameOverride": "other",
            "kvTransfer": {"ports": {"init": 9000, "alloc": 9100, "notify": 9200}},
            "decode": {"replicas": 2},
        }
    )
    router = manifests.config("router")
    for role in ("prefill", "decode"):
        (address,) = router[role]["addresses"]
        name, _, port = address.partition(":")
        service = manifests[("Service", name)]
        assert service["spec"]["clusterIP"] == "None"
        (entry,) = service["spec"]["ports"]
        assert entry["port"] == int(port)
        pods = manifests.one("Deployment", f"-{role}")["spec"]["template"]
        assert service["spec"]["selector"].items() <= pods["metadata"]["labels"].items()
        ports = {p["name"]: p["containerPort"] for p in manifests.container(role)["ports"]}
        assert ports[entry["targetPort"]] == int(port)
        assert f"--port={port}" in manifests.container(role)["args"]
    listened = manifests.config("decode")
    assert router["decode"]["initPorts"] == listened["pd_peer_init_port"] == list(range(9000, 9008))
    assert (
        router["decode"]["allocPorts"] == listened["pd_peer_alloc_port"] == list(range(9100, 9108))
    )
    opened = {p["containerPort"] for p in manifests.container("decode")["ports"]}
    assert opened == {8000, *range(9000, 9008), *range(9100, 9108)}
    assert {p["containerPort"] for p in manifests.container("router")["ports"]} == {
        8000,
        router["notify"]["port"],
    }
    assert router["notify"]["port"] == 9200


def test_everything_mounted_is_a_volume_and_every_volume_is_mounted(helm: Helm) -> None:
    manifests = helm.render()
    for component in ("router", "prefill", "decode"):
        pod = manifests.one("Deployment", f"-{component}")["spec"]["template"]["spec"]
        mounts = [mount["name"] for mount in manifests.container(component)["volumeMounts"]]
        assert sorted(mounts) == sorted(volume["name"] for volume in pod["volumes"])
        assert ("ServiceAccount", pod["serviceAccountName"]) in manifests
