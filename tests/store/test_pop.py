"""Pop: who gets what and in which order; one lease per partition and group; nobody starves."""

import asyncio
from collections import Counter

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import InvalidRequestError, LeaseExpiredError, MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Pop, PushItem
from monarq.store import Store
from tests.store.calls import (
    ack,
    ack_all,
    pop,
    pop_one,
    push,
    push_items,
    push_many,
    renew,
    seqs,
    unwrap,
)
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    RELEASE,
    WORK,
    cursor_row,
    drain,
    every,
    group_row,
    nothing_changes,
    numbers,
    seqs_of,
)


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


# --- fairness ---


async def test_the_partition_that_waits_longest_is_next_whatever_its_name_or_number(
    store: Store, clock: ManualClock
) -> None:
    order = ["m", "z", "a", "k", "b"]
    await push_items(store, *(PushItem("q", b"1", name) for name in sorted(order)))
    await drain(store, "q")
    for partition in order:
        clock.advance(1)
        await push(store, "q", partition=partition)
    assert [(await pop_one(store, "q"))[0].partition for _ in order] == order


async def test_requests_of_one_call_take_what_waits_longest_and_keep_it(
    store: Store, clock: ManualClock
) -> None:
    order = ["m", "z", "a", "k", "b"]
    await push_items(store, *(PushItem("q", b"1", name) for name in sorted(order)))
    await drain(store, "q")
    for partition in order:
        clock.advance(1)
        await push(store, "q", partition=partition)
    answers = [unwrap([each]) for each in await store.pop([Pop(queue="q")] * 3)]
    assert [answer.messages[0].partition for answer in answers] == order[:3]
    others = [unwrap([each]) for each in await store.pop([Pop(queue="q")] * 4)]
    got = [message.partition for answer in others for message in answer.messages]
    assert got == order[3:]
    for answer in answers:
        assert (await ack_all(store, answer)).count == 1


async def test_partitions_that_wait_equally_long_are_served_in_the_order_of_their_numbers(
    store: Store,
) -> None:
    for partition in ("c", "a", "b"):
        await push(store, "q", partition=partition)
    assert [(await pop_one(store, "q"))[0].partition for _ in range(3)] == ["c", "a", "b"]


async def test_a_later_push_does_not_send_a_waiting_partition_to_the_back(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="first")
    clock.advance(1)
    await push(store, "q", partition="second")
    clock.advance(1)
    await push(store, "q", partition="first")
    assert (await pop_one(store, "q"))[0].partition == "first"


async def test_a_partition_that_was_served_goes_behind_those_that_wait(
    store: Store, clock: ManualClock
) -> None:
    for partition in "abc":
        await push_many(store, "q", 3, partition=partition)
        clock.advance(1)
    served = []
    for _ in range(9):
        message, lease = await pop_one(store, "q")
        clock.advance(1)
        await ack(store, message, lease)
        served.append(message.partition)
    assert "".join(served) == "abcabcabc"


async def test_a_released_partition_goes_behind_those_that_wait_too(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="a")
    clock.advance(1)
    await push(store, "q", partition="b")
    message, lease = await pop_one(store, "q")
    assert message.partition == "a"
    clock.advance(1)
    await ack(store, message, lease, RELEASE)
    assert [(await pop_one(store, "q"))[0].partition for _ in range(2)] == ["b", "a"]


async def test_an_expired_partition_waits_from_its_deadline_on(
    store: Store, clock: ManualClock
) -> None:
    await push(store, "q", partition="expires")
    await pop(store, "q", lease_seconds=10)
    clock.advance(9)
    await push(store, "q", partition="before")
    clock.advance(2)
    await push(store, "q", partition="after")
    order = [(await pop_one(store, "q"))[0].partition for _ in range(3)]
    assert order == ["before", "expires", "after"]


async def test_a_quiet_partition_is_not_starved_by_ones_that_never_run_dry(
    store: Store, clock: ManualClock
) -> None:
    for partition in ("busy1", "busy2"):
        await push_many(store, "q", 5, partition=partition)
    clock.advance(1)
    await push(store, "q", partition="quiet")
    served = []
    for _ in range(6):
        message, lease = await pop_one(store, "q")
        clock.advance(1)
        await ack(store, message, lease)
        await push(store, "q", partition=message.partition)
        served.append(message.partition)
    assert served == ["busy1", "busy2", "quiet"] * 2


async def test_every_one_of_many_partitions_is_served_before_any_is_served_twice(
    store: Store, clock: ManualClock
) -> None:
    names = {f"p{n}" for n in range(40)}
    await push_items(store, *(PushItem("q", b"1", name) for name in names for _ in range(2)))
    for _ in range(2):
        served = set()
        for _ in range(40):
            message, lease = await pop_one(store, "q")
            clock.advance(0.001)
            await ack(store, message, lease)
            served.add(message.partition)
        assert served == names


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


# --- auto-ack ---


async def test_what_is_popped_with_auto_ack_is_done_without_a_lease(store: Store) -> None:
    await push_many(store, "q", 5)
    popped = await pop(store, "q", 3, auto_ack=True)
    assert (seqs_of(popped), popped.lease_id, popped.lease_until) == ([1, 2, 3], None, None)
    row = await group_row(store, "q", DEFAULT_GROUP)
    assert (row.completed, row.lag) == (3, 2)
    assert (await cursor_row(store, "q", DEFAULT_GROUP)).lease_until is None
    popped = await pop(store, "q", 3, auto_ack=True)
    assert seqs_of(popped) == [4, 5]
    assert (await pop(store, "q", 3, auto_ack=True)).messages == []


async def test_what_was_popped_with_auto_ack_cannot_be_acked_again(store: Store) -> None:
    await push(store, "q")
    [message] = (await pop(store, "q", auto_ack=True)).messages
    async with nothing_changes(store):
        with pytest.raises(LeaseExpiredError):
            await ack(store, message, None)


async def test_auto_ack_of_one_group_leaves_the_others_their_messages(store: Store) -> None:
    await push_many(store, "q", 2)
    await pop(store, "q", 2, auto_ack=True, group="g1")
    assert await seqs(store, "q", group="g2") == [1, 2]


async def test_auto_ack_over_several_partitions_completes_them_all(store: Store) -> None:
    for partition in "abc":
        await push_many(store, "q", 2, partition=partition)
    popped = await pop(store, "q", 100, partitions=3, auto_ack=True)
    assert len(popped.messages) == 6
    assert (await group_row(store, "q", DEFAULT_GROUP)).lag == 0
    assert await drain(store, "q") == []


async def test_work_items_popped_with_auto_ack_are_done(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 3)
    popped = await pop(store, "w", 2, auto_ack=True)
    assert (numbers(popped), popped.lease_id) == ([1, 2], None)
    states = [row.state for row in await every(store.list_items, "w")]
    assert states == ["done", "done", "ready"]


# --- pause ---


async def test_a_paused_queue_gives_nothing_in_any_way_and_goes_on_where_it_was(
    store: Store,
) -> None:
    await push_many(store, "q", 3, namespace="ns")
    message, lease = await pop_one(store, "q", group="busy")
    assert (await store.set_paused("q", True)).paused
    assert (await store.get_queue("q")).paused
    assert (await pop(store, "q")).messages == []
    assert (await pop(store, "q", partition="Default")).messages == []
    assert (await pop(store, namespace="ns")).messages == []
    assert (await pop(store, "q", auto_ack=True)).messages == []
    await ack(store, message, lease, group="busy")
    await push(store, "q", b"4")
    assert not (await store.set_paused("q", False)).paused
    assert numbers(await drain(store, "q")) == [1, 2, 3, 4]
    assert numbers(await drain(store, "q", group="busy")) == [2, 3, 4]


async def test_a_paused_work_queue_gives_nothing_and_takes_acks(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 2)
    item, lease = await pop_one(store, "w")
    await store.set_paused("w", True)
    assert (await pop(store, "w")).messages == []
    await ack(store, item, lease)
    await store.set_paused("w", False)
    assert numbers(await pop(store, "w", 5)) == [2]


async def test_a_paused_queue_does_not_hold_up_the_others_of_its_namespace(store: Store) -> None:
    await push(store, "paused", b"1", namespace="ns")
    await push(store, "open", b"2", namespace="ns")
    await store.set_paused("paused", True)
    assert numbers(await drain(store, namespace="ns")) == [2]
    await store.set_paused("paused", False)
    assert numbers(await drain(store, namespace="ns")) == [1]


# --- by namespace and task ---


async def test_a_pop_by_namespace_and_task_considers_the_queues_with_those_labels(
    store: Store,
) -> None:
    for namespace in ("n1", "n2"):
        for task in ("t1", "t2"):
            await push(store, f"{namespace}-{task}", namespace=namespace, task=task)
    await push(store, "bare")

    async def found(**labels: str) -> list[str]:
        return sorted(m.queue for m in await drain(store, group=str(labels), **labels))

    assert await found(namespace="n1") == ["n1-t1", "n1-t2"]
    assert await found(task="t2") == ["n1-t2", "n2-t2"]
    assert await found(namespace="n2", task="t1") == ["n2-t1"]
    assert await found(namespace="n3") == []
    assert await found(namespace="n1", task="t3") == []


async def test_queues_of_higher_priority_come_first_then_whoever_waits_longest(
    store: Store, clock: ManualClock
) -> None:
    for name, priority in (("low", -5), ("b", 0), ("high", 10), ("a", 0)):
        await store.configure(name, namespace="ns", options={"priority": priority})
        await push_many(store, name, 2)
        clock.advance(1)
    order = []
    for _ in range(8):
        popped = await pop(store, namespace="ns")
        order.append(popped.messages[0].queue)
        clock.advance(1)
        await ack_all(store, popped)
    assert order == ["high", "high", "b", "a", "b", "a", "low", "low"]


async def test_a_pop_by_namespace_passes_over_work_queues(store: Store) -> None:
    await store.configure("w", kind=WORK, namespace="ns")
    await push(store, "w")
    assert (await pop(store, namespace="ns")).messages == []
    await push(store, "q", namespace="ns")
    assert [message.queue for message in await drain(store, namespace="ns")] == ["q"]
    assert [item.state for item in await every(store.list_items, "w")] == ["ready"]


async def test_a_pop_by_namespace_finds_a_queue_once_it_is_labelled_and_not_after(
    store: Store,
) -> None:
    await push(store, "q", b"1")
    assert (await pop(store, namespace="ns")).messages == []
    await store.configure("q", namespace="ns")
    popped = await pop(store, namespace="ns")
    assert numbers(popped) == [1]
    await ack_all(store, popped)
    await push(store, "q", b"2")
    await store.configure("q", namespace="elsewhere")
    assert (await pop(store, namespace="ns")).messages == []
    assert numbers(await pop(store, namespace="elsewhere")) == [2]


async def test_a_pop_by_namespace_and_one_by_queue_share_the_groups_cursor(store: Store) -> None:
    await push_many(store, "q", 2, namespace="ns")
    message, lease = await pop_one(store, "q", group="g")
    assert (await pop(store, namespace="ns", group="g")).messages == []
    await ack(store, message, lease, group="g")
    assert numbers(await pop(store, namespace="ns", group="g")) == [2]


async def test_a_pop_by_namespace_may_take_partitions_of_several_queues(store: Store) -> None:
    for queue in ("q1", "q2", "q3"):
        await push_many(store, queue, 2, namespace="ns")
    popped = await pop(store, namespace="ns", batch=5, partitions=3)
    assert [(m.queue, m.seq) for m in popped.messages] == [
        ("q1", 1),
        ("q1", 2),
        ("q2", 1),
        ("q2", 2),
        ("q3", 1),
    ]
    await ack_all(store, popped)
    assert [(m.queue, m.seq) for m in await drain(store, namespace="ns")] == [("q3", 2)]


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
