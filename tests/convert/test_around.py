"""Autoscaling, caches and the way in, as the chart renders them."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Convert
from .rendering import Helm

WORKSPACE = "https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1a"
QUEUE: dict[str, Any] = {
    "name": "queue",
    "namespace": "Own",
    "metricName": "Waiting",
    "dimensions": [{"name": "Role", "value": "prefill"}, {"name": "Model", "value": "llama"}],
    "metricStat": "Maximum",
    "metricCollectionPeriod": 60,
    "metricCollectionStartTime": 120,
    "minValue": 1,
    "targetValue": 2.5,
    "activationTargetValue": 1,
    "metricType": "Value",
    "useCachedMetrics": False,
}
LATENCY: dict[str, Any] = {
    "serverAddress": WORKSPACE,
    "query": 'sum(vllm:num_requests_waiting{role="decode"})',
    "customHeaders": "X-A=b",
    "namespace": "own",
    "targetValue": 4,
    "activationTargetValue": 0.5,
    "metricType": "Average",
}


def test_roles_scale_by_the_manifests_triggers_alone(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["pdSpec"]["autoScalingSpec"] = {
        "prefillAutoScaling": {
            "minReplicaCount": 2,
            "maxReplicaCount": 6,
            "cooldownPeriod": 120,
            "cloudWatchTrigger": QUEUE,
        },
        "decodingAutoScaling": {"prometheusTrigger": LATENCY},
    }
    spec["pdSpec"]["prefillSpec"]["replicas"] = 2
    converted = convert()
    manifests = helm.render(converted.text)
    prefill = manifests.one("ScaledObject", "-prefill")["spec"]
    assert (prefill["minReplicaCount"], prefill["maxReplicaCount"]) == (2, 6)
    assert prefill["cooldownPeriod"] == 120
    assert prefill["triggers"] == [
        {
            "type": "aws-cloudwatch",
            "name": "queue",
            "metricType": "Value",
            "useCachedMetrics": False,
            "metadata": {
                "awsRegion": "us-west-2",
                "namespace": "Own",
                "metricName": "Waiting",
                "dimensionName": "Role;Model",
                "dimensionValue": "prefill;llama",
                "metricStat": "Maximum",
                "metricStatPeriod": "60",
                "metricCollectionTime": "120",
                "minMetricValue": "1",
                "targetMetricValue": "2.5",
                "activationTargetMetricValue": "1",
            },
        }
    ]
    decode = manifests.one("ScaledObject", "-decode")["spec"]
    # HyperPod's own numbers where the manifest has none.
    assert (decode["minReplicaCount"], decode["maxReplicaCount"]) == (1, 5)
    assert decode["cooldownPeriod"] == 300
    assert decode["triggers"] == [
        {
            "type": "prometheus",
            "metricType": "AverageValue",
            "useCachedMetrics": True,
            "metadata": {
                "awsRegion": "eu-west-1",
                "serverAddress": WORKSPACE,
                "query": LATENCY["query"],
                "customHeaders": "X-A=b",
                "namespace": "own",
                "threshold": "4",
                "activationThreshold": "0.5",
            },
        }
    ]
    for role in ("prefill", "decode"):
        assert "replicas" not in manifests.one("Deployment", f"-{role}")["spec"]
    assert "KEDA says how many" in converted.reason("spec.pdSpec.prefillSpec.replicas", "2")
    assert "TriggerAuthentication" in converted.notes()


def test_lists_of_triggers_go_before_the_single_ones(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["intelligentRoutingSpec"]["autoScalingSpec"] = {
        "cloudWatchTrigger": {"metricName": "single", "targetValue": 1},
        "cloudWatchTriggerList": [
            {"metricName": "first", "targetValue": 1},
            {"metricName": "second", "targetValue": 2},
        ],
        "prometheusTrigger": {"query": "up", "targetValue": 1},
    }
    converted = convert()
    triggers = helm.render(converted.text).one("ScaledObject", "-router")["spec"]["triggers"]
    assert [t["metadata"].get("metricName") for t in triggers] == ["first", "second", None]
    assert all(t["metadata"]["minMetricValue"] == "0" for t in triggers[:2])
    at = "spec.intelligentRoutingSpec.autoScalingSpec.cloudWatchTrigger"
    reason = converted.reason(at, '{"metricName": "single", "targetValue": 1}')
    assert reason == "cloudWatchTriggerList goes before it"
    assert "set serverAddress in the metadata of router.autoscaling.triggers" in converted.notes()


def test_scaling_without_a_trigger_is_not_carried_over(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["pdSpec"]["autoScalingSpec"] = {"decodingAutoScaling": {"maxReplicaCount": 3}}
    converted = convert()
    at = "spec.pdSpec.autoScalingSpec.decodingAutoScaling"
    assert "set decode.autoscaling.type" in converted.reason(at, '{"maxReplicaCount": 3}')
    assert "replicas" in helm.render(converted.text).one("Deployment", "-decode")["spec"]


@pytest.mark.parametrize(
    ("fewest", "down", "cooldown", "taken"),
    [
        (1, None, None, 300),
        (1, 60, None, 60),
        (1, None, 600, 600),
        (1, 60, 600, 60),
        (0, 60, 600, 600),
        (0, 600, 60, 600),
    ],
)
def test_one_time_stands_for_two(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    fewest: int,
    down: int | None,
    cooldown: int | None,
    taken: int,
) -> None:
    scaling: dict[str, Any] = {"minReplicaCount": fewest, "prometheusTrigger": LATENCY}
    if down is not None:
        scaling["scaleDownStabilizationTime"] = down
    if cooldown is not None:
        scaling["cooldownPeriod"] = cooldown
    # The chart takes none of one role only where the other has none either.
    other_role = {"minReplicaCount": fewest, "prometheusTrigger": LATENCY}
    spec["pdSpec"]["autoScalingSpec"] = {
        "prefillAutoScaling": scaling,
        "decodingAutoScaling": other_role,
    }
    converted = convert()
    rendered = helm.render(converted.text).one("ScaledObject", "-prefill")["spec"]
    assert rendered["cooldownPeriod"] == taken
    assert rendered["minReplicaCount"] == fewest
    other = {down, cooldown} - {None, taken}
    left = [line for line in converted.section("Not carried over:") if "prefillAutoScaling" in line]
    assert len(left) == len(other)


@pytest.mark.parametrize(("role", "other"), [("prefill", "decode"), ("decode", "prefill")])
def test_a_role_that_may_have_no_engines_beside_one_that_has_keeps_one(
    convert: Convert, spec: dict[str, Any], helm: Helm, role: str, other: str
) -> None:
    field = {"prefill": "prefillAutoScaling", "decode": "decodingAutoScaling"}
    spec["pdSpec"]["autoScalingSpec"] = {
        field[role]: {"minReplicaCount": 0, "prometheusTrigger": LATENCY},
        field[other]: {"minReplicaCount": 2, "prometheusTrigger": LATENCY},
    }
    converted = convert()
    manifests = helm.render(converted.text)
    assert manifests.one("ScaledObject", f"-{role}")["spec"]["minReplicaCount"] == 1
    assert manifests.one("ScaledObject", f"-{other}")["spec"]["minReplicaCount"] == 2
    path = f"spec.pdSpec.autoScalingSpec.{field[role]}.minReplicaCount"
    assert converted.reason(path, "0").startswith("1 was taken: the router gets ready only when")


@pytest.mark.parametrize(
    ("given", "sender"),
    [
        ({}, {"local_cpu": True}),
        ({"enableL1Cache": False}, {"local_cpu": False}),
        (
            {
                "enableL2Cache": True,
                "l2CacheSpec": {
                    "l2CacheBackend": "redis",
                    "l2CacheLocalUrl": "redis://redis.kv.svc",
                },
            },
            {"local_cpu": True, "remote_url": "redis://redis.kv.svc:6379"},
        ),
        (
            {
                "enableL1Cache": False,
                "enableL2Cache": True,
                "l2CacheSpec": {"l2CacheBackend": "REDIS", "l2CacheLocalUrl": "10.0.0.1:7000"},
            },
            {"local_cpu": True, "remote_url": "redis://10.0.0.1:7000"},
        ),
    ],
)
def test_caches_of_the_prefillers(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    given: dict[str, Any],
    sender: dict[str, Any],
) -> None:
    spec["kvCacheSpec"] = given
    rendered = helm.render(convert().text).config("prefill")
    assert {key: rendered.get(key) for key in sender} == sender
    assert ("remote_url" in rendered) == ("remote_url" in sender)


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@redis:6379", "rediss://redis:6380", "redis://redis:6379/2"]
)
def test_a_store_with_more_than_an_address_is_named_by_a_secret(
    convert: Convert, spec: dict[str, Any], helm: Helm, url: str
) -> None:
    spec["kvCacheSpec"] = {
        "enableL2Cache": True,
        "l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": url},
    }
    converted = convert()
    secret = {"name": "llama33-70b-dpd-kv-store", "key": "url"}
    references = [
        one["valueFrom"].get("secretKeyRef")
        for one in helm.render(converted.text).container("prefill")["env"]
        if "valueFrom" in one
    ]
    assert secret in references
    assert "s3cret" not in converted.text + converted.report
    assert (
        "kubectl create secret generic llama33-70b-dpd-kv-store -n inference "
        "--from-literal=url=THE_URL"
    ) in converted.report


@pytest.mark.parametrize("store", [{"l2CacheBackend": "tieredstorage"}, {}])
def test_a_store_that_only_the_operator_has_is_reported(
    convert: Convert, spec: dict[str, Any], helm: Helm, store: dict[str, Any]
) -> None:
    spec["kvCacheSpec"] = {"enableL2Cache": True, "l2CacheSpec": store}
    converted = convert()
    assert "Set cache.l2 to" in converted.reason("spec.kvCacheSpec.enableL2Cache", "true")
    assert "remote_url" not in helm.render(converted.text).config("prefill")


def test_a_store_that_is_off_is_reported(convert: Convert, spec: dict[str, Any]) -> None:
    spec["kvCacheSpec"] = {
        "enableL2Cache": False,
        "l2CacheSpec": {"l2CacheBackend": "redis", "l2CacheLocalUrl": "redis://:pw@r:1"},
    }
    converted = convert()
    assert "cache" not in converted.values
    assert converted.reason("spec.kvCacheSpec.l2CacheSpec.l2CacheLocalUrl", "redis://:***@r:1")


def test_a_certificate_and_a_load_balancer_become_an_ingress(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    arn = "arn:aws:acm:us-west-2:123456789012:certificate/0a-1b"
    spec["tlsConfig"] = {
        "customCertificateConfig": {"acmArn": arn, "domainName": "llm.example.com"},
        "tlsCertificateOutputS3Uri": "s3://certificates/here",
    }
    spec["loadBalancer"] = {"healthCheckPath": "/health", "routingAlgorithm": "round_robin"}
    converted = convert()
    ingress = helm.render(converted.text).one("Ingress", "-router")
    assert ingress["spec"]["ingressClassName"] == "alb"
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == ["llm.example.com"]
    prefix = "alb.ingress.kubernetes.io/"
    annotations = ingress["metadata"]["annotations"]
    assert annotations[f"{prefix}certificate-arn"] == arn
    assert annotations[f"{prefix}healthcheck-path"] == "/health"
    attributes = annotations[f"{prefix}target-group-attributes"].split(",")
    assert "load_balancing.algorithm.type=round_robin" in attributes
    assert converted.reason("spec.tlsConfig.tlsCertificateOutputS3Uri", "s3://certificates/here")
    assert "load balancer in front" not in converted.notes()


def test_a_health_path_that_the_router_does_not_have_is_reported(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["loadBalancer"] = {"healthCheckPath": "/ping"}
    converted = convert()
    assert converted.reason("spec.loadBalancer.healthCheckPath", "/ping")
    annotations = helm.render(converted.text).one("Ingress", "-router")["metadata"]["annotations"]
    assert annotations["alb.ingress.kubernetes.io/healthcheck-path"] == "/ready"


def test_without_a_load_balancer_of_the_manifests_own_the_difference_is_said(
    convert: Convert, helm: Helm
) -> None:
    converted = convert()
    assert "HyperPod puts a load balancer in front of an endpoint" in converted.notes()
    assert not any(kind == "Ingress" for kind, _ in helm.render(converted.text))


def test_the_time_for_a_deployment_is_in_the_command(
    convert: Convert, spec: dict[str, Any]
) -> None:
    spec["maxDeployTimeInSeconds"] = 2400
    assert convert().section("Install:") == [
        "  helm install llama33-70b-dpd charts/dpd -n inference -f values.yaml "
        "--wait --timeout 2400s"
    ]


@pytest.mark.parametrize(
    ("name", "release"), [("a" * 53, "a" * 53), ("a" * 54, "dpd"), ("with.dots", "dpd")]
)
def test_the_release_has_a_name_that_helm_takes(
    convert: Convert, manifest: dict[str, Any], helm: Helm, name: str, release: str
) -> None:
    manifest["metadata"] = {"name": name}
    converted = convert()
    command = f"  helm install {release} charts/dpd -n default -f values.yaml"
    assert converted.section("Install:") == [command]
    helm.render(converted.text, release=release)
    assert ("Helm takes no release name" in converted.notes()) == (name != release)
