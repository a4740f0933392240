"""Acks and the pops after them in one call: as if they had been two, and with one commit."""

import asyncio
from collections import defaultdict
from collections.abc import Callable

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.errors import MonarqError
from monarq.model import Ack, Acked, Pop, Popped, PushItem
from monarq.store import Store
from tests.store.calls import ack_of, code_of, pop, push_items, push_many
from tests.store.conftest import OpenStore, Place
from tests.store.scenarios import FAILED, WORK, drain, numbers, stats

ByLease = Callable[[Popped], list[Ack]]


def whole(popped: Popped) -> list[Ack]:
    return [Ack(lease_id=popped.lease_id)]


def each(popped: Popped) -> list[Ack]:
    return [ack_of(message, popped.lease_id) for message in popped.messages]


both_ways = pytest.mark.parametrize("answers", [whole, each])


def good(outcomes: list[Popped | MonarqError]) -> list[Popped]:
    return [one for one in outcomes if isinstance(one, Popped)]


@both_ways
async def test_pops_find_what_the_acks_before_them_freed(store: Store, answers: ByLease) -> None:
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 2)
    acked, [then] = await store.ack_and_pop(answers(popped), [Pop(queue="q", batch=2)])
    assert isinstance(acked[-1], Acked)
    assert acked[-1].lease_released
    assert isinstance(then, Popped)
    assert numbers(then) == [3, 4]
    assert then.lease_id not in (None, popped.lease_id)
    acked, [last, none] = await store.ack_and_pop(answers(then), [Pop(queue="q")] * 2)
    assert all(isinstance(one, Acked) for one in acked)
    assert isinstance(last, Popped)
    assert numbers(last) == [5]
    assert isinstance(none, Popped)
    assert none.messages == []


def dealt_out(partitions: int, length: int) -> list[PushItem]:
    """So many messages for each of so many partitions, numbered in each."""
    return [
        PushItem("q", b"%d" % n, partition=f"p{p}")
        for n in range(length)
        for p in range(partitions)
    ]


@both_ways
async def test_from_message_to_message_each_partition_is_delivered_in_order_and_once(
    store: Store, answers: ByLease
) -> None:
    partitions, length = 7, 5
    items = dealt_out(partitions, length)
    await push_items(store, *items)
    seen: dict[str, list[int]] = defaultdict(list)
    acks: list[Ack] = []
    for _ in range(length + 1):
        acked, popped = await store.ack_and_pop(acks, [Pop(queue="q")] * partitions)
        assert all(isinstance(one, Acked) and one.lease_released for one in acked)
        assert len(acked) == len(acks)
        acks = []
        for one in good(popped):
            for message in one.messages:
                seen[message.partition].append(int(message.payload))
            if one.messages:
                acks += answers(one)
    assert seen == {f"p{p}": list(range(length)) for p in range(partitions)}
    assert (await stats(store, "q")).completed == partitions * length


async def test_acks_are_answered_in_their_order_and_a_bad_one_spoils_only_itself(
    store: Store, clock: ManualClock
) -> None:
    await push_items(store, *[PushItem("q", b"1", partition=f"p{n}") for n in range(4)])
    late = await pop(store, "q", lease_seconds=1)
    clock.advance(2)
    first, second = await pop(store, "q"), await pop(store, "q")
    acks = [
        *whole(second),
        Ack(lease_id=late.lease_id),
        Ack(lease_id="999999999-0123456789abcdef"),
        *whole(first),
        *whole(first),
    ]
    acked, [popped] = await store.ack_and_pop(acks, [Pop(queue="q")])
    assert [code_of(one) for one in acked] == [
        None, "lease_expired", "lease_unknown", None, "lease_unknown",
    ]  # fmt: skip
    partitions = [one.partition for one in acked if isinstance(one, Acked)]
    assert partitions == [second.messages[0].partition, first.messages[0].partition]
    assert isinstance(popped, Popped)
    assert popped.messages


async def test_a_malformed_ack_spoils_neither_the_others_nor_the_pops(store: Store) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q")
    acks = [Ack(), *whole(popped), Ack(transaction_id="x", lease_id=popped.lease_id)]
    acked, [then] = await store.ack_and_pop(acks, [Pop(queue="q")])
    assert [code_of(one) for one in acked] == ["invalid_request", None, "invalid_request"]
    assert isinstance(then, Popped)
    assert numbers(then) == [2]


async def test_what_is_told_to_fail_is_there_again_for_the_pops(store: Store) -> None:
    await store.configure("q", options={"retryLimit": 1, "retryDelay": 0})
    await push_many(store, "q", 2)
    popped = await pop(store, "q")
    for expected in (1, 2):
        fails = Ack(status=FAILED, lease_id=popped.lease_id, error="no")
        [acked], [then] = await store.ack_and_pop([fails], [Pop(queue="q")])
        assert isinstance(acked, Acked)
        assert acked.dead == expected - 1
        assert isinstance(then, Popped)
        assert numbers(then) == [expected]
        popped = then


async def test_a_pop_that_is_refused_leaves_the_acks_and_the_other_pops(store: Store) -> None:
    await store.configure("jobs", kind=WORK)
    await push_many(store, "q", 2)
    popped = await pop(store, "q")
    pops = [Pop(queue="jobs", group="g"), Pop(queue="q"), Pop(queue="q", batch=0)]
    [acked], answers = await store.ack_and_pop(whole(popped), pops)
    assert isinstance(acked, Acked)
    assert [code_of(one) for one in answers] == ["invalid_request", None, "invalid_request"]
    assert numbers(good(answers)[0]) == [2]


async def test_acks_of_items_and_of_messages_go_with_pops_of_both(store: Store) -> None:
    await store.configure("jobs", kind=WORK)
    await push_many(store, "jobs", 3)
    await push_many(store, "q", 3)
    item, message = await pop(store, "jobs"), await pop(store, "q")
    acks = [*whole(item), *whole(message)]
    acked, answers = await store.ack_and_pop(acks, [Pop(queue="jobs"), Pop(queue="q")])
    assert [one.queue for one in acked if isinstance(one, Acked)] == ["jobs", "q"]
    item, message = good(answers)
    assert (numbers(item), numbers(message)) == ([2], [2])
    # Of items, while only messages are asked for.
    [acked_item], [then] = await store.ack_and_pop(whole(item), [Pop(queue="q", group="new")])
    assert isinstance(acked_item, Acked)
    assert isinstance(then, Popped)
    assert numbers(then) == [1]
    assert numbers(await drain(store, "jobs")) == [3]


async def test_without_acks_it_is_a_pop_and_without_pops_an_ack(store: Store) -> None:
    await push_many(store, "q", 2)
    none, [popped] = await store.ack_and_pop([], [Pop(queue="q")])
    assert none == []
    assert isinstance(popped, Popped)
    [acked], nobody = await store.ack_and_pop(whole(popped), [])
    assert isinstance(acked, Acked)
    assert nobody == []
    assert numbers(await pop(store, "q")) == [2]


async def test_what_nobody_can_read_fails_its_pop_and_not_the_acks(
    store: Store, open_another: OpenStore
) -> None:
    await store.configure("secret", options={"encryptionEnabled": True})
    await push_many(store, "secret", 1)
    await push_many(store, "q", 2)
    keyless = await open_another(keys=())
    popped = await pop(keyless, "q")
    pops = [Pop(queue="secret"), Pop(queue="q")]
    [acked], answers = await keyless.ack_and_pop(whole(popped), pops)
    assert isinstance(acked, Acked)
    assert [code_of(one) for one in answers] == ["encryption_key", None]
    assert (await pop(store, "secret")).messages


async def test_what_was_answered_is_there_after_a_restart(
    store: Store, open_another: OpenStore
) -> None:
    await push_many(store, "q", 3)
    popped = await pop(store, "q")
    _, [then] = await store.ack_and_pop(whole(popped), [Pop(queue="q")])
    await store.close()
    other = await open_another()
    assert (await pop(other, "q")).messages == []
    assert isinstance(then, Popped)
    [acked], [last] = await other.ack_and_pop(each(then), [Pop(queue="q")])
    assert isinstance(acked, Acked)
    assert isinstance(last, Popped)
    assert numbers(last) == [3]


@both_ways
@pytest.mark.parametrize("place", ["postgres-newest"], indirect=True)
async def test_postgres_makes_one_transaction_of_it(
    store: Store, place: Place, answers: ByLease
) -> None:
    await push_many(store, "q", 2)
    popped = await pop(store, "q")
    await store.ack_and_pop(answers(popped), [Pop(queue="q")])
    connection = await asyncpg.connect(place.address)
    try:
        acked = await connection.fetchval(f"select xmin::text from {place.schema}.deliveries")
        leased = await connection.fetchval(
            f"select xmin::text from {place.schema}.cursors where lease_no is not null"
        )
    finally:
        await connection.close()
    assert acked == leased


@both_ways
async def test_two_brokers_at_once_lose_nothing_and_deliver_nothing_twice(
    store: Store, open_another: OpenStore, answers: ByLease
) -> None:
    partitions, length = 12, 20
    items = dealt_out(partitions, length)
    await push_items(store, *items)
    seen: dict[str, list[int]] = defaultdict(list)

    async def consume(one: Store) -> None:
        acks: list[Ack] = []
        while sum(map(len, seen.values())) < len(items) or acks:
            acked, popped = await one.ack_and_pop(acks, [Pop(queue="q", batch=2)] * 3)
            assert [one for one in acked if not isinstance(one, Acked)] == []
            acks = []
            for got in good(popped):
                for message in got.messages:
                    seen[message.partition].append(int(message.payload))
                if got.messages:
                    acks += answers(got)

    other = await open_another()
    await asyncio.gather(*(consume(one) for one in (store, other, store, other)))
    assert seen == {f"p{p}": list(range(length)) for p in range(partitions)}
    assert (await stats(store, "q")).completed == len(items)
