"""Fencing: every lease that does not entitle its bearer meets its own error and changes nothing."""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError, TransactionFailedError
from monarq.ids import parse_lease_id
from monarq.model import Ack, AckStatus, Message, Seek, SeekTo
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
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
from tests.store.scenarios import (
    COMPLETED,
    DEAD,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    drain,
    let_time_work,
    nothing_changes,
    stats,
)

EVERY_STATUS = list(AckStatus)


async def error_of(call: Awaitable[object]) -> str:
    with pytest.raises(MonarqError) as caught:
        await call
    return caught.value.code


async def check_refused(
    store: Store, message: Message, lease: str | None, code: str, group: str = "__QUEUE_MODE__"
) -> None:
    """With every status, alone and in a transaction, and nothing changes."""
    async with nothing_changes(store):
        for status in EVERY_STATUS:
            refused = await error_of(ack(store, message, lease, status, group=group))
            assert refused == code, f"{status}: {refused}, not {code}"
        request = Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=lease,
            group=group,
        )
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, request)
        assert caught.value.cause.code == code


def wrong_token(lease: str) -> str:
    number, token = parse_lease_id(lease)
    return f"{number}-{'0' * 16 if token != '0' * 16 else '1' * 16}"


# --- ordered queues ---


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
    await pop(store, "q")
    await check_refused(store, popped.messages[0], popped.lease_id, "lease_taken_over")


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
    await push_many(store, "q", 4)
    first = await pop(store, "q", 3, lease_seconds=10)
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
        request = Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=lease,
        )
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
    await store.seek(Seek(group="g", queue="q", partition=partition, **target))
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
    await store.seek(Seek(group="g", queue="q", partition="a", to=SeekTo.START))
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
    await check_refused(store, by_partition["a"][0], popped.lease_id, "lease_taken_over")
    again = await pop(store, "q", 6, partitions=3)
    assert [(m.partition, m.seq, m.attempts) for m in again.messages] == [
        ("b", 1, 2),
        ("c", 1, 2),
        ("c", 2, 2),
    ]
    await check_refused(store, by_partition["c"][0], popped.lease_id, "lease_taken_over")
    await ack(store, message, lease)


async def test_a_wide_lease_alone_answers_only_the_partitions_that_are_still_under_it(
    store: Store,
) -> None:
    for partition in "ab":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 4, partitions=2, group="g")
    assert popped.lease_id
    await store.seek(Seek(group="g", queue="q", partition="a", to=SeekTo.START))
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
    await store.seek(Seek(group="g", queue="q", to=SeekTo.START))
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


# --- items ---


async def work_queue(store: Store, count: int) -> None:
    await store.configure("w", kind=WORK, options={"maxAttempts": 10})
    await push_many(store, "w", count)


async def test_an_items_lease_past_its_deadline_is_expired_settled_or_not(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w", lease_seconds=10)
    clock.advance(10)
    await check_refused(store, item, lease, "lease_expired")
    await let_time_work(store)
    await check_refused(store, item, lease, "lease_expired")
    await check_refused(store, item, None, "lease_expired")


async def test_an_items_lease_that_was_taken_over_is_refused_as_such(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 1)
    old, old_lease = await pop_one(store, "w", lease_seconds=10)
    clock.advance(10)
    new, new_lease = await pop_one(store, "w")
    assert (new.id, new.attempts) == (old.id, 2)
    await check_refused(store, old, old_lease, "lease_taken_over")
    await ack(store, new, new_lease)
    await check_refused(store, old, old_lease, "lease_taken_over")


@pytest.mark.parametrize("status", [COMPLETED, FAILED, RETRY, RELEASE, DEAD])
async def test_an_item_answered_once_was_acked_already(store: Store, status: AckStatus) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status)
    await check_refused(store, item, lease, "already_acked")


@pytest.mark.parametrize("status", [FAILED, RETRY, RELEASE])
async def test_an_item_answered_and_then_cancelled_was_acked_already(
    store: Store, status: AckStatus
) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, status)
    await store.cancel_item(item.id)
    await check_refused(store, item, lease, "already_acked")


async def test_a_live_lease_of_another_item_is_foreign_and_so_are_those_of_the_other_kind(
    store: Store,
) -> None:
    await work_queue(store, 2)
    await push(store, "q")
    one, lease_one = await pop_one(store, "w")
    two, lease_two = await pop_one(store, "w")
    message, lease = await pop_one(store, "q")
    await check_refused(store, one, lease_two, "lease_foreign")
    await check_refused(store, two, lease, "lease_foreign")
    await check_refused(store, message, lease_one, "lease_foreign")
    await ack(store, one, lease_one)
    await ack(store, two, lease_two)
    await ack(store, message, lease)


async def test_items_under_one_lease_are_answered_one_by_one_and_fenced_one_by_one(
    store: Store, clock: ManualClock
) -> None:
    await work_queue(store, 3)
    popped = await pop(store, "w", 3, lease_seconds=10)
    assert popped.lease_id
    first, second, third = popped.messages
    assert (await ack(store, second, popped.lease_id)).lease_released
    await check_refused(store, second, popped.lease_id, "already_acked")
    await ack(store, first, popped.lease_id, RELEASE)
    again, again_lease = await pop_one(store, "w")
    assert again.id == first.id
    await check_refused(store, first, popped.lease_id, "lease_foreign")
    await renew(store, popped.lease_id, 60)
    clock.advance(59)
    assert (await ack(store, third, popped.lease_id)).lease_released
    await check_refused(store, first, popped.lease_id, "lease_taken_over")
    await ack(store, again, again_lease)


async def test_acks_of_items_in_one_call_are_fenced_in_their_order(store: Store) -> None:
    await work_queue(store, 3)
    (first, _), (second, _), (third, lease) = [await pop_one(store, "w") for _ in range(3)]
    answers = await store.ack(
        [
            Ack(transaction_id=item.id, partition_id=item.partition_id, lease_id=lease)
            for item in (first, third, second)
        ]
    )
    assert [code_of(answer) for answer in answers] == ["lease_foreign", None, "lease_unknown"]


@pytest.mark.parametrize("is_on_item", [False, True])
async def test_acks_of_messages_and_items_in_one_call_are_fenced_in_their_order(
    store: Store, is_on_item: bool
) -> None:
    await work_queue(store, 2)
    for partition in "ab":
        await push(store, "q", partition=partition)
    (item, on_item), (other_item, _) = [await pop_one(store, "w") for _ in range(2)]
    (message, on_message), (other, _) = [await pop_one(store, "q") for _ in range(2)]
    lease, targets, then = (
        (on_item, (message, item, other), "lease_taken_over")
        if is_on_item
        else (on_message, (item, message, other_item), "lease_unknown")
    )
    answers = await store.ack(
        [Ack(transaction_id=t.id, partition_id=t.partition_id, lease_id=lease) for t in targets]
    )
    assert [code_of(answer) for answer in answers] == ["lease_foreign", None, then]


async def test_a_made_up_lease_on_an_item_is_unknown(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    number, token = parse_lease_id(lease)
    for made_up in (wrong_token(lease), f"{number + 1}-{token}", "nonsense"):
        await check_refused(store, item, made_up, "lease_unknown")
    await ack(store, item, lease)


async def test_an_item_that_is_not_there_is_not_found(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    for transaction_id in ("none", f"{item.partition_id}-99"):
        request = Ack(transaction_id=transaction_id, partition_id=item.partition_id, lease_id=lease)
        async with nothing_changes(store):
            [outcome] = await store.ack([request])
            assert code_of(outcome) == "not_found"


async def test_an_items_lease_ended_by_cancel_is_expired(store: Store) -> None:
    await work_queue(store, 1)
    item, lease = await pop_one(store, "w")
    await store.cancel_item(item.id)
    await check_refused(store, item, lease, "lease_expired")
    assert await error_of(renew(store, lease, 60)) == "lease_unknown"


async def test_an_item_that_was_never_leased_cannot_be_answered(store: Store) -> None:
    await work_queue(store, 2)
    _, lease = await pop_one(store, "w")
    waiting = await store.find_item("w", (await store.next_items("w"))[0].transaction_id)
    async with nothing_changes(store):
        for bearer, code in ((lease, "lease_foreign"), (None, "lease_expired")):
            request = Ack(
                transaction_id=waiting.transaction_id,
                partition_id=waiting.partition_id,
                lease_id=bearer,
            )
            [outcome] = await store.ack([request])
            assert code_of(outcome) == code


async def test_an_items_lease_id_alone_answers_all_and_is_unknown_after(store: Store) -> None:
    await work_queue(store, 3)
    popped = await pop(store, "w", 3)
    await ack(store, popped.messages[0], popped.lease_id)
    acked = await ack_all(store, popped)
    assert (acked.count, acked.lease_released) == (2, True)
    async with nothing_changes(store):
        assert await error_of(ack_all(store, popped)) == "lease_unknown"


async def test_an_item_leased_twice_by_two_stores_is_completed_once(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await work_queue(store, 4)
    for _ in range(4):
        old, old_lease = await pop_one(store, "w", lease_seconds=10)
        clock.advance(10)
        new, new_lease = await pop_one(other, "w")
        outcomes = await asyncio.gather(
            ack(store, old, old_lease), ack(other, new, new_lease), return_exceptions=True
        )
        assert [code_of(outcome) for outcome in outcomes] == ["lease_taken_over", None]  # type: ignore[arg-type]
    assert (await stats(store, "w")).states["done"] == 4


async def test_without_a_lease_id_a_message_that_was_not_delivered_is_under_no_lease(
    store: Store,
) -> None:
    answers = await push_many(store, "q", 3)
    await pop(store, "q", 2)
    async with nothing_changes(store):
        assert await error_of(ack(store, answers[2], None)) == "lease_expired"
