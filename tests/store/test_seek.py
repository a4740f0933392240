"""Seeks: where a group goes on, and what they leave alone."""

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError, NotFoundError
from monarq.model import SeekTo, StartFrom
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_many, seqs
from tests.store.scenarios import (
    FAILED,
    WORK,
    cursor_row,
    drain,
    group_row,
    let_time_work,
    nothing_changes,
    numbers,
)

pytestmark = pytest.mark.smoke

ALL, NEW = StartFrom.ALL, StartFrom.NEW


async def test_a_seek_to_the_start_replays_everything_kept(store: Store) -> None:
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 2, partition="b")
    first = await drain(store, "q", group="g")
    assert await store.call(Seek(group="g", queue="q", to=SeekTo.START)) == 5
    again = await drain(store, "q", group="g")
    assert [m.id for m in again] == [m.id for m in first]


async def test_a_seek_to_the_end_skips_everything_and_misses_nothing_after(store: Store) -> None:
    await push_many(store, "q", 3, partition="a")
    await push_many(store, "q", 2, partition="b")
    popped = await pop(store, "q", 1, group="g")
    assert popped.messages
    assert await store.call(Seek(group="g", queue="q", to=SeekTo.END)) == 0
    assert (await pop(store, "q", group="g")).messages == []
    await push(store, "q", partition="b")
    assert await seqs(store, "q", group="g") == [3]


async def test_a_seek_to_a_seq_delivers_that_one_next(store: Store) -> None:
    await push_many(store, "q", 5)
    await drain(store, "q", group="g")
    assert await store.call(Seek(group="g", queue="q", seq=4)) == 2
    assert await seqs(store, "q", group="g") == [4, 5]
    assert await store.call(Seek(group="g", queue="q", seq=1)) == 5
    assert await seqs(store, "q", group="g") == [1, 2, 3, 4, 5]


async def test_a_seek_to_a_seq_beyond_the_end_does_not_skip_what_comes(store: Store) -> None:
    await push_many(store, "q", 2)
    await store.subscribe("g", ALL, queue="q")
    assert await store.call(Seek(group="g", queue="q", seq=100)) == 0
    await push(store, "q")
    assert await seqs(store, "q", group="g") == [3]


async def test_a_seek_to_a_seq_before_the_first_kept_begins_with_the_first_kept(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 2)
    clock.advance(90)
    await push_many(store, "q", 2)
    await store.subscribe("g", NEW, queue="q")
    clock.advance(11)
    await let_time_work(store)
    for target in (Seek(group="g", queue="q", seq=1), Seek(group="g", queue="q", to=SeekTo.START)):
        assert await store.call(target) == 2
        assert await seqs(store, "q", group="g") == [3, 4]


async def test_a_seek_to_a_time_delivers_the_first_message_not_older_next(
    store: Store, clock: ManualClock
) -> None:
    times = []
    for _ in range(4):
        times.append(clock.now())
        await push_many(store, "q", 2)
        clock.advance(10)
    await drain(store, "q", group="g")
    for n, time in enumerate(times):
        assert await store.call(Seek(group="g", queue="q", time=time)) == 8 - 2 * n
        assert await seqs(store, "q", group="g") == list(range(2 * n + 1, 9))
        assert await store.call(Seek(group="g", queue="q", time=time + 1)) == 6 - 2 * n
    assert await store.call(Seek(group="g", queue="q", time=clock.now())) == 0
    assert await store.call(Seek(group="g", queue="q", time=0)) == 8


async def test_a_seek_of_one_partition_moves_that_one_alone(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    await drain(store, "q", group="g")
    await drain(store, "q", group="other")
    assert await store.call(Seek(group="g", queue="q", partition="b", to=SeekTo.START)) == 2
    assert [m.partition for m in await drain(store, "q", group="g")] == ["b", "b"]
    assert await drain(store, "q", group="other") == []


async def test_a_seek_forgets_what_was_acked_out_of_order_and_what_had_failed(
    store: Store,
) -> None:
    await store.configure("q", options={"retryDelay": 60_000})
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 4, group="g")
    await ack(store, popped.messages[2], popped.lease_id, group="g")
    await ack(store, popped.messages[0], popped.lease_id, FAILED, group="g")
    assert await store.call(Seek(group="g", queue="q", to=SeekTo.START)) == 4
    assert await seqs(store, "q", group="g") == [1, 2, 3, 4]


async def test_what_was_acked_before_a_seek_does_not_come_back_to_mind_with_a_failure(
    store: Store,
) -> None:
    await store.configure("q", options={"retryDelay": 0, "retryLimit": 1})
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 3)
    await ack(store, popped.messages[1], popped.lease_id)
    await ack(store, popped.messages[0], popped.lease_id, FAILED)
    await store.call(Seek(group="__QUEUE_MODE__", queue="q", to=SeekTo.START))
    first, lease = await pop_one(store, "q")
    assert (first.seq, first.attempts) == (1, 1)
    await ack(store, first, lease, FAILED)
    again = await pop(store, "q", 3)
    assert [(message.seq, message.attempts) for message in again.messages] == [
        (1, 2),
        (2, 1),
        (3, 1),
    ]


async def test_a_seek_forward_resolves_nothing_for_others_and_can_be_taken_back(
    store: Store,
) -> None:
    await push_many(store, "q", 5)
    await store.subscribe("g", ALL, queue="q")
    assert await store.call(Seek(group="g", queue="q", seq=5)) == 1
    assert await store.call(Seek(group="g", queue="q", seq=2)) == 4
    assert await seqs(store, "q", group="g") == [2, 3, 4, 5]
    assert await seqs(store, "q", group="other") == [1, 2, 3, 4, 5]


async def test_a_partition_that_was_drained_is_found_again_after_a_seek_back(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="a")
    await drain(store, "q", group="g")
    clock.advance(100)
    await push(store, "q", partition="b")
    clock.advance(1)
    await store.call(Seek(group="g", queue="q", to=SeekTo.START))
    got = sorted(m.partition for m in await drain(store, "q", group="g"))
    assert got == ["a", "b"]


async def test_a_seek_of_what_does_not_exist_is_not_found_and_makes_nothing(
    store: Store,
) -> None:
    await push(store, "q")
    await store.subscribe("g", ALL, queue="q")
    await store.configure("w", kind=WORK)
    async with nothing_changes(store):
        for seek in (
            Seek(group="g", queue="missing", to=SeekTo.START),
            Seek(group="g", queue="q", partition="missing", to=SeekTo.START),
            Seek(group="new", queue="q", partition="missing", to=SeekTo.START),
        ):
            with pytest.raises(NotFoundError):
                await store.call(seek)
        for group in ("g", "new"):
            with pytest.raises(MonarqError):
                await store.call(Seek(group=group, queue="w", to=SeekTo.START))


async def test_a_seek_makes_a_group_that_never_popped(store: Store, clock: ManualClock) -> None:
    await push(store, "q", b"1")
    clock.advance(100)
    between = clock.now()
    clock.advance(100)
    await push(store, "q", b"2")
    wanted = {
        "start": (Seek(group="start", queue="q", to=SeekTo.START), [1, 2]),
        "end": (Seek(group="end", queue="q", to=SeekTo.END), []),
        "between": (Seek(group="between", queue="q", time=between), [2]),
        "later": (Seek(group="later", queue="q", time=clock.now() + 10**9), []),
        "seq": (Seek(group="seq", queue="q", seq=2), [2]),
        "partition": (Seek(group="partition", queue="q", partition="Default", seq=2), [2]),
    }
    for name, (seek, left) in wanted.items():
        assert await store.call(seek) == len(left), name
        assert (await group_row(store, "q", name)).lag == len(left)
    await push(store, "q", b"3", partition="new")
    for name, (_, left) in wanted.items():
        got = sorted(numbers(await drain(store, "q", group=name)))
        assert got == [*left, 3], name


async def test_a_seek_in_one_partition_makes_a_group_that_begins_at_the_beginning_elsewhere(
    store: Store,
) -> None:
    await push(store, "q", b"1", partition="a")
    await push(store, "q", b"2", partition="b")
    assert await store.call(Seek(group="g", queue="q", partition="a", to=SeekTo.END)) == 0
    assert numbers(await drain(store, "q", group="g")) == [2]


async def test_a_group_that_a_seek_made_goes_on_where_it_was_moved(store: Store) -> None:
    await push(store, "q", b"1")
    await store.call(Seek(group="g", queue="q", to=SeekTo.END))
    await store.subscribe("g", ALL, queue="q")
    assert await drain(store, "q", group="g") == []


async def test_a_seek_of_a_group_of_another_queue_makes_it_here_too(store: Store) -> None:
    await push(store, "q1", b"1")
    await push(store, "q2", b"2")
    await drain(store, "q1", group="g")
    assert await store.call(Seek(group="g", queue="q2", to=SeekTo.END)) == 0
    assert await drain(store, group="g", queue="q2") == []


async def test_a_seek_back_of_a_deleted_group_makes_it_again(store: Store) -> None:
    await push(store, "q", b"1")
    await drain(store, "q", group="g")
    await store.delete_group("g")
    assert await store.call(Seek(group="g", queue="q", to=SeekTo.START)) == 1
    assert numbers(await drain(store, "q", group="g")) == [1]


async def test_a_seek_does_not_touch_other_queues_of_the_group(store: Store) -> None:
    for queue in ("q1", "q2"):
        await push(store, queue, namespace="ns")
    await drain(store, namespace="ns", group="g")
    await store.call(Seek(group="g", queue="q1", to=SeekTo.START))
    assert [m.queue for m in await drain(store, namespace="ns", group="g")] == ["q1"]


async def test_numbers_after_seeks_to_and_fro_are_those_of_the_cursor(store: Store) -> None:
    await push_many(store, "q", 10)
    await store.subscribe("g", ALL, queue="q")
    for seq in (3, 9, 1, 7, 11, 2):
        await store.call(Seek(group="g", queue="q", seq=seq))
        row = await cursor_row(store, "q", "g")
        assert (row.position, row.lag) == (seq - 1, 11 - seq)
        assert (await group_row(store, "q", "g")).lag == 11 - seq
    assert numbers(await drain(store, "q", group="g")) == list(range(2, 11))
