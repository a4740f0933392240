"""Figures for people who look: of queues, partitions, single messages, and of the database."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import NotFoundError
from monarq.model import Ack, Pop, Push, PushItem, QueueKind
from monarq.store import Store
from tests.store.calls import ack_of

pytestmark = pytest.mark.smoke


async def push(store: Store, queue: str, *partitions: str) -> None:
    items = [PushItem(queue, b"1", partition=partition) for partition in partitions]
    [pushed] = await store.push([Push(items)])
    assert isinstance(pushed, list)


async def test_many_queues_are_described_as_each_and_the_missing_are_left_out(
    store: Store,
) -> None:
    await push(store, "b", "Default", "p")
    await push(store, "a", "Default")
    await store.configure("w", kind=QueueKind.WORK)
    names = ["w", "b", "missing", "a"]
    queues = await store.describe_queues(names)
    assert {one.name for one in queues} == {"w", "b", "a"}
    for one in queues:
        assert one == await store.get_queue(one.name)
    assert await store.describe_queues([]) == []


async def test_partitions_are_paged_without_repeats_and_tell_what_the_slowest_group_has_before_it(
    store: Store,
) -> None:
    await push(store, "q", *(f"p{n % 5}" for n in range(15)))
    await store.subscribe("fast", 0, queue="q")
    [popped] = await store.pop([Pop(queue="q", partition="p3", group="slow", batch=2)])
    assert not isinstance(popped, Exception)
    await store.ack([Ack(lease_id=popped.lease_id, group="slow")])
    seen = []
    after = None
    while True:
        page = await store.list_partitions("q", limit=2, after=after)
        seen += page.rows
        after = page.next
        if after is None:
            break
    assert [one.partition for one in seen] == ["p0", "p1", "p2", "p3", "p4"]
    assert {one.pending for one in seen} == {3}
    await store.delete_group("fast")
    left = {one.partition: one.pending for one in (await store.list_partitions("q")).rows}
    assert left == {"p0": 3, "p1": 3, "p2": 3, "p3": 1, "p4": 3}
    for one in (await store.list_partitions("q")).rows:
        assert await store.get_partition(one.partition_id) == one
    with pytest.raises(NotFoundError):
        await store.list_partitions("missing")
    with pytest.raises(NotFoundError):
        await store.get_partition(10**9)


async def test_states_of_many_messages_are_those_that_each_one_tells(store: Store) -> None:
    await push(store, "q", *["p"] * 6, *["other"] * 2)
    [popped] = await store.pop([Pop(queue="q", partition="p", group="g", batch=4)])
    assert not isinstance(popped, Exception)
    await store.subscribe("h", 0, queue="q")
    second = popped.messages[1]
    await store.ack([ack_of(second, popped.lease_id, group="g")])
    messages = (await store.list_messages("q")).rows
    for message in messages:
        one = await store.get_message(message.partition_id, message.transaction_id)
        assert (message.groups, message.status) == (one.groups, one.status)
    of_p = [message.groups["g"] for message in messages if message.partition == "p"]
    assert of_p == ["leased", "done", "leased", "leased", "pending", "pending"]
    of_g = (await store.list_messages("q", partition="p", group="g", status="processing")).rows
    assert [message.seq for message in of_g] == [1, 3, 4]


async def test_the_point_before_a_time_is_the_last_one_of_each_queue(
    store: Store, clock: ManualClock
) -> None:
    for _ in range(3):
        await push(store, "a", "Default")
        await store.lifecycle()
        clock.advance(60)
    await push(store, "b", "Default")
    await store.lifecycle()
    clock.advance(120)
    points = (await store.metrics_before(clock.now())).rows
    assert [(point.queue, point.pushed) for point in points] == [("a", 3), ("b", 1)]
    first = await store.metrics_before(clock.now(), limit=1)
    assert [point.queue for point in first.rows] == ["a"]
    rest = await store.metrics_before(clock.now(), limit=1, after=first.next)
    assert [point.queue for point in rest.rows] == ["b"]
    [begin, then, *_] = (await store.metrics(queue="a")).rows
    assert (await store.metrics_before(then.at, queue="a")).rows == [begin]
    assert (await store.metrics_before(0)).rows == []


async def test_health_figures_name_the_store_and_its_size(store: Store) -> None:
    await push(store, "q", "Default")
    figures = await store.health_figures()
    assert figures["store"] in ("sqlite", "postgresql")
    assert figures["databaseBytes"] > 0
    if figures["store"] == "postgresql":
        assert {"queues", "segments", "cursors"} <= {row["table"] for row in figures["tables"]}
        assert figures["deadTuples"] >= 0
        assert figures["oldestXminAge"] >= 0
        assert 0 < figures["connections"] <= figures["maxConnections"]
