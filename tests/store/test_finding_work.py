"""Finding what can be popped: nothing hides it, however much is blocked, drained or idle."""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import MonarqError
from monarq.model import Pop, PushItem, SeekTo, StartFrom
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_items, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import FAILED, WORK, dead_letters, drain, every, let_time_work, numbers

pytestmark = pytest.mark.smoke


async def test_a_push_is_found_at_once_by_name_by_queue_and_by_namespace_through_another_store(
    store: Store, open_another: OpenStore
) -> None:
    """What finds partitions is written with the push, not some time after it."""
    other = await open_another()
    for n in range(3):
        await push(store, f"q{n}", b"%d" % n, partition=f"p{n}", namespace="ns", task="t")
        assert numbers(await pop(other, f"q{n}", partition=f"p{n}", group="by name")) == [n]
        assert numbers(await pop(other, f"q{n}", group="by queue")) == [n]
        assert numbers(await pop(other, namespace="ns", group="by namespace")) == [n]
        assert numbers(await pop(other, task="t", group="by task")) == [n]


@pytest.mark.parametrize("blocked", [1, 40])
async def test_partitions_that_wait_longer_but_have_nothing_to_give_hide_no_other(
    store: Store, clock: ManualClock, blocked: int
) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    await push_items(store, *(PushItem("q", b"0", f"busy{n}") for n in range(blocked)))
    await push(store, "q", b"1", partition="quiet")
    clock.advance(4)
    await push_items(store, *(PushItem("q", b"0", f"busy{n}") for n in range(blocked)))
    clock.advance(1)
    popped = await pop(store, "q")
    assert numbers(popped) == [1]
    await ack_all(store, popped)
    empty = await pop(store, "q")
    assert empty.messages == []
    assert empty.next_at == clock.now() + 4 * SECOND


async def test_partitions_whose_messages_all_waited_too_long_hide_no_other(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": 10})
    await push_items(store, *(PushItem("q", b"0", f"old{n}") for n in range(30)))
    await store.subscribe("g", StartFrom.ALL, queue="q")
    clock.advance(9)
    await push(store, "q", b"1", partition="new")
    clock.advance(1)
    assert numbers(await pop(store, "q", group="g")) == [1]
    await let_time_work(store)
    assert len(await dead_letters(store)) == 30


async def test_partitions_whose_every_message_was_deleted_hide_no_other(
    store: Store, clock: ManualClock
) -> None:
    answers = await push_items(store, *(PushItem("q", b"0", f"gone{n}") for n in range(10)))
    clock.advance(1)
    await push(store, "q", b"1", partition="last")
    for answer in answers:
        await store.delete_message(answer.partition_id, answer.transaction_id)
    assert numbers(await drain(store, "q")) == [1]


async def test_a_pop_of_several_partitions_passes_over_those_with_nothing_to_give(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"delayedProcessing": 5})
    for n, partition in enumerate("abcd"):
        await push(store, "q", b"%d" % n, partition=partition)
    await pop(store, "q", group="g")
    clock.advance(5)
    for partition in "ac":
        await store.call(Seek(group="g", queue="q", partition=partition, to=SeekTo.END))
        await push(store, "q", b"9", partition=partition)
    popped = await pop(store, "q", 10, partitions=2, group="g")
    assert sorted(numbers(popped)) == [1, 3]


async def test_requests_of_one_call_each_pass_over_what_has_nothing_to_give(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"windowBuffer": 5})
    for n in range(4):
        await push(store, "q", b"%d" % n, partition=f"p{n}")
    clock.advance(5)
    await push(store, "q", b"9", partition="p0")
    await push(store, "q", b"9", partition="p2")
    outcomes = await store.pop([Pop(queue="q"), Pop(queue="q"), Pop(queue="q")])
    got = []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError)
        got.append(numbers(outcome))
    assert got == [[1], [3], []]


async def test_failed_partitions_do_not_hide_the_healthy_ones_nor_each_other(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryDelay": 10_000})
    for n in range(20):
        await push(store, "q", b"%d" % n, partition=f"p{n}")
    for _ in range(19):
        message, lease = await pop_one(store, "q")
        await ack(store, message, lease, FAILED)
        clock.advance(0.1)
    assert numbers(await pop(store, "q")) == [19]
    clock.advance(10)
    assert sorted(numbers(await drain(store, "q"))) == list(range(19))


async def test_many_idle_groups_and_queues_do_not_mix_up_what_belongs_to_whom(
    store: Store,
) -> None:
    for n in range(6):
        await push(store, f"q{n}", b"%d" % n, partition="same name")
        for k in range(6):
            await store.subscribe(f"g{k}", StartFrom.ALL, queue=f"q{n}")
    for n in range(6):
        for k in range(6):
            got = await drain(store, f"q{n}", group=f"g{k}")
            assert [(m.queue, int(m.payload)) for m in got] == [(f"q{n}", n)]
            assert (await pop(store, f"q{n}", group=f"g{k}")).messages == []


async def test_the_next_time_of_a_namespace_is_that_of_its_soonest_queue(
    store: Store, clock: ManualClock
) -> None:
    for name, delay in (("slow", 60), ("soon", 7), ("later", 30)):
        await store.configure(name, namespace="ns", options={"delayedProcessing": delay})
        await push(store, name)
    await pop(store, namespace="ns")
    assert (await pop(store, namespace="ns")).next_at == clock.now() + 7 * SECOND


async def test_a_change_of_priority_holds_for_the_next_pop(store: Store) -> None:
    for name in ("a", "b"):
        await store.configure(name, namespace="ns")
        await push_many(store, name, 2)
    popped = await pop(store, namespace="ns")
    assert popped.messages[0].queue == "a"
    await ack_all(store, popped)
    await store.configure("a", options={"priority": -1})
    assert [m.queue for m in await drain(store, namespace="ns", batch=1)] == ["b", "b", "a"]


async def test_a_work_queue_full_of_scheduled_and_leased_items_does_not_hide_a_ready_one(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 30, priority=100, delay_seconds=60)
    await push_many(store, "w", 30, priority=50)
    await pop(store, "w", 30)
    await push(store, "w", b"99", priority=-5)
    assert numbers(await pop(store, "w", 5)) == [99]
    assert (await pop(store, "w")).next_at == clock.now() + 60 * SECOND


async def test_messages_of_partitions_made_by_another_store_are_found_by_groups_of_this_one(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await push(store, "q", b"0")
    await drain(store, "q", group="g")
    for n in range(1, 5):
        await push(other, "q", b"%d" % n, partition=f"p{n}")
        assert numbers(await drain(store, "q", group="g")) == [n]


async def test_a_queue_deleted_and_made_again_by_another_store_is_found_again(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    for n in range(3):
        await push(store, "q", b"%d" % n, namespace="ns")
        assert numbers(await drain(other, "q", group="g")) == [n]
        assert numbers(await drain(other, namespace="ns", group="h")) == [n]
        assert (await (other if n % 2 else store).delete_queue("q")).deleted
    await other.configure("q", kind=WORK)
    await push(store, "q", b"9", priority=1)
    assert numbers(await pop(other, "q")) == [9]
    assert [row.payload for row in await every(store.list_items, "q")] == [b"9"]
