"""Engines read the rendered arguments as vLLM reads those of the manifest."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from dpd_convert.chart import read_chart

from .conftest import HERE, Convert
from .rendering import Helm

# Per case: the worker's arguments, prefill's, decode's. All have 8 GPUs.
CASES: dict[str, tuple[list[str], list[str], list[str]]] = {
    "values apart and joined, a role over the worker": (
        ["/opt/ml/model", "--tensor-parallel-size", "8", "--max-num-seqs", "64"],
        ["--enforce-eager", "--max-num-seqs", "16"],
        ["--max_num_seqs=32"],
    ),
    "short and underscored spellings": (
        ["--model=/opt/ml/model", "-tp=8", "--max_model_len", "16k", "-O3", "-q", "fp8"],
        ["--no-enforce-eager", "--max-num-batched-tokens=16384"],
        ["-cc.cudagraph_mode=FULL_DECODE_ONLY"],
    ),
    "the model behind a switch": (
        ["--enforce-eager", "/opt/ml/model", "-tp", "8", "--seed", "-1", "--max-model-len=8192"],
        [],
        [],
    ),
    "several values of one flag": (
        ["/opt/ml/model", "-tp", "8", "--cudagraph-capture-sizes", "1", "2", "4"],
        ["--gpu-memory-utilization", "0.6"],
        ["--gpu-memory-utilization=0.7", "--cudagraph-capture-sizes", "8", "16"],
    ),
    "names cut short, and the last of two": (
        ["/opt/ml/model", "--tensor-parallel", "8", "--max-num-seqs=1", "--max-num-seqs", "2"],
        ["--max-model", "4096"],
        ["--max-model", "4096"],
    ),
    "JSON, and paths in the model's folder": (
        ["/opt/ml/model", "-tp=8", "--chat-template", "/opt/ml/model/chat.jinja"],
        ["--override-generation-config", '{"temperature": 0.5, "top_p": 1}'],
        [
            "--speculative-config",
            '{"method": "ngram", "num_speculative_tokens": 2, "prompt_lookup_max": 4}',
        ],
    ),
    "what both roles say alike": (
        ["/opt/ml/model", "--tensor-parallel-size=8", "--kv-cache-dtype=auto"],
        ["--kv-cache-dtype=fp8", "--dtype", "bfloat16", "--enforce-eager"],
        ["--enforce-eager", "--kv-cache-dtype", "fp8", "--dtype=bfloat16"],
    ),
}

# What the chart says itself, whatever a manifest says.
CHARTS = {"host", "port", "kv_transfer_config", "model_tag", "shutdown_timeout"}


def check_flags_of_older_versions(known: list[str]) -> None:
    """Flags are called gone that vLLM does not know, and none that another is cut short to."""
    gone = {flag for flag, why in read_chart().flags["refused"].items() if "no more" in why}
    assert {"--disable-log-requests", "--swap-space", "--num-scheduler-steps"} <= gone
    assert [flag for flag in known if any(one.startswith(flag) for one in gone)] == []
    assert {*read_chart().flags["refused"]} - gone <= {*known, "--grpc"}  # the program's own


def test_the_settings_of_each_role_are_those_of_the_manifest(
    convert: Convert, spec: dict[str, Any], helm: Helm, tmp_path: Path
) -> None:
    lines: list[list[str]] = []
    for worker, prefill, decode in CASES.values():
        spec["worker"]["args"] = worker
        spec["pdSpec"]["prefillSpec"]["args"] = prefill
        spec["pdSpec"]["decodingSpec"]["args"] = decode
        manifests = helm.render(convert().text)
        for role, own in (("prefill", prefill), ("decode", decode)):
            # vLLM takes the last of a flag, so a role's own flags behind the worker's replace them.
            lines += [[*worker, *own], manifests.container(role)["args"]]

    out = tmp_path / "settings.json"
    command = [sys.executable, str(HERE / "vllm_parser.py"), str(out)]
    subprocess.run(command, input=json.dumps(lines), text=True, check=True)
    found = json.loads(out.read_text(encoding="utf-8"))
    check_flags_of_older_versions(found["flags"])
    settings = iter(found["settings"])
    folder = "/model/llama-3-3-70b-instruct"
    for case, (worker, prefill, decode) in CASES.items():
        for role, own in (("prefill", prefill), ("decode", decode)):
            theirs, ours = next(settings), next(settings)
            unsaid = set(CHARTS)
            if "--served-model-name" not in worker:
                unsaid.add("served_model_name")
            if not any("max" in item and "model" in item for item in (*worker, *own)):
                assert ours["max_model_len"] == "16384", (case, role)  # and a note says so
                unsaid.add("max_model_len")
            if not any("gpu-memory" in item for item in (*worker, *own)):
                # vLLM's 0.9, less the 8 of 80 GiB that the buffer takes, as a note says.
                assert ours["gpu_memory_utilization"] == "0.8", (case, role)
                unsaid.add("gpu_memory_utilization")
            if role == "decode":
                assert ours["enable_prefix_caching"] == "False"
                unsaid.add("enable_prefix_caching")
            differing = {
                name: (theirs[name], ours[name])
                for name in theirs
                if name not in unsaid
                and theirs[name].replace("/opt/ml/model", folder) != ours[name]
                and name != "model"
            }
            assert differing == {}, (case, role)
            assert ours["model_tag"] == f"'{folder}'"
