"""KV passes only between engines of one revision, whatever an upgrade has done so far."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from tests.router.conftest import Stage
from tests.router.engine_answers import REVISION, Answers
from tests.router.stub_engine import StubEngine

from dpd_router.app import Router
from dpd_router.choosing import of_a_revision
from dpd_router.config import Routing
from dpd_router.counting import Counted
from dpd_router.deciding import decide
from dpd_router.engines import REVISION_PROBES, Engine
from dpd_router.probing import probe, revision_in

LONG = {"prompt": [1] * 30}
SHORT = {"prompt": [1] * 5}
UNPAIRED = "no prefiller of the decoder's revision"
OLD, NEW = "aaaaaaaaaaaa", "bbbbbbbbbbbb"


async def pods(stage: Stage, prefill: list[str | None], decode: list[str | None]) -> None:
    """Put engines of these revisions on the stage, decoders on addresses of their own."""
    await stage.prefillers.pop().stop()
    await stage.decoders.pop().stop()
    await stage.engines(prefill=len(prefill), decode=0)
    for number in range(len(decode)):
        await stage.engines(prefill=0, decode=1, host=f"127.0.0.{number + 2}")
    for engines, revisions in ((stage.prefillers, prefill), (stage.decoders, decode)):
        for engine, revision in zip(engines, revisions, strict=True):
            engine.does.revision = revision


def pairs(stage: Stage) -> set[tuple[str | None, str | None]]:
    """The revisions of each prefiller that was used, and of the decoder it was told to send to."""
    decoders = {decoder.host: decoder for decoder in stage.decoders}
    return {
        (
            prefiller.does.revision,
            decoders[leg.body["kv_transfer_params"]["disagg_spec"]["receiver_host"]].does.revision,
        )
        for prefiller in stage.prefillers
        for leg in prefiller.seen
    }


async def ask(stage: Stage, body: dict[str, Any] = LONG) -> tuple[str, str]:
    """Send a request; return which path it took and why."""
    async with stage.post("/v1/completions", body) as response:
        assert response.status == 200, await response.text()
        return response.headers["x-dpd-path"], response.headers["x-dpd-reason"]


@pytest.mark.parametrize(
    ("prefill", "decode", "paired"),
    [
        ([OLD], [OLD], {OLD}),
        ([OLD], [NEW], set()),
        ([NEW], [OLD], set()),
        ([OLD, NEW], [OLD], {OLD}),
        ([OLD, NEW], [NEW], {NEW}),
        ([OLD], [OLD, NEW], {OLD}),
        ([NEW], [OLD, NEW], {NEW}),
        ([OLD, NEW], [OLD, NEW], {OLD, NEW}),
        ([OLD, None], [NEW, None], {None}),
        ([None], [None], {None}),
        ([None], [OLD], set()),
        ([OLD], [None], set()),
        ([""], [None], {""}),
    ],
)
async def test_only_engines_of_one_revision_are_paired(
    stage: Stage, prefill: list[str | None], decode: list[str | None], paired: set[str | None]
) -> None:
    await pods(stage, prefill, decode)
    await stage.router()
    for _ in range(6):
        path, reason = await ask(stage)
        if paired:
            assert path == "disaggregated"
        else:
            assert (path, reason) == ("direct", UNPAIRED)
    # "" and no metric are one: an engine that does not tell its revision.
    assert {(p or "", d or "") for p, d in pairs(stage)} == {(r or "", r or "") for r in paired}


async def test_a_long_prompt_that_finds_no_partner_is_answered_and_counted_and_logged(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    await pods(stage, [NEW], [OLD])
    router = await stage.router()
    with caplog.at_level(logging.WARNING):
        assert await ask(stage) == ("direct", UNPAIRED)
    (line,) = caplog.messages
    assert line.endswith(
        f" goes to a decoder directly: decoders are of revision ['{OLD}'], prefillers of ['{NEW}']"
    )
    assert stage.prefillers[0].seen == []
    assert stage.decoders[0].seen[0].body == LONG
    value = router.metrics.registry.get_sample_value
    labels = {"path": "direct", "reason": "no_matching_prefiller"}
    assert value("dpd_router_requests_total", labels) == 1
    async with stage.client.get(stage.url + "/ready") as response:
        assert response.status == 200


async def test_a_decoder_with_a_partner_is_preferred_for_long_prompts_only(stage: Stage) -> None:
    await pods(stage, [OLD], [OLD, NEW])
    router = await stage.router()
    busy = next(e for e in router.decoders.engines if e.revision == OLD)
    with busy.serving(), busy.serving():
        for _ in range(3):
            assert (await ask(stage))[0] == "disaggregated"
            assert (await ask(stage, SHORT))[0] == "direct"
    assert [len(decoder.seen) for decoder in stage.decoders] == [3, 3]
    assert all(seen.body == LONG for seen in stage.decoders[0].seen)


async def test_no_prefiller_at_all_is_a_503_as_ever(stage: Stage) -> None:
    await pods(stage, [OLD], [OLD])
    router = await stage.router()
    stage.prefillers[0].does.healthy = False
    await stage.until(lambda: not router.prefillers.usable)
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 503
        assert "No prefiller answers" in await response.text()


async def test_a_partner_that_is_gone_is_not_replaced_by_an_engine_of_another_revision(
    stage: Stage,
) -> None:
    await pods(stage, [OLD, NEW], [OLD])
    await stage.router()
    await stage.prefillers[0].stop()
    async with stage.post("/v1/completions", LONG) as response:
        assert response.status == 503
        message = (await response.json())["error"]["message"]
    names = ", ".join(prefiller.address for prefiller in stage.prefillers)
    assert message == f"No prefiller of the decoder's revision answers ({names})."
    assert stage.prefillers[1].seen == stage.decoders[0].seen == []
    assert await ask(stage) == ("direct", UNPAIRED)


async def replace(stage: Stage, router: Router, pod: StubEngine, revision: str) -> None:
    """Stop an engine and start one of another revision in its place, as an upgrade does."""
    (engine,) = [e for e in router.prefillers.engines + router.decoders.engines if e.url == pod.url]
    await pod.stop()
    await probe(router.upstream, engine)
    assert not engine.answers
    pod.does.revision = revision
    await pod.start(pod.port)
    await probe(router.upstream, engine)
    assert engine.answers


async def test_an_upgrade_of_one_engine_after_the_other_never_pairs_old_with_new(
    stage: Stage,
) -> None:
    await pods(stage, [OLD, OLD], [OLD, OLD])
    router = await stage.router()
    prefillers, decoders = stage.prefillers, stage.decoders

    async def step(pod: StubEngine | None, paired: set[str]) -> None:
        if pod is not None:
            await replace(stage, router, pod, NEW)
        for engine in (*prefillers, *decoders):
            engine.seen.clear()
        for _ in range(4):
            path, reason = await ask(stage)
            assert path == ("disaggregated" if paired else "direct"), reason
        assert pairs(stage) == {(revision, revision) for revision in paired}

    await step(None, {OLD})
    await step(prefillers[0], {OLD})
    await step(decoders[0], {OLD, NEW})
    await step(prefillers[1], {NEW})
    await step(decoders[1], {NEW})


async def test_an_upgrade_of_one_role_after_the_other_answers_every_request(stage: Stage) -> None:
    await pods(stage, [OLD], [OLD])
    router = await stage.router()
    assert (await ask(stage))[0] == "disaggregated"
    await replace(stage, router, stage.prefillers[0], NEW)
    assert await ask(stage) == ("direct", UNPAIRED)
    await replace(stage, router, stage.decoders[0], NEW)
    assert (await ask(stage))[0] == "disaggregated"


async def known(stage: Stage) -> tuple[Router, Engine, StubEngine]:
    """A router that knows the revision of its one decoder."""
    router = await stage.router()
    return router, router.decoders.engines[0], stage.decoders[0]


async def test_a_revision_is_read_when_an_engine_turns_up_and_seldom_again(stage: Stage) -> None:
    router, engine, stub = await known(stage)
    assert (engine.revision, stub.metrics_read) == (REVISION, 1)
    for _ in range(REVISION_PROBES // 2):
        await probe(router.upstream, engine)
    assert stub.metrics_read == 1
    for _ in range(REVISION_PROBES):
        await probe(router.upstream, engine)
    assert stub.metrics_read == 2


async def test_a_revision_that_changes_in_place_is_noticed(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    router, engine, stub = await known(stage)
    stub.does.revision = NEW
    with caplog.at_level(logging.INFO):
        for _ in range(REVISION_PROBES + 1):
            await probe(router.upstream, engine)
    assert engine.revision == NEW
    assert f"decode engine {stub.url} is now of revision '{NEW}'" in caplog.messages
    assert await ask(stage) == ("direct", UNPAIRED)


async def test_an_engine_that_was_away_is_asked_again_at_once(stage: Stage) -> None:
    router, engine, stub = await known(stage)
    stub.does.healthy, stub.does.revision = False, NEW
    await probe(router.upstream, engine)
    assert not engine.answers
    stub.does.healthy = True
    await probe(router.upstream, engine)
    assert (engine.answers, engine.revision) == (True, NEW)


async def not_found(request: web.Request) -> web.StreamResponse:
    return web.Response(status=404, body=Answers.metrics("decode", NEW))


async def endless(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"# a comment of a metric\n" * 1000)


@pytest.mark.parametrize("page", [not_found, endless])
async def test_an_engine_without_a_page_of_metrics_is_usable_and_of_no_revision(
    stage: Stage, page: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> None:
    for engine in (*stage.prefillers, *stage.decoders):
        engine.does.metrics = page
    router, engine, _ = await known(stage)
    assert engine.revision == ""
    assert router.prefillers.revisions == [""]
    assert (await ask(stage))[0] == "disaggregated"


async def hang(request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    return web.Response()


async def drip(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(b"#")
        await asyncio.sleep(0.1)


async def break_off(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    await response.write(b"# half")
    assert request.transport is not None
    request.transport.abort()
    return response


@pytest.mark.parametrize("page", [hang, drip, break_off])
async def test_an_engine_is_not_used_before_its_revision_is_known(
    stage: Stage, page: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> None:
    router, _, _ = await known(stage)
    await stage.engines(prefill=0, decode=1, host="127.0.0.2")
    stub = stage.decoders[1]
    stub.does.metrics = page
    engine = Engine("decode", stub.host, stub.port)
    async with asyncio.timeout(4):
        await probe(router.upstream, engine)
    assert not engine.answers
    stub.does.metrics = None
    await probe(router.upstream, engine)
    assert (engine.answers, engine.revision) == (True, REVISION)


PAGE = Answers.metrics("decode", NEW).decode()


@pytest.mark.parametrize(
    ("page", "revision"),
    [
        (PAGE, NEW),
        (Answers.metrics("decode", "").decode(), ""),
        (Answers.metrics("decode", None).decode(), ""),
        ("", ""),
        ('dpd:engine_info{revision="a",role="decode"} 1', "a"),
        ('x 1\ndpd:engine_info{model_name="}\\",revision=\\"b",revision="a"} 1\ny 2', "a"),
        ('dpd:engine_info{role="decode"} 1', ""),
        ('# HELP dpd:engine_info{revision="a"} 1', ""),
        ('x{a="dpd:engine_info"} 1', ""),
        ('dpd:engine_info{revision="a', ""),
        ("dpd:engine_info{} x", ""),
    ],
)
def test_the_revision_is_the_label_of_one_metric(page: str, revision: str) -> None:
    assert revision_in(page) == revision


def test_without_partners_every_engine_is_kept() -> None:
    engines = [Engine("decode", f"10.0.0.{i}", 1) for i in range(3)]
    for engine, revision in zip(engines, ("a", "b", ""), strict=True):
        engine.revision = revision
    assert of_a_revision(engines, []) == engines
    assert of_a_revision(engines, engines[:2]) == engines[:2]
    assert of_a_revision([], engines) == []


@pytest.mark.parametrize(
    ("mode", "tokens", "code"),
    [
        ("threshold", 4096, "no_matching_prefiller"),
        ("always", 1, "no_matching_prefiller"),
        ("threshold", 4095, "short_prompt"),
        ("never", 5000, "mode_never"),
    ],
)
def test_without_a_pair_what_would_be_transferred_goes_direct(
    mode: Any, tokens: int, code: str
) -> None:
    decision = decide(Counted((tokens,)), Routing(mode, 4096), paired=False)
    assert (decision.code, decision.path) == (code, "direct")
