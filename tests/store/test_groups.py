"""Groups: independent of each other, begun where they asked, deleted and re-made."""

import asyncio

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError
from monarq.model import StartFrom
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many, seqs
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    DEAD,
    FAILED,
    cursor_row,
    dead_letters,
    drain,
    every,
    group_row,
    let_time_work,
    nothing_changes,
)

pytestmark = pytest.mark.smoke

ALL, NEW = StartFrom.ALL, StartFrom.NEW


async def test_groups_do_not_see_each_other(store: Store) -> None:
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 3, group="g1")
    await ack(store, popped.messages[0], popped.lease_id, group="g1")
    await ack(store, popped.messages[1], popped.lease_id, DEAD, group="g1")
    assert await seqs(store, "q", group="g2") == [1, 2, 3, 4, 5]
    popped = await pop(store, "q", 2, group="g3")
    await ack_all(store, popped, group="g3")
    assert await seqs(store, "q", group="g3") == [3, 4, 5]
    assert (await cursor_row(store, "q", "g1")).position == 2
    assert (await cursor_row(store, "q", "g2")).position == 0
    assert (await cursor_row(store, "q", "g3")).position == 2


async def test_group_names_are_compared_exactly(store: Store) -> None:
    await push(store, "q")
    for group in ("g", "G", "g ", "é", "e\u0301"):
        assert await seqs(store, "q", group=group) == [1]


# --- where a group begins ---


async def test_all_begins_at_the_first_message_kept(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 2)
    clock.advance(90)
    await push_many(store, "q", 2)
    clock.advance(11)
    await let_time_work(store)
    assert await seqs(store, "q", group="g", start=ALL) == [3, 4]


async def test_new_begins_behind_the_last_message_and_misses_none_after(store: Store) -> None:
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 2, partition="b")
    assert await drain(store, "q", group="g", start=NEW) == []
    await push_many(store, "q", 2, partition="a")
    await push_many(store, "q", 1, partition="b")
    got = [(m.partition, m.seq) for m in await drain(store, "q", group="g", start=NEW)]
    assert got == [("a", 4), ("a", 5), ("b", 3)]


async def test_new_means_new_though_the_clock_stands_still(store: Store) -> None:
    """A cursor over created_at cannot tell messages of one microsecond apart."""
    await push_many(store, "q", 3)
    await pop(store, "q", group="g", start=NEW)
    await push_many(store, "q", 2)
    assert await seqs(store, "q", group="g") == [4, 5]


async def test_a_time_begins_at_the_first_message_not_older_than_it(
    store: Store, clock: ManualClock
) -> None:
    times = []
    for _ in range(5):
        times.append(clock.now())
        await push_many(store, "q", 2)
        clock.advance(10)
    for n, time in enumerate(times):
        expected = list(range(2 * n + 1, 11))
        assert await seqs(store, "q", group=f"at {n}", start=time) == expected
        assert await seqs(store, "q", group=f"behind {n}", start=time + 1) == expected[2:]
        assert await seqs(store, "q", group=f"before {n}", start=time - 1) == expected
    assert await seqs(store, "q", group="epoch", start=0) == list(range(1, 11))


async def test_a_time_that_is_now_begins_with_what_was_pushed_now(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q")
    clock.advance(1)
    await push(store, "q")
    assert await seqs(store, "q", group="g", start=clock.now()) == [2]


async def test_a_time_in_the_future_is_refused(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await pop(store, "q", group="g", start=clock.now() + 1)
        with pytest.raises(InvalidRequestError):
            await store.subscribe("g", clock.now() + SECOND, queue="q")
    assert await seqs(store, "q", group="g") == [1]


@pytest.mark.parametrize("start", ["all", "new", "time"])
async def test_partitions_that_appear_later_are_consumed_from_their_beginning(
    store: Store, clock: ManualClock, start: str
) -> None:
    await push(store, "q", partition="early")
    clock.advance(10)
    where = clock.now() if start == "time" else StartFrom(start)
    await drain(store, "q", group="g", start=where)
    clock.advance(10)
    await push_many(store, "q", 2, partition="late")
    got = [(m.partition, m.seq) for m in await drain(store, "q", group="g", start=NEW)]
    assert got == [("late", 1), ("late", 2)]


async def test_a_partition_that_appears_later_is_consumed_though_the_clock_fell_meanwhile(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="early")
    await pop(store, "q", group="g", start=NEW)
    clock.advance(-3600)
    await push(store, "q", partition="late")
    assert [m.partition for m in await drain(store, "q", group="g")] == ["late"]


@pytest.mark.parametrize("start", [ALL, NEW])
async def test_a_group_that_asked_before_the_queue_existed_gets_all_of_it(
    store: Store, clock: ManualClock, start: StartFrom
) -> None:
    assert (await pop(store, "q", group="popped", start=start)).messages == []
    await store.subscribe("subscribed", start, queue="q")
    clock.advance(1)
    await push_many(store, "q", 3)
    for group in ("popped", "subscribed"):
        assert await seqs(store, "q", group=group, start=NEW) == [1, 2, 3]


async def test_a_group_that_asked_for_new_on_an_empty_queue_gets_all_that_comes(
    store: Store,
) -> None:
    await store.configure("q")
    await pop(store, "q", group="g", start=NEW)
    await push_many(store, "q", 2)
    assert await seqs(store, "q", group="g") == [1, 2]


async def test_what_a_group_asked_for_first_holds(store: Store) -> None:
    await push_many(store, "q", 2)
    await pop(store, "q", group="new first", start=NEW)
    assert (await pop(store, "q", group="new first", start=ALL)).messages == []
    popped = await pop(store, "q", group="all first", start=ALL)
    await ack_all(store, popped, group="all first")
    assert await seqs(store, "q", group="all first", start=NEW) == [2]


async def test_what_was_subscribed_holds_against_the_first_pop(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    clock.advance(10)
    subscribed_at = clock.now()
    assert await store.subscribe("g", NEW, queue="q") == subscribed_at
    clock.advance(10)
    assert await store.subscribe("g", ALL, queue="q") == subscribed_at
    await push(store, "q")
    assert await seqs(store, "q", group="g", start=ALL) == [3]
    assert await store.subscribe("from the beginning", ALL, queue="q") == 0
    assert (await group_row(store, "q", "g")).start_at == subscribed_at
    assert (await group_row(store, "q", "from the beginning")).start_at == 0


async def test_a_subscription_for_new_does_not_lose_what_is_pushed_before_the_first_pop(
    store: Store,
) -> None:
    await push_many(store, "q", 2)
    await store.subscribe("g", NEW, queue="q")
    await push_many(store, "q", 2)
    assert await seqs(store, "q", group="g", start=NEW) == [3, 4]


async def test_a_subscription_at_a_time_answers_that_time(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    at = clock.advance(10)
    clock.advance(10)
    assert await store.subscribe("g", at, queue="q") == at
    await push(store, "q")
    assert await seqs(store, "q", group="g") == [2]


async def test_a_subscription_by_namespace_holds_for_queues_that_exist_and_that_come(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "old", 2, namespace="ns")
    clock.advance(1)
    await store.subscribe("g", NEW, namespace="ns")
    clock.advance(1)
    await push(store, "old")
    await push_many(store, "late", 2, namespace="ns")
    await push_many(store, "elsewhere", 2, namespace="other")
    got = [(m.queue, m.seq) for m in await drain(store, namespace="ns", group="g", start=ALL)]
    assert sorted(got) == [("late", 1), ("late", 2), ("old", 3)]


async def test_a_pop_for_new_by_namespace_skips_what_is_there_and_gets_what_comes(
    store: Store,
) -> None:
    await push_many(store, "old", 2, namespace="ns", task="t")
    assert (await pop(store, namespace="ns", task="t", group="g", start=NEW)).messages == []
    await push_many(store, "late", 2, namespace="ns", task="t")
    await push(store, "old")
    got = [(m.queue, m.seq) for m in await drain(store, namespace="ns", task="t", group="g")]
    assert sorted(got) == [("late", 1), ("late", 2), ("old", 3)]


@pytest.mark.parametrize("first", ["namespace", "task"])
async def test_of_two_subscriptions_by_labels_the_earlier_start_counts_for_a_new_queue(
    store: Store, clock: ManualClock, first: str
) -> None:
    """Whichever was stored first, and whichever has which start."""
    labels = {"namespace": "ns", "task": "t"}
    second = "task" if first == "namespace" else "namespace"
    clock.advance(100)
    late, early = clock.now() - 10 * SECOND, clock.now() - 20 * SECOND
    await store.subscribe("g", late, **{first: labels[first]})
    await store.subscribe("g", early, **{second: labels[second]})
    await store.subscribe("own", early, namespace="ns")
    await store.subscribe("own", late, queue="q")
    await push(store, "q", **labels)
    assert (await group_row(store, "q", "g")).start_at == early
    assert (await group_row(store, "q", "own")).start_at == late


async def test_a_pop_by_namespace_before_any_queue_has_it_gets_all_of_those_that_come(
    store: Store,
) -> None:
    assert (await pop(store, namespace="ns", group="g", start=NEW)).messages == []
    await push_many(store, "q", 2, namespace="ns")
    assert len(await drain(store, namespace="ns", group="g")) == 2


async def test_a_group_that_begins_while_others_push_misses_nothing_after_its_start(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await push(store, "q", partition="p0")

    async def pusher() -> None:
        for n in range(30):
            await push(other, "q", partition=f"p{n % 7}")

    async def subscriber() -> None:
        for n in range(5):
            await store.subscribe(f"g{n}", NEW, queue="q")

    await asyncio.gather(pusher(), subscriber())
    ends = {part.partition: part.last_seq for part in await store.export_plan("q")}
    for n in range(5):
        cursors = {c.partition: c for c in await every(store.list_cursors, "q", f"g{n}")}
        assert {name: c.last_seq for name, c in cursors.items()} == ends
        got: dict[str, list[int]] = {}
        for message in await drain(store, "q", group=f"g{n}"):
            got.setdefault(message.partition, []).append(message.seq)
        for name, cursor in cursors.items():
            assert got.get(name, []) == list(range(cursor.position + 1, cursor.last_seq + 1))


# --- list ---


async def test_lag_counts_what_a_group_has_before_it_and_the_age_of_the_oldest(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3, partition="a")
    clock.advance(10)
    await push_many(store, "q", 2, partition="b")
    await store.subscribe("g", ALL, queue="q")
    clock.advance(5)
    row = await group_row(store, "q", "g")
    assert (row.lag, row.lag_seconds) == (5, 15.0)
    popped = await pop(store, "q", 3, group="g")
    assert (await group_row(store, "q", "g")).lag == 5
    await ack_all(store, popped, group="g")
    row = await group_row(store, "q", "g")
    assert (row.lag, row.lag_seconds, row.completed) == (2, 5.0, 3)
    await drain(store, "q", group="g")
    row = await group_row(store, "q", "g")
    assert (row.lag, row.lag_seconds, row.completed) == (0, 0.0, 5)


async def test_groups_are_listed_by_queue_and_name_each_with_its_own_row(store: Store) -> None:
    for queue in ("q2", "q1", "q3"):
        await push(store, queue, namespace="ns")
        for group in ("b", "a"):
            await pop(store, queue, group=group)
    rows = [(row.queue, row.name) for row in await every(store.list_groups, limit=2)]
    assert rows == [(queue, group) for queue in ("q1", "q2", "q3") for group in ("a", "b")]
    only = [(row.queue, row.name) for row in await every(store.list_groups, group="a", limit=1)]
    assert only == [("q1", "a"), ("q2", "a"), ("q3", "a")]
    only = [(row.queue, row.name) for row in await every(store.list_groups, queue="q2")]
    assert only == [("q2", "a"), ("q2", "b")]


async def test_cursors_are_listed_by_partition_with_their_leases(
    store: Store, clock: ManualClock
) -> None:
    answers = [await push(store, "q", partition=name) for name in ("b", "a", "c")]
    popped = await pop(store, "q", partition="a", group="g", lease_seconds=10)
    rows = await every(store.list_cursors, "q", "g", limit=2)
    assert [row.partition_id for row in rows] == [answer.partition_id for answer in answers]
    assert [row.partition for row in rows] == ["b", "a", "c"]
    assert [row.lease_until for row in rows] == [None, popped.lease_until, None]
    assert [(row.position, row.last_seq, row.lag) for row in rows] == [(0, 1, 1)] * 3
    assert rows[0].available_at == clock.now()
    await ack_all(store, popped, group="g")
    rows = await every(store.list_cursors, "q", "g")
    assert [row.lag for row in rows] == [1, 0, 1]
    assert rows[1].available_at is None


# --- delete ---


async def test_a_deleted_group_says_anew_where_it_begins(store: Store) -> None:
    await push_many(store, "q", 3)
    await drain(store, "q", group="g")
    assert await store.delete_group("g", queue="q") == 1
    assert await every(store.list_groups) == []
    assert await seqs(store, "q", group="g", start=ALL) == [1, 2, 3]
    assert await store.delete_group("g", queue="q") == 1
    assert (await pop(store, "q", group="g", start=NEW)).messages == []
    await push(store, "q")
    assert await seqs(store, "q", group="g", start=ALL) == [4]


async def test_a_group_deleted_without_its_start_begins_again_where_it_first_began(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    clock.advance(10)
    await pop(store, "q", group="g", start=NEW)
    clock.advance(10)
    await push_many(store, "q", 2)
    await drain(store, "q", group="g")
    assert await store.delete_group("g", queue="q", forget_start=False) == 1
    assert await seqs(store, "q", group="g", start=ALL) == [3, 4]


async def test_a_group_is_deleted_from_one_queue_or_from_all(store: Store) -> None:
    for queue in ("q1", "q2", "q3"):
        await push(store, queue)
        await drain(store, queue, group="g")
        await drain(store, queue, group="other")
    assert await store.delete_group("g", queue="q1") == 1
    assert await seqs(store, "q1", group="g") == [1]
    assert await seqs(store, "q2", group="g") == []
    await store.delete_group("g", queue="q1")
    assert await store.delete_group("g") == 2
    assert [row.name for row in await every(store.list_groups)] == ["other"] * 3
    assert await store.delete_group("g") == 0
    assert await store.delete_group("never was", queue="q1") == 0


async def test_deleting_a_group_forgets_its_failures_and_leases_and_nobody_elses(
    store: Store,
) -> None:
    await store.configure("q", options={"retryDelay": 60_000})
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, FAILED, group="g")
    message, lease = await pop_one(store, "q", group="other")
    await store.delete_group("g", queue="q")
    popped = await pop(store, "q", 2, group="g")
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 1), (2, 1)]
    await ack(store, message, lease, group="other")


async def test_deleting_a_group_leaves_its_dead_letters(store: Store) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, DEAD, group="g")
    await store.delete_group("g")
    [letter] = await dead_letters(store, queue="q")
    assert letter.group == "g"
