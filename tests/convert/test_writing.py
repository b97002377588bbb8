"""Values as they are written."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpd_convert import read_chart, to_yaml, trimmed

from .rendering import Helm

DEFAULTS = read_chart().values
# Text that YAML, or one of its readers, takes for a number, a truth value or a structure.
TRICKY = ["", "y", "No", "on", "~", "null", "1.10", "0222e04", "1e3", "0x10", "0o17", "1_000"]
TRICKY += ["-1", "+.5", ".inf", "2001-01-01", "12:30:45", "#a", "a: b", "a #b", "- a", "{a}", "[a"]
TRICKY += [
    "'a'",
    '"a"',
    "a\nb",
    "a\n",
    "\ta",
    " a",
    "é",
    "*a",
    "&a",
    "!a",
    "%a",
    "@a",
    "`a",
    "=",
    "<<",
]


@given(text=st.sampled_from(TRICKY) | st.text(max_size=20))
@settings(deadline=None)
def test_text_stays_text(text: str) -> None:
    written = to_yaml({"a": [text, {text: text}]}, "Comment.")
    assert yaml.safe_load(written) == {"a": [text, {text: text}]}


def test_helm_reads_text_as_text(helm: Helm) -> None:
    # Python does not read what Helm makes of the last two.
    texts = [text for text in TRICKY if text not in ("=", "<<")]
    env = [{"name": f"N{index}", "value": text} for index, text in enumerate(texts)]
    rendered = helm.render(to_yaml({"engines": {"env": env}}, "Comment."))
    found = {one["name"]: one.get("value", "") for one in rendered.container("decode")["env"]}
    assert {one["name"]: found[one["name"]] for one in env} == {
        one["name"]: one["value"] for one in env
    }


def test_yaml_is_what_a_human_would_write() -> None:
    values = {
        "text": "plain text",
        "number": "96",
        "size": "1500Gi",
        "long": "word " * 60,
        "script": "if a; then\n  b\nfi\n",
        "none": None,
        "list": [{"name": "a", "value": "y"}, "--flag=1"],
    }
    assert to_yaml(values, "One.\nTwo.") == (
        '# One.\n# Two.\ntext: plain text\nnumber: "96"\nsize: 1500Gi\n'
        f"long: '{'word ' * 60}'\n"
        "script: |\n  if a; then\n    b\n  fi\nnone: null\n"
        'list:\n  - name: a\n    value: "y"\n  - --flag=1\n'
    )


def test_the_same_thing_twice_is_written_twice() -> None:
    part = {"pool": "a"}
    assert "*" not in to_yaml({"a": part, "b": part}, "Comment.")


def test_defaults_are_not_repeated_but_which_model_and_which_nodes_always_stand() -> None:
    values: dict[str, Any] = {
        "kvTransfer": {"chunkSize": 256, "bufferSize": 1073741824},
        "router": {"mode": "threshold", "threshold": 4096},
        "instanceTypes": DEFAULTS["instanceTypes"],
        "model": {"maxLen": 16384, "name": DEFAULTS["model"]["name"]},
    }
    kept = trimmed(values, DEFAULTS)
    assert kept == {
        "model": {"name": DEFAULTS["model"]["name"]},
        "instanceTypes": DEFAULTS["instanceTypes"],
        "kvTransfer": {"bufferSize": 1073741824},
    }
    assert list(kept) == ["model", "instanceTypes", "kvTransfer"]  # the chart's order


def test_a_role_does_not_repeat_what_engines_say() -> None:
    values = {
        "engines": {"autoscaling": {"minReplicas": 2}},
        "prefill": {"autoscaling": {"minReplicas": 2, "maxReplicas": 4, "type": "keda"}},
        "decode": {"autoscaling": {"minReplicas": 1, "queueDepth": None}, "replicas": 1},
    }
    kept = trimmed(values, DEFAULTS)
    assert kept["prefill"] == {"autoscaling": {"type": "keda"}}
    assert kept["decode"] == {"autoscaling": {"minReplicas": 1, "queueDepth": None}}


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(sorted(DEFAULTS)))
def test_defaults_alone_become_nearly_nothing(key: str) -> None:
    assert set(trimmed({key: DEFAULTS[key]}, DEFAULTS)) <= {"model", "instanceTypes"}


def test_no_values_are_a_file_too() -> None:
    assert to_yaml({}, "Comment.") == "# Comment.\n{}\n"


@pytest.mark.parametrize("sizes", ["1", "1Gi", "1.5Gi", "100m", "5120Mi", "1E", "1e", "1k"])
def test_quantities_are_text_for_every_reader(sizes: str, helm: Helm) -> None:
    written = to_yaml({"engines": {"resources": {"requests": {"cpu": sizes}}}}, "Comment.")
    assert yaml.safe_load(written)["engines"]["resources"]["requests"]["cpu"] == sizes
