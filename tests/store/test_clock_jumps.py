"""What a clock that is set while a store is in use does to leases, delays and retention.

On PostgreSQL it is the server's clock that decides: the store passes on what a test's clock says.
"""

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import LeaseError
from monarq.model import AckStatus, Message
from monarq.store import Store
from tests.store.calls import ack, pop, pop_one, push, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import WORK, drain, let_time_work, stats

pytestmark = pytest.mark.smoke

HOUR = 3600
LEASE = 30.0


async def set_back(store: Store, clock: ManualClock, seconds: float = HOUR) -> None:
    """As a broker would see it: it takes a step of the lifecycle every few seconds."""
    await store.lifecycle()
    clock.advance(-seconds)
    await store.lifecycle()


async def refused(store: Store, message: Message, lease_id: str) -> None:
    with pytest.raises(LeaseError):
        await ack(store, message, lease_id)


# --- back ------------------------------------------------------------------------------------


async def test_what_could_be_popped_before_the_clock_was_set_back_still_can_be(
    store: Store, clock: ManualClock
) -> None:
    for partition in "ab":
        await push(store, "q", partition=partition)
    assert len((await pop(store, "q", group="g")).messages) == 1
    await store.configure("w", kind=WORK)
    await push(store, "w")
    await set_back(store, clock)
    assert len((await pop(store, "q", group="g")).messages) == 1
    assert len((await pop(store, "w")).messages) == 1


async def test_the_step_that_notices_it_wakes_who_waits(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    await store.subscribe("g", 0, queue="q")
    await store.lifecycle()
    clock.advance(-HOUR)
    assert "q" in (await store.lifecycle()).wake


@pytest.mark.parametrize("kind", ["ordered", "work"])
async def test_a_lease_lasts_no_longer_than_it_was_taken_for_after_the_clock_was_set_back(
    store: Store, clock: ManualClock, kind: str
) -> None:
    """Its holder may be dead."""
    if kind == "work":
        await store.configure("q", kind=WORK)
    await push(store, "q")
    lost, lease = await pop_one(store, "q", lease_seconds=LEASE)
    await set_back(store, clock)
    clock.advance(LEASE - 1)
    assert not (await pop(store, "q")).messages
    clock.advance(2)
    await store.lifecycle()
    again, _ = await pop_one(store, "q", lease_seconds=LEASE)
    assert again.seq == lost.seq
    await refused(store, lost, lease)


@pytest.mark.parametrize("kind", ["ordered", "work"])
async def test_the_holder_of_a_lease_keeps_it_while_the_clock_is_set_back_and_forth(
    store: Store, clock: ManualClock, kind: str
) -> None:
    if kind == "work":
        await store.configure("q", kind=WORK)
    await push(store, "q")
    held, lease = await pop_one(store, "q", lease_seconds=LEASE)
    for _ in range(3):
        await set_back(store, clock)
        clock.advance(LEASE / 2)
        assert not (await pop(store, "q")).messages
    await ack(store, held, lease)
    assert not (await pop(store, "q")).messages


async def test_a_retry_waits_no_longer_than_it_should(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retryDelay": 20_000})
    await push(store, "q")
    first, lease = await pop_one(store, "q", lease_seconds=LEASE)
    await ack(store, first, lease, AckStatus.FAILED)
    assert not (await pop(store, "q")).messages
    await set_back(store, clock)
    clock.advance(21)
    assert len((await pop(store, "q")).messages) == 1


async def test_an_item_keeps_the_time_that_it_is_scheduled_for(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w", run_at=clock.now() + 10 * SECOND)
    await set_back(store, clock)
    clock.advance(HOUR + 9)
    await let_time_work(store)
    assert not (await pop(store, "w")).messages
    clock.advance(1)
    await let_time_work(store)
    assert len((await pop(store, "w")).messages) == 1


async def test_times_and_seqs_of_a_partition_never_fall(store: Store, clock: ManualClock) -> None:
    await push_many(store, "q", 2)
    await set_back(store, clock)
    await push_many(store, "q", 2)
    rows = (await store.list_messages("q")).rows
    assert [row.seq for row in rows] == [1, 2, 3, 4]
    assert [row.created_at for row in rows] == sorted(row.created_at for row in rows)
    assert [message.seq for message in await drain(store, "q", group="g")] == [1, 2, 3, 4]


async def test_the_history_of_a_queue_goes_on(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    clock.advance(60)
    await set_back(store, clock)
    for _ in range(2):
        await push(store, "q")
        clock.advance(60)
        await store.lifecycle()
    points = (await store.metrics(queue="q", until=clock.now())).rows
    assert points[-1].pushed == 3


async def test_a_store_that_was_closed_meanwhile_notices_too(
    open_another: OpenStore, clock: ManualClock
) -> None:
    before = await open_another()
    await push(before, "q", partition="a")
    await before.subscribe("g", 0, queue="q")
    clock.advance(60)
    await before.lifecycle()
    await before.close()
    clock.advance(-HOUR)
    after = await open_another()
    await after.lifecycle()
    assert len((await pop(after, "q", group="g")).messages) == 1


# --- forward ---------------------------------------------------------------------------------


async def test_a_jump_forward_ends_leases_and_refuses_their_acks(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q")
    held, lease = await pop_one(store, "q", lease_seconds=LEASE)
    clock.advance(HOUR)
    again, new_lease = await pop_one(store, "q", lease_seconds=LEASE)
    await refused(store, held, lease)
    await ack(store, again, new_lease)


async def test_a_jump_forward_and_back_loses_nothing_that_is_kept_for_longer(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retentionSeconds": 2 * HOUR, "windowBuffer": 5})
    await push_many(store, "q", 3)
    clock.advance(HOUR)
    await let_time_work(store)
    await set_back(store, clock)
    await let_time_work(store)
    assert (await stats(store, "q")).stored == 3
    clock.advance(6)
    assert [message.seq for message in await drain(store, "q", group="g")] == [1, 2, 3]
