"""What a store tells those who watch it agrees with what it does, on every store."""

from functools import partial

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import ConflictError, LeaseExpiredError, NotFoundError
from monarq.model import DeadLetterFilter, ItemState, QueueKind, SeekTo, Standing
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, ack_all, next_items, pop, pop_one, push, push_many, seqs
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    dead_letters,
    every,
    stats,
)
from tests.store.sight import described

pytestmark = pytest.mark.smoke


async def standing(store: Store, queue: str, group: str | None, partition: str) -> Standing:
    rows = await every(store.list_standings, queue, group)
    [found] = [row for row in rows if row.partition == partition]
    return found


# --- counters --------------------------------------------------------------------------------


async def test_the_flows_of_queues_are_their_counters_page_by_page(store: Store) -> None:
    for n in range(5):
        await push_many(store, f"q{n}", n + 1)
    await store.configure("w", kind=QueueKind.WORK)
    await push_many(store, "w", 3)
    await pop(store, "w", 1)
    await store.pause_queue("q1")
    await store.configure("q2", options={"dead_queue": "q4"})
    for limit in (1, 2, 6, 100):
        flows = {flow.queue: flow for flow in await every(store.queue_flows, limit=limit)}
        assert set(flows) == {"q0", "q1", "q2", "q3", "q4", "w"}
        for name, flow in flows.items():
            assert described(flow) == described(await store.get_queue(name))
        assert [name for name, flow in flows.items() if flow.paused] == ["q1"]
        assert {name: flow.dead_queue for name, flow in flows.items() if flow.dead_queue} == {
            "q2": "q4"}  # fmt: skip
        assert (flows["w"].ready, flows["w"].leased, flows["w"].scheduled) == (2, 1, 0)
    [one] = (await store.queue_flows(queue="q3")).rows
    assert one == flows["q3"]
    assert (await store.queue_flows(queue="none")).rows == []


async def test_an_item_that_dies_without_a_dead_letter_is_not_stored(store: Store) -> None:
    options = {"maxAttempts": 1, "deadLetterQueue": False}
    await store.configure("w", kind=QueueKind.WORK, options=options)
    await push_many(store, "w", 2)
    message, lease = await pop_one(store, "w")
    await ack(store, message, lease, FAILED)
    [flow] = (await store.queue_flows(queue="w")).rows
    assert (flow.stored, flow.states["dead"]) == (1, 0)
    assert described(flow) == described(await store.get_queue("w"))


async def test_the_flows_of_queues_with_labels_are_read_by_themselves(store: Store) -> None:
    for name, labels in {"a": ("x", "s"), "b": ("x", "t"), "c": ("y", "t"), "d": ("", "")}.items():
        await store.configure(name, namespace=labels[0], task=labels[1])

    async def names(**labels: str) -> list[str]:
        flows = await every(partial(store.queue_flows, **labels), limit=1)
        return sorted(flow.queue for flow in flows)

    assert await names(namespace="x") == ["a", "b"]
    assert await names(task="t") == ["b", "c"]
    assert await names(namespace="x", task="t") == ["b"]
    assert await names(namespace="x", queue="c") == []
    assert await names(namespace="z") == []
    assert await names() == ["a", "b", "c", "d"]


async def test_the_flows_of_groups_are_their_lag(store: Store, clock: ManualClock) -> None:
    at = clock.now()
    await push_many(store, "q", 3, partition="a")
    clock.advance(10)
    await push_many(store, "q", 2, partition="b")
    message, lease = await pop_one(store, "q", group="slow")
    await ack(store, message, lease, group="slow")
    popped = await pop(store, "q", 100, group="fast", partitions=10)
    await ack_all(store, popped, group="fast")
    for limit in (1, 100):
        flows = {flow.group: flow for flow in await every(store.group_flows, limit=limit)}
        assert (flows["slow"].lag, flows["slow"].oldest_at) == (4, at)
        assert (flows["fast"].lag, flows["fast"].oldest_at, flows["fast"].completed) == (0, None, 5)
    assert {flow.queue for flow in (await store.group_flows(queue="q")).rows} == {"q"}
    assert (await store.group_flows(queue="other")).rows == []


# --- partitions ------------------------------------------------------------------------------


async def test_a_standing_tells_who_holds_the_lease_and_what_is_next(
    store: Store, clock: ManualClock
) -> None:
    at = clock.now()
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 1, partition="b")
    await ack_all(store, await pop(store, "q", group="g", partition="b"), group="g")
    clock.advance(5)
    popped = await pop(store, "q", 2, group="g", partition="a", consumer="me", lease_seconds=60)
    held = await standing(store, "q", "g", "a")
    assert (held.consumer, held.leased_at, held.lease_until) == (
        "me", clock.now(), clock.now() + 60 * SECOND)  # fmt: skip
    assert (held.position, held.lag, held.oldest_at, held.attempts) == (0, 3, at, 0)
    await ack(store, popped.messages[0], popped.lease_id, group="g")
    await ack(store, popped.messages[1], popped.lease_id, FAILED, group="g", error="no")
    failed = await standing(store, "q", "g", "a")
    assert failed.error == "no"
    assert (failed.consumer, failed.leased_at, failed.lease_until) == (None, None, None)
    assert (failed.position, failed.attempts, failed.retry_at) == (1, 1, clock.now() + SECOND)
    await pop(store, "q", 1, group="h", partition="a")
    told = await store.standings_of(failed.partition_id)
    assert list(told) == ["g", "h"]
    assert told["g"] == failed
    assert told["h"].position == 0
    assert told["h"].lease_until is not None
    assert await store.standings_of(10**9) == {}
    drained = await standing(store, "q", "g", "b")
    assert (drained.lag, drained.oldest_at, drained.available_at) == (0, None, None)


async def test_standings_are_paged_and_without_a_group_all_is_before_one(store: Store) -> None:
    for n in range(7):
        await push_many(store, "q", n + 1, partition=f"p{n}")
    for limit in (1, 3, 7):
        rows = await every(store.list_standings, "q", None, limit=limit)
        assert [row.lag for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    with pytest.raises(NotFoundError):
        await store.list_standings("q", "nobody")
    with pytest.raises(NotFoundError):
        await store.list_standings("none", None)
    await store.configure("w", kind=QueueKind.WORK)
    with pytest.raises((ConflictError, NotFoundError)):
        await store.list_standings("w", None)


async def test_failing_partitions_are_found_among_healthy_ones(
    store: Store, clock: ManualClock
) -> None:
    for n in range(5):
        await push_many(store, "q", 2, partition=f"p{n}")
    await push(store, "other")
    for name, failures in (("p1", 1), ("p3", 2)):
        for _ in range(failures):
            message, lease = await pop_one(store, "q", group="g", partition=name)
            await ack(store, message, lease, FAILED, group="g", error=f"bad {name}")
            clock.advance(2)
    message, lease = await pop_one(store, "q", group="fine", partition="p2")
    await ack(store, message, lease, FAILED, group="fine", error="else")
    failing = await store.list_failing("q", "g")
    assert [(row.partition, row.attempts, row.error, row.position) for row in failing] == [
        ("p3", 2, "bad p3", 0), ("p1", 1, "bad p1", 0)]  # fmt: skip
    assert [row.partition for row in await store.list_failing("q", "g", limit=1)] == ["p3"]
    with pytest.raises(NotFoundError):
        await store.list_failing("q", "nobody")


# --- skipping --------------------------------------------------------------------------------


async def test_skipping_buries_the_next_message_and_lets_the_others_through(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3)
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, FAILED, group="g", error="poison")
    assert await seqs(store, "q", group="g") == []
    assert await store.skip("q", "g", "Default", 1, "by hand") == 2
    assert await seqs(store, "q", group="g") == [2, 3]
    [letter] = await dead_letters(store)
    assert (letter.seq, letter.group, letter.error, letter.attempts) == (1, "g", "by hand", 1)
    assert (await stats(store, "q")).dead_letters == 1


async def test_skipping_keeps_what_was_acked_ahead(store: Store) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 3, group="g")
    await ack(store, popped.messages[1], popped.lease_id, COMPLETED, group="g")
    assert await store.skip("q", "g", "Default", 1, "") == 1
    with pytest.raises(LeaseExpiredError):
        await ack(store, popped.messages[2], popped.lease_id, group="g")
    assert await seqs(store, "q", group="g") == [3]


async def test_only_the_next_message_can_be_skipped(store: Store, clock: ManualClock) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 1, group="g", lease_seconds=10)
    for seq in (2, 3):
        with pytest.raises(ConflictError):
            await store.skip("q", "g", "Default", seq, "")
    # What was refused has not ended the lease.
    await ack(store, popped.messages[0], popped.lease_id, group="g")
    with pytest.raises(ConflictError):
        await store.skip("q", "g", "Default", 1, "")
    for place in (("none", "g", "Default"), ("q", "none", "Default"), ("q", "g", "none")):
        with pytest.raises(NotFoundError):
            await store.skip(*place, 2, "")
    assert await store.skip("q", "g", "Default", 2, "") == 0
    assert await seqs(store, "q", group="g") == []


async def test_a_message_is_skipped_after_its_lease_ran_out(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    await pop(store, "q", 1, group="g", lease_seconds=10)
    clock.advance(11)
    await store.skip("q", "g", "Default", 1, "late")
    [letter] = await dead_letters(store)
    assert (letter.seq, letter.attempts) == (1, 1)
    assert await seqs(store, "q", group="g") == [2]


# --- what a seek would do ----------------------------------------------------------------------


async def test_a_preview_says_what_the_seek_then_does(store: Store, clock: ManualClock) -> None:
    for partition, count in (("a", 4), ("b", 3), ("c", 1)):
        await push_many(store, "q", count, partition=partition)
    clock.advance(10)
    middle = clock.now()
    await push_many(store, "q", 2, partition="a")
    clock.advance(10)
    await ack_all(store, await pop(store, "q", 5, group="g", partition="a"), group="g")
    await pop(store, "q", 1, group="g", partition="b")
    cases: list[tuple[Seek, tuple[int, int, int, int, int]]] = [
        # lag, replayed, skipped, partitions, leases
        (Seek(group="g", queue="q", to=SeekTo.START), (10, 5, 0, 1, 1)),
        (Seek(group="g", queue="q", to=SeekTo.END), (0, 0, 5, 3, 1)),
        (Seek(group="g", queue="q", time=middle), (2, 1, 4, 3, 1)),
        (Seek(group="g", queue="q", seq=3), (5, 3, 3, 3, 1)),
        (Seek(group="g", queue="q", partition="a", seq=2), (5, 4, 0, 1, 0)),
        (Seek(group="g", queue="q", partition="a", time=0), (6, 5, 0, 1, 0)),
    ]
    for request, expected in cases:
        told = await store.preview_seek(request)
        assert (
            told.lag, told.replayed, told.skipped, told.partitions, told.leases
        ) == expected, request  # fmt: skip
    # Nothing has moved, and the lease is still there.
    assert (await standing(store, "q", "g", "b")).lease_until is not None
    told = await store.preview_seek(cases[2][0])
    assert await store.call(cases[2][0]) == told.lag
    with pytest.raises(NotFoundError):
        await store.preview_seek(Seek(group="none", queue="q", to=SeekTo.END))


# --- dead letters ----------------------------------------------------------------------------


async def test_dead_letters_are_grouped_by_the_first_line_of_their_error(
    store: Store, clock: ManualClock
) -> None:
    first = clock.now()
    errors = ["timeout\nat 1", "timeout\nat 2", "x" * 300 + "a", "x" * 300 + "b", "timeout", ""]
    for error in errors:
        await push(store, "q")
        message, lease = await pop_one(store, "q", group="g")
        await ack(store, message, lease, DEAD, group="g", error=error)
        clock.advance(1)
    found = await store.dead_letter_errors(DeadLetterFilter())
    assert [(row.error, row.count, row.queue, row.group) for row in found] == [
        ("timeout", 3, "q", "g"), ("x" * 200, 2, "q", "g"), ("", 1, "q", "g")]  # fmt: skip
    assert (found[0].oldest_at, found[0].newest_at) == (first, first + 4 * SECOND)
    which = DeadLetterFilter(queue="q", error="timeout")
    assert await store.count_dead_letters(which) == 3
    assert {row.id for row in (await store.list_dead_letters(which)).rows} >= {found[0].newest_id}
    assert await store.redrive(queue="q", error="timeout", limit=2) == 2
    assert await store.purge_dead_letters(queue="q", error="timeout") == 1
    assert [row.error for row in await store.dead_letter_errors(DeadLetterFilter(queue="q"))] == [
        "x" * 200, ""]  # fmt: skip
    assert await store.dead_letter_errors(DeadLetterFilter(queue="other")) == []


# --- the log ---------------------------------------------------------------------------------


async def test_a_message_s_deliveries_are_told_newest_first_and_no_others(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 3, partition="b")
    for partition in ("b", "a"):
        popped = await pop(store, "q", 2, group="g", partition=partition, consumer="one")
        await ack(store, popped.messages[0], popped.lease_id, group="g")
        await ack(store, popped.messages[1], popped.lease_id, FAILED, group="g", error="no")
        clock.advance(5)
    popped = await pop(store, "q", 1, group="g", partition="a", consumer="two")
    await ack_all(store, popped, group="g")
    [message] = popped.messages
    found = await store.deliveries_of(message.partition_id, 2)
    assert [(row.consumer, row.completed, row.error) for row in found if row.completed] == [
        ("two", 1, None)]  # fmt: skip
    assert {row.consumer for row in found} == {"one", "two"}
    assert {row.partition for row in found} == {"a"}
    assert [row.id for row in found] == sorted((row.id for row in found), reverse=True)
    assert len(await store.deliveries_of(message.partition_id, 2, limit=1)) == 1
    assert await store.deliveries_of(message.partition_id, 3) == []
    assert await store.deliveries_of(10**9, 1) == []


async def test_latencies_are_the_times_from_push_to_completion(
    store: Store, clock: ManualClock
) -> None:
    begin = clock.now()
    for seconds in (1, 2, 3):
        await push_many(store, "q", 2)
        clock.advance(seconds)
        await ack_all(store, await pop(store, "q", 2, group="g"), group="g")
    await push(store, "other")
    clock.advance(50)
    await ack_all(store, await pop(store, "other", group="g"), group="g")
    found = await store.latencies(begin, clock.now(), queue="q")
    assert [(row.microseconds // SECOND, row.messages) for row in found] == [(1, 2), (2, 2), (3, 2)]
    everything = await store.latencies(begin, clock.now())
    assert [row.microseconds // SECOND for row in everything] == [1, 2, 3, 50]
    part = await store.latencies(begin + 2 * SECOND, begin + 5 * SECOND)
    assert [row.microseconds // SECOND for row in part] == [2]
    assert await store.latencies(clock.now() + SECOND, clock.now() + 2 * SECOND) == []
    assert await store.latencies(0, begin - 1) == []


async def test_a_sample_of_latencies_is_even_and_bounded(store: Store, clock: ManualClock) -> None:
    begin = clock.now()
    for _ in range(40):
        await push(store, "q")
        clock.advance(1)
        await ack_all(store, await pop(store, "q", group="g"), group="g")
    found = await store.latencies(begin, clock.now(), samples=10)
    assert 8 <= len(found) <= 13
    times = [row.at for row in found]
    assert times[0] < begin + 10 * SECOND
    assert times[-1] > begin + 30 * SECOND


# --- finding ---------------------------------------------------------------------------------


async def test_messages_are_found_by_their_transaction_id_in_every_partition(store: Store) -> None:
    one = await push(store, "q", transaction_id="same", partition="a")
    two = await push(store, "q", transaction_id="same", partition="b")
    await push(store, "other", transaction_id="same")
    assert await store.find_messages("q", "same") == [
        (one.partition_id, one.seq), (two.partition_id, two.seq)]  # fmt: skip
    assert await store.find_messages("q", "none") == []
    with pytest.raises(NotFoundError):
        await store.find_messages("none", "same")


async def test_ready_items_are_listed_by_their_pushes_whatever_has_moved_them(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=QueueKind.WORK, options={"maxAttempts": 9})
    for n in range(6):
        await push_many(store, "w", 4)
        await push(store, "w", priority=n + 2)
        await push(store, "w", delay_seconds=n)
        # Some come back while others are pushed, at once or later, and some are done.
        popped = await pop(store, "w", 5)
        await push_many(store, "w", 2)
        statuses = (RELEASE, RETRY, FAILED, COMPLETED)
        for message, status in zip(popped.messages, statuses, strict=False):
            await ack(store, message, popped.lease_id, status)
        clock.advance(3)
    await store.lifecycle()
    rows = await every(store.list_items, "w")
    ready = [row for row in rows if row.state is ItemState.READY]
    assert [row.seq for row in rows] == sorted(row.seq for row in rows)
    assert [row.seq for row in await next_items(store, "w")] != [row.seq for row in ready]
    for limit in (1, 2, 3, 5, len(ready), 100):
        assert await every(store.list_items, "w", state=ItemState.READY, limit=limit) == ready
        newest = await every(store.newest_items, "w", state=ItemState.READY, limit=limit)
        assert newest == ready[::-1]


async def test_the_newest_items_come_first_page_by_page(store: Store) -> None:
    await store.configure("w", kind=QueueKind.WORK)
    assert (await store.newest_items("w")).rows == []
    await push_many(store, "w", 7)
    for limit in (1, 3, 7):
        rows = await every(store.newest_items, "w", limit=limit)
        assert [int(row.payload) for row in rows] == [7, 6, 5, 4, 3, 2, 1]
    await push(store, "q")
    with pytest.raises(ConflictError):
        await store.newest_items("q")
