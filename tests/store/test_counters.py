"""Counters, which are kept as messages flow, equal a recount."""

import random
from collections import Counter

import pytest

from monarq.clock import ManualClock
from monarq.errors import ConflictError, LeaseError, NotFoundError
from monarq.model import DeadLetterFilter, ItemState, Message, PushItem, SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, pop, push_items, push_many
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
    stats,
)


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
            await store.call(
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
        assert (await store.get_queue("q")).partitions == len(await store.export_plan("q"))
        letters = await store.count_dead_letters(DeadLetterFilter(queue="q"))
        assert row.dead_letters == row.dead == letters == len(await dead_letters(store))
        for one in groups:
            cursors = await every(store.list_cursors, "q", one.name)
            assert one.lag == sum(cursor.lag for cursor in cursors)
            assert one.completed == completed[one.name]
        expected = max((one.lag for one in groups), default=len(rows))
        assert row.pending == expected
    for one in await every(store.list_groups, queue="q"):
        await store.call(Seek(group=one.name, queue="q", to=SeekTo.START))
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
            await store.redrive(queue="w", limit=2)
        elif action == "purge":
            for one in (await dead_letters(store, queue="w"))[:1]:
                await store.purge_dead_letters(ids=[one.id])
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
    rows = await every(store.list_queues, limit=2)
    assert [(row.name, row.kind, row.counts.pushed) for row in rows] == [
        ("a", "ordered", 2),
        ("b", "ordered", 1),
        ("c", "ordered", 4),
        ("w", "work", 3),
    ]
