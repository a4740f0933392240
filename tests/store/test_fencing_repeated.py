"""An ack that is repeated because nobody knows whether it got through, when the partition has been
leased again: it was acked already if it was, and is taken over if another one may have done it."""

import msgspec
import pytest

from monarq.clock import ManualClock
from monarq.model import AckStatus, Message, Pop, SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import ack, ack_of, code_of, pop, pop_one, push, push_many
from tests.store.refusals import check_refused
from tests.store.scenarios import let_time_work

NOT_RESOLVING = [AckStatus.FAILED, AckStatus.RETRY, AckStatus.RELEASE]


async def test_an_ack_is_known_when_the_next_message_was_taken_along_with_it(store: Store) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q")
    done = ack_of(message, lease)
    _, [popped] = await store.ack_and_pop([done], [Pop(queue="q")])
    assert not isinstance(popped, Exception)
    assert [each.seq for each in popped.messages] == [2]
    [again], _ = await store.ack_and_pop([done], [Pop(queue="q")])
    assert code_of(again) == "already_acked"
    assert (await ack(store, popped.messages[0], popped.lease_id)).lease_released


async def test_an_ack_is_known_however_many_leases_were_given_since(store: Store) -> None:
    await push_many(store, "q", 12)
    popped = await pop(store, "q", 2)
    for message in popped.messages:
        await ack(store, message, popped.lease_id)
    for _ in range(9):
        await ack(store, *await pop_one(store, "q"))
    await pop_one(store, "q")
    for message in popped.messages:
        await check_refused(store, message, popped.lease_id, "already_acked")


@pytest.mark.parametrize("status", NOT_RESOLVING)
async def test_an_answer_is_known_while_its_message_is_delivered_again(
    store: Store, status: AckStatus
) -> None:
    await store.configure("q", options={"retry_delay": 0})
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, status)
    again, later = await pop_one(store, "q")
    assert again.seq == message.seq
    await check_refused(store, message, lease, "already_acked")
    await ack(store, again, later, status)
    await pop_one(store, "q")
    # Which of two answers counted is known of the last one only.
    await check_refused(store, message, lease, "lease_taken_over")
    await check_refused(store, message, later, "already_acked")


async def test_what_another_consumer_has_done_is_not_taken_for_ones_own(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3)
    late, lost = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    again, lease = await pop_one(store, "q")
    await ack(store, again, lease)
    for _ in range(2):
        await check_refused(store, late, lost, "lease_taken_over")
        await ack(store, *await pop_one(store, "q"))
    await check_refused(store, late, lost, "lease_taken_over")
    await check_refused(store, again, lease, "already_acked")


@pytest.mark.parametrize("settled_by", ["another pop", "the lifecycle"])
async def test_an_ack_is_known_when_the_lease_that_came_with_it_has_expired(
    store: Store, clock: ManualClock, settled_by: str
) -> None:
    """Nobody got the answer: neither that of the ack nor the next message."""
    await push_many(store, "q", 4)
    message, lease = await pop_one(store, "q")
    done = ack_of(message, lease)
    await store.ack_and_pop([done], [Pop(queue="q", batch=2, lease_seconds=10)])
    clock.advance(10)
    if settled_by == "another pop":
        await pop(store, "q", 2)
    else:
        await let_time_work(store)
    [again], _ = await store.ack_and_pop([done], [Pop(queue="q")])
    assert code_of(again) == "already_acked"


async def test_after_two_leases_that_were_lost_nobody_knows_of_those_before_them(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 4)
    first, lease = await pop_one(store, "q")
    await ack(store, first, lease)
    popped = await pop(store, "q", 2, lease_seconds=10)
    await ack(store, popped.messages[0], popped.lease_id)
    clock.advance(10)
    await pop_one(store, "q", lease_seconds=10)
    await check_refused(store, first, lease, "already_acked")
    clock.advance(10)
    await ack(store, *await pop_one(store, "q"))
    await check_refused(store, first, lease, "lease_taken_over")
    for message in popped.messages:
        await check_refused(store, message, popped.lease_id, "lease_taken_over")


async def test_between_two_leases_that_were_lost_each_one_has_answered_its_messages(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 4)
    lost, before = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease)
    _, after = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    again, _ = await pop_one(store, "q")
    assert (lost.seq, message.seq, again.seq) == (1, 1, 2)
    await check_refused(store, message, lease, "already_acked")
    await check_refused(store, lost, before, "lease_taken_over")
    await check_refused(store, message, after, "lease_taken_over")


@pytest.mark.parametrize("how", ["seek", "skip"])
async def test_a_lease_that_was_taken_away_has_answered_nothing(store: Store, how: str) -> None:
    await push_many(store, "q", 3)
    message, lease = await pop_one(store, "q", group="g")
    if how == "seek":
        await store.call(Seek(group="g", queue="q", to=SeekTo.START))
        await ack(store, *await pop_one(store, "q", group="g"), group="g")
    else:
        await store.skip("q", "g", "Default", message.seq, "not wanted")
    await pop_one(store, "q", group="g")
    await check_refused(store, message, lease, "lease_taken_over", group="g")


async def test_a_seek_back_makes_what_was_acked_undone(store: Store) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", group="g")
    await ack(store, message, lease, group="g")
    await store.call(Seek(group="g", queue="q", to=SeekTo.START))
    await check_refused(store, message, lease, "already_acked", group="g")
    again, later = await pop_one(store, "q", group="g")
    await check_refused(store, message, lease, "lease_taken_over", group="g")
    await ack(store, again, later, group="g")


async def test_leases_of_a_deleted_group_have_answered_nothing_of_its_successors(
    store: Store,
) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", group="g")
    await store.delete_group("g", queue="q")
    await ack(store, *await pop_one(store, "q", group="g"), group="g")
    await check_refused(store, message, lease, "lease_taken_over", group="g")


async def test_a_message_that_nobody_has_answered_is_taken_over(store: Store) -> None:
    [_, second, _] = await push_many(store, "q", 3)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease)
    later, _ = await pop_one(store, "q")
    assert later.seq == second.seq
    await check_refused(store, later, lease, "lease_taken_over")
    await check_refused(store, _unknown(message), lease, "lease_taken_over")


async def test_each_ack_of_one_call_is_told_for_itself(store: Store) -> None:
    await push_many(store, "q", 3, partition="a")
    await push(store, "q", partition="b")
    first, lease = await pop_one(store, "q", partition="a")
    other, elsewhere = await pop_one(store, "q", partition="b")
    await ack(store, first, lease)
    second, later = await pop_one(store, "q", partition="a")
    outcomes = await store.ack(
        [
            ack_of(first, lease),
            # Of another partition, and live there until the last one is answered.
            ack_of(first, elsewhere),
            ack_of(second, lease),
            ack_of(other, elsewhere),
            ack_of(second, later),
        ]
    )
    codes = [code_of(outcome) for outcome in outcomes]
    assert codes == ["already_acked", "lease_foreign", "lease_taken_over", None, None]


def _unknown(message: Message) -> Message:
    return msgspec.structs.replace(message, transaction_id="never pushed")
