"""The tiny model is the same everywhere, and its prompts have the length that was asked for."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from dpd_local import model


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model.ensure(tmp_path_factory.mktemp("models") / "tiny")


def digests(directory: Path) -> dict[str, str]:
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in directory.iterdir()
    }


def test_it_comes_out_the_same_to_the_byte_each_time(made: Path, tmp_path: Path) -> None:
    assert digests(made) == digests(model.ensure(tmp_path / "again"))


def test_it_is_made_once_and_again_when_its_recipe_changed(made: Path) -> None:
    before = (made / "model.safetensors").stat().st_mtime_ns
    model.ensure(made)
    assert (made / "model.safetensors").stat().st_mtime_ns == before
    (made / "recipe.sha256").write_text("of an older recipe")
    model.ensure(made)
    assert (made / "model.safetensors").stat().st_mtime_ns > before


@pytest.mark.parametrize("tokens", [1, 15, 16, 17, 255, 256, 257, 8000])
def test_a_text_has_exactly_the_tokens_asked_for(made: Path, tokens: int) -> None:
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    assert len(tokenizer.encode(model.text(made, tokens, seed=tokens)).ids) == tokens


def test_texts_of_two_seeds_share_no_first_chunk(made: Path) -> None:
    assert model.text(made, 300, seed=1)[:20] != model.text(made, 300, seed=2)[:20]


def test_any_text_comes_back_from_its_tokens(made: Path) -> None:
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    text = 'Grüße, 世界! {"a": [1, 2]}\n'
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_chat_template_writes_system_tools_and_the_turn_to_come(made: Path) -> None:
    jinja2 = pytest.importorskip("jinja2")
    settings = json.loads((made / "tokenizer_config.json").read_text())
    template = jinja2.Template(settings["chat_template"])
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
    written = template.render(
        messages=messages, tools=[{"name": "f"}], bos_token="<|begin|>", add_generation_prompt=True
    )
    assert written == (
        '<|begin|><|system|>Tools: [{"name": "f"}]<|end|>'
        "<|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>"
    )
