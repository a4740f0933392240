"""Pops by namespace and task: the queues with those labels, by priority, then by waiting."""

from monarq.clock import ManualClock
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many
from tests.store.scenarios import WORK, drain, every, numbers


async def test_a_pop_by_namespace_and_task_considers_the_queues_with_those_labels(
    store: Store,
) -> None:
    for namespace in ("n1", "n2"):
        for task in ("t1", "t2"):
            await push(store, f"{namespace}-{task}", namespace=namespace, task=task)
    await push(store, "bare")

    async def found(**labels: str) -> list[str]:
        return sorted(m.queue for m in await drain(store, group=str(labels), **labels))

    assert await found(namespace="n1") == ["n1-t1", "n1-t2"]
    assert await found(task="t2") == ["n1-t2", "n2-t2"]
    assert await found(namespace="n2", task="t1") == ["n2-t1"]
    assert await found(namespace="n3") == []
    assert await found(namespace="n1", task="t3") == []


async def test_queues_of_higher_priority_come_first_then_whoever_waits_longest(
    store: Store, clock: ManualClock
) -> None:
    for name, priority in (("low", -5), ("b", 0), ("high", 10), ("a", 0)):
        await store.configure(name, namespace="ns", options={"priority": priority})
        await push_many(store, name, 2)
        clock.advance(1)
    order = []
    for _ in range(8):
        popped = await pop(store, namespace="ns")
        order.append(popped.messages[0].queue)
        clock.advance(1)
        await ack_all(store, popped)
    assert order == ["high", "high", "b", "a", "b", "a", "low", "low"]


async def test_a_pop_by_namespace_passes_over_work_queues(store: Store) -> None:
    await store.configure("w", kind=WORK, namespace="ns")
    await push(store, "w")
    assert (await pop(store, namespace="ns")).messages == []
    await push(store, "q", namespace="ns")
    assert [message.queue for message in await drain(store, namespace="ns")] == ["q"]
    assert [item.state for item in await every(store.list_items, "w")] == ["ready"]


async def test_a_pop_by_namespace_finds_a_queue_once_it_is_labelled_and_not_after(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    assert (await pop(store, namespace="ns")).messages == []
    await store.configure("q", namespace="ns")
    popped = await pop(store, namespace="ns")
    assert numbers(popped) == [1]
    await ack_all(store, popped)
    await push(store, "q", b"2")
    await store.configure("q", namespace="elsewhere")
    assert (await pop(store, namespace="ns")).messages == []
    assert numbers(await pop(store, namespace="elsewhere")) == [2]


async def test_a_pop_by_namespace_and_one_by_queue_share_the_groups_cursor(store: Store) -> None:
    await push_many(store, "q", 2, namespace="ns")
    message, lease = await pop_one(store, "q", group="g")
    assert (await pop(store, namespace="ns", group="g")).messages == []
    await ack(store, message, lease, group="g")
    assert numbers(await pop(store, namespace="ns", group="g")) == [2]


async def test_a_pop_by_namespace_may_take_partitions_of_several_queues(store: Store) -> None:
    for queue in ("q1", "q2", "q3"):
        await push_many(store, queue, 2, namespace="ns")
    popped = await pop(store, namespace="ns", batch=5, partitions=3)
    assert [(m.queue, m.seq) for m in popped.messages] == [
        ("q1", 1),
        ("q1", 2),
        ("q2", 1),
        ("q2", 2),
        ("q3", 1),
    ]
    await ack_all(store, popped)
    assert [(m.queue, m.seq) for m in await drain(store, namespace="ns")] == [("q3", 2)]
