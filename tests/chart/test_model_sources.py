"""Where engines and router get the model, for each kind of source."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from fnmatch import fnmatchcase as fnmatch
from typing import Any

import pytest

from .conftest import Helm, Manifests, Values

ENGINES = ("prefill", "decode")
ALL = (*ENGINES, "router")
NAME = "org/model"

HF_TOKEN = {
    "name": "HF_TOKEN",
    "valueFrom": {"secretKeyRef": {"name": "hf-token", "key": "token"}},
}
OFFLINE = {"name": "HF_HUB_OFFLINE", "value": "1"}
READ_ONLY = {"name": "model", "mountPath": "/model", "readOnly": True}
FSX = {
    "fileSystemId": "fs-0123456789abcdef0",
    "dnsName": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
    "mountName": "abcdefgh",
}
S3 = {"bucket": "weights", "region": "us-west-2"}
# A file that changed is fetched even if its size did not; one that is gone goes.
SYNC = ["aws", "s3", "sync", "--only-show-errors", "--exact-timestamps", "--delete"]
# Of "s3://weights", so that no other bucket's copy is mixed with it.
FOLDER = hashlib.sha256(b"s3://weights").hexdigest()[:8]
# Where in the claim's volume a test does not look at its name.
CLAIM = "<the chart's claim>"


@dataclass(frozen=True)
class Case:
    """A source, and what pods have of it."""

    source: Values
    path: str
    env: dict[str, Any] | None = field(default_factory=lambda: OFFLINE)
    volume: dict[str, Any] | None = None
    mount: dict[str, Any] | None = field(default_factory=lambda: READ_ONLY)
    # The router's, where it is another.
    router_volume: Any = "the same"
    router_mount: dict[str, Any] | None = None


CASES: dict[str, Case] = {
    "Hugging Face": Case({"type": "huggingFace"}, NAME, env=None, mount=None),
    "Hugging Face with a token and a cache on the node": Case(
        {
            "type": "huggingFace",
            "huggingFace": {"tokenSecret": {"name": "hf-token"}, "cacheHostPath": "/mnt/hf"},
        },
        NAME,
        env=HF_TOKEN,
        volume={"hostPath": {"path": "/mnt/hf", "type": "Directory"}},
        mount={"name": "model", "mountPath": "/home/dpd/hf"},
        router_volume=None,
    ),
    "S3, copied into the pod": Case(
        {"type": "s3", "path": "llama/70b", "s3": S3}, "/model", volume={"emptyDir": {}}
    ),
    "S3, copied to the node": Case(
        {"type": "s3", "s3": {**S3, "copyHostPath": "/mnt/nvme/model"}},
        "/model",
        volume={"hostPath": {"path": "/mnt/nvme/model", "type": "Directory"}},
        mount={**READ_ONLY, "subPath": FOLDER},
        router_volume={"emptyDir": {}},
        router_mount=READ_ONLY,
    ),
    "S3, mounted": Case(
        {"type": "s3", "path": "llama/70b/", "s3": {**S3, "access": "mount"}},
        "/model/llama/70b",
        volume={"persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}},
    ),
    "FSx for Lustre": Case(
        {"type": "fsx", "path": "llama", "fsx": FSX},
        "/model/llama",
        volume={"persistentVolumeClaim": {"claimName": CLAIM, "readOnly": True}},
    ),
    "a claim": Case(
        {"type": "pvc", "pvc": {"claimName": "weights"}},
        "/model",
        volume={"persistentVolumeClaim": {"claimName": "weights"}},
    ),
    "a claim's folder": Case(
        {"type": "pvc", "path": "llama", "pvc": {"claimName": "weights"}},
        "/model/llama",
        volume={"persistentVolumeClaim": {"claimName": "weights"}},
    ),
    "a folder of the node": Case(
        {"type": "hostPath", "hostPath": {"path": "/mnt/nvme/llama"}},
        "/model",
        volume={"hostPath": {"path": "/mnt/nvme/llama", "type": "Directory"}},
    ),
    "an image": Case(
        {
            "type": "image",
            "path": "models/llama",
            "image": {"reference": "example.com/llama:1", "pullPolicy": "Always"},
        },
        "/model/models/llama",
        volume={"image": {"reference": "example.com/llama:1", "pullPolicy": "Always"}},
    ),
}


def render(helm: Helm, source: Values, **model: Any) -> Manifests:
    return helm.render({"model": {"name": NAME, "source": source, **model}}, "--kube-version=1.33")


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture(scope="module")
def manifests(case: Case, helm4: Helm) -> Manifests:
    return render(helm4, case.source)


def volumes(manifests: Manifests, component: str) -> list[dict[str, Any]]:
    return [v for v in manifests.pod(component)["volumes"] if v["name"] == "model"]


def claim(manifests: Manifests) -> str | None:
    return next((name for kind, name in manifests if kind == "PersistentVolumeClaim"), None)


def test_engines_are_told_its_path_and_clients_its_name(case: Case, manifests: Manifests) -> None:
    for role in ENGINES:
        args = manifests.container(role)["args"]
        assert args[:2] == [case.path, f"--served-model-name={NAME}"]
    assert manifests.config("router")["model"]["name"] == NAME


def test_the_router_loads_its_tokenizer_from_there(case: Case, manifests: Manifests) -> None:
    assert manifests.config("router")["model"]["tokenizer"] == case.path


def test_every_pod_has_what_it_needs_of_hugging_face(case: Case, manifests: Manifests) -> None:
    for component in ALL:
        env = manifests.container(component)["env"]
        found = [item for item in env if item["name"] in ("HF_TOKEN", "HF_HUB_OFFLINE")]
        assert found == ([case.env] if case.env else [])


def test_pods_mount_the_model_and_may_not_write_to_it(case: Case, manifests: Manifests) -> None:
    for component in ALL:
        volume: Any = case.volume
        if component == "router" and case.router_volume != "the same":
            volume = case.router_volume
        if volume and volume.get("persistentVolumeClaim", {}).get("claimName") == CLAIM:
            source = {"claimName": claim(manifests), "readOnly": True}
            volume = {"persistentVolumeClaim": source}
        assert volumes(manifests, component) == ([{"name": "model", **volume}] if volume else [])
        mounts = manifests.container(component)["volumeMounts"]
        found = [mount for mount in mounts if mount["name"] == "model"]
        mount = (component == "router" and case.router_mount) or case.mount
        assert found == ([mount] if volume else [])


def test_no_user_sees_a_container_of_the_copy_unless_there_is_one(
    case: Case, manifests: Manifests
) -> None:
    copies = case.source["type"] == "s3" and case.source["s3"].get("access") != "mount"
    for component in ALL:
        names = [c["name"] for c in manifests.pod(component).get("initContainers", [])]
        assert names == (["model-copy"] if copies else [])


def test_a_copy_from_s3_runs_before_the_users_containers(helm4: Helm) -> None:
    source = {"type": "s3", "path": "llama/70b/", "s3": S3}
    endpoint = {"name": "AWS_ENDPOINT_URL_S3", "value": "https://s3.example"}
    keys = {"secretRef": {"name": "s3-keys"}}
    values = {
        "model": {"name": NAME, "source": source},
        "engines": {
            "initContainers": [{"name": "mine", "image": "x"}],
            "env": [endpoint, {"name": "AWS_MAX_ATTEMPTS", "value": "3"}],
        },
        "decode": {"envFrom": [keys]},
    }
    manifests = helm4.render(values)
    copy, mine = manifests.pod("decode")["initContainers"]
    assert mine == {"name": "mine", "image": "x"}
    assert copy == {
        "name": "model-copy",
        "image": "public.ecr.aws/aws-cli/aws-cli:2.31.0",
        "command": [
            *SYNC,
            *("s3://weights/llama/70b", "/model", "--region", "us-west-2"),
        ],
        "env": [
            {"name": "HOME", "value": "/home/dpd"},
            {"name": "AWS_MAX_ATTEMPTS", "value": "3"},
            endpoint,
        ],
        "envFrom": [keys],
        "resources": {"requests": {"cpu": "1", "memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": "home", "mountPath": "/home/dpd"},
            {"name": "model", "mountPath": "/model"},
        ],
    }


def test_a_router_copies_no_weights(helm4: Helm) -> None:
    manifests = render(helm4, {"type": "s3", "s3": {"bucket": "weights"}})
    (copy,) = manifests.pod("router")["initContainers"]
    assert copy["command"][:8] == [*SYNC, "s3://weights", "/model"]
    assert copy["env"][-1] == {"name": "AWS_MAX_ATTEMPTS", "value": "10"}
    flags = copy["command"][8:]
    assert set(flags[::2]) == {"--exclude"}
    assert {"*.safetensors", "*.bin", "*.pt", "*.pth", "*.gguf"} <= set(flags[1::2])
    (engine,) = manifests.pod("decode")["initContainers"]
    assert "--exclude" not in engine["command"]


def test_each_bucket_and_path_is_copied_to_a_folder_of_its_own_on_the_node(helm4: Helm) -> None:
    sources: list[Values] = [
        {"s3": {"bucket": "weights"}},
        {"s3": {"bucket": "weights"}, "path": "70b"},
        {"s3": {"bucket": "others"}, "path": "70b"},
    ]
    folders = []
    for source in sources:
        s3 = {**source["s3"], "copyHostPath": "/mnt/nvme"}
        manifests = render(helm4, {**source, "type": "s3", "s3": s3})
        (copy,) = manifests.pod("decode")["initContainers"]
        (written,) = [m for m in copy["volumeMounts"] if m["name"] == "model"]
        (read,) = [m for m in manifests.container("decode")["volumeMounts"] if m["name"] == "model"]
        # The copy makes the folder itself: one that the kubelet makes is root's.
        assert written == {"name": "model", "mountPath": "/model"}
        assert copy["command"][7] == f"/model/{read['subPath']}"
        # Half a file of another pod's copy there stays; nothing of a model has such a name.
        excluded = copy["command"][9::2]
        kept = ["a.safetensors", "a.safetensors.index.json", "b.gguf", "model.bin", "b.json"]
        assert not any(fnmatch(name, pattern) for name in kept for pattern in excluded)
        assert any(fnmatch("a-1-of-2.safetensors.a1B2c3D4", pattern) for pattern in excluded)
        assert read["mountPath"] == manifests.container("decode")["args"][0] == "/model"
        (routers,) = manifests.pod("router")["initContainers"]
        assert routers["command"][7] == manifests.config("router")["model"]["tokenizer"] == "/model"
        folders.append(read["subPath"])
    assert len({*folders}) == 3


def test_a_bucket_is_mounted_by_a_volume_of_the_csi_driver(helm4: Helm) -> None:
    manifests = render(helm4, {"type": "s3", "s3": {**S3, "access": "mount"}})
    name = claim(manifests)
    assert manifests[("PersistentVolume", f"default-{name}")]["spec"] == {
        "capacity": {"storage": "1Ti"},
        "accessModes": ["ReadOnlyMany"],
        "persistentVolumeReclaimPolicy": "Retain",
        "storageClassName": "",
        "claimRef": {"namespace": "default", "name": name},
        "mountOptions": ["allow-other", "region us-west-2"],
        "csi": {
            "driver": "s3.csi.aws.com",
            "volumeHandle": f"default-{name}",
            "volumeAttributes": {"bucketName": "weights"},
        },
    }
    assert manifests.one("PersistentVolumeClaim", "")["spec"] == {
        "accessModes": ["ReadOnlyMany"],
        "storageClassName": "",
        "volumeName": f"default-{name}",
        "resources": {"requests": {"storage": "1Ti"}},
    }


def test_a_file_system_is_mounted_by_a_volume_of_the_csi_driver(helm4: Helm) -> None:
    manifests = render(helm4, {"type": "fsx", "fsx": FSX})
    (volume,) = [o for (kind, _), o in manifests.items() if kind == "PersistentVolume"]
    assert volume["spec"]["mountOptions"] == ["flock"]
    # The driver knows no volume for reading only; pods mount it so.
    asked = manifests.one("PersistentVolumeClaim", "")["spec"]["accessModes"]
    assert volume["spec"]["accessModes"] == asked == ["ReadWriteMany"]
    for component in ("prefill", "decode", "router"):
        (mounted,) = [
            one["persistentVolumeClaim"]
            for one in manifests.template(component)["spec"]["volumes"]
            if "persistentVolumeClaim" in one
        ]
        assert mounted == {"claimName": claim(manifests), "readOnly": True}
    assert volume["spec"]["csi"] == {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": "fs-0123456789abcdef0",
        "volumeAttributes": {
            "dnsname": "fs-0123456789abcdef0.fsx.us-west-2.amazonaws.com",
            "mountname": "abcdefgh",
        },
    }
    assert volume["spec"]["claimRef"] == {"namespace": "default", "name": claim(manifests)}


def test_another_bucket_gets_another_volume_since_a_volume_cannot_change(helm4: Helm) -> None:
    one, same, other = (
        claim(render(helm4, {"type": "s3", **source}))
        for source in (
            {"s3": {**S3, "access": "mount"}},
            {"s3": {**S3, "access": "mount", "image": "other/aws-cli:1"}, "path": "llama"},
            {"s3": {**S3, "access": "mount", "bucket": "others"}},
        )
    )
    assert one == same != other


def test_releases_of_two_namespaces_do_not_share_a_volume(helm4: Helm) -> None:
    values = {"model": {"source": {"type": "fsx", "fsx": FSX}}}
    a, b = (helm4.render(values, "--namespace", namespace) for namespace in ("a", "b"))
    volume = "PersistentVolume"
    names = [{name for kind, name in manifests if kind == volume} for manifests in (a, b)]
    assert names[0].isdisjoint(names[1])


def test_a_tokenizer_of_its_own_wins(helm4: Helm) -> None:
    source = {"type": "pvc", "pvc": {"claimName": "weights"}}
    manifests = render(helm4, source, tokenizer="/model/tokenizer", servedName="llama")
    assert manifests.config("router")["model"]["tokenizer"] == "/model/tokenizer"
    assert manifests.config("router")["model"]["name"] == "llama"
    args = manifests.container("decode")["args"]
    assert args[:2] == ["/model", "--served-model-name=llama"]
    assert "--tokenizer=/model/tokenizer" in args
