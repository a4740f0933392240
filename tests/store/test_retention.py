"""Retention: what goes when, what stays, and that it goes in bounded steps."""

from collections.abc import Awaitable, Callable

import pytest

from monarq.clock import DAY, SECOND, ManualClock
from monarq.model import PushItem, StartFrom
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many, seqs
from tests.store.scenarios import (
    DEAD,
    FAILED,
    WORK,
    cursor_row,
    dead_letters,
    drain,
    every,
    group_row,
    let_time_work,
    stats,
    stored_payloads,
)

pytestmark = pytest.mark.smoke


async def test_a_message_goes_when_its_retention_is_over_consumed_or_not(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100, "completedRetentionSeconds": 0})
    await push(store, "q", b"1")
    await drain(store, "q", group="consumed it")
    clock.advance(60)
    await push(store, "q", b"2")
    clock.advance(39.999999)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]
    clock.advance(1)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"2"]
    clock.advance(60)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []
    row = await stats(store, "q")
    assert (row.stored, row.pending, row.pushed) == (0, 0, 2)


async def test_an_idle_group_does_not_pin_retention_and_goes_on_with_what_is_kept(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    popped = await pop(store, "q", 1, group="halfway")
    await ack_all(store, popped, group="halfway")
    clock.advance(60)
    await push_many(store, "q", 2)
    clock.advance(41)
    await let_time_work(store)
    for group in ("idle", "halfway"):
        assert (await group_row(store, "q", group)).lag == 2
        assert (await cursor_row(store, "q", group)).position == 3
        assert await seqs(store, "q", group=group) == [4, 5]


async def test_an_idle_group_whose_messages_all_went_is_drained_and_gets_the_next_push(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    clock.advance(101)
    await let_time_work(store)
    cursor = await cursor_row(store, "q", "idle")
    assert (cursor.position, cursor.lag, cursor.available_at) == (3, 0, None)
    popped = await pop(store, "q", group="idle")
    assert (popped.messages, popped.next_at) == ([], None)
    assert (await push(store, "q")).seq == 4
    assert await seqs(store, "q", group="idle") == [4]


async def test_what_every_group_consumed_goes_earlier(store: Store, clock: ManualClock) -> None:
    await store.configure(
        "q", options={"retentionSeconds": 100_000, "completedRetentionSeconds": 100}
    )
    await push(store, "q", b"1")
    await push(store, "q", b"2")
    await drain(store, "q", group="g1")
    popped = await pop(store, "q", group="g2")
    await ack_all(store, popped, group="g2")
    clock.advance(99.999999)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]
    clock.advance(1)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"2"]
    await drain(store, "q", group="g2")
    clock.advance(600)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []


async def test_the_rest_of_a_push_that_was_consumed_in_part_is_kept_and_delivered(
    store: Store, clock: ManualClock
) -> None:
    await store.configure(
        "q", options={"retentionSeconds": 100_000, "completedRetentionSeconds": 100}
    )
    await push_items(store, *(PushItem("q", b"%d" % number) for number in range(1, 11)))
    popped = await pop(store, "q", 4)
    await ack_all(store, popped)
    for _ in range(3):
        clock.advance(200)
        await let_time_work(store)
    assert await seqs(store, "q") == [5, 6, 7, 8, 9, 10]


async def test_a_look_just_before_its_time_leaves_a_message_alone(
    store: Store, clock: ManualClock
) -> None:
    """What is consumed goes sooner, so that it is looked at more often than its own time says."""
    await store.configure("q", options={"retentionSeconds": 100, "completedRetentionSeconds": 10})
    await push(store, "q", b"1")
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    clock.advance(9.999999)
    for _ in range(10):
        await let_time_work(store)
        assert await stored_payloads(store, "q") == [b"1"]
        clock.advance(10)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == []


async def test_without_a_group_nothing_is_consumed(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 0, "completedRetentionSeconds": 100})
    await push(store, "q", b"1")
    clock.advance(10_000)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1"]


async def test_a_message_that_is_leased_or_waits_for_its_retry_is_not_consumed(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"completedRetentionSeconds": 100, "retryDelay": 1_000_000})
    await push(store, "q", b"1", partition="leased")
    await push(store, "q", b"2", partition="failed")
    await pop(store, "q", partition="leased", lease_seconds=3600)
    message, lease = await pop_one(store, "q", partition="failed")
    await ack(store, message, lease, FAILED)
    clock.advance(200)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1", b"2"]


@pytest.mark.parametrize(
    "options",
    [
        {"retentionEnabled": False, "retentionSeconds": 10, "completedRetentionSeconds": 10},
        {"retentionSeconds": 0, "completedRetentionSeconds": 0},
    ],
)
async def test_retention_switched_off_keeps_for_ever(
    store: Store, clock: ManualClock, options: dict[str, object]
) -> None:
    await store.configure("q", options=options)
    await store.configure("w", kind=WORK, options=options)
    await push(store, "q", b"1")
    await drain(store, "q")
    await push(store, "w", b"1")
    await drain(store, "w")
    clock.advance(5 * 365 * 86_400)
    await let_time_work(store)
    assert await stored_payloads(store, "q") == [b"1"]
    assert [item.state for item in await every(store.list_items, "w")] == ["done"]


async def test_retention_is_on_by_default(store: Store, clock: ManualClock) -> None:
    await push(store, "unconsumed")
    await push(store, "consumed")
    await drain(store, "consumed")
    clock.advance(86_400 + 1)
    await let_time_work(store)
    assert (await stats(store, "consumed")).stored == 0
    assert (await stats(store, "unconsumed")).stored == 1
    clock.advance(29 * 86_400)
    await let_time_work(store)
    assert (await stats(store, "unconsumed")).stored == 0


async def test_dead_letters_outlive_their_messages(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push(store, "q", b"kept", headers=b'{"a":1}')
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, DEAD, error="why")
    clock.advance(400 * 86_400)
    await let_time_work(store)
    assert await every(store.list_messages, "q") == []
    [letter] = await dead_letters(store)
    assert (letter.payload, letter.error, letter.headers) == (b"kept", "why", b'{"a":1}')


async def test_done_and_cancelled_items_go_that_long_after_they_finished(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"completedRetentionSeconds": 100})
    answers = await push_many(store, "w", 4)
    clock.advance(500)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease)
    clock.advance(50)
    await store.cancel_item(answers[1].message_id)
    clock.advance(49)
    await let_time_work(store)
    assert (await stats(store, "w")).stored == 4
    clock.advance(2)
    await let_time_work(store)
    assert [row.seq for row in await every(store.list_items, "w")] == [2, 3, 4]
    clock.advance(50)
    await let_time_work(store)
    assert [row.seq for row in await every(store.list_items, "w")] == [3, 4]


async def test_retention_removes_old_backlogs_in_bounded_steps_and_all_of_them_in_the_end(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    for n in range(30):
        await push_many(store, "q", 2, partition=f"p{n % 5}")
    clock.advance(101)
    steps = 0
    while (await stats(store, "q")).stored:
        before = (await stats(store, "q")).stored
        report = await store.lifecycle(limit=5)
        assert report.removed > 0
        assert report.next_at is not None
        assert before - (await stats(store, "q")).stored <= 40
        steps += 1
        assert steps < 50
    assert steps > 1


async def test_an_empty_drained_partition_goes_after_seven_days_and_its_number_for_ever(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    first = await push(store, "q", b"1", partition="p")
    await drain(store, "q", group="g")
    clock.advance(101)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(7 * 86_400 + 200)
    await let_time_work(store)
    assert await store.export_plan("q") == []
    assert (await store.get_queue("q")).partitions == 0
    again = await push(store, "q", b"2", partition="p")
    assert again.partition_id > first.partition_id
    assert again.seq == 1
    assert [m.payload for m in await drain(store, "q", group="g")] == [b"2"]


async def test_a_partition_stays_for_seven_days_from_when_it_became_empty(
    store: Store, clock: ManualClock
) -> None:
    """Not from the last push: what was pushed may have been kept for longer than that."""
    await store.configure("q", options={"retentionSeconds": 10 * 86_400})
    await push(store, "q", partition="p")
    clock.advance(10 * 86_400 + 1)
    await let_time_work(store)
    assert (await stats(store, "q")).stored == 0
    clock.advance(7 * 86_400 - 100)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(200)
    await let_time_work(store)
    assert await store.export_plan("q") == []


async def clear(store: Store) -> None:
    await store.clear_queue("q")


async def change_a_timed_option(store: Store) -> None:
    await store.configure("q", options={"retentionSeconds": 20 * 86_400})


async def note_its_archive(store: Store) -> None:
    await store.set_archived("q", {part.partition_id: 1 for part in await store.export_plan("q")})


@pytest.mark.parametrize("first", [clear, let_time_work], ids=["cleared", "retained"])
@pytest.mark.parametrize("then", [clear, change_a_timed_option, note_its_archive])
async def test_nothing_that_makes_the_lifecycle_look_at_an_empty_partition_shortens_its_days(
    store: Store,
    clock: ManualClock,
    first: Callable[[Store], Awaitable[object]],
    then: Callable[[Store], Awaitable[object]],
) -> None:
    await store.configure("q", options={"retentionSeconds": 10 * 86_400})
    await push(store, "q", partition="p")
    clock.advance(10 * 86_400 + 1)
    await first(store)
    for _ in range(2):
        await let_time_work(store)
        assert [part.partition for part in await store.export_plan("q")] == ["p"]
        clock.advance(3 * 86_400)
        await then(store)
    await let_time_work(store)
    assert [part.partition for part in await store.export_plan("q")] == ["p"]
    clock.advance(86_400 + 200)
    await let_time_work(store)
    assert await store.export_plan("q") == []


async def test_a_partition_with_something_in_it_does_not_go(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 0, "completedRetentionSeconds": 0})
    await push(store, "q")
    clock.advance(DAY // SECOND * 100)
    await let_time_work(store)
    assert len(await store.export_plan("q")) == 1


async def test_logs_go_after_seven_days(store: Store, clock: ManualClock) -> None:
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push(store, queue)
        await drain(store, queue)
    assert len(await every(store.list_deliveries)) == 1
    assert len(await every(store.list_attempts)) == 1
    clock.advance(6 * 86_400)
    await let_time_work(store)
    assert len(await every(store.list_deliveries)) == 1
    clock.advance(2 * 86_400)
    await let_time_work(store)
    assert await every(store.list_deliveries) == []
    assert await every(store.list_attempts) == []
