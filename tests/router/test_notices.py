"""The engines' notices: who waits for what, and what is ignored."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio
from tests.router.conftest import Stage

from dpd_router.lmcache import Notice, read_notice
from dpd_router.metrics import Metrics
from dpd_router.notices import Notices, TransferFailed


def notice(transfer: str, rank: int = 0, ranks: int = 1, error: str = "") -> bytes:
    fields = {"type": "ProxyNotif", "req_id": transfer}
    return msgspec.msgpack.encode(fields | {"rank": rank, "ranks": ranks, "error": error})


# A field of 60000 lists in one another.
NESTED = b"\x82\xa4type\xabProxyNotif\xa1z" + b"\x91" * 60_000 + b"\xc0"


async def landed(landing: Any) -> bool:
    try:
        async with asyncio.timeout(0.01):
            await landing.wait()
    except TimeoutError:
        return False
    return True


async def test_a_transfer_has_landed_when_every_rank_has_reported() -> None:
    notices = Notices(Metrics())
    with notices.expected("a") as a, notices.expected("b") as b:
        for rank in (3, 1, 0):
            notices.take(notice("a", rank, 4))
        assert not await landed(a)
        notices.take(notice("a", 1, 4))
        assert not await landed(a)
        assert a.progress() == "3 of 4 ranks reported"
        notices.take(notice("a", 2, 4))
        assert await landed(a)
        assert not await landed(b)
        assert b.progress() == "no rank reported"


async def test_a_notice_without_ranks_is_the_only_one() -> None:
    notices = Notices(Metrics())
    with notices.expected("a") as a:
        notices.take(msgspec.msgpack.encode({"type": "ProxyNotif", "req_id": "a"}))
        assert await landed(a)


async def test_any_ranks_error_fails_the_transfer() -> None:
    notices = Notices(Metrics())
    with notices.expected("a") as a:
        notices.take(notice("a", 0, 2))
        notices.take(notice("a", 1, 2, "write failed"))
        notices.take(notice("a", 1, 2))
        with pytest.raises(TransferFailed, match=r"^write failed$"):
            await a.wait()


async def test_strange_messages_are_counted_and_ignored() -> None:
    metrics = Metrics()
    notices = Notices(metrics)
    with notices.expected("a") as a:
        for message in (
            b"",
            b"\xff\x00",
            msgspec.msgpack.encode({"type": "Other", "req_id": "a"}),
            msgspec.msgpack.encode({"type": "ProxyNotif"}),
            msgspec.msgpack.encode(["a"]),
            notice("a", 1, 1),
            notice("a", -1, 1),
            notice("a", 0, 0),
            NESTED,
        ):
            notices.take(message)
        notices.take(notice("unknown"))
        assert not await landed(a)
    notices.take(notice("a"))
    value = metrics.registry.get_sample_value
    assert value("dpd_router_notices_invalid_total") == 9
    assert value("dpd_router_notices_unknown_total") == 2
    assert value("dpd_router_transfers_waiting") == 0


def test_a_notice_has_the_wire_form_of_lmcaches() -> None:
    sent = msgspec.msgpack.encode({"type": "ProxyNotif", "req_id": "10.0.0.1:7500/ab"})
    assert read_notice(sent) == Notice(req_id="10.0.0.1:7500/ab", rank=0, ranks=1, error="")


async def test_garbage_on_the_notice_port_harms_nothing(stage: Stage) -> None:
    router = await stage.router()
    address = f"127.0.0.1:{stage.notify_port}"
    for _ in range(50):
        await stage.prefillers[0].push(address, b"\x00garbage")
    await stage.prefillers[0].push(address, {"type": "ProxyNotif", "req_id": "of nobody"})
    value = router.metrics.registry.get_sample_value
    await stage.until(lambda: value("dpd_router_notices_unknown_total") == 1)
    assert value("dpd_router_notices_invalid_total") == 50
    async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
        assert response.status == 200


async def test_strange_messages_of_every_size_and_shape_leave_the_router_at_work(
    stage: Stage,
) -> None:
    router = await stage.router()
    address = f"127.0.0.1:{stage.notify_port}"
    with zmq.asyncio.Context.instance().socket(zmq.PUSH) as socket:
        socket.connect(f"tcp://{address}")
        await socket.send(NESTED)
        await socket.send_multipart([notice("of nobody"), b"more"])
        value = router.metrics.registry.get_sample_value
        await stage.until(lambda: value("dpd_router_notices_invalid_total") == 2)
        await socket.send(b"\xff" * 65537)
        await asyncio.sleep(0.1)
    await stage.prefillers[0].push(address, notice("of nobody"))
    await stage.until(lambda: value("dpd_router_notices_unknown_total") == 1)
    assert value("dpd_router_notices_invalid_total") == 2
    async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
        assert response.status == 200


async def test_a_flood_of_strange_messages_holds_up_nobody_and_fills_no_log(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    class Flooded:
        async def recv_multipart(self) -> list[bytes]:
            return [b"\xff"]

    metrics = Metrics()
    notices = Notices(metrics)
    notices._socket = Flooded()  # type: ignore[assignment]
    listening = asyncio.ensure_future(notices.listen())
    for _ in range(10):
        await asyncio.sleep(0)
    listening.cancel()
    assert metrics.registry.get_sample_value("dpd_router_notices_invalid_total") == 64 * 10
    assert [r.message for r in caplog.records if "no notice" in r.message] == [
        "ignoring a message that is no notice: Expected `object`, got `int`"
    ]


async def test_notices_of_all_ranks_are_waited_for(stage: Stage) -> None:
    await stage.router()
    stage.prefillers[0].does.ranks = 8
    stage.prefillers[0].does.notify_delay = 0.2
    async with stage.post("/v1/completions", {"prompt": [1] * 30}) as response:
        assert response.status == 200
        assert 0.15 < float(response.headers["x-dpd-transfer-seconds"]) < 1


async def test_the_end_of_a_lasting_duty_ends_the_router(stage: Stage) -> None:
    router = await stage.router()
    failed = asyncio.ensure_future(router.failed())
    await asyncio.sleep(0.05)
    assert not failed.done()
    router.notices.close()
    router._duties[0].cancel()
    async with asyncio.timeout(1):
        await failed
