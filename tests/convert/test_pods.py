"""The pods that the chart renders from the values are those that the manifest asks for."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Convert
from .rendering import Helm, Rendered

ROLES = {"prefill": "prefillSpec", "decode": "decodingSpec"}


def node_terms(manifests: Rendered, role: str) -> list[dict[str, Any]]:
    affinity = manifests.pod(role)["affinity"]["nodeAffinity"]
    return affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]


def amounts(gpus: int, efa: int, **others: str) -> dict[str, Any]:
    """Resources as people write them: devices in both, as text."""
    hugepages = {"hugepages-2Mi": others.pop("hugepages")} if "hugepages" in others else {}
    devices = {"nvidia.com/gpu": str(gpus), "vpc.amazonaws.com/efa": str(efa), **hugepages}
    return {"requests": {**others, **devices}, "limits": devices}


def has_what_it_asked(container: dict[str, Any], asked: dict[str, Any]) -> None:
    for kind in ("requests", "limits"):
        rendered = {name: str(amount) for name, amount in container["resources"][kind].items()}
        for name, amount in asked[kind].items():
            assert rendered[name] == str(amount), (kind, name)


@pytest.mark.parametrize(
    ("instance", "prefill", "decode", "size"),
    [
        (
            "ml.p5.48xlarge",
            amounts(8, 32, hugepages="5120Mi", cpu="96", memory="1500Gi"),
            amounts(8, 32, hugepages="5120Mi", cpu="96", memory="1500Gi"),
            8,
        ),
        (
            "ml.p5en.48xlarge",
            amounts(4, 8, hugepages="2560Mi", cpu="40", memory="500Gi"),
            amounts(4, 16, hugepages="5120Mi", cpu="80", memory="900Gi"),
            4,
        ),
        (
            "ml.p5e.48xlarge",  # fewer devices than the node has
            amounts(8, 16, hugepages="1024Mi", cpu="96", memory="1000Gi"),
            amounts(8, 32, hugepages="5120Mi", cpu="96", memory="1000Gi"),
            8,
        ),
        (
            "ml.g6e.12xlarge",
            amounts(4, 1, cpu="20", memory="200Gi"),
            amounts(4, 1, cpu="20", memory="200Gi"),
            4,
        ),
        (
            "ml.p9.96xlarge",  # not in the chart's catalogue
            amounts(2, 3, cpu="10", memory="100Gi"),
            amounts(2, 3, cpu="10", memory="100Gi"),
            2,
        ),
    ],
)
def test_devices_cpu_and_memory_are_those_of_the_roles(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    instance: str,
    prefill: dict[str, Any],
    decode: dict[str, Any],
    size: int,
) -> None:
    spec["instanceType"] = instance
    spec["worker"]["args"] = ["/opt/ml/model", f"--tensor-parallel-size={size}"]
    spec["worker"]["environmentVariables"] = [{"name": "PD_BUFFER_SIZE", "value": "2147483648"}]
    spec["pdSpec"]["prefillSpec"]["resources"] = prefill
    spec["pdSpec"]["decodingSpec"]["resources"] = decode
    manifests = helm.render(convert().text)
    has_what_it_asked(manifests.container("prefill"), prefill)
    has_what_it_asked(manifests.container("decode"), decode)
    for role in ROLES:
        (term,) = node_terms(manifests, role)
        (types,) = [
            one["values"]
            for one in term["matchExpressions"]
            if one["key"] == "node.kubernetes.io/instance-type"
        ]
        assert instance in types


def test_the_split_follows_the_gpus_when_the_manifest_leaves_it_out(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["args"] = ["/opt/ml/model", "--pipeline-parallel-size=2"]
    converted = convert()
    assert converted.values["model"]["tensorParallelSize"] == 4
    assert converted.values["model"]["pipelineParallelSize"] == 2
    assert "--tensor-parallel-size" in converted.notes()
    for role in ROLES:
        args = helm.render(converted.text).container(role)["args"]
        assert "--tensor-parallel-size=4" in args and "--pipeline-parallel-size=2" in args


def test_what_the_roles_do_not_ask_for_comes_from_the_instance_type_and_is_said(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    gpus = {"nvidia.com/gpu": "8"}
    for role in ROLES.values():
        spec["pdSpec"][role]["resources"] = {"requests": gpus, "limits": gpus}
    converted = convert()
    assert "resources" not in converted.values["engines"]
    limits = helm.render(converted.text).container("decode")["resources"]["limits"]
    assert limits["vpc.amazonaws.com/efa"] == 32
    assert (
        "spec.pdSpec.decodingSpec.resources does not ask for vpc.amazonaws.com/efa, "
        "hugepages-2Mi, cpu, memory; decode pods get the instance type's share"
    ) in converted.notes()


def test_claims_are_left_to_the_reader_since_a_manifest_has_none_of_its_pods(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["pdSpec"]["decodingSpec"]["resources"]["claims"] = [{"name": "gpus"}]
    converted = convert()
    assert "claims" not in helm.render(converted.text).container("decode")["resources"]
    assert "decode.resourceClaims" in converted.reason(
        "spec.pdSpec.decodingSpec.resources.claims", '[{"name": "gpus"}]'
    )


def test_environment_seed_and_sizes_are_those_of_the_worker_in_both_roles(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    secret = {"secretKeyRef": {"name": "keys", "key": "a"}}
    spec["worker"]["environmentVariables"] = [
        {"name": "PYTHONHASHSEED", "value": "123"},
        {"name": "PD_BUFFER_SIZE", "value": "4294967296"},
        {"name": "LMCACHE_CHUNK_SIZE", "value": "512"},
        {"name": "VLLM_LOGGING_LEVEL", "value": "DEBUG"},
        {"name": "LMCACHE_LOG_LEVEL", "value": "DEBUG"},
        {"name": "YES", "value": "y"},
        {"name": "NUMBER", "value": "1e3"},
        {"name": "THREADS", "value": 8},
        {"name": "SWITCH", "value": True},
        {"name": "TEMPLATES", "value": "/opt/ml/model/templates:/opt/ml/model2"},
        {"name": "PROMETHEUS_MULTIPROC_DIR", "value": "/tmp/metrics"},
        {"name": "API_KEY", "valueFrom": secret},
    ]
    converted = convert()
    manifests = helm.render(converted.text)
    for role in ROLES:
        container = manifests.container(role)
        variables = {one["name"]: one for one in container["env"]}
        assert variables["PYTHONHASHSEED"]["value"] == "123"
        assert variables["VLLM_LOGGING_LEVEL"]["value"] == "DEBUG"
        assert variables["LMCACHE_LOG_LEVEL"]["value"] == "DEBUG"
        assert variables["YES"]["value"] == "y"
        assert variables["NUMBER"]["value"] == "1e3"
        assert variables["THREADS"]["value"] == "8"
        assert variables["SWITCH"]["value"] == "true"
        assert variables["API_KEY"]["valueFrom"] == secret
        assert variables["TEMPLATES"]["value"] == (
            f"{container['args'][0]}/templates:/opt/ml/model2"
        )
        assert manifests.config(role)["pd_buffer_size"] == 4294967296
        assert manifests.config(role)["chunk_size"] == 512
        assert "volumes" not in converted.values["engines"]


def test_a_folder_that_the_environment_names_can_be_written(convert: Convert, helm: Helm) -> None:
    manifests = helm.render(convert().text)  # HF_HOME is /var/cache/hf
    for role in ROLES:
        (mount,) = [
            mount
            for mount in manifests.container(role)["volumeMounts"]
            if mount["mountPath"] == "/var/cache/hf"
        ]
        (volume,) = [v for v in manifests.pod(role)["volumes"] if v["name"] == mount["name"]]
        assert volume["emptyDir"] == {} and "readOnly" not in mount


@pytest.mark.parametrize(
    "image",
    [
        "lmcache/vllm-openai:v0.4.3",
        "lmcache/vllm-openai",
        "registry.example.com:5000/team/vllm:1.10",
        "public.ecr.aws/deep-learning-containers/vllm:server-hyperpod-cuda-v1.1",
        "example.com/vllm@sha256:" + "0123456789abcdef" * 4,
    ],
)
def test_all_pods_run_the_workers_image(
    convert: Convert, spec: dict[str, Any], helm: Helm, image: str
) -> None:
    spec["worker"]["image"] = image
    manifests = helm.render(convert().text)
    bare = ":" in image.rpartition("/")[2] or "@" in image
    for component in (*ROLES, "router"):
        assert manifests.container(component)["image"] == image + ("" if bare else ":latest")
    command = manifests.container("decode")["command"]
    ours = image.startswith("lmcache/vllm-openai")
    assert command == ["/opt/venv/bin/vllm" if ours else "vllm", "serve"]


@pytest.mark.parametrize(
    ("threshold", "routing"),
    [
        (None, {"mode": "threshold", "threshold": 4096}),
        (8000, {"mode": "threshold", "threshold": 8000}),
        (1, {"mode": "threshold", "threshold": 1}),
        (0, {"mode": "always"}),
    ],
)
def test_the_threshold_is_the_manifests(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    threshold: int | None,
    routing: dict[str, Any],
) -> None:
    if threshold is None:
        del spec["pdSpec"]["routingThreshold"]
    else:
        spec["pdSpec"]["routingThreshold"] = threshold
    converted = convert()
    rendered = helm.render(converted.text).config("router")["routing"]
    assert {key: rendered[key] for key in routing} == routing
    assert ("characters / 4" in converted.notes()) == (threshold != 0)


def test_zone_and_placement_group_hold_for_both_roles(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["pdSpec"]["topologySpec"] = {"availabilityZone": "us-west-2b", "placementGroup": "near"}
    converted = convert()
    manifests = helm.render(converted.text)
    for role in ROLES:
        (term,) = node_terms(manifests, role)
        wanted = {one["key"]: one["values"] for one in term["matchExpressions"]}
        assert wanted["topology.kubernetes.io/zone"] == ["us-west-2b"]
        assert wanted["dpd/placement-group"] == ["near"]
    assert "need the label dpd/placement-group=near" in converted.notes()


@pytest.mark.parametrize("affinity", [True, False])
def test_a_zone_and_a_group_that_nodes_cannot_have_as_labels_are_named(
    convert: Convert, spec: dict[str, Any], helm: Helm, affinity: bool
) -> None:
    if affinity:
        spec["nodeAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": []}
    at = "spec.pdSpec.topologySpec"
    spec["pdSpec"]["topologySpec"] = {"availabilityZone": "usw2-az1", "placementGroup": "my group"}
    converted = convert()
    assert "such as us-west-2a, no id" in converted.reason(f"{at}.availabilityZone", "usw2-az1")
    reason = converted.reason(f"{at}.placementGroup", "my group")
    assert reason.startswith("nodes cannot have it as a label")
    assert "usw2" not in converted.text and "my group" not in converted.text
    assert "need the label" not in converted.notes()
    helm.render(converted.text)


@pytest.mark.parametrize("same", [True, False])
def test_one_zone_or_any(convert: Convert, spec: dict[str, Any], helm: Helm, same: bool) -> None:
    spec["pdSpec"]["topologySpec"] = {"sameAZ": same}
    affinity = helm.render(convert().text).pod("decode")["affinity"]
    terms = affinity.get("podAffinity", {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution", []
    )
    assert ["topology.kubernetes.io/zone"] * same == [term["topologyKey"] for term in terms]


def test_node_affinity_is_kept_and_zone_and_group_beside_it(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    del spec["instanceType"]
    affinity = {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["a", "b"]}]}
            ]
        }
    }
    spec["nodeAffinity"] = affinity
    spec["pdSpec"]["topologySpec"] = {"availabilityZone": "us-west-2b", "placementGroup": "near"}
    converted = convert()
    assert converted.values["instanceTypes"] == []
    manifests = helm.render(converted.text)
    asked = spec["pdSpec"]["prefillSpec"]["resources"]
    for role in ROLES:
        assert manifests.pod(role)["affinity"]["nodeAffinity"] == affinity
        assert manifests.pod(role)["nodeSelector"] == {
            "topology.kubernetes.io/zone": "us-west-2b",
            "dpd/placement-group": "near",
        }
        has_what_it_asked(manifests.container(role), asked)


def test_node_selectors_and_numbers_are_those_of_the_roles(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["pdSpec"]["prefillSpec"] |= {"replicas": 3, "nodeSelector": {"pool": "wide"}}
    spec["pdSpec"]["decodingSpec"] |= {"replicas": 2, "nodeSelector": {"pool": "deep"}}
    manifests = helm.render(convert().text)
    for role, selector, replicas in (("prefill", "wide", 3), ("decode", "deep", 2)):
        assert manifests.pod(role)["nodeSelector"] == {"pool": selector}
        assert manifests.one("Deployment", f"-{role}")["spec"]["replicas"] == replicas


def test_probes_mean_what_they_meant_alone(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["probes"] = {
        "startupProbe": {
            "httpGet": {"path": "/health", "port": 8081},
            "periodSeconds": 20,
            "failureThreshold": 90,
        },
        "livenessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": 60},
        "readinessProbe": {"tcpSocket": {"port": "http"}, "timeoutSeconds": 3},
    }
    container = helm.render(convert().text).container("prefill")
    # What Kubernetes takes for what a probe does not say: every 10 s, 1 s to answer, 3 failures.
    assert container["startupProbe"] == {
        "httpGet": {"path": "/health", "port": "http"},
        "periodSeconds": 20,
        "timeoutSeconds": 1,
        "failureThreshold": 90,
    }
    assert container["livenessProbe"] == {
        "exec": {"command": ["true"]},
        "initialDelaySeconds": 60,
        "periodSeconds": 10,
        "timeoutSeconds": 1,
        "failureThreshold": 3,
    }
    assert container["readinessProbe"] == {
        "tcpSocket": {"port": "http"},
        "periodSeconds": 10,
        "timeoutSeconds": 3,
        "failureThreshold": 3,
    }


def test_scheduler_and_account_of_the_pods(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["kubernetes"] = {"schedulerName": "binpack", "serviceAccountName": "reader"}
    manifests = helm.render(convert().text)
    for role in ROLES:
        assert manifests.pod(role)["schedulerName"] == "binpack"
        assert manifests.pod(role)["serviceAccountName"] == "reader"
    assert not any(name == "reader" for kind, name in manifests if kind == "ServiceAccount")
    assert manifests.pod("router")["serviceAccountName"] != "reader"


def test_labels_tags_and_annotations_are_on_every_object(
    convert: Convert, manifest: dict[str, Any], helm: Helm
) -> None:
    manifest["metadata"] |= {
        "labels": {"owner": "ml", "app.kubernetes.io/name": "old"},
        "annotations": {"example.com/page": "https://example.com/a b"},
    }
    manifest["spec"]["tags"] = [
        {"name": "team", "value": "search"},
        {"name": "cost center", "value": "a/b"},
        {"name": "team", "value": "other"},
    ]
    converted = convert()
    for item in helm.render(converted.text).values():
        assert item["metadata"]["labels"]["team"] == "search"
        assert item["metadata"]["labels"]["owner"] == "ml"
        assert item["metadata"]["labels"]["app.kubernetes.io/name"] == "dpd"
        assert item["metadata"]["annotations"]["example.com/page"] == "https://example.com/a b"
    assert converted.reason("spec.tags", '{"cost center": "a/b"}')
    assert converted.reason("spec.tags", '{"team": "other"}').startswith("commonLabels has this")
    assert converted.reason("metadata.labels", '{"app.kubernetes.io/name": "…"}')


@pytest.mark.parametrize(
    ("instance", "efa", "backend"),
    [
        ("ml.p5.48xlarge", None, "LIBFABRIC"),  # comes with the instance type
        ("ml.p5.48xlarge", "0", "UCX"),
        ("ml.p9.96xlarge", None, "UCX"),
        ("ml.p9.96xlarge", "3", "LIBFABRIC"),
    ],
)
def test_kv_moves_over_efa_when_there_are_devices(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    instance: str,
    efa: str | None,
    backend: str,
) -> None:
    spec["instanceType"] = instance
    limits = {"nvidia.com/gpu": "8"} | ({} if efa is None else {"vpc.amazonaws.com/efa": efa})
    for role in ROLES.values():
        spec["pdSpec"][role]["resources"] = {"limits": limits}
    converted = convert()
    assert helm.render(converted.text).config("decode")["nixl_backends"] == [backend]
    assert ("KV goes over TCP" in converted.notes()) == (backend == "UCX")


def test_kueue_queues_the_engines_alone(
    convert: Convert, manifest: dict[str, Any], helm: Helm
) -> None:
    labels = {"kueue.x-k8s.io/queue-name": "team-queue", "kueue.x-k8s.io/priority-class": "high"}
    manifest["metadata"]["labels"] = labels
    manifests = helm.render(convert().text)
    for component, wanted in (("prefill", labels), ("decode", labels), ("router", {})):
        workload = manifests.one("Deployment", f"-{component}")
        found = workload["spec"]["template"]["metadata"]["labels"].items()
        assert {name: v for name, v in found if name.startswith("kueue")} == wanted
