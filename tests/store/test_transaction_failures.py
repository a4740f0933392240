"""All or none: one bad operation, or one lease that is not live, leaves nothing behind."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from monarq.clock import ManualClock
from monarq.errors import TransactionFailedError
from monarq.model import Ack, Push, PushItem
from monarq.store import Store
from tests.store.calls import ack, ack_of, next_items, pop, push, push_many, transaction
from tests.store.conftest import OpenStore
from tests.store.scenarios import every, nothing_changes, stored_payloads
from tests.store.transaction_scene import Scene, make_scene

pytestmark = pytest.mark.smoke

BadOperation = Callable[[Scene, Store], Awaitable[Push | Ack]]


async def full_queue(scene: Scene, store: Store) -> Push:
    return Push([PushItem("q", b"never"), PushItem("full", b"never")])


async def wrong_kind(scene: Scene, store: Store) -> Push:
    return Push([PushItem("q", b"never"), PushItem("q", b"never", priority=3)])


async def partition_of_a_work_queue(scene: Scene, store: Store) -> Push:
    return Push([PushItem("w", b"never", partition="p")])


async def taken_derived_id(scene: Scene, store: Store) -> Push:
    return Push([PushItem("q", b"never", transaction_id=f"{scene.first.partition_id}-99")])


async def unknown_partition(scene: Scene, store: Store) -> Ack:
    return Ack(transaction_id="t", partition_id=987_654, lease_id=scene.messages.lease_id)


async def unknown_message(scene: Scene, store: Store) -> Ack:
    return Ack(
        transaction_id="none",
        partition_id=scene.first.partition_id,
        lease_id=scene.messages.lease_id,
    )


async def made_up_lease(scene: Scene, store: Store) -> Ack:
    return ack_of(scene.first, "99999-0123456789abcdef")


async def foreign_lease(scene: Scene, store: Store) -> Ack:
    return ack_of(scene.first, scene.items.lease_id)


async def foreign_group(scene: Scene, store: Store) -> Ack:
    return ack_of(scene.first, scene.messages.lease_id, group="another")


async def not_in_the_lease(scene: Scene, store: Store) -> Ack:
    return Ack(
        transaction_id=f"{scene.first.partition_id}-5",
        partition_id=scene.first.partition_id,
        lease_id=scene.messages.lease_id,
    )


async def a_whole_lease_that_is_unknown(scene: Scene, store: Store) -> Ack:
    return Ack(lease_id="99999-0123456789abcdef")


async def an_item_that_was_never_leased(scene: Scene, store: Store) -> Ack:
    [waiting, *_] = await next_items(store, "w")
    return Ack(transaction_id=waiting.transaction_id, partition_id=waiting.partition_id)


@pytest.mark.parametrize("at", [0, 3, 7])
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (full_queue, "queue_full"),
        (wrong_kind, "invalid_request"),
        (partition_of_a_work_queue, "invalid_request"),
        (taken_derived_id, "invalid_request"),
        (unknown_partition, "not_found"),
        (unknown_message, "not_found"),
        (made_up_lease, "lease_unknown"),
        (foreign_lease, "lease_foreign"),
        (foreign_group, "lease_foreign"),
        (not_in_the_lease, "not_in_lease"),
        (a_whole_lease_that_is_unknown, "lease_unknown"),
        (an_item_that_was_never_leased, "lease_expired"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_one_bad_operation_leaves_nothing_behind_wherever_it_stands(
    store: Store, clock: ManualClock, make: BadOperation, code: str, at: int
) -> None:
    scene = await make_scene(store, clock)
    bad = await make(scene, store)
    operations = scene.good
    operations.insert(at, bad)
    async with nothing_changes(store):
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, *operations)
        assert caught.value.cause.code == code
        assert caught.value.operation == at
    await transaction(store, *scene.good)


async def test_a_second_answer_to_one_message_in_a_transaction_fails_all_of_it(
    store: Store, clock: ManualClock
) -> None:
    scene = await make_scene(store, clock)
    async with nothing_changes(store):
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, *scene.good, ack_of(scene.first, scene.messages.lease_id))
        assert (caught.value.operation, caught.value.cause.code) == (7, "already_acked")


async def test_a_stale_consumer_cannot_commit_after_its_partition_was_leased_again(
    store: Store, clock: ManualClock
) -> None:
    scene = await make_scene(store, clock)
    clock.advance(300)
    async with nothing_changes(store):
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, *scene.good)
        assert (caught.value.operation, caught.value.cause.code) == (1, "lease_expired")
    assert [m.seq for m in (await pop(store, "q", 2)).messages] == [1, 2]
    async with nothing_changes(store):
        with pytest.raises(TransactionFailedError) as caught:
            await transaction(store, *scene.good)
        assert (caught.value.operation, caught.value.cause.code) == (1, "lease_taken_over")


async def test_of_two_consumers_with_the_same_message_one_transaction_commits(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await push_many(store, "q", 5)
    for n in range(5):
        old = await pop(store, "q", lease_seconds=10)
        clock.advance(10)
        new = await pop(other, "q")
        outcomes = await asyncio.gather(
            transaction(store, Ack(lease_id=old.lease_id), Push([PushItem("out", b"old")])),
            transaction(other, Ack(lease_id=new.lease_id), Push([PushItem("out", b"new")])),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], TransactionFailedError)
        assert not isinstance(outcomes[1], BaseException)
        assert len(await every(store.list_messages, "out")) == n + 1
    assert await stored_payloads(store, "out") == [b"new"] * 5


async def test_every_required_lease_must_be_live(store: Store, clock: ManualClock) -> None:
    scene = await make_scene(store, clock)
    for queue in ("ended", "expired"):
        await push(store, queue)
    ended = await pop(store, "ended")
    assert ended.lease_id
    await ack(store, ended.messages[0], ended.lease_id)
    expired = await pop(store, "expired", lease_seconds=1)
    assert expired.lease_id
    clock.advance(1)
    assert scene.messages.lease_id
    assert scene.items.lease_id
    live = [scene.messages.lease_id, scene.items.lease_id]
    async with nothing_changes(store):
        for bad, code in (
            (ended.lease_id, "lease_unknown"),
            (expired.lease_id, "lease_expired"),
            ("99999-0123456789abcdef", "lease_unknown"),
            (scene.messages.lease_id[:-1] + "x", "lease_unknown"),
            ("nonsense", "lease_unknown"),
        ):
            for required in ([bad], [*live, bad], [bad, *live]):
                with pytest.raises(TransactionFailedError) as caught:
                    await transaction(store, *scene.good, required_leases=required)
                assert caught.value.operation is None
                assert caught.value.cause.code == code
    await transaction(store, *scene.good, required_leases=live)


async def test_a_required_lease_alone_fences_a_push(store: Store, clock: ManualClock) -> None:
    await push(store, "in")
    old = await pop(store, "in", lease_seconds=10)
    assert old.lease_id
    await transaction(store, Push([PushItem("out", b"1")]), required_leases=[old.lease_id])
    clock.advance(10)
    with pytest.raises(TransactionFailedError):
        await transaction(store, Push([PushItem("out", b"2")]), required_leases=[old.lease_id])
    assert await stored_payloads(store, "out") == [b"1"]
