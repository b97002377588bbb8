"""Finding the engines and choosing among them."""

from __future__ import annotations

from typing import Any

from tests.router.conftest import Stage

from dpd_router.choosing import LeastInFlight
from dpd_router.engines import Engine, Pool, resolve


class Names:
    """A name service whose answers a test sets."""

    def __init__(self, **known: list[str]) -> None:
        self.known = known

    async def resolve(self, host: str, port: int) -> list[tuple[str, int]]:
        if host not in self.known:
            raise OSError(f"{host} is not known")
        return [(ip, port) for ip in self.known[host]]


def urls(pool: Pool) -> list[str]:
    return sorted(engine.url for engine in pool.engines)


async def test_a_name_stands_for_all_its_addresses() -> None:
    names = Names(prefill=["10.0.0.1", "10.0.0.2"], other=["10.0.0.2", "fd00::1"])
    pool = Pool("prefill", ["prefill:8000", "other:8000"], resolve=names.resolve)
    await pool.refresh()
    assert urls(pool) == ["http://10.0.0.1:8000", "http://10.0.0.2:8000", "http://[fd00::1]:8000"]


async def test_engines_come_and_go_with_the_name_and_keep_their_state() -> None:
    names = Names(d=["10.0.0.1", "10.0.0.2"])
    pool = Pool("decode", ["d:1"], resolve=names.resolve)
    await pool.refresh()
    kept = next(engine for engine in pool.engines if engine.ip == "10.0.0.2")
    kept.seen_alive()
    names.known["d"] = ["10.0.0.2", "10.0.0.3"]
    await pool.refresh()
    assert urls(pool) == ["http://10.0.0.2:1", "http://10.0.0.3:1"]
    assert pool.usable == [kept]


async def test_a_name_that_fails_keeps_what_it_last_gave() -> None:
    names = Names(d=["10.0.0.1"])
    pool = Pool("decode", ["d:1"], resolve=names.resolve)
    await pool.refresh()
    del names.known["d"]
    await pool.refresh()
    assert urls(pool) == ["http://10.0.0.1:1"]
    names.known["d"] = []
    await pool.refresh()
    assert urls(pool) == ["http://10.0.0.1:1"]


async def test_one_name_that_fails_does_not_hide_the_others() -> None:
    pool = Pool("decode", ["gone:1", "d:1"], resolve=Names(d=["10.0.0.1"]).resolve)
    await pool.refresh()
    assert urls(pool) == ["http://10.0.0.1:1"]


async def test_names_are_resolved_by_the_system() -> None:
    assert ("127.0.0.1", 8000) in await resolve("localhost", 8000)
    assert await resolve("127.0.0.9", 80) == [("127.0.0.9", 80)]


def test_an_engine_is_unusable_after_three_late_answers_or_a_refusal() -> None:
    engine = Engine("decode", "10.0.0.1", 1)
    assert not engine.answers
    engine.seen_alive()
    engine.seen_late()
    engine.seen_late()
    assert engine.answers
    engine.seen_alive()
    engine.seen_late()
    engine.seen_late()
    assert engine.answers
    engine.seen_late()
    assert not engine.answers
    engine.seen_alive()
    engine.seen_dead()
    assert not engine.answers


def test_the_engine_with_the_fewest_requests_is_chosen() -> None:
    engines = [Engine("decode", f"10.0.0.{i}", 1) for i in range(3)]
    for engine, load in zip(engines, (2, 1, 3), strict=True):
        engine.in_flight = load
    strategy = LeastInFlight()
    assert [strategy.choose(engines).ip for _ in range(3)] == ["10.0.0.1"] * 3


def test_equals_take_turns() -> None:
    engines = [Engine("decode", f"10.0.0.{i}", 1) for i in range(3)]
    strategy = LeastInFlight()
    chosen = [strategy.choose(engines).ip for _ in range(6)]
    assert chosen[:3] == chosen[3:]
    assert sorted(chosen[:3]) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


async def test_requests_spread_over_all_engines(stage: Stage) -> None:
    await stage.engines(prefill=2, decode=2)
    await stage.router()
    for _ in range(12):
        async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
            assert response.status == 200
    assert [len(engine.seen) for engine in stage.prefillers] == [4, 4, 4]
    assert [len(engine.seen) for engine in stage.decoders] == [4, 4, 4]


async def test_the_kv_goes_to_the_decoder_that_gets_the_request(stage: Stage) -> None:
    await stage.decoders.pop().stop()
    for host in ("127.0.0.2", "127.0.0.3"):
        await stage.engines(prefill=0, decode=1, host=host)
    await stage.router()
    for _ in range(4):
        async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
            assert response.status == 200
    told = [
        leg.body["kv_transfer_params"]["disagg_spec"]["receiver_host"]
        for leg in stage.prefillers[0].seen
    ]
    assert sorted(told) == ["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"]
    for engine in stage.decoders:
        assert len(engine.seen) == 2


async def test_a_busy_decoder_gets_fewer_requests(stage: Stage) -> None:
    await stage.engines(prefill=0, decode=1)
    router = await stage.router()
    busy: Any = router.decoders.engines[0]
    with busy.serving(), busy.serving():
        for _ in range(6):
            async with stage.post("/v1/completions", {"prompt": [1] * 5}) as response:
                assert response.status == 200
    counts = {engine.address: len(engine.seen) for engine in stage.decoders}
    assert counts[busy.url.removeprefix("http://")] == 0
