"""Fencing of leases over several partitions, of a lease id alone, and of acks without one."""

from monarq.clock import ManualClock
from monarq.model import SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many, renew, seqs
from tests.store.refusals import check_refused, error_of
from tests.store.scenarios import drain, let_time_work, nothing_changes

# --- a lease over several partitions ---


async def test_a_partition_that_left_a_wide_lease_is_fenced_while_the_others_are_live(
    store: Store, clock: ManualClock
) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 6, partitions=3, lease_seconds=10)
    assert popped.lease_id
    by_partition = {name: [m for m in popped.messages if m.partition == name] for name in "abc"}
    for message in by_partition["a"]:
        await ack(store, message, popped.lease_id)
    await check_refused(store, by_partition["a"][0], popped.lease_id, "already_acked")
    await push(store, "q", partition="a")
    message, lease = await pop_one(store, "q")
    assert (message.partition, message.seq) == ("a", 3)
    # The wide lease is live in b and c, but it is not a's any more.
    await check_refused(store, by_partition["a"][0], popped.lease_id, "lease_foreign")
    await check_refused(store, message, popped.lease_id, "lease_foreign")
    await ack(store, by_partition["b"][1], popped.lease_id)
    clock.advance(10)
    await check_refused(store, by_partition["c"][0], popped.lease_id, "lease_expired")
    await check_refused(store, by_partition["a"][0], popped.lease_id, "already_acked")
    await check_refused(store, message, popped.lease_id, "lease_taken_over")
    for expected in ("b", "c"):
        again = await pop(store, "q", 6, partitions=3)
        assert [(m.partition, m.seq, m.attempts) for m in again.messages] == [(expected, 1, 1)]
    await check_refused(store, by_partition["c"][0], popped.lease_id, "lease_taken_over")
    await ack(store, message, lease)


async def test_a_wide_lease_alone_answers_only_the_partitions_that_are_still_under_it(
    store: Store,
) -> None:
    for partition in "ab":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 4, partitions=2, group="g")
    assert popped.lease_id
    await store.call(Seek(group="g", queue="q", partition="a", to=SeekTo.START))
    acked = await ack_all(store, popped, group="g")
    assert (acked.count, acked.lease_released) == (2, True)
    assert [(m.partition, m.seq) for m in await drain(store, "q", group="g")] == [
        ("a", 1),
        ("a", 2),
    ]


# --- a lease id alone ---


async def test_a_lease_id_alone_is_expired_until_its_expiry_is_settled_and_unknown_after(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 2, lease_seconds=10)
    assert popped.lease_id
    clock.advance(10)
    async with nothing_changes(store):
        assert await error_of(renew(store, popped.lease_id, 60)) == "lease_expired"
        assert await error_of(ack_all(store, popped)) == "lease_expired"
    await pop(store, "q")
    async with nothing_changes(store):
        assert await error_of(renew(store, popped.lease_id, 60)) == "lease_unknown"
        assert await error_of(ack_all(store, popped)) == "lease_unknown"


async def test_a_lease_id_alone_is_unknown_once_all_under_it_is_answered(store: Store) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2)
    assert popped.lease_id
    await ack_all(store, popped)
    async with nothing_changes(store):
        assert await error_of(ack_all(store, popped)) == "lease_unknown"
        assert await error_of(renew(store, popped.lease_id, 60)) == "lease_unknown"


async def test_a_lease_id_alone_is_unknown_after_a_seek_and_a_clear(store: Store) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q", group="g")
    assert popped.lease_id
    await store.call(Seek(group="g", queue="q", to=SeekTo.START))
    async with nothing_changes(store):
        assert await error_of(renew(store, popped.lease_id, 60)) == "lease_unknown"
    popped = await pop(store, "q", group="g")
    assert popped.lease_id
    await store.clear_queue("q")
    async with nothing_changes(store):
        assert await error_of(ack_all(store, popped, group="g")) == "lease_unknown"


async def test_an_ack_of_a_lease_after_its_deadline_does_not_undo_the_expiry(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 0})
    await push_many(store, "q", 2)
    popped = await pop(store, "q", 1, lease_seconds=10)
    clock.advance(10)
    assert await error_of(ack_all(store, popped)) == "lease_expired"
    assert await seqs(store, "q") == [2]


# --- without a lease id ---


async def test_without_a_lease_id_a_message_under_no_live_lease_is_refused(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    message, _ = await pop_one(store, "q", group="g", lease_seconds=10)
    await check_refused(store, message, None, "lease_expired")
    await check_refused(store, message, None, "lease_expired", group="other")
    clock.advance(10)
    await check_refused(store, message, None, "lease_expired", group="g")
    await let_time_work(store)
    await check_refused(store, message, None, "lease_expired", group="g")


async def test_without_a_lease_id_a_message_that_was_not_delivered_is_under_no_lease(
    store: Store,
) -> None:
    answers = await push_many(store, "q", 3)
    await pop(store, "q", 2)
    async with nothing_changes(store):
        assert await error_of(ack(store, answers[2], None)) == "lease_expired"
