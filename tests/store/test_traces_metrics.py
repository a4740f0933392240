"""Traces of messages, and the history of the counters."""

from typing import Any

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError
from monarq.operations.traces import AddTrace
from monarq.store import Store
from tests.store.calls import ack_all, pop, push, push_many
from tests.store.scenarios import DEAD, FAILED, WORK, drain, every, let_time_work

pytestmark = pytest.mark.smoke

MINUTE = 60 * SECOND


def trace(n: int, *names: str, partition_id: int = 1, transaction_id: str = "t") -> AddTrace:
    return AddTrace(
        partition_id=partition_id,
        transaction_id=transaction_id,
        event_type=f"event {n}",
        data=b'{"n":%d}' % n,
        names=list(names),
    )


# --- traces ---


async def test_a_trace_gets_its_id_and_time_and_comes_back_as_noted(
    store: Store, clock: ManualClock
) -> None:
    answer = await push(store, "q", transaction_id="ü/t")
    clock.advance(5)
    number = await store.call(
        trace(1, "a", "ü", partition_id=answer.partition_id, transaction_id="ü/t")
    )
    [row] = await every(store.list_traces, partition_id=answer.partition_id, transaction_id="ü/t")
    assert (row.id, row.created_at) == (number, clock.now())
    assert (row.event_type, row.data, sorted(row.names)) == ("event 1", b'{"n":1}', ["a", "ü"])


async def test_a_message_that_is_gone_can_still_be_traced(store: Store) -> None:
    answer = await push(store, "q")
    await store.delete_queue("q")
    await store.call(
        trace(1, partition_id=answer.partition_id, transaction_id=answer.transaction_id)
    )
    rows = await every(
        store.list_traces,
        partition_id=answer.partition_id,
        transaction_id=answer.transaction_id,
    )
    assert [row.event_type for row in rows] == ["event 1"]


async def test_traces_are_listed_by_message_or_by_name_oldest_first(
    store: Store, clock: ManualClock
) -> None:
    for n in range(9):
        names = [name for name, step in (("even", 2), ("third", 3)) if n % step == 0]
        await store.call(trace(n, *names, partition_id=1 + n % 2, transaction_id=f"t{n % 3}"))
        clock.advance(n % 2)

    async def found(**filters: object) -> list[int]:
        rows = await every(store.list_traces, limit=2, **filters)
        return [int(row.event_type.split()[1]) for row in rows]

    assert await found(name="even") == [0, 2, 4, 6, 8]
    assert await found(name="third") == [0, 3, 6]
    assert await found(name="none") == []
    assert await found(partition_id=1, transaction_id="t0") == [0, 6]
    assert await found(partition_id=2, transaction_id="t0") == [3]
    assert await found(partition_id=3, transaction_id="t0") == []


async def test_trace_names_are_listed_once_each(store: Store) -> None:
    for n in range(6):
        await store.call(trace(n, f"name {n % 3}", "always"))
    await store.call(trace(9))
    names = await every(store.list_trace_names, limit=2)
    assert names == ["always", "name 0", "name 1", "name 2"]


async def test_traces_are_found_by_the_id_of_their_message_and_by_their_time(
    store: Store, clock: ManualClock
) -> None:
    answer = await push(store, "q", transaction_id="t")
    partition_id, own_id = answer.partition_id, f"{answer.partition_id}-{answer.seq}"
    for n in range(3):
        await store.call(trace(n, "name", partition_id=partition_id))
        clock.advance(1)
    began = clock.now() - 3 * SECOND

    async def found(**filters: Any) -> list[str]:
        rows = await every(store.list_traces, partition_id=partition_id, **filters)
        return [row.event_type for row in rows]

    assert await found(transaction_id=own_id) == ["event 0", "event 1", "event 2"]
    assert await found(transaction_id="t", created_from=began + 1) == ["event 1", "event 2"]
    assert await found(transaction_id="t", created_to=began + SECOND) == ["event 0", "event 1"]
    assert await found(transaction_id=f"{partition_id}-99") == []


async def test_trace_names_are_searched_in_any_case(store: Store) -> None:
    await store.call(trace(1, "Order 1", "ORDERS", "other"))
    assert await every(store.list_trace_names, search="order") == ["ORDERS", "Order 1"]


async def test_paging_through_traces_is_stable_while_more_are_noted(store: Store) -> None:
    for n in range(4):
        await store.call(trace(n, "name"))
    first = await store.list_traces(name="name", limit=2)
    await store.call(trace(4, "name"))
    rest = await store.list_traces(name="name", limit=100, after=first.next)
    assert [row.event_type for row in [*first.rows, *rest.rows]] == [f"event {n}" for n in range(5)]


async def test_traces_go_after_seven_days(store: Store, clock: ManualClock) -> None:
    await store.call(trace(1, "old"))
    clock.advance(6 * 86_400)
    await let_time_work(store)
    assert len(await every(store.list_traces, name="old")) == 1
    await store.call(trace(2, "new"))
    clock.advance(2 * 86_400)
    await let_time_work(store)
    assert await every(store.list_traces, name="old") == []
    assert len(await every(store.list_traces, name="new")) == 1
    assert await every(store.list_trace_names) == ["new"]


# --- metrics ---


async def roll(store: Store, clock: ManualClock, minutes: int = 1) -> None:
    for _ in range(minutes):
        clock.advance(60)
        await let_time_work(store)


async def test_the_history_has_a_point_for_each_minute_in_which_something_changed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 0})
    start = clock.now()
    await push_many(store, "q", 5)
    await roll(store, clock)
    await ack_all(store, await pop(store, "q", 2))
    await roll(store, clock)
    await roll(store, clock, 5)
    await ack_all(store, await pop(store, "q", 1), DEAD)
    await roll(store, clock)
    points = await every(store.metrics, queue="q")
    assert [point.queue for point in points] == ["q"] * 3
    assert [point.pushed for point in points] == [5, 5, 5]
    assert [point.completed for point in points] == [0, 2, 2]
    assert [point.dead for point in points] == [0, 0, 1]
    assert [point.pending for point in points] == [5, 3, 2]
    times = [point.at for point in points]
    assert times == sorted(set(times))
    assert all(start - MINUTE <= time <= clock.now() for time in times)
    assert len({time // MINUTE for time in times}) == 3


async def test_changes_within_one_minute_are_one_point(store: Store, clock: ManualClock) -> None:
    for _ in range(5):
        await push(store, "q")
        await let_time_work(store)
        clock.advance(1)
    await roll(store, clock, 2)
    points = await every(store.metrics, queue="q")
    assert points[-1].pushed == 5
    assert len({point.at // MINUTE for point in points}) == len(points) <= 2


async def test_the_history_is_filtered_by_queue_and_time_and_paged(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    times = []
    for _ in range(4):
        for queue in ("q", "w"):
            await push(store, queue)
        times.append(clock.now())
        await roll(store, clock)
    await drain(store, "w")
    everything = await every(store.metrics, limit=3)
    assert len(everything) == len({(point.queue, point.at) for point in everything}) >= 8
    of_w = await every(store.metrics, queue="w", limit=1)
    assert [point for point in everything if point.queue == "w"] == of_w
    middle = of_w[1].at
    assert await every(store.metrics, queue="w", since=middle) == of_w[1:]
    assert await every(store.metrics, queue="w", until=middle - 1) == of_w[:1]


async def test_failures_are_in_the_history(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    await ack_all(store, await pop(store, "q"), FAILED)
    await roll(store, clock)
    [*_, point] = await every(store.metrics, queue="q")
    assert (point.failed, point.completed, point.pending) == (1, 0, 1)


async def test_metrics_go_after_thirty_days(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    await roll(store, clock)
    clock.advance(29 * 86_400)
    await let_time_work(store)
    point = (await every(store.metrics, queue="q"))[0]
    assert point.pushed == 1
    clock.advance(2 * 86_400)
    await let_time_work(store)
    assert point not in await every(store.metrics, queue="q")


async def test_half_a_message_is_no_filter_for_traces(store: Store) -> None:
    await store.call(trace(1, "name"))
    with pytest.raises(InvalidRequestError):
        await store.list_traces(partition_id=1)
    with pytest.raises(InvalidRequestError):
        await store.list_traces(transaction_id="t")
