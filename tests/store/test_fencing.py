"""Fencing: every lease that does not entitle its bearer meets its own error and changes nothing."""

import asyncio
from typing import Any

import pytest

from monarq.clock import ManualClock
from monarq.ids import parse_lease_id
from monarq.model import Ack, AckStatus, SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
    ack_of,
    code_of,
    pop,
    pop_one,
    push,
    push_many,
    renew,
    seqs,
    transaction,
)
from tests.store.conftest import OpenStore
from tests.store.refusals import EVERY_STATUS, check_refused, error_of, wrong_token
from tests.store.scenarios import DEAD, let_time_work, nothing_changes, stats


async def test_a_partition_that_never_was_is_not_found_whatever_the_lease(store: Store) -> None:
    await push(store, "q")
    _, lease = await pop_one(store, "q")
    for bearer in (lease, "999-0123456789abcdef", "nonsense", None):
        async with nothing_changes(store):
            request = Ack(transaction_id="t", partition_id=987_654_321, lease_id=bearer)
            [outcome] = await store.ack([request])
            assert code_of(outcome) == "not_found"


async def test_a_lease_past_its_deadline_is_expired_before_anybody_noticed(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    await check_refused(store, message, lease, "lease_expired")


async def test_a_lease_is_good_until_the_last_microsecond(store: Store, clock: ManualClock) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(9.999999)
    assert (await ack(store, message, lease)).lease_released


async def test_a_lease_whose_expiry_was_settled_by_the_lifecycle_is_still_expired(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(11)
    await let_time_work(store)
    await check_refused(store, message, lease, "lease_expired")


async def test_a_lease_whose_expiry_was_settled_by_a_pop_that_got_nothing_is_still_expired(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"windowBuffer": 0})
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(11)
    await store.configure("q", options={"windowBuffer": 5})
    await push(store, "q")
    assert (await pop(store, "q")).messages == []
    await check_refused(store, message, lease, "lease_expired")


async def test_a_lease_that_was_taken_over_is_refused_as_such_even_when_the_new_one_ended(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 3)
    old, old_lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(10)
    new, new_lease = await pop_one(store, "q")
    assert (new.seq, new.attempts) == (1, 2)
    await check_refused(store, old, old_lease, "lease_taken_over")
    assert (await ack(store, new, new_lease)).lease_released
    await check_refused(store, old, old_lease, "lease_taken_over")
    assert (await stats(store, "q")).completed == 1


async def test_two_consumers_of_one_message_never_both_succeed(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await push_many(store, "q", 10)
    for seq in range(1, 11):
        old, old_lease = await pop_one(store, "q", lease_seconds=10)
        clock.advance(10)
        new, new_lease = await pop_one(other, "q")
        assert old.seq == new.seq == seq
        outcomes = await asyncio.gather(
            ack(store, old, old_lease), ack(other, new, new_lease), return_exceptions=True
        )
        assert [code_of(outcome) for outcome in outcomes] == ["lease_taken_over", None]  # type: ignore[arg-type]
    assert (await stats(store, "q")).completed == 10


async def test_an_ack_repeated_at_once_from_two_stores_succeeds_once(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await push_many(store, "q", 5)
    for _ in range(5):
        message, lease = await pop_one(store, "q")
        outcomes = await asyncio.gather(
            *(ack(through, message, lease) for through in (store, other, store, other)),
            return_exceptions=True,
        )
        codes = [code_of(outcome) for outcome in outcomes]  # type: ignore[arg-type]
        assert sorted(codes, key=str) == [None, *["already_acked"] * 3]
    assert (await stats(store, "q")).completed == 5


async def test_an_ack_repeated_after_its_lease_ended_was_acked_already(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 4)
    popped = await pop(store, "q", 2, lease_seconds=60)
    assert popped.lease_id
    await ack_all(store, popped)
    for message in popped.messages:
        await check_refused(store, message, popped.lease_id, "already_acked")
    clock.advance(61)
    await check_refused(store, popped.messages[0], popped.lease_id, "already_acked")
    for _ in range(2):
        message, lease = await pop_one(store, "q")
        await check_refused(store, popped.messages[0], popped.lease_id, "already_acked")
        await ack(store, message, lease)
    await check_refused(store, popped.messages[1], popped.lease_id, "already_acked")


@pytest.mark.parametrize("status", EVERY_STATUS)
async def test_a_second_answer_under_the_same_lease_is_refused_whatever_the_first_was(
    store: Store, status: AckStatus
) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2)
    await ack(store, popped.messages[0], popped.lease_id, status)
    await check_refused(store, popped.messages[0], popped.lease_id, "already_acked")
    await check_refused(store, popped.messages[0], None, "already_acked")
    assert (await ack(store, popped.messages[1], popped.lease_id)).lease_released


async def test_a_message_resolved_under_an_earlier_lease_was_acked_already(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 6)
    first = await pop(store, "q", 6, lease_seconds=10)
    await ack(store, first.messages[0], first.lease_id)
    await ack(store, first.messages[2], first.lease_id, DEAD)
    clock.advance(10)
    second = await pop(store, "q", 3)
    assert [message.seq for message in second.messages] == [2, 4]
    for resolved in (first.messages[0], first.messages[2]):
        await check_refused(store, resolved, second.lease_id, "already_acked")


async def test_a_message_behind_the_last_one_delivered_is_not_in_the_lease(store: Store) -> None:
    answers = await push_many(store, "q", 3)
    popped = await pop(store, "q", 2)
    async with nothing_changes(store):
        for status in EVERY_STATUS:
            code = await error_of(ack(store, answers[2], popped.lease_id, status))
            assert code == "not_in_lease"


async def test_a_transaction_id_that_the_partition_does_not_have_is_not_found(
    store: Store,
) -> None:
    own = await push(store, "q", transaction_id="own")
    await push(store, "q", partition="other", transaction_id="elsewhere")
    popped = await pop(store, "q")
    made_up = [f"{own.partition_id}-2", f"{own.partition_id + 1}-1", "elsewhere", "none", "1-1-1"]
    async with nothing_changes(store):
        for transaction_id in made_up:
            [outcome] = await store.ack(
                [
                    Ack(
                        transaction_id=transaction_id,
                        partition_id=own.partition_id,
                        lease_id=popped.lease_id,
                    )
                ]
            )
            assert code_of(outcome) == "not_found", transaction_id


async def test_a_live_lease_of_another_partition_is_foreign(store: Store) -> None:
    for partition in "ab":
        await push_many(store, "q", 2, partition=partition)
    a, lease_a = await pop_one(store, "q", partition="a")
    b, lease_b = await pop_one(store, "q", partition="b")
    await check_refused(store, a, lease_b, "lease_foreign")
    await check_refused(store, b, lease_a, "lease_foreign")
    await ack(store, a, lease_a)
    await ack(store, b, lease_b)


async def test_a_live_lease_of_another_queue_is_foreign_though_that_was_never_leased(
    store: Store,
) -> None:
    await push(store, "q1")
    other = await push(store, "q2")
    _, lease = await pop_one(store, "q1")
    async with nothing_changes(store):
        assert await error_of(ack(store, other, lease)) == "lease_foreign"


async def test_a_live_lease_of_another_group_is_foreign(store: Store) -> None:
    await push_many(store, "q", 2)
    one, lease_one = await pop_one(store, "q", group="g1")
    _, lease_two = await pop_one(store, "q", group="g2")
    await check_refused(store, one, lease_two, "lease_foreign", group="g1")
    await check_refused(store, one, lease_one, "lease_foreign", group="g2")
    await check_refused(store, one, lease_one, "lease_foreign", group="never seen")
    await ack(store, one, lease_one, group="g1")


async def test_an_expired_lease_of_another_partition_is_unknown_where_it_never_was(
    store: Store, clock: ManualClock
) -> None:
    for partition in "ab":
        await push(store, "q", partition=partition)
    _, lease_a = await pop_one(store, "q", partition="a", lease_seconds=10)
    b, _ = await pop_one(store, "q", partition="b", group="other", lease_seconds=60)
    clock.advance(10)
    await check_refused(store, b, lease_a, "lease_unknown")


async def test_a_made_up_lease_is_unknown(store: Store) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q")
    number, token = parse_lease_id(lease)
    for made_up in (
        wrong_token(lease),
        f"{number + 1}-{token}",
        f"{10**17}-{token}",
        "not a lease",
        "0-0123456789abcdef",
        "1-0123456789ABCDEF",
        "'; drop table cursors; --",
        "🎉",
    ):
        await check_refused(store, message, made_up, "lease_unknown")
    assert (await ack(store, message, lease)).lease_released


async def test_a_wrong_token_does_not_pass_in_any_call(store: Store) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    forged = wrong_token(lease)
    async with nothing_changes(store):
        assert await error_of(renew(store, forged, 60)) == "lease_unknown"
        [outcome] = await store.ack([Ack(lease_id=forged)])
        assert code_of(outcome) == "lease_unknown"
        request = ack_of(message, lease)
        code = await error_of(transaction(store, request, required_leases=[forged]))
        assert code == "transaction_failed"


@pytest.mark.parametrize("target", [{"to": SeekTo.START}, {"time": 1}, {"seq": 1}])
@pytest.mark.parametrize("partition", [None, "Default"])
async def test_a_lease_ended_by_a_seek_is_expired(
    store: Store, partition: str | None, target: dict[str, Any]
) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q", 2, group="g")
    await ack(store, popped.messages[1], popped.lease_id, group="g")
    await store.call(Seek(group="g", queue="q", partition=partition, **target))
    for message in popped.messages:
        await check_refused(store, message, popped.lease_id, "lease_expired", group="g")
    again = await pop(store, "q", 3, group="g")
    assert [message.seq for message in again.messages] == [1, 2, 3]
    await check_refused(store, popped.messages[0], popped.lease_id, "lease_taken_over", group="g")


async def test_a_seek_of_one_partition_or_group_leaves_the_leases_of_the_others(
    store: Store,
) -> None:
    for partition in "ab":
        await push(store, "q", partition=partition)
    a, lease_a = await pop_one(store, "q", partition="a", group="g")
    b, lease_b = await pop_one(store, "q", partition="b", group="g")
    other, lease_other = await pop_one(store, "q", partition="a", group="other")
    await store.call(Seek(group="g", queue="q", partition="a", to=SeekTo.START))
    await check_refused(store, a, lease_a, "lease_expired", group="g")
    await ack(store, b, lease_b, group="g")
    await ack(store, other, lease_other, group="other")


async def test_a_lease_ended_by_a_clear_is_expired(store: Store) -> None:
    await push_many(store, "q", 3)
    message, lease = await pop_one(store, "q")
    await store.clear_queue("q")
    await check_refused(store, message, lease, "lease_expired")


async def test_a_lease_on_a_deleted_queue_finds_no_partition(store: Store) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q")
    await store.delete_queue("q")
    await check_refused(store, message, lease, "not_found")
    await push(store, "q")
    await check_refused(store, message, lease, "not_found")


async def test_a_lease_of_a_deleted_group_answers_nothing_for_its_successor(
    store: Store,
) -> None:
    await push(store, "q")
    message, lease = await pop_one(store, "q", group="g")
    await store.delete_group("g", queue="q")
    await check_refused(store, message, lease, "lease_expired", group="g")
    await check_refused(store, message, wrong_token(lease), "lease_unknown", group="g")
    assert await seqs(store, "q", group="g") == [1]
    await check_refused(store, message, lease, "lease_taken_over", group="g")


async def test_the_last_lease_of_a_deleted_group_meets_what_it_would_have_met_before(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    first, overtaken = await pop_one(store, "q", group="g")
    await ack(store, first, overtaken, group="g")
    second, lease = await pop_one(store, "q", group="g")
    await ack(store, second, lease, group="g")
    await push(store, "elsewhere")
    _, foreign = await pop_one(store, "elsewhere", lease_seconds=10)
    await store.delete_group("g")
    await check_refused(store, second, lease, "already_acked", group="g")
    await check_refused(store, first, overtaken, "lease_taken_over", group="g")
    await check_refused(store, first, foreign, "lease_foreign", group="g")
    await check_refused(store, first, None, "lease_expired", group="g")
    clock.advance(6 * 86400)
    await let_time_work(store)
    await check_refused(store, second, lease, "already_acked", group="g")
    clock.advance(2 * 86400)
    await let_time_work(store)
    await push(store, "q")
    await check_refused(store, first, lease, "lease_unknown", group="g")
