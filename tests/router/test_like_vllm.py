"""Prompt tokens are counted exactly as vLLM's own front end counts them.

And the stub engine, with which the other tests work, answers in the form that vLLM answers in.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.router.counting_cases import CASES, MAX_LEN
from tests.router.engine_answers import REVISION, Answers
from tests.router.template_cases import TEMPLATE_CASES

from dpd_router.chatting import ChatRenderer
from dpd_router.counting import Counter
from dpd_router.probing import revision_in
from dpd_router.templates import content_format, template_variables
from dpd_router.tokenizing import HfTokenizer, load_tokenizer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def engine(
    tokenizer_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What vLLM makes of each case and each template."""
    out = tmp_path_factory.mktemp("oracle") / "answers.json"
    cases = [[str(tokenizer_folders[c.model]), c.route, c.body] for c in CASES]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("USE_")}
    subprocess.run(
        [sys.executable, str(HERE / "vllm_oracle.py"), str(out)],
        input=json.dumps(
            {"cases": cases, "templates": list(TEMPLATE_CASES.values()), "max_len": MAX_LEN}
        ),
        text=True,
        check=True,
        env=environment
        | {
            "PYTHONPATH": str(HERE.parents[1] / "plugins/dpd-vllm/src"),
            "DPD_REVISION": REVISION,
            "DPD_ROLE": "decode",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "HF_HUB_OFFLINE": "1",
        },
    )
    answers: dict[str, Any] = json.loads(out.read_text())
    return answers


@pytest.fixture(scope="module")
def engine_counts(engine: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {case.name: answer for case, answer in zip(CASES, engine["cases"], strict=True)}


@pytest.fixture(scope="module")
def tokenizers(tokenizer_folders: dict[str, Path]) -> dict[str, HfTokenizer]:
    return {name: load_tokenizer(str(path), None) for name, path in tokenizer_folders.items()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_count_is_the_engines(
    case: Any, engine_counts: dict[str, dict[str, Any]], tokenizers: dict[str, HfTokenizer]
) -> None:
    engine = engine_counts[case.name]
    counted = Counter(tokenizers[case.model], max_len=MAX_LEN).count(case.route, case.body)
    if case.refused:
        assert "error" in engine, engine
        assert counted.direct is not None
    elif case.not_counted:
        assert "error" not in engine, engine
        assert counted.tokens == ()
        assert counted.direct is not None and counted.direct.code == case.not_counted
    else:
        assert "error" not in engine, engine
        assert list(counted.tokens) == [len(ids) for ids in engine["tokens"]]
        assert counted.direct is None


@pytest.mark.parametrize(
    "case",
    [c for c in CASES if c.route == "chat" and not (c.refused or c.truncated or c.not_counted)],
    ids=lambda case: case.name,
)
def test_the_rendered_chat_is_the_engines(
    case: Any, engine_counts: dict[str, dict[str, Any]], tokenizers: dict[str, HfTokenizer]
) -> None:
    rendered = ChatRenderer(tokenizers[case.model]).render(case.body)
    engine = engine_counts[case.name]
    assert rendered.tokenized is (engine["text"] is None)
    if rendered.tokenized:
        encode = tokenizers[case.model]._tokenizer.encode
        assert encode(rendered.text, add_special_tokens=False) == engine["tokens"][0]
    else:
        assert rendered.text == engine["text"]


@pytest.mark.parametrize("name", TEMPLATE_CASES)
def test_a_template_is_read_as_the_engine_reads_it(name: str, engine: dict[str, Any]) -> None:
    template = TEMPLATE_CASES[name]
    wanted = engine["templates"][list(TEMPLATE_CASES).index(name)]
    assert [content_format(template), sorted(template_variables(template))] == wanted


ANSWERS = {
    "completion": Answers.json(Answers.completion(["hi"], 7, "r")),
    "chat": Answers.json(Answers.chat("hi", 7, "r")),
    "error": Answers.json(Answers.error(400, "m", "T", "p")),
    "models": Answers.json(Answers.models()),
    "completion_event": Answers.completion_event("hi", "r", "length"),
    "completion_usage": Answers.usage_event("completion", 7, 1, "r"),
    "first_chat_event": Answers.first_chat_event("r"),
    "chat_event": Answers.chat_event("hi", "r", None),
    "last_chat_event": Answers.chat_event("hi", "r", "length"),
    "chat_usage": Answers.usage_event("chat", 7, 1, "r"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_the_stub_engines_answers_have_the_engines_form(name: str, engine: dict[str, Any]) -> None:
    made = ANSWERS[name].decode().removeprefix("data: ").removesuffix("\n\n")
    assert made == engine["answers"][name]


def test_the_stub_engines_metrics_tell_the_revision_in_dpd_vllms_form(
    engine: dict[str, Any],
) -> None:
    page = Answers.metrics("decode", REVISION).decode()
    made = [line for line in page.splitlines(keepends=True) if "dpd:engine_info" in line]
    assert "".join(made) == engine["metrics"]
    assert revision_in(engine["metrics"]) == REVISION
