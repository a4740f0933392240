"""A part of the snapshot is read by one task at a time, and is as young as its callers ask."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from monarq.errors import StoreUnavailableError
from monarq.server import snapshot
from monarq.server.snapshot import Part
from tests.server.application import BOUND, Api


class Readings:
    """Numbers its readings; each waits until it is let go."""

    def __init__(self) -> None:
        self.begun = 0
        self.at_once = 0
        self.most_at_once = 0
        self.error: Exception | None = None
        self._go = asyncio.Event()
        self._told: asyncio.Queue[int] = asyncio.Queue()
        self.part: Part[int] = Part(self._read)

    async def _read(self) -> int:
        self.begun += 1
        number = self.begun
        self._told.put_nowait(number)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            await self._go.wait()
        finally:
            self.at_once -= 1
        if self.error is not None:
            raise self.error
        return number

    def let_go(self) -> None:
        self._go.set()
        self._go = asyncio.Event()

    def always(self) -> None:
        self._go.set()

    async def until_begun(self, number: int) -> None:
        async with asyncio.timeout(BOUND):
            while await self._told.get() != number:
                pass


async def soon(result: Awaitable[int]) -> int:
    async with asyncio.timeout(BOUND):
        return await result


@pytest.fixture
async def later(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the clock of the event loop, which ages are told by."""
    moved = 0.0
    loop = asyncio.get_running_loop()
    time = loop.time
    monkeypatch.setattr(loop, "time", lambda: time() + moved)

    def move(seconds: float) -> None:
        nonlocal moved
        moved += seconds

    return move


async def test_callers_at_the_same_time_share_one_reading() -> None:
    readings = Readings()
    calls = [asyncio.ensure_future(readings.part.get()) for _ in range(20)]
    await readings.until_begun(1)
    readings.let_go()
    assert await soon(asyncio.gather(*calls)) == [1] * 20  # type: ignore[arg-type, comparison-overlap]
    assert readings.begun == 1


async def test_a_caller_that_wants_current_counters_gets_no_reading_that_began_before() -> None:
    readings = Readings()
    first = asyncio.ensure_future(readings.part.get())
    await readings.until_begun(1)
    second = asyncio.ensure_future(readings.part.get())
    third = asyncio.ensure_future(readings.part.get(60.0))
    await asyncio.sleep(0)
    readings.let_go()
    assert (await soon(first), await soon(third)) == (1, 1)
    await readings.until_begun(2)
    assert not second.done()
    readings.let_go()
    assert await soon(second) == 2
    assert readings.most_at_once == 1


async def test_a_reading_is_taken_until_it_is_too_old_for_the_caller(
    later: Callable[[float], None],
) -> None:
    readings = Readings()
    readings.always()
    assert await readings.part.get(5.0) == 1
    later(4.0)
    assert await readings.part.get(5.0) == 1
    assert await readings.part.get(3.0) == 2
    later(5.0)
    assert await readings.part.get(5.0) == 3
    assert await readings.part.get() == 4


async def test_a_slow_reading_is_kept_for_callers_of_current_counters_but_not_for_ever(
    later: Callable[[float], None],
) -> None:
    readings = Readings()
    first = asyncio.ensure_future(readings.part.get())
    await readings.until_begun(1)
    later(1.0)
    readings.always()
    assert await soon(first) == 1
    later(3.9)
    assert await readings.part.get() == 1
    assert await readings.part.get(anew=True) == 2
    assert await readings.part.get() == 3  # the last one was quick


async def test_no_reading_is_kept_longer_than_the_bound(later: Callable[[float], None]) -> None:
    readings = Readings()
    first = asyncio.ensure_future(readings.part.get())
    await readings.until_begun(1)
    later(60.0)
    readings.always()
    assert await soon(first) == 1
    later(snapshot.MOST_KEPT_SECONDS - 0.5)
    assert await readings.part.get() == 1
    later(1.0)
    assert await readings.part.get() == 2


async def test_a_caller_that_goes_away_leaves_the_reading_to_the_others() -> None:
    readings = Readings()
    gone = asyncio.ensure_future(readings.part.get())
    await readings.until_begun(1)
    stays = asyncio.ensure_future(readings.part.get(60.0))
    await asyncio.sleep(0)
    gone.cancel()
    await asyncio.wait({gone})
    readings.let_go()
    assert await soon(stays) == 1
    assert readings.begun == 1


async def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    readings = Readings()
    readings.always()
    assert await readings.part.get(60.0) == 1
    readings.error = StoreUnavailableError("away")
    calls = [readings.part.get(anew=True) for _ in range(3)]
    errors = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(error) for error in errors] == [StoreUnavailableError] * 3
    with pytest.raises(StoreUnavailableError):
        await readings.part.get(60.0)  # what was read before the outage is not current
    readings.error = None
    assert await readings.part.get(60.0) == readings.begun


async def test_counters_are_current_again_when_the_store_is_back(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    await memory_api.push_payloads("q", 1)
    assert (await memory_api.get("/api/v1/status")).json["queueCount"] == 1

    async def away(**_: Any) -> Any:
        raise StoreUnavailableError("away")

    with monkeypatch.context() as outage:
        outage.setattr(memory_api.broker.store, "queue_flows", away, raising=False)
        assert (await memory_api.get("/api/v1/status")).status == 503
        assert (await memory_api.get("/api/v1/dashboard/overview")).status == 200
        answer = await memory_api.get("/metrics/prometheus")
        assert answer.status == 200
        assert b"monarq_queue_pending" not in answer.body
    await memory_api.push_payloads("r", 1)
    assert (await memory_api.get("/api/v1/status")).json["queueCount"] == 2
    assert (await memory_api.get("/api/v1/dashboard/queues")).json["total"] == 2
