"""Many answers to items in one call: each as if alone, in their order."""

from collections.abc import Sequence

import msgspec

from monarq.clock import ManualClock
from monarq.errors import (
    AlreadyAckedError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    NotFoundError,
)
from monarq.model import Ack, Acked, AckStatus, AttemptOutcome, ItemState, Message
from monarq.store import Store
from tests.store.calls import ack_of, pop, push_many
from tests.store.scenarios import COMPLETED, FAILED, RELEASE, WORK, stats
from tests.store.work_queue import work


def answers(messages: Sequence[Message], lease_id: str | None, *statuses: AckStatus) -> list[Ack]:
    return [
        ack_of(message, lease_id, status, result=message.payload)
        for message, status in zip(messages, statuses, strict=True)
    ]


def kinds(outcomes: Sequence[object]) -> list[type[object]]:
    return [type(outcome) for outcome in outcomes]


async def test_of_many_items_completed_at_once_those_that_the_lease_has_lost_are_refused(
    store: Store,
) -> None:
    await work(store, 5)
    popped = await pop(store, "w", 5)
    first, second, third, fourth, fifth = popped.messages
    await store.cancel_item(second.id)
    asked = answers([first, second, third, third, fourth], popped.lease_id, *[COMPLETED] * 5)
    assert kinds(await store.ack(asked)) == [
        Acked,
        LeaseExpiredError,
        Acked,
        AlreadyAckedError,
        Acked,
    ]
    states = [(await store.get_item(message.id)).state for message in popped.messages]
    assert states == [
        ItemState.DONE,
        ItemState.CANCELLED,
        ItemState.DONE,
        ItemState.DONE,
        ItemState.LEASED,
    ]
    for message in (first, third, fourth):
        [attempt] = (await store.get_item(message.id)).history
        assert (attempt.outcome, attempt.result) == (AttemptOutcome.COMPLETED, message.payload)
    row = await stats(store, "w")
    assert (row.states["done"], row.states["leased"], row.completed) == (3, 1, 3)
    wrong = msgspec.structs.replace(asked[0], transaction_id=f"{fifth.partition_id}-0{fifth.seq}")
    assert kinds(await store.ack([wrong, *asked[:1]])) == [NotFoundError, AlreadyAckedError]


async def test_different_answers_to_items_of_one_call_count_in_their_order(store: Store) -> None:
    await work(store, 4, maxAttempts=1)
    popped = await pop(store, "w", 4)
    a, b, c, d = popped.messages
    asked = answers(
        [a, b, c, a, b, d],
        popped.lease_id,
        FAILED,
        COMPLETED,
        RELEASE,
        COMPLETED,
        FAILED,
        COMPLETED,
    )
    outcomes = await store.ack(asked)
    assert kinds(outcomes) == [Acked, Acked, Acked, AlreadyAckedError, AlreadyAckedError, Acked]
    states = [(await store.get_item(message.id)).state for message in (a, b, c, d)]
    assert states == [ItemState.DEAD, ItemState.DONE, ItemState.READY, ItemState.DONE]
    row = await stats(store, "w")
    assert (row.states["done"], row.states["dead"], row.states["ready"]) == (2, 1, 1)


async def test_items_of_many_leases_completed_at_once_are_fenced_one_by_one(
    store: Store, clock: ManualClock
) -> None:
    await work(store, 6)
    lost = await pop(store, "w", 2, lease_seconds=10)
    clock.advance(10)
    again, others = await pop(store, "w", 2), await pop(store, "w", 4)
    assert [message.id for message in again.messages] == [message.id for message in lost.messages]
    asked = [
        *answers(lost.messages, lost.lease_id, COMPLETED, COMPLETED),
        *answers(others.messages[:3], others.lease_id, *[COMPLETED] * 3),
        *answers(again.messages, again.lease_id, COMPLETED, COMPLETED),
        ack_of(others.messages[0], others.lease_id, result=b'"second"'),
        ack_of(others.messages[3], again.lease_id, result=b"1"),
    ]
    assert kinds(await store.ack(asked)) == [
        *[LeaseTakenOverError] * 2,
        *[Acked] * 5,
        AlreadyAckedError,
        LeaseTakenOverError,
    ]
    for message in (*again.messages, *others.messages[:3]):
        attempt = (await store.get_item(message.id)).history[-1]
        assert (attempt.outcome, attempt.result) == (AttemptOutcome.COMPLETED, message.payload)
    row = await stats(store, "w")
    assert (row.states["done"], row.states["leased"], row.completed) == (5, 1, 5)


async def test_items_of_many_queues_and_leases_are_answered_in_one_call(store: Store) -> None:
    await store.configure("v", kind=WORK)
    await work(store, 3)
    await push_many(store, "v", 4)
    ours, other = await pop(store, "w", 3), await pop(store, "v", 2)
    last = await pop(store, "v", 2)
    asked = [
        *answers(ours.messages, ours.lease_id, COMPLETED, FAILED, COMPLETED),
        *answers(other.messages, last.lease_id, COMPLETED, COMPLETED),
        *answers(last.messages[:1], last.lease_id, COMPLETED),
    ]
    assert kinds(await store.ack(asked)) == [Acked] * 3 + [LeaseForeignError] * 2 + [Acked]
    for queue, done, leased in (("w", 2, 0), ("v", 1, 3)):
        row = await stats(store, queue)
        assert (row.states["done"], row.states["leased"]) == (done, leased)
