"""Scheduled items are ready on time and never stranded, whoever restarts."""

from monarq.clock import SECOND, ManualClock
from monarq.model import ItemState, PushItem, QueueKind
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_items, renew
from tests.store.conftest import OpenStore
from tests.store.scenarios import drain, let_time_work, numbers
from tests.store.work_queue import work


async def test_a_scheduled_item_is_ready_on_time_and_not_a_microsecond_before(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    at = clock.now() + 10 * SECOND
    answer = await push(store, "w", run_at=at)
    item = await store.get_item(answer.message_id)
    assert (item.state, item.run_at, item.attempts) == (ItemState.SCHEDULED, at, 0)
    popped = await pop(store, "w")
    assert (popped.messages, popped.next_at) == ([], at)
    clock.advance(9.999999)
    assert (await pop(store, "w")).messages == []
    clock.advance(0.000001)
    message, _ = await pop_one(store, "w")
    assert message.id == answer.message_id


async def test_a_delay_counts_from_the_push(store: Store, clock: ManualClock) -> None:
    await work(store, 0)
    clock.advance(100)
    answer = await push(store, "w", delay_seconds=2.5)
    assert (await store.get_item(answer.message_id)).run_at == clock.now() + 2_500_000


async def test_a_run_time_that_has_come_already_is_ready_at_once(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = await push_items(
        store,
        PushItem("w", b"1", run_at=clock.now()),
        PushItem("w", b"2", run_at=0),
        PushItem("w", b"3", delay_seconds=0),
    )
    for answer in answers:
        assert (await store.get_item(answer.message_id)).state is ItemState.READY
    assert numbers(await drain(store, "w")) == [1, 2, 3]


async def test_what_is_due_first_is_found_in_whichever_queue_it_is(
    store: Store, clock: ManualClock
) -> None:
    """Of many queues the first may have nothing due for long, and some nothing at all."""
    delays = {"a": 40, "b": None, "c": 10, "d": 20, "e": 10}
    for queue, delay in delays.items():
        await store.configure(queue, kind=QueueKind.WORK)
        await push(store, queue, delay_seconds=delay)
    woken = []
    for _ in range(3):
        report = (await let_time_work(store))[-1]
        assert report.next_at is not None
        clock.advance((report.next_at - clock.now()) / SECOND)
        report = await store.lifecycle()
        woken.append((report.promoted, sorted(report.wake)))
    assert woken == [(2, ["c", "e"]), (1, ["d"]), (1, ["a"])]


async def test_the_lifecycle_promotes_what_is_due_and_says_whom_to_wake(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = [await push(store, "w", delay_seconds=n) for n in (10, 20)]
    report = (await let_time_work(store))[-1]
    assert report.next_at is not None
    assert clock.now() < report.next_at <= clock.now() + 10 * SECOND
    clock.advance(10)
    report = await store.lifecycle()
    assert (report.promoted, report.wake) == (1, ["w"])
    states = [(await store.get_item(answer.message_id)).state for answer in answers]
    assert states == [ItemState.READY, ItemState.SCHEDULED]
    report = (await let_time_work(store))[-1]
    assert report.next_at is not None
    assert report.next_at <= clock.now() + 10 * SECOND


async def test_a_scheduled_item_survives_a_restart_and_needs_no_later_push_to_be_promoted(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    await work(store, 0)
    answers = [await push(store, "w", b"%d" % n, delay_seconds=60) for n in range(3)]
    await store.close()
    clock.advance(30)
    restarted = await open_another()
    report = (await let_time_work(restarted))[-1]
    assert report.next_at is not None
    assert clock.now() < report.next_at <= clock.now() + 30 * SECOND
    clock.advance(30)
    report = await restarted.lifecycle()
    assert (report.promoted, report.wake) == (3, ["w"])
    assert [m.id for m in await drain(restarted, "w")] == [a.message_id for a in answers]


async def test_a_lease_survives_a_restart_and_runs_out_on_time(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    await work(store, 1, leaseTime=60)
    await push(store, "q")
    item, lease = await pop_one(store, "w")
    message, message_lease = await pop_one(store, "q", lease_seconds=60)
    await store.close()
    restarted = await open_another()
    assert (await pop(restarted, "w")).messages == []
    assert (await pop(restarted, "q")).messages == []
    await renew(restarted, lease, 100)
    await ack(restarted, message, message_lease)
    clock.advance(99)
    await ack(restarted, item, lease)
    assert (await restarted.get_item(item.id)).state is ItemState.DONE
