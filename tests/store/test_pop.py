"""Pop: who gets what; one lease per partition and group, and how long it lasts."""

import asyncio
from collections import Counter

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError, LeaseExpiredError, MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Pop
from monarq.store import Store
from tests.store.calls import ack, ack_all, pop, pop_one, push, push_many, renew, seqs, unwrap
from tests.store.conftest import OpenStore
from tests.store.scenarios import WORK, drain, group_row, numbers, seqs_of

pytestmark = pytest.mark.smoke


async def test_a_pop_gives_the_next_messages_in_order_and_no_more_than_asked(
    store: Store,
) -> None:
    await push_many(store, "q", 10)
    for expected in ([1, 2, 3], [4, 5, 6], [7, 8, 9], [10], []):
        popped = await pop(store, "q", 3)
        assert seqs_of(popped) == numbers(popped) == expected
        if popped.messages:
            await ack_all(store, popped)


async def test_a_batch_crosses_the_bounds_of_pushes_and_may_begin_and_end_within_one(
    store: Store,
) -> None:
    for _ in range(4):
        await push_many(store, "q", 5)
    got: list[int] = []
    for batch in (3, 4, 9, 1, 3):
        popped = await pop(store, "q", batch)
        got += seqs_of(popped)
        await ack_all(store, popped)
    assert got == list(range(1, 21))


async def test_a_delivery_says_all_about_its_message(store: Store, clock: ManualClock) -> None:
    answer = await push(store, "q", b'{"a":1}', partition="p", transaction_id="t")
    pushed_at = clock.now()
    clock.advance(10)
    popped = await pop(store, "q", lease_seconds=30)
    [message] = popped.messages
    assert (message.queue, message.partition, message.partition_id) == (
        "q",
        "p",
        answer.partition_id,
    )
    assert (message.seq, message.transaction_id, message.id) == (1, "t", answer.message_id)
    assert (message.payload, message.created_at, message.attempts) == (b'{"a":1}', pushed_at, 1)
    assert popped.lease_until == clock.now() + 30 * SECOND


async def test_nothing_is_found_in_a_queue_that_is_empty_drained_or_missing(store: Store) -> None:
    await store.configure("empty")
    await push(store, "drained")
    await drain(store, "drained")
    for queue in ("empty", "drained", "missing"):
        popped = await pop(store, queue)
        assert (popped.messages, popped.lease_id, popped.next_at) == ([], None, None)
    assert [queue.name for queue in (await store.list_queues()).rows] == ["drained", "empty"]


async def test_one_lease_per_partition_and_group_until_it_ends(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 5)
    first = await pop(store, "q", 2, lease_seconds=60)
    again = await pop(store, "q", 2)
    assert (again.messages, again.lease_id) == ([], None)
    assert again.next_at == first.lease_until
    assert (await pop(store, "q", partition="Default")).messages == []
    clock.advance(59.999999)
    assert (await pop(store, "q")).messages == []
    await ack_all(store, first)
    assert await seqs(store, "q") == [3, 4, 5]


async def test_pops_at_once_get_different_partitions_and_none_is_leased_twice(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    for n in range(10):
        await push_many(store, "q", 2, partition=f"p{n}")
    popped = await asyncio.gather(*(pop(stores[n % 2], "q", 2) for n in range(15)))
    leased = Counter(message.partition for each in popped for message in each.messages)
    assert leased == Counter({f"p{n}": 2 for n in range(10)})
    assert len({each.lease_id for each in popped if each.lease_id}) == 10


async def test_requests_of_one_call_are_served_in_order(store: Store) -> None:
    await push_many(store, "q", 1, partition="a")
    await push_many(store, "q", 1, partition="b")
    outcomes = await store.pop([Pop(queue="q"), Pop(queue="none"), Pop(queue="q"), Pop(queue="q")])
    partitions = []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError)
        partitions.append([message.partition for message in outcome.messages])
    assert partitions == [["a"], [], ["b"], []]


async def test_requests_of_different_groups_in_one_call_each_get_the_partition(
    store: Store,
) -> None:
    await push_many(store, "q", 3)
    outcomes = await store.pop([Pop(queue="q", group=f"g{n}", batch=n) for n in (1, 2, 3)])
    for n, outcome in enumerate(outcomes, start=1):
        assert not isinstance(outcome, MonarqError)
        assert seqs_of(outcome) == list(range(1, n + 1))


async def test_a_bad_request_does_not_hurt_the_others_of_its_call(store: Store) -> None:
    await push(store, "q")
    bad, good = await store.pop([Pop(queue="q", batch=0), Pop(queue="q")])
    assert isinstance(bad, InvalidRequestError)
    assert not isinstance(good, MonarqError)
    assert seqs_of(good) == [1]


# --- leases ---


async def test_the_lease_lasts_as_long_as_the_queue_says_unless_the_pop_says_otherwise(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"leaseTime": 7.5})
    await push(store, "q")
    popped = await pop(store, "q", group="g1")
    assert popped.lease_until == clock.now() + 7_500_000
    popped = await pop(store, "q", group="g2", lease_seconds=0.25)
    assert popped.lease_until == clock.now() + 250_000


async def test_lease_ids_are_unique_and_their_numbers_grow(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    leases = []
    for n in range(6):
        await push(store, "q")
        popped = await pop(stores[n % 2], "q")
        assert popped.lease_id
        leases.append(int(popped.lease_id.split("-")[0]))
        await ack_all(stores[1 - n % 2], popped)
    assert leases == sorted(set(leases))


async def test_renewing_keeps_others_out_past_the_first_deadline(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    message, lease = await pop_one(store, "q", lease_seconds=10)
    clock.advance(9)
    assert (await renew(store, lease, 20)).expires_at == clock.now() + 20 * SECOND
    clock.advance(19)
    assert (await pop(store, "q")).messages == []
    assert (await ack(store, message, lease)).lease_released


async def test_renewing_never_brings_the_deadline_nearer(store: Store, clock: ManualClock) -> None:
    await push(store, "q")
    popped = await pop(store, "q", lease_seconds=100)
    assert popped.lease_id
    renewed = await renew(store, popped.lease_id, 5)
    assert renewed.expires_at == popped.lease_until
    clock.advance(99)
    assert (await pop(store, "q")).messages == []
    await ack_all(store, popped)


async def test_a_renewed_lease_runs_out_at_its_new_deadline(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q")
    _, lease = await pop_one(store, "q", lease_seconds=10)
    await renew(store, lease, 15)
    clock.advance(15)
    with pytest.raises(LeaseExpiredError):
        await renew(store, lease, 15)
    [message] = (await pop(store, "q")).messages
    assert message.attempts == 2


async def test_renewing_a_lease_over_several_partitions_renews_those_still_under_it(
    store: Store, clock: ManualClock
) -> None:
    for partition in "abc":
        await push(store, "q", partition=partition)
    popped = await pop(store, "q", 3, partitions=3, lease_seconds=10)
    assert popped.lease_id
    await ack(store, popped.messages[0], popped.lease_id)
    await push(store, "q", partition="a")
    await renew(store, popped.lease_id, 60)
    clock.advance(30)
    assert [message.partition for message in await drain(store, "q")] == ["a"]
    for message in popped.messages[1:]:
        await ack(store, message, popped.lease_id)


# --- several partitions under one lease ---


async def test_a_pop_of_several_partitions_takes_the_longest_waiting_until_its_batch_is_full(
    store: Store, clock: ManualClock
) -> None:
    for partition in "abcd":
        await push_many(store, "q", 3, partition=partition)
        clock.advance(1)
    popped = await pop(store, "q", 7, partitions=4)
    taken = [(message.partition, message.seq) for message in popped.messages]
    assert taken == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2), ("b", 3), ("c", 1)]
    assert [message.partition for message in await drain(store, "q")] == ["d"] * 3


async def test_a_pop_takes_no_more_partitions_than_it_may(store: Store) -> None:
    for partition in "abcd":
        await push(store, "q", partition=partition)
    popped = await pop(store, "q", 100, partitions=3)
    assert [message.partition for message in popped.messages] == ["a", "b", "c"]


async def test_a_pop_of_one_partition_stops_at_its_end_even_if_others_have_more(
    store: Store,
) -> None:
    await push_many(store, "q", 2, partition="a")
    await push_many(store, "q", 2, partition="b")
    popped = await pop(store, "q", 100)
    assert [message.partition for message in popped.messages] == ["a", "a"]


async def test_partitions_under_one_lease_are_freed_one_by_one(store: Store) -> None:
    for partition in "ab":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 2, partitions=2)
    assert [message.partition for message in popped.messages] == ["a", "a"]
    popped = await pop(store, "q", 3, partitions=2)
    assert [message.partition for message in popped.messages] == ["b", "b"]
    await push_many(store, "other", 1, partition="x")
    await push_many(store, "other", 1, partition="y")
    popped = await pop(store, "other", 2, partitions=2)
    assert popped.lease_id
    first = await ack(store, popped.messages[0], popped.lease_id)
    assert (first.lease_released, first.count) == (True, 1)
    await push(store, "other", partition="x")
    await push(store, "other", partition="y")
    assert [message.partition for message in await drain(store, "other")] == ["x"]
    await ack(store, popped.messages[1], popped.lease_id)
    assert [message.partition for message in await drain(store, "other")] == ["y"]


async def test_an_ack_of_a_whole_lease_answers_all_its_partitions(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 100, partitions=3)
    acked = await ack_all(store, popped)
    assert (acked.count, acked.lease_released, acked.dead) == (6, True, 0)
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0


# --- a named partition ---


async def test_a_pop_of_a_named_partition_takes_that_one_though_others_wait_longer(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="first")
    clock.advance(1)
    await push(store, "q", partition="named")
    message, _ = await pop_one(store, "q", partition="named")
    assert message.partition == "named"
    assert (await pop(store, "q", partition="missing")).messages == []
    assert [p.partition for p in await store.export_plan("q")] == ["first", "named"]


# --- pause ---


async def test_a_paused_queue_gives_nothing_in_any_way_and_goes_on_where_it_was(
    store: Store,
) -> None:
    await push_many(store, "q", 3, namespace="ns")
    message, lease = await pop_one(store, "q", group="busy")
    assert (await store.pause_queue("q")).paused
    assert (await store.get_queue("q")).paused
    assert (await pop(store, "q")).messages == []
    assert (await pop(store, "q", partition="Default")).messages == []
    assert (await pop(store, namespace="ns")).messages == []
    assert (await pop(store, "q", auto_ack=True)).messages == []
    await ack(store, message, lease, group="busy")
    await push(store, "q", b"4")
    assert not (await store.resume_queue("q")).paused
    assert numbers(await drain(store, "q")) == [1, 2, 3, 4]
    assert numbers(await drain(store, "q", group="busy")) == [2, 3, 4]


async def test_a_paused_work_queue_gives_nothing_and_takes_acks(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 2)
    item, lease = await pop_one(store, "w")
    await store.pause_queue("w")
    assert (await pop(store, "w")).messages == []
    await ack(store, item, lease)
    await store.resume_queue("w")
    assert numbers(await pop(store, "w", 5)) == [2]


async def test_a_paused_queue_does_not_hold_up_the_others_of_its_namespace(store: Store) -> None:
    await push(store, "paused", b"1", namespace="ns")
    await push(store, "open", b"2", namespace="ns")
    await store.pause_queue("paused")
    assert numbers(await drain(store, namespace="ns")) == [2]
    await store.resume_queue("paused")
    assert numbers(await drain(store, namespace="ns")) == [1]


# --- many requests in one call ---


async def test_requests_of_one_call_are_each_served_on_their_own_terms(
    store: Store, clock: ManualClock
) -> None:
    for queue in ("q", "r"):
        for partition in "abcdef":
            await push_many(store, queue, 5, partition=partition)
    requests = [
        Pop(queue="q", batch=1, lease_seconds=10, consumer="x"),
        Pop(queue="r", batch=2, auto_ack=True, consumer="z"),
        Pop(queue="q", batch=3),
        Pop(queue="q", batch=2, lease_seconds=99, consumer="y"),
        Pop(queue="r", batch=4, consumer="z"),
        Pop(queue="q", batch=7, partitions=2, group="g"),
    ]
    popped = [unwrap([answer]) for answer in await store.pop(requests)]
    assert [len(answer.messages) for answer in popped] == [1, 2, 3, 2, 3, 7]
    assert [answer.messages[0].partition for answer in popped] == ["a", "a", "b", "c", "a", "a"]
    seconds = [
        None if answer.lease_until is None else (answer.lease_until - clock.now()) / SECOND
        for answer in popped
    ]
    assert seconds == [10, None, 300, 99, 300, 300]
    for answer, request in zip(popped, requests, strict=True):
        if answer.lease_id is not None:
            acked = unwrap(await store.ack([Ack(lease_id=answer.lease_id, group=request.group)]))
            assert acked.count == len(answer.messages)
    log = (await store.list_deliveries()).rows
    assert sorted((row.queue, row.consumer or "", row.completed) for row in log) == [
        ("q", "", 2),
        ("q", "", 3),
        ("q", "", 5),
        ("q", "x", 1),
        ("q", "y", 2),
        ("r", "z", 2),
        ("r", "z", 3),
    ]
