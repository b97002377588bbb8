"""A container's variables come out as the kubelet works them out."""

from __future__ import annotations

from typing import Any

import pytest

from dpd_local.environment import expand, resolve
from dpd_local.pods import Configuration, Pod, PodError

CONFIGURATION = Configuration(
    config_maps={"shared": {"COLOUR": b"red", "SIZE": b"small"}, "later": {"SIZE": b"large"}},
    secrets={"token": {"value": b"s3cret"}},
)


def resolved(**container: Any) -> dict[str, str]:
    pod = Pod(
        name="decode-0",
        metadata={"namespace": "here", "labels": {"zone": "a"}},
        spec={"containers": [container]},
    )
    return resolve(pod, CONFIGURATION, ip="127.70.1.2")


def test_a_later_env_from_replaces_an_earlier_one_and_env_replaces_both() -> None:
    sources = [{"configMapRef": {"name": "shared"}}, {"configMapRef": {"name": "later"}}]
    assert resolved(envFrom=sources, env=[{"name": "COLOUR", "value": "blue"}]) == {
        "COLOUR": "blue",
        "SIZE": "large",
    }


def test_a_reference_sees_only_what_stands_before_it() -> None:
    env = [
        {"name": "BEFORE", "value": "$(POD_IP):8000"},
        {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": "AFTER", "value": "$(POD_IP):8000"},
    ]
    assert resolved(env=env) == {
        "BEFORE": "$(POD_IP):8000",
        "POD_IP": "127.70.1.2",
        "AFTER": "127.70.1.2:8000",
    }


def test_the_last_of_two_variables_of_one_name_wins() -> None:
    env = [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}]
    assert resolved(env=env) == {"A": "12"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("$$(A)", "$(A)"),
        ("$$$(A)", "$1"),
        ("$(B)", "$(B)"),
        ("$(A", "$(A"),
        ("$A ${A} 5$", "$A ${A} 5$"),
        ("$(A)$(A)/$$", "11/$"),
    ],
)
def test_dollar_signs_are_read_as_kubernetes_reads_them(text: str, expected: str) -> None:
    assert expand(text, {"A": "1"}) == expected


def test_values_from_secrets_config_maps_and_fields_are_not_expanded() -> None:
    env = [
        {"name": "S", "valueFrom": {"secretKeyRef": {"name": "token", "key": "value"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "later", "key": "SIZE"}}},
        {"name": "L", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['zone']"}}},
        {"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}},
    ]
    assert resolved(env=env) == {"S": "s3cret", "C": "large", "L": "a", "N": "here"}


def test_a_missing_key_is_refused_by_name_unless_optional() -> None:
    reference = {"name": "token", "key": "gone"}
    with pytest.raises(PodError, match="env T: secret token has no key gone"):
        resolved(env=[{"name": "T", "valueFrom": {"secretKeyRef": reference}}])
    optional = reference | {"optional": True}
    assert resolved(env=[{"name": "T", "valueFrom": {"secretKeyRef": optional}}]) == {}
