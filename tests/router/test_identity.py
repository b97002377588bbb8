"""Request ids: clean, echoed, and never the key of anything."""

from __future__ import annotations

import asyncio
import re

import pytest
from tests.router.conftest import Stage

from dpd_router.trips import clean_id

LONG = {"prompt": "word " * 40}
SHORT = {"prompt": "word"}


@pytest.mark.parametrize(
    ("given", "cleaned"),
    [
        ("abc-1.2_3:4", "abc-1.2_3:4"),
        ("a\nINFO forged", "aINFOforged"),
        ("a\r\n\tb", "ab"),
        ("äöü漢", ""),
        ("<script>", "script"),
        ("x" * 10_000, "x" * 128),
        ("", ""),
        (None, ""),
        (5, ""),
    ],
)
def test_an_id_keeps_only_harmless_characters(given: object, cleaned: str) -> None:
    assert clean_id(given) == cleaned


async def test_an_id_of_ten_kilobytes_is_shortened_and_echoed(stage: Stage) -> None:
    await stage.router()
    headers = {"X-Request-Id": "y" * 10_240}
    async with stage.post("/v1/completions", LONG, headers=headers) as response:
        assert response.status == 200
        assert response.headers["x-request-id"] == "y" * 128
    assert stage.decoders[0].seen[0].headers["X-Request-Id"] == "y" * 128


@pytest.mark.parametrize("given", ["", "%%%"])
async def test_an_id_of_which_nothing_is_left_is_made(stage: Stage, given: str) -> None:
    await stage.router()
    async with stage.post("/v1/completions", SHORT, headers={"X-Request-Id": given}) as response:
        assert response.status == 200
        assert re.fullmatch("[0-9a-f]{32}", response.headers["x-request-id"])


async def test_the_bodys_own_request_id_stays_in_force(stage: Stage) -> None:
    await stage.router()
    async with stage.post("/v1/completions", SHORT | {"request_id": "mine-7"}) as response:
        assert response.headers["x-request-id"] == "mine-7"
        assert (await response.json())["id"] == "cmpl-mine-7"


async def test_a_header_wins_over_the_bodys_request_id_as_in_the_engine(stage: Stage) -> None:
    await stage.router()
    body = SHORT | {"request_id": "mine-7"}
    async with stage.post("/v1/completions", body, headers={"X-Request-Id": "h"}) as response:
        assert (await response.json())["id"] == "cmpl-h"


async def test_the_same_id_at_once_long_and_short_serves_both(stage: Stage) -> None:
    await stage.router()
    stage.prefillers[0].does.delay = 0.1

    async def one(body: dict[str, str]) -> tuple[int, str, str]:
        headers = {"X-Request-Id": "same"}
        async with stage.post("/v1/completions", body, headers=headers) as response:
            await response.read()
            path, echoed = response.headers["x-dpd-path"], response.headers["x-request-id"]
            return response.status, path, echoed

    assert await asyncio.gather(one(LONG), one(SHORT), one(LONG)) == [
        (200, "disaggregated", "same"),
        (200, "direct", "same"),
        (200, "disaggregated", "same"),
    ]
    legs = stage.prefillers[0].seen
    transfers = {leg.body["kv_transfer_params"]["disagg_spec"]["req_id"] for leg in legs}
    engine_ids = {leg.headers["X-Request-Id"] for leg in legs}
    assert len(transfers) == len(engine_ids) == 2
    assert all(re.fullmatch("same-[0-9a-f]{8}-[0-9a-f]{32}", engine_id) for engine_id in engine_ids)
