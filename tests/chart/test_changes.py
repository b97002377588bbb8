"""What a change restarts (A20), and what an upgrade may never change (A15)."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import CHART, Helm, Manifests, Values, template


def pods(manifests: Manifests) -> dict[str, Any]:
    """Pod templates by component: where one changes, its pods restart."""
    return {name: manifests.template(name) for name in ("router", "prefill", "decode")}


def restarted_by(helm: Helm, values: Values, **options: Any) -> set[str]:
    """The components whose pods restart when a release with default values gets these."""
    before, after = pods(helm.render()), pods(helm.render(values, **options))
    return {name for name in before if before[name] != after[name]}


def selectors(manifests: Manifests) -> dict[tuple[str, str], Any]:
    return {
        key: o["spec"]["selector"]
        for key, o in manifests.items()
        if key[0] in ("Deployment", "Service")
    }


# Not sets: their order, and with it the names of the tests, would change from run to run.
ROUTER, PREFILL, DECODE = ("router",), ("prefill",), ("decode",)
ENGINES = PREFILL + DECODE


@pytest.mark.parametrize(
    ("values", "restarted"),
    [
        ({"router": {"threshold": 100}}, ROUTER),
        ({"router": {"timeouts": {"idleSeconds": 5}}}, ROUTER),
        ({"router": {"env": [{"name": "A", "value": "b"}]}}, ROUTER),
        ({"decode": {"args": ["--max-num-seqs=8"]}}, DECODE),
        ({"prefill": {"args": ["--max-num-seqs=8"]}}, PREFILL),
        ({"engines": {"args": ["--max-num-seqs=8"]}}, ENGINES),
        ({"engines": {"env": [{"name": "A", "value": "b"}]}}, ENGINES),
        ({"engines": {"shm": {"size": "1Gi"}}}, ENGINES),
        ({"kvTransfer": {"bufferSize": 1073741824}}, ENGINES),
        ({"kvTransfer": {"ports": {"notify": 7600}}}, ROUTER),
        ({"kvTransfer": {"ports": {"init": 9000}}}, ROUTER + DECODE),
        ({"cache": {"l1": {"sizeGiB": 20}}}, PREFILL),
        ({"cache": {"l2": {"type": "redis", "address": "valkey:6379"}}}, PREFILL),
        ({"placement": {"separateNodes": False}}, ENGINES),
        (
            {
                "router": {
                    "autoscaling": {"type": "hpa"},
                    "ingress": {"enabled": True},
                    "service": {"port": 8080},
                },
                "engines": {"podDisruptionBudget": None},
                "prefill": {"replicas": 3},
                "decode": {"autoscaling": {"type": "hpa"}},
                "networkPolicy": {"enabled": False},
                "commonAnnotations": {"a": "b"},
            },
            (),
        ),
        # Both, since a router pairs only engines of one revision.
        ({"decode": {"image": {"tag": "v0.4.4"}}}, ENGINES),
        ({"engines": {"image": {"tag": "v0.4.4"}}}, ENGINES),
        ({"router": {"image": {"tag": "v0.4.4"}}}, ROUTER),
    ],
    ids=lambda value: str(sorted(value) if isinstance(value, set) else value),
)
def test_a_change_restarts_only_the_pods_that_it_concerns(
    helm4: Helm, values: Values, restarted: tuple[str, ...]
) -> None:
    assert restarted_by(helm4, values) == {*restarted}


def test_a_new_version_of_the_chart_alone_restarts_nothing(
    helm: Helm, chart_copy: Callable[..., Path]
) -> None:
    text = (CHART / "Chart.yaml").read_text(encoding="utf-8")
    changed = re.sub(r"^(version|appVersion): .*$", r"\1: 9.9.9+build.1", text, flags=re.MULTILINE)
    newer = helm.render(chart=chart_copy("Chart.yaml", text, changed))
    assert pods(newer) == pods(helm.render())
    assert selectors(newer) == selectors(helm.render())
    assert newer != helm.render()


@pytest.mark.parametrize(
    ("plugin", "restarted"),
    [("dpd-router/dpd_router", ROUTER), ("dpd-vllm/dpd_vllm", ENGINES)],
)
def test_new_plugin_code_restarts_the_pods_that_run_it(
    helm4: Helm, chart_copy: Callable[..., Path], plugin: str, restarted: tuple[str, ...]
) -> None:
    changed = chart_copy(f"files/plugins/{plugin}/__init__.py", '"""', '"""Changed. ')
    assert restarted_by(helm4, {}, chart=changed) == {*restarted}


@pytest.mark.parametrize("ranks", [8, 16])
def test_selectors_never_change(helm4: Helm, ranks: int) -> None:
    fixed: Values = {"fullnameOverride": "fixed", "model": {"tensorParallelSize": ranks}}
    labels = {
        "nameOverride": "renamed",
        "commonLabels": {"team": "search"},
        "engines": {"podLabels": {"a": "b"}},
        "router": {"podLabels": {"a": "b"}},
        "decode": {"podLabels": {"c": "d"}},
    }
    before, after = selectors(helm4.render(fixed)), selectors(helm4.render({**fixed, **labels}))
    assert before == after
    assert len(before) == (6 if ranks == 8 else 4)  # a LeaderWorkerSet has none


# ---- The revision, by which a router pairs engines ----


def revision(helm: Helm, values: Values, chart: Path = CHART) -> str:
    """The revision of a release, equal on both roles and of 12 hex digits."""
    manifests = helm.render(values, chart=chart)
    found = {manifests.env(role)["DPD_REVISION"] or "" for role in ("prefill", "decode")}
    (only,) = found
    assert re.fullmatch("[0-9a-f]{12}", only)
    assert "DPD_REVISION" not in manifests.env("router")
    return only


@pytest.mark.parametrize(
    "values",
    [
        {"model": {"name": "meta-llama/Llama-3.1-70B-Instruct"}},
        {"model": {"revision": "abc123"}},
        {"model": {"dtype": "bfloat16"}},
        {"model": {"tensorParallelSize": 4}},
        {"model": {"pipelineParallelSize": 2}},
        {"model": {"hashSeed": 1}},
        {"model": {"tokenizer": "org/tokenizer"}},
        {"model": {"source": {"type": "pvc", "pvc": {"claimName": "weights"}}}},
        {"image": {"tag": "v0.4.4"}},
        {"engines": {"image": {"tag": "v0.4.4"}}},
        {"prefill": {"image": {"tag": "v0.4.4"}}},
        {"decode": {"image": {"tag": "v0.4.4"}}},
        {"engines": {"args": ["--gpu-memory-utilization=0.75", "--kv-cache-dtype=fp8"]}},
        {"engines": {"args": ["--gpu-memory-utilization=0.75", "-q", "fp8"]}},
        {"engines": {"args": ["--gpu-memory-utilization=0.75", "--chat-template=/a.jinja"]}},
        {"engines": {"args": ["--gpu-memory-utilization=0.75", "--tokenizer-mode=slow"]}},
        {"engines": {"args": ["--speculative-config.method=eagle"]}},
        {"kvTransfer": {"chunkSize": 128}},
        {"kvTransfer": {"backend": "UCX"}},
    ],
    ids=str,
)
def test_the_revision_changes_with_what_both_roles_must_have_alike(
    helm4: Helm, values: Values
) -> None:
    assert revision(helm4, values) != revision(helm4, {})


@pytest.mark.parametrize(("module", "changes"), [("messages.py", True), ("__init__.py", False)])
def test_the_revision_changes_with_what_engines_say_to_each_other(
    helm4: Helm, chart_copy: Callable[..., Path], module: str, changes: bool
) -> None:
    file = f"files/plugins/dpd-vllm/dpd_vllm/{module}"
    changed = chart_copy(file, '"""', '"""Changed. ')
    assert (revision(helm4, {}, chart=changed) != revision(helm4, {})) is changes


def test_the_revision_is_the_same_for_what_flags_say_in_other_words(helm4: Helm) -> None:
    ways: list[list[str]] = [["-q", "fp8"], ["--quantization=fp8"], ["--quantization", "fp8"]]
    assert len({revision(helm4, {"engines": {"args": way}}) for way in ways}) == 1


def test_the_revision_stays_with_everything_else(helm4: Helm) -> None:
    said = ["--kv-cache-dtype=auto", "--tokenizer-mode", "auto"]  # what is so without being said
    ngram = '--speculative-config={"method":"ngram","num_speculative_tokens":3}'
    values: Values = {
        "prefill": {"replicas": 3},
        "decode": {"args": [ngram]},  # shapes no KV
        "router": {"threshold": 100, "image": {"tag": "v0.4.4"}},
        "engines": {"args": ["--gpu-memory-utilization=0.7", "--max-num-seqs=8", *said]},
        "model": {
            "servedName": "llama",
            "maxLen": 8192,
            "shape": {"layers": 80},
            "source": {"huggingFace": {"tokenSecret": {"name": "a"}, "cacheHostPath": "/mnt/hf"}},
        },
        "kvTransfer": {"bufferSize": 4294967296, "ports": {"init": 9000}},
        "cache": {"l1": {"enabled": False}},
        "placement": {"zone": "us-west-2a"},
    }
    assert revision(helm4, values) == revision(helm4, {})


def from_source(kind: str, folder: str = "", **keys: str) -> Values:
    return {"model": {"source": {"type": kind, "path": folder, kind: keys}}}


def test_the_revision_names_the_files_of_each_source_and_not_how_they_come(helm4: Helm) -> None:
    fsx = {"fileSystemId": "fs-1", "dnsName": "a.b"}
    named = [
        from_source("s3", bucket="weights"),
        from_source("s3", bucket="others"),
        from_source("s3", bucket="weights", folder="llama"),
        from_source("pvc", claimName="weights"),
        from_source("pvc", claimName="weights", folder="llama"),
        from_source("hostPath", path="/weights"),
        from_source("image", reference="weights:1"),
        from_source("image", reference="weights:2"),
        from_source("fsx", mountName="a", **fsx),
        from_source("fsx", mountName="b", **fsx),
    ]
    revisions = [revision(helm4, values) for values in named]
    assert len({*revisions, revision(helm4, {})}) == len(named) + 1
    copied = from_source("s3", bucket="weights", image="aws:1", copyHostPath="/mnt/nvme")
    assert revision(helm4, copied) == revisions[0]
    mounted = from_source("s3", bucket="weights", access="mount")
    assert revision(helm4, mounted) == revisions[0]
    pulled = from_source("image", reference="weights:1", pullPolicy="Always")
    assert revision(helm4, pulled) == revisions[6]


def test_two_renders_are_equal_byte_for_byte(helm: Helm) -> None:
    again = template.__wrapped__(helm.program, "demo", CHART, (), None)
    assert again == helm.run(None)


def test_no_template_asks_the_cluster_the_clock_or_chance() -> None:
    asking = r"\b(lookup|rand\w*|now|ago|uuidv4|gen[A-Z]\w*|htpasswd|bcrypt|getHostByName)\b"
    for path in (CHART / "templates").iterdir():
        for action in re.findall(
            r"\{\{(?!-? *- */\*|-? */\*)(.*?)\}\}", path.read_text(encoding="utf-8"), re.DOTALL
        ):
            assert not re.search(asking, re.sub(r'"(\\.|[^"])*"', "", action)), (path, action)
