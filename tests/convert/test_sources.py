"""Where the model comes from: rendered pods read what the manifest's pods read."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Convert
from .rendering import Helm, Rendered


def model_of(manifests: Rendered, component: str = "decode") -> tuple[str, dict[str, Any]]:
    """The model as the engine's command line says it, and the volume with it."""
    container = manifests.container(component)
    (mount,) = [m for m in container["volumeMounts"] if m["name"] == "model"]
    assert container["args"][0].startswith(mount["mountPath"])
    (volume,) = [v for v in manifests.pod(component)["volumes"] if v["name"] == "model"]
    return container["args"][0].removeprefix(mount["mountPath"]), volume


def test_a_bucket_is_mounted(convert: Convert, helm: Helm) -> None:
    converted = convert()
    manifests = helm.render(converted.text)
    path, volume = model_of(manifests)
    assert path == "/llama-3-3-70b-instruct"
    assert (
        "give the Mountpoint for Amazon S3 CSI driver, which the cluster must have, s3:ListBucket "
        "and s3:GetObject on the bucket"
    ) in converted.notes()
    claim = manifests[("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])]
    storage = manifests[("PersistentVolume", claim["spec"]["volumeName"])]["spec"]
    assert storage["csi"]["driver"] == "s3.csi.aws.com"
    assert storage["csi"]["volumeAttributes"] == {"bucketName": "example-models"}
    assert "region us-west-2" in storage["mountOptions"]


def test_a_bucket_is_copied_when_it_was_prefetched(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["modelSourceConfig"] |= {"prefetchEnabled": True, "modelLocation": "/models/llama/"}
    spec["kubernetes"] = {"serviceAccountName": "reader"}
    converted = convert()
    manifests = helm.render(converted.text)
    assert model_of(manifests)[0] == ""
    accounts = "give the service accounts of engines and router s3:ListBucket and s3:GetObject"
    assert accounts in converted.notes()
    (copying,) = manifests.pod("decode")["initContainers"]
    assert "s3://example-models/models/llama" in copying["command"]
    # The router reads the tokenizer from the bucket, so it needs the same rights.
    assert manifests.pod("router")["serviceAccountName"] == "reader"


def test_a_model_below_its_location_is_found_there(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    worker = spec["worker"]
    worker["args"][0] = "/opt/ml/model/v2"
    worker["args"] += ["--chat-template=/opt/ml/model/v2/chat.jinja"]
    for prefetch in (False, True):
        spec["modelSourceConfig"]["prefetchEnabled"] = prefetch
        converted = convert()
        assert converted.values["model"]["source"]["path"] == "llama-3-3-70b-instruct/v2"
        args = helm.render(converted.text).container("decode")["args"]
        assert f"--chat-template={args[0]}/chat.jinja" in args


def test_a_lustre_file_system(convert: Convert, spec: dict[str, Any], helm: Helm) -> None:
    fsx = {"fileSystemId": "fs-0123456789abcdef0", "dnsName": "fs.example.com", "mountName": "m1"}
    spec["modelSourceConfig"] = {
        "modelSourceType": "fsx",
        "fsxStorage": fsx,
        "modelLocation": "models/llama",
        "prefetchEnabled": True,
    }
    converted = convert()
    manifests = helm.render(converted.text)
    path, volume = model_of(manifests)
    assert path == "/models/llama"
    claim = manifests[("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"])]
    csi = manifests[("PersistentVolume", claim["spec"]["volumeName"])]["spec"]["csi"]
    assert csi["volumeHandle"] == fsx["fileSystemId"]
    assert csi["volumeAttributes"] == {"dnsname": "fs.example.com", "mountname": "m1"}
    assert "only for s3" in converted.reason("spec.modelSourceConfig.prefetchEnabled", "true")


def test_what_the_chart_needs_of_a_lustre_file_system_is_asked_for(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["modelSourceConfig"] = {
        "modelSourceType": "fsx",
        "fsxStorage": {"fileSystemId": "fs-0123456789abcdef0"},
    }
    converted = convert()
    assert "set model.source.fsx.dnsName and model.source.fsx.mountName" in converted.notes()
    assert "model.source.fsx.dnsName: empty" in helm.refusal(converted.text)


def test_hugging_face(convert: Convert, spec: dict[str, Any], helm: Helm) -> None:
    revision = "0123456789abcdef0123456789abcdef01234567"
    spec["modelSourceConfig"] = {
        "modelSourceType": "huggingface",
        "huggingFaceModel": {
            "modelId": "Qwen/Qwen3-32B",
            "commitSHA": revision,
            "tokenSecretRef": {"name": "hub", "key": "hf", "optional": True},
        },
    }
    spec["worker"]["args"][0] = "Qwen/Qwen3-32B"
    converted = convert()
    manifests = helm.render(converted.text)
    secret = {"secretKeyRef": {"name": "hub", "key": "hf"}}
    for component in ("prefill", "decode", "router"):
        container = manifests.container(component)
        variables = {one["name"]: one for one in container["env"]}
        assert variables["HF_TOKEN"]["valueFrom"] == secret
    args = manifests.container("decode")["args"]
    assert args[0] == "Qwen/Qwen3-32B" and f"--revision={revision}" in args
    assert "--served-model-name=Llama-3-3-70B-Instruct" in args
    assert manifests.config("router")["model"]["tokenizer"] == "Qwen/Qwen3-32B"
    assert converted.reason(
        "spec.modelSourceConfig.huggingFaceModel.tokenSecretRef.optional", "true"
    )


def test_a_token_of_the_environment_reaches_the_router_too(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["modelSourceConfig"] = {
        "modelSourceType": "huggingface",
        "huggingFaceModel": {"modelId": "Qwen/Qwen3-32B"},
    }
    token = {"valueFrom": {"secretKeyRef": {"name": "hub", "key": "k"}}}
    spec["worker"]["environmentVariables"] = [{"name": "HF_TOKEN", **token}]
    manifests = helm.render(convert().text)
    for component in ("decode", "router"):
        env = manifests.container(component)["env"]
        assert {"name": "HF_TOKEN", **token} in env


def test_a_token_in_plain_text_is_left_out_and_not_repeated(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["environmentVariables"] = [{"name": "HF_TOKEN", "value": "hf_x"}]
    converted = convert()
    helm.render(converted.text)
    assert "hf_x" not in converted.text + converted.report
    reason = converted.reason("spec.worker.environmentVariables", "HF_TOKEN")
    assert reason == (
        "a secret in plain text; put it in a Secret and name that in "
        "model.source.huggingFace.tokenSecret"
    )


def test_secrets_of_arguments_and_of_any_variable_are_left_out_and_not_repeated(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["worker"]["args"] += ["--api-key", "sk-1", "sk-2", "--hf-token=hf_x", "--hf-token=hf_y"]
    spec["worker"]["environmentVariables"] = [
        {"name": "DB_PASSWORD", "value": "pw-1"},
        {"name": "HF_HUB_DISABLE_IMPLICIT_TOKEN", "value": "1"},
    ]
    converted = convert()
    manifests = helm.render(converted.text)
    for secret in ("sk-1", "sk-2", "hf_x", "hf_y", "pw-1"):
        assert secret not in converted.text + converted.report
    assert converted.reason("spec.worker.args", "--api-key") == (
        "put it in a Secret and give it by engines.env, as VLLM_API_KEY with valueFrom.secretKeyRef"
    )
    env = manifests.container("decode")["env"]
    assert {"name": "HF_HUB_DISABLE_IMPLICIT_TOKEN", "value": "1"} in env


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"persistentVolumeClaim": {"claimName": "weights"}},
            {"persistentVolumeClaim": {"claimName": "weights"}},
        ),
        (
            {"hostPath": {"path": "/opt/dlami/nvme/llama", "type": "Directory"}},
            {"hostPath": {"path": "/opt/dlami/nvme/llama", "type": "Directory"}},
        ),
        (
            {"image": {"reference": "example.com/weights:1", "pullPolicy": "Always"}},
            {"image": {"reference": "example.com/weights:1", "pullPolicy": "Always"}},
        ),
    ],
)
def test_a_volume_of_the_manifest(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    theirs: dict[str, Any],
    ours: dict[str, Any],
) -> None:
    spec["modelSourceConfig"] = {"modelSourceType": "kubernetesVolume"}
    spec["kubernetes"] = {"volumes": [{"name": "model-weights", **theirs}]}
    converted = convert()
    manifests = helm.render(converted.text)
    path, volume = model_of(manifests)
    assert path.strip("/") == ""
    assert volume == {"name": "model", **ours}
    assert not any(v["name"] == "model-weights" for v in manifests.pod("decode")["volumes"])


def test_a_volume_that_the_chart_does_not_know_is_mounted_where_it_was(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    volume = {"name": "model-weights", "nfs": {"server": "nfs.example.com", "path": "/llama"}}
    spec["modelSourceConfig"] = {"modelSourceType": "kubernetesVolume"}
    spec["kubernetes"] = {"volumes": [volume]}
    converted = convert()
    manifests = helm.render(converted.text)
    container = manifests.container("decode")
    assert container["args"][0] == "/opt/ml/model"
    assert "--served-model-name=Llama-3-3-70B-Instruct" in container["args"]
    assert {"name": "model-weights", "mountPath": "/opt/ml/model"} in container["volumeMounts"]
    assert volume in manifests.pod("decode")["volumes"]
    assert "set model.tokenizer" in converted.notes()


def test_init_containers_keep_their_volumes(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    loader = {
        "name": "loader",
        "image": "example.com/aws:1",
        "command": ["/bin/bash", "-c"],
        "args": ['if [ -z "$(ls /model)" ]; then\n  aws s3 sync s3://b/m /model/\nfi\n'],
        "volumeMounts": [{"name": "model-weights", "mountPath": "/model"}],
    }
    copier = {
        "name": "copier",
        "image": "example.com/linux:1",
        "volumeMounts": [{"name": "model-weights-copy", "mountPath": "/to"}],
    }
    volume = {
        "name": "model-weights",
        "hostPath": {"path": "/opt/dlami/nvme/llama", "type": "DirectoryOrCreate"},
    }
    spec["modelSourceConfig"] = {"modelSourceType": "kubernetesVolume"}
    spec["kubernetes"] = {"initContainers": [loader, copier], "volumes": [volume]}
    converted = convert()
    manifests = helm.render(converted.text)
    (rendered,) = manifests.pod("decode")["initContainers"]
    assert {key: rendered[key] for key in loader} == loader
    assert volume in manifests.pod("decode")["volumes"]
    left = [line for line in converted.section("Not carried over:") if '"copier"' in line]
    assert len(left) == 1
    assert "it mounts model-weights-copy, which HyperPod's operator makes" in converted.report


def test_sources_that_the_type_does_not_name_are_reported(
    convert: Convert, spec: dict[str, Any]
) -> None:
    spec["modelSourceConfig"]["fsxStorage"] = {"fileSystemId": "fs-1"}
    reason = convert().reason("spec.modelSourceConfig.fsxStorage", '{"fileSystemId": "fs-1"}')
    assert reason == "modelSourceType is s3, so this is not looked at"


def test_a_model_that_the_chart_knows_is_suggested(convert: Convert, spec: dict[str, Any]) -> None:
    assert (
        "if these are the weights of meta-llama/Llama-3.3-70B-Instruct, set model.name to it"
    ) in convert().notes()
    spec["modelName"] = "My-Own-Model"
    assert "weights of" not in convert().notes()
