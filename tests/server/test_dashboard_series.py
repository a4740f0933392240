"""The dashboard's charts: minutes that were noted, percentiles, and numbers in words."""

import json

import pytest

from monarq.clock import SECOND
from monarq.model import Latency
from monarq.operations.records import HISTORY_KIND
from monarq.server.watch.history import History
from monarq.server.watch.percentiles import of_latencies
from monarq.server.watch.wording import duration, number, plural
from monarq.times import iso
from tests.server.application import Api
from tests.server.board import BOARD, MINUTE, board, consume


async def test_minutes_that_were_noted_become_a_chart(api: Api) -> None:
    history = History(api.service.snapshots, lambda: api.broker.store, api.clock)
    api.clock.advance(MINUTE - api.clock.now() / SECOND % MINUTE)
    assert await history.note()
    for count in (60, 120, 0, 240):
        if count:
            await api.push_payloads("q", *range(count))
            await consume(api, "q", "g", 100)
        api.clock.advance(MINUTE)
        await history.note()
    for name, step in (("15m", 60), ("1h", 60), ("6h", 120)):
        told = await board(api, f"series?range={name}")
        assert told["stepSeconds"] == step
        lengths = {len(told[key]) for key in ("times", "in", "out", "pending", "p50", "lagSeconds")}
        assert len(lengths) == 1
        known = [(at, rate) for at, rate in zip(told["times"], told["in"], strict=True)
                 if rate is not None]  # fmt: skip
        assert sum(rate for _, rate in known) * step == pytest.approx(420, rel=0.02)
    told = await board(api, "series?range=15m")
    assert [rate for rate in told["in"] if rate is not None][:5] == [0.0, 1.0, 2.0, 0.0, 4.0]
    assert told["in"][0] is None
    assert any(value is not None for value in told["p99"])


async def test_a_minute_is_noted_once_whoever_notes_it_and_an_idle_one_not_at_all(
    api: Api,
) -> None:
    one = History(api.service.snapshots, lambda: api.broker.store, api.clock)
    two = History(api.service.snapshots, lambda: api.broker.store, api.clock)
    api.clock.advance(3600 - api.clock.now() / SECOND % 3600 + MINUTE)
    assert await one.note()
    assert not await two.note()
    assert not await one.note()
    api.clock.advance(MINUTE)
    assert not await one.note()
    await api.push_payloads("q", 1)
    api.clock.advance(MINUTE)
    assert await one.note()
    assert not await two.note()
    [record] = (await api.broker.store.list_records(HISTORY_KIND)).rows
    assert sorted(json.loads(record.value)["slots"], key=int) == ["0", "2"]


async def test_a_record_that_is_no_hour_spoils_no_chart(memory_api: Api) -> None:
    api = memory_api
    api.clock.advance(MINUTE - api.clock.now() / SECOND % MINUTE)
    day = iso(api.clock.now())[:10]
    for key, value in ((f"{day}-what", b"{}"), (day, b"{}"), (f"{day}T00", b"[]")):
        await api.broker.store.put_record(HISTORY_KIND, key, value)
    assert await History(api.service.snapshots, lambda: api.broker.store, api.clock).note()
    assert any(rate is not None for rate in (await board(api, "series?range=15m"))["pending"])
    assert await board(api, "system")


async def test_a_queue_has_a_chart_of_its_own(api: Api) -> None:
    await api.push_payloads("q", *range(30))
    await api.push_payloads("other", *range(99))
    await api.broker.advance_time()
    api.clock.advance(2 * MINUTE)
    await api.push_payloads("q", *range(60))
    await consume(api, "q", "g", 100)
    told = await board(api, "series?range=15m&queue=q")
    pushed = sum(rate for rate in told["in"] if rate is not None) * 60
    assert pushed >= 60
    assert pushed <= 90 * 60  # the last step is not over, so what is in it counts for more
    assert told["pending"][-1] == 0
    assert told["p50"][-1] is not None
    assert (await api.get(f"{BOARD}/series?queue=none")).status == 404
    assert (await api.get(f"{BOARD}/series?range=1y")).status == 400


def test_percentiles_count_every_message() -> None:
    assert of_latencies([]) is None
    one = [Latency(at=0, microseconds=n * SECOND, messages=1) for n in range(1, 101)]
    assert of_latencies(one) == (50.0, 95.0, 99.0)
    heavy = [*one, Latency(at=0, microseconds=500 * SECOND, messages=900)]
    assert of_latencies(heavy) == (500.0, 500.0, 500.0)


def test_numbers_read_as_people_write_them() -> None:
    assert (number(12_400), number(0.25), number(3)) == ("12,400", "0.2", "3")
    assert (plural(1, "push", "pushes"), plural(2, "push", "pushes")) == ("1 push", "2 pushes")
    told = [duration(seconds) for seconds in (1, 59, 60, 480, 7200, 200_000)]
    assert told == ["1 second", "59 seconds", "1 minute", "8 minutes", "2 hours", "2 days"]
