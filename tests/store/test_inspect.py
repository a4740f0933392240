"""Looking at things: pages that neither repeat nor skip, counters that equal a recount, logs."""

import random
from collections import Counter

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, LeaseError, NotFoundError
from monarq.model import DeadLetterFilter, ItemState, Message, PushItem, Seek, SeekTo, StartFrom
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    dead_letters,
    drain,
    every,
    group_row,
    let_time_work,
    nothing_changes,
    stats,
)

GROUP = "__QUEUE_MODE__"

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
    await store.purge_dead_letters(DeadLetterFilter(queue="q"))
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


# --- counters ---


@pytest.mark.parametrize("seed", range(4))
async def test_counters_of_an_ordered_queue_equal_a_recount_after_any_history(
    store: Store, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    await store.configure(
        "q", options={"retryLimit": 1, "retryDelay": 1000, "leaseTime": 5, "retentionSeconds": 60}
    )
    pushed = 0
    leases: list[tuple[str, list[Message], str]] = []
    completed: Counter[str] = Counter()
    for _ in range(70):
        action = chance.choices(
            ["push", "pop", "answer", "time", "seek", "delete group", "clear"],
            weights=[6, 6, 8, 3, 1, 0.5, 0.3],
        )[0]
        group = chance.choice(["g1", "g2"])
        if action == "push":
            ids = [f"t{chance.randrange(40)}" if chance.random() < 0.3 else None for _ in "123"]
            items = [PushItem("q", b"1", f"p{chance.randrange(3)}", name) for name in ids]
            answers = await push_items(store, *items)
            pushed += sum(answer.status == "queued" for answer in answers)
        elif action == "pop":
            popped = await pop(store, "q", 3, partitions=2, group=group)
            if popped.lease_id:
                leases.append((popped.lease_id, popped.messages, group))
        elif action == "answer" and leases:
            lease, messages, owner = leases.pop(chance.randrange(len(leases)))
            for message in chance.sample(messages, chance.randrange(1, len(messages) + 1)):
                status = chance.choice([COMPLETED, COMPLETED, FAILED, RELEASE, DEAD, RETRY])
                try:
                    await ack(store, message, lease, status, group=owner)
                except (NotFoundError, LeaseError):
                    continue
                completed[owner] += status is COMPLETED
        elif action == "time":
            clock.advance(chance.choice([1, 5, 20]))
            await let_time_work(store)
        elif action == "seek" and await every(store.list_groups, queue="q", group=group):
            await store.seek(
                Seek(group=group, queue="q", to=chance.choice([SeekTo.START, SeekTo.END]))
            )
        elif action == "delete group":
            await store.delete_group(group, queue="q")
            completed[group] = 0
        elif action == "clear":
            await store.clear_queue("q")
        row = await stats(store, "q")
        rows = await every(store.list_messages, "q")
        groups = await every(store.list_groups, queue="q")
        assert row.pushed == pushed
        assert row.stored == len(rows)
        assert row.partitions == len(await store.export_plan("q"))
        letters = await store.count_dead_letters(DeadLetterFilter(queue="q"))
        assert row.dead_letters == row.dead == letters == len(await dead_letters(store))
        for one in groups:
            cursors = await every(store.list_cursors, "q", one.name)
            assert one.lag == sum(cursor.lag for cursor in cursors)
            assert one.completed == completed[one.name]
        expected = max((one.lag for one in groups), default=len(rows))
        assert row.pending == expected
    for one in await every(store.list_groups, queue="q"):
        await store.seek(Seek(group=one.name, queue="q", to=SeekTo.START))
        stored = len(await every(store.list_messages, "q"))
        assert (await group_row(store, "q", one.name)).lag == stored
        await drain(store, "q", group=one.name)
        assert (await group_row(store, "q", one.name)).lag == 0


@pytest.mark.parametrize("seed", range(4))
async def test_counters_of_a_work_queue_equal_a_recount_after_any_history(
    store: Store, clock: ManualClock, seed: int
) -> None:
    chance = random.Random(seed)
    await store.configure(
        "w",
        kind=WORK,
        options={
            "maxAttempts": 2,
            "leaseTime": 5,
            "completedRetentionSeconds": 30,
            "expireTimeout": 100,
        },
    )
    pushed = completed = 0
    leases: list[tuple[str, list[Message]]] = []
    for _ in range(70):
        action = chance.choices(
            ["push", "pop", "answer", "time", "cancel", "retry", "redrive", "purge", "delete"],
            weights=[6, 6, 8, 2, 1, 1, 0.5, 0.3, 0.7],
        )[0]
        rows = await every(store.list_items, "w")
        if action == "push":
            ids = [f"t{chance.randrange(40)}" if chance.random() < 0.3 else None for _ in "123"]
            items = [
                PushItem("w", b"1", transaction_id=name, delay_seconds=chance.choice([None, 3]))
                for name in ids
            ]
            answers = await push_items(store, *items)
            pushed += sum(answer.status == "queued" for answer in answers)
        elif action == "pop":
            popped = await pop(store, "w", 3)
            if popped.lease_id:
                leases.append((popped.lease_id, popped.messages))
        elif action == "answer" and leases:
            lease, messages = leases.pop(chance.randrange(len(leases)))
            for message in chance.sample(messages, chance.randrange(1, len(messages) + 1)):
                status = chance.choice([COMPLETED, COMPLETED, FAILED, RELEASE, DEAD, RETRY])
                try:
                    await ack(store, message, lease, status)
                except (NotFoundError, LeaseError):
                    continue
                completed += status is COMPLETED
        elif action == "time":
            clock.advance(chance.choice([1, 5, 20]))
            await let_time_work(store)
        elif action in ("cancel", "retry", "delete") and rows:
            row = chance.choice(rows)
            try:
                if action == "cancel":
                    await store.cancel_item(row.id)
                elif action == "retry":
                    await store.retry_item(row.id)
                elif row.state is not ItemState.DEAD:
                    await store.delete_message(row.partition_id, row.transaction_id)
            except ConflictError:
                pass
        elif action == "redrive":
            await store.redrive(DeadLetterFilter(queue="w"), limit=2)
        elif action == "purge":
            letters = await dead_letters(store, queue="w")
            await store.purge_dead_letters(DeadLetterFilter(ids=[one.id for one in letters[:1]]))
        rows = await every(store.list_items, "w")
        states = Counter(str(row.state) for row in rows)
        now = await stats(store, "w")
        assert {name: count for name, count in now.states.items() if count} == dict(states)
        assert (now.pushed, now.stored, now.completed) == (pushed, len(rows), completed)
        assert now.pending == states["scheduled"] + states["ready"] + states["leased"]
        assert now.dead_letters == len(await dead_letters(store, queue="w"))
        for state, count in states.items():
            assert len(await every(store.list_items, "w", state=ItemState(state))) == count


async def test_stats_of_all_queues_are_listed_by_name(store: Store) -> None:
    await store.configure("w", kind=WORK)
    for n, name in enumerate(["b", "a", "w", "c"]):
        await push_many(store, name, n + 1)
    rows = await every(store.queue_stats, limit=2)
    assert [(row.queue, row.kind, row.pushed) for row in rows] == [
        ("a", "ordered", 2),
        ("b", "ordered", 1),
        ("c", "ordered", 4),
        ("w", "work", 3),
    ]


# --- the delivery log ---


async def test_an_ack_of_a_whole_lease_leaves_one_row_not_one_a_message(
    store: Store, clock: ManualClock
) -> None:
    answers = await push_many(store, "q", 50)
    leased_at = clock.now()
    popped = await pop(store, "q", 40, group="g", consumer="me")
    clock.advance(3)
    await ack_all(store, popped, group="g")
    [row] = await every(store.list_deliveries, queue="q")
    assert (row.queue, row.partition, row.partition_id) == (
        "q",
        "Default",
        answers[0].partition_id,
    )
    assert (row.group, row.consumer) == ("g", "me")
    assert (row.leased_at, row.ended_at) == (leased_at, clock.now())
    assert (row.first_seq, row.last_seq) == (1, 40)
    assert (row.completed, row.failed, row.released, row.dead, row.expired) == (40, 0, 0, 0, 0)
    assert popped.lease_id
    assert row.lease_number == int(popped.lease_id.split("-")[0])


async def test_each_outcome_is_counted_in_the_log(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retryLimit": 1, "retryDelay": 0, "leaseTime": 10})
    await push_many(store, "q", 6)
    popped = await pop(store, "q", 6)
    for message, status in zip(
        popped.messages, (COMPLETED, FAILED, RELEASE, DEAD, RETRY), strict=False
    ):
        await ack(store, message, popped.lease_id, status, error="because")
    clock.advance(10)
    await let_time_work(store)
    rows = await every(store.list_deliveries, queue="q")
    totals = {
        name: sum(getattr(row, name) for row in rows)
        for name in ("completed", "failed", "released", "dead", "expired")
    }
    assert totals == {"completed": 1, "failed": 2, "released": 1, "dead": 1, "expired": 1}
    assert {row.error for row in rows if row.failed} == {"because"}
    assert all(1 <= row.first_seq <= row.last_seq <= 6 for row in rows)


async def test_a_lease_over_several_partitions_leaves_a_row_for_each(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    await ack_all(store, await pop(store, "q", 6, partitions=3))
    rows = await every(store.list_deliveries)
    assert sorted((row.partition, row.first_seq, row.last_seq) for row in rows) == [
        ("a", 1, 2),
        ("b", 1, 2),
        ("c", 1, 2),
    ]
    assert len({row.lease_number for row in rows}) == 1


async def test_auto_acked_deliveries_are_logged_too(store: Store) -> None:
    await push_many(store, "q", 3)
    await pop(store, "q", 3, auto_ack=True, consumer="me")
    [row] = await every(store.list_deliveries)
    assert (row.completed, row.first_seq, row.last_seq, row.consumer) == (3, 1, 3, "me")


async def test_the_log_still_names_a_group_that_was_deleted(store: Store) -> None:
    await push(store, "q")
    for _ in range(2):
        await pop(store, "q", auto_ack=True, group="g")
        await store.delete_group("g", queue="q")
    rows = await every(store.list_deliveries)
    assert [row.group for row in rows] == ["g", "g"]
    assert [row.group for row in await store.deliveries_of(rows[0].partition_id, 1)] == ["g", "g"]


async def test_the_log_is_paged_by_id_and_filtered_by_queue(store: Store) -> None:
    for n in range(6):
        await push(store, f"q{n % 2}")
        await drain(store, f"q{n % 2}")
    rows = await every(store.list_deliveries, limit=2)
    assert [row.queue for row in rows] == ["q0", "q1"] * 3
    ids = [row.id for row in rows]
    assert ids == sorted(set(ids))
    assert len(await every(store.list_deliveries, queue="q1", limit=1)) == 3


async def test_refused_acks_leave_no_row(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    with pytest.raises(LeaseError):
        await ack(store, message, lease)
    assert await every(store.list_deliveries) == []


async def test_attempts_are_listed_in_the_order_they_ended_and_filtered_by_queue(
    store: Store,
) -> None:
    for queue in ("w1", "w2"):
        await store.configure(queue, kind=WORK)
        await push_many(store, queue, 3)
    for queue in ("w1", "w2"):
        popped = await pop(store, queue, 3)
        for n in (2, 0, 1):
            await ack(store, popped.messages[n], popped.lease_id)
    rows = await every(store.list_attempts, limit=2)
    assert [(row.queue, int(row.item_id.split("-")[1])) for row in rows] == [
        (queue, seq) for queue in ("w1", "w2") for seq in (3, 1, 2)
    ]
    assert len(await every(store.list_attempts, queue="w2", limit=2)) == 3


# --- the wrong kind ---


async def test_what_is_for_one_kind_of_queue_is_a_conflict_on_the_other(store: Store) -> None:
    await store.configure("w", kind=WORK)
    item = await push(store, "w", transaction_id="t")
    await push(store, "q", transaction_id="t")
    async with nothing_changes(store):
        for call in (
            lambda: store.list_messages("w"),
            lambda: store.export_plan("w"),
            lambda: store.get_message(item.partition_id, "t"),
            lambda: store.subscribe("g", StartFrom.ALL, queue="w"),
            lambda: store.list_items("q"),
            lambda: store.next_items("q"),
            lambda: store.find_item("q", "t"),
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
    assert await store.seek(Seek(group="g", queue="q", time=times[149])) == 151
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
