"""Arguments as they are written, and why some are not."""

from __future__ import annotations

from typing import Any

import pytest

from dpd_convert.arguments import tokens
from dpd_convert.chart import read_chart

from .conftest import Convert
from .rendering import Helm

FLAGS = read_chart().flags


def set_args(spec: dict[str, Any], worker: list[str], *roles: list[str]) -> None:
    prefill, decode = roles or ([], [])
    spec["worker"]["args"] = worker
    spec["pdSpec"]["prefillSpec"]["args"] = prefill
    spec["pdSpec"]["decodingSpec"]["args"] = decode


@pytest.mark.parametrize(
    ("given", "written"),
    [
        (["--max-num-seqs", "16"], ["--max-num-seqs=16"]),
        (["--max-num-seqs=16"], ["--max-num-seqs=16"]),
        (["--max_num_seqs", "16"], ["--max-num-seqs=16"]),
        (["--max-num-seqs 16"], ["--max-num-seqs=16"]),
        (["-q", "fp8"], ["--quantization=fp8"]),
        (["-q=fp8"], ["--quantization=fp8"]),
        (["-qfp8"], ["--quantization=fp8"]),
        (["-sc.method=ngram"], ["--speculative-config.method=ngram"]),
        (["--no_enable_chunked_prefill"], ["--no-enable-chunked-prefill"]),
        (["-O3"], ["-O3"]),
        (["-O", "3"], ["-O=3"]),
        (["-ep", "--enforce-eager"], ["--enable-expert-parallel", "--enforce-eager"]),
        (["--seed", "-1"], ["--seed=-1"]),
        (["--a-map", '{"a_b": "c d", "e": "=f"}'], ['--a-map={"a_b": "c d", "e": "=f"}']),
        (["--several", "a", "b"], ["--several", "a", "b"]),
        (["--text", "$(NAME) 100 % \\ é\nend"], ["--text=$(NAME) 100 % \\ é\nend"]),
    ],
)
def test_one_spelling_for_all(
    convert: Convert, spec: dict[str, Any], given: list[str], written: list[str]
) -> None:
    set_args(spec, ["/opt/ml/model", "--gpu-memory-utilization=0.8"], given, [])
    assert convert().values["prefill"]["args"] == written


def test_a_tokenizer_of_hugging_face_is_left_out_where_pods_fetch_nothing_from_there(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    set_args(spec, ["/opt/ml/model", "--tensor-parallel-size=8", "--tokenizer=org/tokens"])
    converted = convert()
    manifests = helm.render(converted.text)
    assert manifests.config("router")["model"]["tokenizer"].startswith("/model")
    reason = converted.reason("spec.worker.args", "--tokenizer=org/tokens")
    assert reason.startswith("with model.source.type s3 pods fetch nothing from Hugging Face")


@pytest.mark.parametrize("fact", ["owned", "refused"])
def test_flags_that_the_chart_does_not_take_are_values_or_named_with_its_own_reason(
    convert: Convert, spec: dict[str, Any], helm: Helm, fact: str
) -> None:
    values = {
        "--served-model-name": ("servedName", "name"),
        "--tokenizer": ("tokenizer", "/tokens"),
        "--max-model-len": ("maxLen", 8192),
        "--dtype": ("dtype", "bfloat16"),
        "--tensor-parallel-size": ("tensorParallelSize", 4),
        "--pipeline-parallel-size": ("pipelineParallelSize", 2),
    }
    sizes = ["--tensor-parallel-size=4", "--pipeline-parallel-size=2"]
    left = {flag: reason for flag, reason in FLAGS[fact].items() if flag not in values}
    set_args(spec, ["/opt/ml/model", *sizes, *(f"{flag}=x" for flag in left)])
    converted = convert()
    for flag in left.keys() - {"--model", "--revision"}:
        assert converted.reason("spec.worker.args", f"{flag}=x") == left[flag]
    helm.render(converted.text)
    for flag in FLAGS[fact].keys() & values.keys():
        key, value = values[flag]
        others = [size for size in sizes if not size.startswith(flag)]
        set_args(spec, ["/opt/ml/model", *others, flag, str(value)])
        converted = convert()
        assert converted.values["model"][key] == value
        helm.render(converted.text)


def test_a_revision_is_for_hugging_face_alone(convert: Convert, spec: dict[str, Any]) -> None:
    set_args(spec, ["/opt/ml/model", "--revision=v2"])
    assert "only Hugging Face" in convert().reason("spec.worker.args", "--revision=v2")
    hub = {"modelId": "a/b"}
    spec["modelSourceConfig"] = {"modelSourceType": "huggingface", "huggingFaceModel": hub}
    assert convert().values["model"]["revision"] == "v2"
    hub["commitSHA"] = "0" * 40
    converted = convert()
    assert converted.values["model"]["revision"] == "0" * 40
    assert "commitSHA" in converted.reason("spec.worker.args", "--revision=v2")


def test_where_the_roles_differ_in_what_they_share_the_decoders_counts(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    set_args(
        spec,
        ["/opt/ml/model", "--max-model-len=4096"],
        ["--max-model-len=8192"],
        ["--max-model-len=12k"],
    )
    converted = convert()
    assert converted.values["model"]["maxLen"] == 12000
    said = "both roles share model.maxLen, and --max-model-len=12k was taken"
    assert converted.reason("spec.worker.args", "--max-model-len=4096") == said
    assert converted.reason("spec.pdSpec.prefillSpec.args", "--max-model-len=8192") == said
    helm.render(converted.text)


def test_one_name_is_served(convert: Convert, spec: dict[str, Any]) -> None:
    set_args(spec, ["/opt/ml/model", "--served-model-name", "first", "second"])
    converted = convert()
    assert converted.values["model"]["servedName"] == "first"
    assert converted.reason("spec.worker.args", "--served-model-name=second")
    # Clients already send the served name, so nothing is said of the path.
    assert "clients" not in converted.reason("spec.worker.args", "/opt/ml/model")


def test_prefix_caching_of_the_worker_is_left_to_the_prefillers(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    set_args(spec, ["/opt/ml/model", "--no-enable-prefix-caching"])
    converted = convert()
    assert converted.values["prefill"]["args"] == ["--no-enable-prefix-caching"]
    reason = converted.reason("spec.worker.args", "--no-enable-prefix-caching")
    assert reason.startswith("not for the decoder: ")
    rendered = helm.render(converted.text)
    for role in ("prefill", "decode"):
        assert rendered.container(role)["args"].count("--no-enable-prefix-caching") == 1


def test_templates_of_one_role_are_named_and_those_of_both_are_shared(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    template = "--chat-template=/templates/a"
    set_args(spec, ["/opt/ml/model"], [template], [])
    at = "spec.pdSpec.prefillSpec.args"
    assert convert().reason(at, template).endswith("a prompt alike; set it in engines.args")
    set_args(spec, ["/opt/ml/model"], [template], [template])
    converted = convert()
    assert template in converted.values["engines"]["args"]
    helm.render(converted.text)


def test_the_chart_works_out_the_room_on_a_gpu_that_it_knows(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["instanceType"] = "ml.g5.2xlarge"
    spec["worker"]["environmentVariables"] = []
    for role in ("prefillSpec", "decodingSpec"):
        spec["pdSpec"][role]["resources"] = {"limits": {"nvidia.com/gpu": 1}}
    said = (
        "no --gpu-memory-utilization, so the chart works it out: vLLM's own 0.9, less what the "
        "transfer buffer takes of a GPU of ml.g5.2xlarge"
    )
    for own, written in ([["--enforce-eager"], ["--enforce-eager"]], [[], []]):
        set_args(spec, ["--model", "/opt/ml/model", "--max-model-len", "8192"], own, own)
        converted = convert()
        assert converted.values["engines"]["args"] == written
        assert said in converted.notes()
        rendered = helm.render(converted.text)
        for role in ("prefill", "decode"):
            # 8 GiB are 0.358 of 22888 MiB.
            assert "--gpu-memory-utilization=0.54" in rendered.container(role)["args"]


def test_the_charts_room_on_the_gpu_stays_when_the_manifest_says_none(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    spec["instanceType"] = "ml.p99.48xlarge"
    set_args(spec, ["/opt/ml/model", "--enforce-eager"])
    converted = convert()
    args = ["--gpu-memory-utilization=0.75", "--enforce-eager"]
    assert converted.values["engines"]["args"] == args
    assert "no --gpu-memory-utilization, so the chart's 0.75 applies" in converted.notes()
    set_args(spec, ["/opt/ml/model"])
    assert "args" not in convert().values["engines"]
    helm.render(convert().text)


def test_a_folder_to_download_to_can_be_written(
    convert: Convert, spec: dict[str, Any], helm: Helm
) -> None:
    hub = {"modelId": "a/b"}
    spec["modelSourceConfig"] = {"modelSourceType": "huggingface", "huggingFaceModel": hub}
    set_args(spec, ["-tp=8", "--download-dir", "/var/weights"])
    mounts = helm.render(convert().text).container("decode")["volumeMounts"]
    assert {"name": "download-dir", "mountPath": "/var/weights"} in mounts


def test_the_length_that_the_manifest_leaves_to_the_model_is_asked_for(
    convert: Convert, spec: dict[str, Any]
) -> None:
    set_args(spec, ["/opt/ml/model"])
    assert "model.maxLen is 16384 unless you set it" in convert().notes()
    set_args(spec, ["/opt/ml/model", "--max-model-len=auto"])
    converted = convert()
    assert converted.reason("spec.worker.args", "--max-model-len=auto") == (
        "not a number that model.maxLen takes; set it"
    )
    assert "model.maxLen is 16384 unless you set it" in converted.notes()


def test_a_size_that_is_none_is_named(convert: Convert, spec: dict[str, Any], helm: Helm) -> None:
    set_args(spec, ["/opt/ml/model", "--pipeline-parallel-size=0", "-tp", "x"])
    converted = convert()
    assert converted.reason("spec.worker.args", "--pipeline-parallel-size=0")
    assert converted.reason("spec.worker.args", "--tensor-parallel-size=x")
    helm.render(converted.text)


@pytest.mark.parametrize(
    ("text", "number"), [("16384", 16384), ("16k", 16000), ("16K", 16384), ("1.5m", 1500000)]
)
def test_tokens_are_read_as_vllm_reads_them(text: str, number: int) -> None:
    assert tokens(text) == number


@pytest.mark.parametrize(
    ("command", "args", "bin_dir"),
    [
        (["vllm", "serve"], ["/opt/ml/model", "--enforce-eager"], None),
        (["/usr/local/bin/vllm", "serve", "/opt/ml/model"], ["--enforce-eager"], "/usr/local/bin"),
        (
            ["python3", "-m", "vllm.entrypoints.openai.api_server"],
            ["--model=/opt/ml/model", "--enforce-eager"],
            None,
        ),
        ([], ["vllm", "serve", "/opt/ml/model", "--enforce-eager"], None),
        (["/entry.sh"], ["/opt/ml/model", "--enforce-eager"], None),
    ],
)
def test_what_follows_the_command_counts(
    convert: Convert,
    spec: dict[str, Any],
    helm: Helm,
    command: list[str],
    args: list[str],
    bin_dir: str | None,
) -> None:
    set_args(spec, args)
    spec["worker"]["command"] = command
    converted = convert()
    assert converted.values["engines"]["args"][-1] == "--enforce-eager"
    assert converted.values.get("image", {}).get("binDir") == bin_dir
    assert ("spec.worker.command: " in converted.report) == (command == ["/entry.sh"])
    helm.render(converted.text)


def test_a_script_is_named_as_a_whole(convert: Convert, spec: dict[str, Any], helm: Helm) -> None:
    set_args(spec, ["exec vllm serve /opt/ml/model --enforce-eager"])
    spec["worker"]["command"] = ["/bin/sh", "-c"]
    converted = convert()
    assert converted.reason("spec.worker.command", '["/bin/sh", "-c"]')
    value = '["exec vllm serve /opt/ml/model --enforce-eager"]'
    assert "write vLLM's flags in engines.args" in converted.reason("spec.worker.args", value)
    helm.render(converted.text)
