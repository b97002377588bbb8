from __future__ import annotations

from typing import Any

SHORT = {"model": "tiny", "prompt": "a b", "max_tokens": 5}
LONG = {"model": "tiny", "prompt": "word " * 40, "max_tokens": 5}


async def test_a_short_prompt_goes_straight_to_the_decoder(stage: Any) -> None:
    await stage.router()
    async with stage.post("/v1/completions", SHORT) as response:
        assert response.status == 200
        assert response.headers["x-dpd-path"] == "direct"
        assert (await response.json())["choices"][0]["text"] == "Hello you"
    assert len(stage.decoders[0].seen) == 1
    assert stage.prefillers[0].seen == []


async def test_a_long_prompt_goes_through_the_prefiller(stage: Any) -> None:
    await stage.router()
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 200
        assert response.headers["x-dpd-path"] == "disaggregated"
    assert len(stage.decoders[0].seen) == 1
    assert len(stage.prefillers[0].seen) == 1
