"""Looking at messages and items: pages that neither repeat nor skip, and what is refused."""

from collections import Counter

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import ItemState, PushItem, StartFrom
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    WORK,
    drain,
    every,
    group_row,
    let_time_work,
    nothing_changes,
    stats,
)

pytestmark = pytest.mark.smoke

# --- messages ---


async def test_messages_are_listed_by_partition_and_seq_in_pages_of_any_size(
    store: Store,
) -> None:
    items = [PushItem("q", b"%d" % n, partition=f"p{n * 7 % 3}") for n in range(20)]
    await push_items(store, *items[:11])
    await push_items(store, *items[11:])
    await push(store, "other")
    whole = await every(store.list_messages, "q", limit=1000)
    keys = [(row.partition_id, row.seq) for row in whole]
    assert keys == sorted(keys)
    assert sorted(int(row.payload) for row in whole) == list(range(20))
    for limit in (1, 3, 7, 20):
        assert await every(store.list_messages, "q", limit=limit) == whole


async def test_messages_are_filtered_by_partition_first_seq_and_time(
    store: Store, clock: ManualClock
) -> None:
    times = []
    for n in range(6):
        times.append(clock.now())
        await push_many(store, "q", 2, partition="ab"[n % 2])
        clock.advance(10)

    async def found(**filters: object) -> list[tuple[str, int]]:
        rows = await every(store.list_messages, "q", limit=2, **filters)
        return [(row.partition, row.seq) for row in rows]

    assert await found(partition="b") == [("b", n) for n in range(1, 7)]
    assert await found(partition="a", first_seq=4) == [("a", 4), ("a", 5), ("a", 6)]
    assert await found(first_seq=6) == [("a", 6), ("b", 6)]
    assert await found(created_from=times[4]) == [("a", 5), ("a", 6), ("b", 5), ("b", 6)]
    assert await found(created_from=times[4] + 1) == [("b", 5), ("b", 6)]
    assert await found(partition="a", first_seq=2, created_from=times[2]) == [
        ("a", 3),
        ("a", 4),
        ("a", 5),
        ("a", 6),
    ]
    assert await found(created_from=clock.now()) == []


async def test_paging_through_messages_is_stable_while_they_come_and_go(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 100})
    await push_many(store, "q", 3)
    await push_many(store, "q", 3)
    clock.advance(60)
    await push_many(store, "q", 6)
    first = await store.list_messages("q", limit=4)
    clock.advance(41)
    await let_time_work(store)
    await push_many(store, "q", 2)
    rest = await store.list_messages("q", limit=100, after=first.next)
    assert [row.seq for row in first.rows] == [1, 2, 3, 4]
    assert [row.seq for row in rest.rows] == list(range(7, 15))
    assert rest.next is None


async def test_the_last_page_says_that_it_is_the_last(store: Store) -> None:
    await push_many(store, "q", 4)
    page = await store.list_messages("q", limit=2)
    page = await store.list_messages("q", limit=2, after=page.next)
    assert [row.seq for row in page.rows] == [3, 4]
    assert page.next is None


async def test_a_message_says_how_far_each_group_is_with_it(store: Store) -> None:
    await store.configure("q", options={"retryDelay": 60_000})
    answers = await push_many(store, "q", 5)
    await store.subscribe("idle", StartFrom.ALL, queue="q")
    await store.subscribe("late", StartFrom.NEW, queue="q")
    popped = await pop(store, "q", 4, group="busy")
    await ack(store, popped.messages[1], popped.lease_id, group="busy")
    await ack(store, popped.messages[2], popped.lease_id, DEAD, group="busy")
    states = [
        (await store.get_message(answer.partition_id, answer.transaction_id)).groups
        for answer in answers
    ]
    assert [state["busy"] for state in states] == ["leased", "done", "dead", "leased", "pending"]
    assert [state["idle"] for state in states] == ["pending"] * 5
    assert [state["late"] for state in states] == ["done"] * 5
    await ack(store, popped.messages[0], popped.lease_id, FAILED, group="busy")
    await ack(store, popped.messages[3], popped.lease_id, group="busy")
    states = [
        (await store.get_message(answer.partition_id, answer.transaction_id)).groups
        for answer in answers
    ]
    assert [state["busy"] for state in states] == ["pending", "done", "dead", "done", "pending"]
    await store.purge_dead_letters(queue="q")
    gone = answers[2]
    states = (await store.get_message(gone.partition_id, gone.transaction_id)).groups
    assert states == {"busy": "done", "idle": "pending", "late": "done"}


async def test_a_message_that_is_not_there_is_not_found(store: Store) -> None:
    answer = await push(store, "q")
    for partition_id, transaction_id in (
        (answer.partition_id, "none"),
        (answer.partition_id, f"{answer.partition_id}-2"),
        (987_654_321, answer.transaction_id),
    ):
        with pytest.raises(NotFoundError):
            await store.get_message(partition_id, transaction_id)
        with pytest.raises(NotFoundError):
            await store.delete_message(partition_id, transaction_id)


async def test_a_deleted_message_is_kept_from_every_group_and_leaves_no_hole(
    store: Store,
) -> None:
    answers = await push_many(store, "q", 5)
    await store.subscribe("before", StartFrom.ALL, queue="q")
    for n in (0, 2, 4):
        await store.delete_message(answers[n].partition_id, answers[n].transaction_id)
    for group in ("before", "after"):
        assert [m.seq for m in await drain(store, "q", 2, group=group)] == [2, 4]
        assert (await group_row(store, "q", group)).lag == 0
    assert (await push(store, "q")).seq == 6
    assert [m.seq for m in await drain(store, "q", group="after")] == [6]


async def test_what_is_behind_a_deleted_message_does_not_wait_for_its_retry(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 3_600_000})
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2)
    first, second = popped.messages
    for message in (first, second):
        await ack(store, message, popped.lease_id, FAILED)
        clock.advance(1)
    await store.delete_message(first.partition_id, first.transaction_id)
    assert not (await pop(store, "q")).messages  # The second waits for its own retry.
    await store.delete_message(second.partition_id, second.transaction_id)
    assert [message.seq for message in (await pop(store, "q", 10)).messages] == [3]


async def test_the_payload_of_a_deleted_message_is_gone_from_every_view(store: Store) -> None:
    answers = [await push(store, "q", b'"secret"'), await push(store, "q", b'"kept"')]
    await store.delete_message(answers[0].partition_id, answers[0].transaction_id)
    for row in await every(store.list_messages, "q"):
        assert b"secret" not in row.payload
    for segment in await store.export_read(answers[0].partition_id, 1, 2):
        assert b"secret" not in segment.data
    try:
        found = await store.get_message(answers[0].partition_id, answers[0].transaction_id)
    except NotFoundError:
        pass
    else:
        assert found.payload == b""
    assert await every(store.list_messages, "q", first_seq=2) != []


async def test_a_leased_message_cannot_be_deleted(store: Store) -> None:
    answers = await push_many(store, "q", 3)
    popped = await pop(store, "q", 2, group="g")
    async with nothing_changes(store):
        with pytest.raises(ConflictError):
            await store.delete_message(answers[0].partition_id, answers[0].transaction_id)
    await store.delete_message(answers[2].partition_id, answers[2].transaction_id)
    await ack_all(store, popped, group="g")
    await store.delete_message(answers[0].partition_id, answers[0].transaction_id)
    assert await drain(store, "q", group="g") == []


async def test_a_message_with_its_answer_can_be_deleted_while_others_of_its_lease_have_none(
    store: Store,
) -> None:
    await push_many(store, "q", 3)
    first, second, third = (popped := await pop(store, "q", 3)).messages
    await ack(store, second, popped.lease_id, FAILED)
    await store.delete_message(second.partition_id, second.transaction_id)
    assert (await ack(store, third, popped.lease_id)).lease_released is False
    assert (await ack(store, first, popped.lease_id)).lease_released is True
    assert (await pop(store, "q", 3)).messages == []


async def test_a_deleted_item_is_gone_and_a_leased_one_stays(store: Store) -> None:
    await store.configure("w", kind=WORK)
    answers = await push_many(store, "w", 3)
    item, lease = await pop_one(store, "w")
    async with nothing_changes(store):
        with pytest.raises(ConflictError):
            await store.delete_message(item.partition_id, item.transaction_id)
    await store.delete_message(answers[1].partition_id, answers[1].transaction_id)
    with pytest.raises(NotFoundError):
        await store.get_item(answers[1].message_id)
    await ack(store, item, lease)
    assert [m.seq for m in await drain(store, "w")] == [3]
    await store.delete_message(item.partition_id, item.transaction_id)
    assert [row.seq for row in await every(store.list_items, "w")] == [3]
    assert (await stats(store, "w")).stored == 1


# --- items ---


async def test_items_are_listed_in_the_order_of_their_pushes_and_by_state(store: Store) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 1})
    await push_items(
        store,
        *(PushItem("w", b"%d" % n, priority=n % 5) for n in range(10)),
        PushItem("w", b"10", delay_seconds=60),
    )
    popped = await pop(store, "w", 4)
    for message, status in zip(popped.messages[:3], (COMPLETED, FAILED, COMPLETED), strict=True):
        await ack(store, message, popped.lease_id, status)
    rows = await every(store.list_items, "w", limit=3)
    assert [int(row.payload) for row in rows] == list(range(11))
    for state in ItemState:
        for limit in (1, 2, 100):
            listed = await every(store.list_items, "w", state=state, limit=limit)
            assert listed == [row for row in rows if row.state is state]
    assert Counter(row.state for row in rows) == Counter(
        {
            ItemState.READY: 6,
            ItemState.DONE: 2,
            ItemState.DEAD: 1,
            ItemState.LEASED: 1,
            ItemState.SCHEDULED: 1,
        }
    )


async def test_paging_through_items_is_stable_while_they_change_and_go(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"completedRetentionSeconds": 10})
    await push_many(store, "w", 8)
    first = await store.list_items("w", limit=3)
    await ack_all(store, await pop(store, "w", 5))
    clock.advance(11)
    await let_time_work(store)
    await push_many(store, "w", 2)
    rest = await store.list_items("w", limit=100, after=first.next)
    assert [row.seq for row in first.rows] == [1, 2, 3]
    assert [row.seq for row in rest.rows] == [6, 7, 8, 9, 10]


async def test_items_are_listed_and_found_as_messages(store: Store) -> None:
    await store.configure("w", kind=WORK)
    items = [PushItem("w", b"1", transaction_id="t"), PushItem("w", b"2", delay_seconds=60)]
    first, second = await push_items(store, *items)
    await pop(store, "w")
    rows = await every(store.list_messages, "w", limit=1)
    assert [(row.id, row.status) for row in rows] == [
        (first.message_id, "processing"),
        (second.message_id, "scheduled"),
    ]
    assert await every(store.list_messages, "w", status="scheduled") == rows[1:]
    assert await every(store.list_messages, "w", partition="other") == []
    for name in ("t", first.message_id):
        found = await store.get_message(first.partition_id, name)
        assert (found.id, found.status, found.payload, found.groups) == (
            *(first.message_id, "processing", b"1"),
            {},
        )
        assert found.queue_options == (await store.get_queue("w")).options
    for name in ("none", f"{first.partition_id}-9"):
        with pytest.raises(NotFoundError):
            await store.get_message(first.partition_id, name)


async def test_dead_letters_are_listed_as_messages_of_the_group_and_the_time_of_their_death(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3)
    for group in ("g", "h"):
        message, lease = await pop_one(store, "q", group=group)
        await ack(store, message, lease, DEAD, group=group)
        clock.advance(60)
    [last, first] = await every(store.list_messages, "q", status="dead_letter")
    assert (last.groups, first.groups) == ({"h": "dead"}, {"g": "dead"})
    assert last.seq == first.seq == 1

    async def found(**filters: object) -> list[dict[str, str]]:
        rows = await every(store.list_messages, "q", status="dead_letter", **filters)
        return [row.groups for row in rows]

    assert await found(group="g") == [{"g": "dead"}]
    # Pushed before that time, and died after it.
    assert await found(created_from=clock.now() - 70_000_000) == [{"h": "dead"}]
    assert await found(created_to=clock.now() - 70_000_000) == [{"g": "dead"}]
    assert await found(partition="other") == []


# --- the wrong kind ---


async def test_what_is_for_one_kind_of_queue_is_a_conflict_on_the_other(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w", transaction_id="t")
    await push(store, "q", transaction_id="t")
    async with nothing_changes(store):
        for call in (
            lambda: store.export_plan("w"),
            lambda: store.subscribe("g", StartFrom.ALL, queue="w"),
            lambda: store.list_items("q"),
            lambda: store.list_items("q", order="next"),
            lambda: store.list_items("q", transaction_id="t"),
        ):
            with pytest.raises(ConflictError):
                await call()


async def test_a_work_queue_is_popped_without_groups_and_partitions(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w")
    async with nothing_changes(store):
        with pytest.raises(InvalidRequestError):
            await pop(store, "w", group="g")
        with pytest.raises(InvalidRequestError):
            await pop(store, "w", partition="p")
    assert len((await pop(store, "w", partition="Default")).messages) == 1


async def test_the_cursors_of_a_group_that_is_not_there_are_not_found(store: Store) -> None:
    await push(store, "q")
    with pytest.raises(NotFoundError):
        await store.list_cursors("q", "missing")


async def test_a_page_can_be_gone_on_from_only_where_one_of_this_list_ended(store: Store) -> None:
    for name in ("a", "b", "c"):
        await push(store, name)
    token = (await store.list_queues(limit=1)).next
    assert token is not None
    for bad in ("nonsense", "", "é", token[:-2], token + "AAAA"):
        with pytest.raises(InvalidRequestError):
            await store.list_queues(after=bad)
    with pytest.raises(InvalidRequestError):
        await store.list_trace_names(after=token)


# --- many of everything ---


async def test_very_many_small_pushes_read_like_one_big_one(
    store: Store, clock: ManualClock
) -> None:
    times = []
    for n in range(1, 301):
        times.append(clock.now())
        answer = await push(store, "q", b"%d" % n)
        clock.advance(0.001)
    rows = await every(store.list_messages, "q", limit=70)
    assert [row.seq for row in rows] == list(range(1, 301))
    assert [row.created_at for row in rows] == times
    segments = await store.export_read(answer.partition_id, 5, 290)
    assert sum(segment.count for segment in segments) == 286
    await store.subscribe("g", StartFrom.ALL, queue="q")
    assert await store.call(Seek(group="g", queue="q", time=times[149])) == 151
    assert [m.seq for m in await drain(store, "q", 64, group="g")] == list(range(150, 301))
    popped = await pop(store, "q", 1000)
    assert [m.seq for m in popped.messages] == list(range(1, 301))
    assert (await ack_all(store, popped)).count == 300


async def test_very_many_partitions_are_listed_planned_and_popped_each_once(
    store: Store,
) -> None:
    items = [PushItem("q", b"%d" % n, f"p{n}") for n in range(250)]
    answers = await push_items(store, *items)
    assert len(await store.export_plan("q")) == 250
    rows = await every(store.list_messages, "q", limit=90)
    ids = sorted(answer.partition_id for answer in answers)
    assert [row.partition_id for row in rows] == ids
    await store.subscribe("g", StartFrom.ALL, queue="q")
    assert len(await every(store.list_cursors, "q", "g", limit=90)) == 250
    popped = await pop(store, "q", 1000, partitions=200)
    assert len({message.partition for message in popped.messages}) == 200
    await ack_all(store, popped)
    assert len(await drain(store, "q", 1000, partitions=1000)) == 50
