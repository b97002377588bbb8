"""Texts reach the containers byte for byte: no shell and no template is between (A28)."""

from __future__ import annotations

import json

import pytest

from .conftest import Helm

ITEMS = [
    '--speculative-config={"method":"mtp","num_speculative_tokens":2}',
    "--chat-template={% for m in messages %}\n{{ m.content }}\n{% endfor %}\n",
    "--za=$HOME and %s and %d",
    "--zb=back\\slash \\n \\\"quoted\\\" 'single'",
    "--zc=naïve 漢字 🙂 <&> \u2028",
    "--zd=-1",
    "--ze=$$(NOT_EXPANDED)",
    "--zf=  spaces at the ends  ",
    "--zg=# no comment: [x] {y} *z &w !t | > %",
    "--zh=yes",
    "--zi=012",
    "--zj=",
]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_arguments_arrive_as_written(helm: Helm, role: str) -> None:
    args = helm.render({"engines": {"args": ITEMS}}).container(role)["args"]
    assert args[-len(ITEMS) :] == ITEMS


def test_values_after_a_flag_arrive_as_written(helm: Helm) -> None:
    items = [
        "--override-generation-config",
        "a=/x",
        '{"name": "b"}',
        "--hf-overrides",
        '{"x": [1e-05, 0.1]}',
        "--zn",
        "-1",
    ]
    assert (
        helm.render({"engines": {"args": items}}).container("decode")["args"][-len(items) :]
        == items
    )


def test_environment_arrives_as_written(helm: Helm) -> None:
    values = {f"V{i}": item.partition("=")[2] for i, item in enumerate(ITEMS)}
    variables = [{"name": name, "value": value} for name, value in values.items()]
    env = helm.render({"engines": {"env": variables}}).env("prefill")
    assert {name: env[name] for name in values} == values


def test_the_kv_transfer_config_is_json(helm: Helm) -> None:
    manifests = helm.render()
    for role, expected in (("prefill", "kv_producer"), ("decode", "kv_consumer")):
        (flag,) = [
            a for a in manifests.container(role)["args"] if a.startswith("--kv-transfer-config=")
        ]
        assert json.loads(flag.partition("=")[2])["kv_role"] == expected


def test_names_of_the_model_arrive_as_written_in_the_router(helm: Helm) -> None:
    model = {"name": "/models/größe&<x>", "servedName": "a:b#c'\"d", "tokenizer": "~/null"}
    config = helm.render({"model": model}).config("router")["model"]
    assert config["name"] == model["servedName"]
    assert config["tokenizer"] == model["tokenizer"]
    assert helm.render({"model": model}).container("decode")["args"][0] == model["name"]
