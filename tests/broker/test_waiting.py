"""Pops that wait: in order, once, on time, and at no cost while nothing happens."""

import asyncio
import gc
import tracemalloc

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, OverloadedError
from monarq.model import DEFAULT_GROUP, Pop, Popped, Push, PushItem, QueueKind
from tests.broker.calls import (
    ack,
    bounded,
    is_still,
    parked,
    payloads,
    push,
    turns,
    until,
    wait_for,
)
from tests.broker.conftest import StartBroker
from tests.broker.watching import Watched
from tests.store.conftest import Place


async def test_a_parked_pop_gets_what_is_pushed(broker: Broker) -> None:
    waiting = wait_for(broker, "q")
    await parked(broker, 1)
    await push(broker, "q", b"1")
    assert payloads(await bounded(waiting)) == [b"1"]


async def test_1000_parked_pops_are_woken_in_order_and_none_twice(broker: Broker) -> None:
    await broker.configure("q")
    waiting = [wait_for(broker, "q") for _ in range(1000)]
    await parked(broker, 1000)
    order: list[int] = []
    for number, future in enumerate(waiting):
        future.add_done_callback(lambda _, number=number: order.append(number))
    for start in range(0, 1000, 50):
        items = [PushItem("q", b"%d" % n, f"p{n}") for n in range(start, start + 50)]
        await broker.push(Push(items))
        await until(lambda start=start: len(order) >= start + 50)
        # Whoever waited longest is served first, and nobody else is.
        assert sorted(order) == list(range(start + 50))
    got = [payload for future in waiting for payload in payloads(future.result())]
    assert len(got) == len(set(got)) == 1000


@pytest.mark.parametrize("kind", list(QueueKind))
async def test_of_1000_parked_pops_those_who_came_first_are_served_by_large_pushes(
    broker: Broker, kind: QueueKind
) -> None:
    """More than one call to the store can take, so that calls at the same time would race."""
    await broker.configure("q", kind=kind)
    waiting = [wait_for(broker, "q") for _ in range(1000)]
    await parked(broker, 1000)
    served = 0
    for count in (1, 5, 394, 600):
        named = kind is QueueKind.ORDERED
        items = [PushItem("q", b"{}", *([f"{served}-{n}"] if named else [])) for n in range(count)]
        await broker.push(Push(items))
        served += count
        await until(lambda served=served: sum(f.done() for f in waiting) >= served)
        assert [future.done() for future in waiting] == [n < served for n in range(1000)]


async def test_the_waiters_of_one_partition_are_served_one_after_the_other(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    count = 50
    waiting = [wait_for(broker, "q") for _ in range(count)]
    await parked(broker, count)
    await broker.push(Push([PushItem("q", b"%d" % n) for n in range(count)]))
    for number, future in enumerate(waiting):
        popped = await bounded(future)
        assert payloads(popped) == [b"%d" % number]
        assert not any(later.done() for later in waiting[number + 1 :])
        await ack(broker, popped)


async def test_a_push_wakes_as_many_as_it_can_serve_and_no_more(
    broker: Broker, watched: Watched
) -> None:
    await broker.configure("q")
    waiting = [wait_for(broker, "q") for _ in range(10)]
    await parked(broker, 10)
    watched.forget()
    items = [PushItem("q", b"{}", f"p{n % 3}") for n in range(30)]
    await broker.push(Push(items))
    await until(lambda: sum(future.done() for future in waiting) == 3)
    await turns()
    assert is_still(broker)
    assert [future.done() for future in waiting] == [True] * 3 + [False] * 7
    assert [len(requests) for requests in watched.requests("pop")] == [3]


async def test_a_pop_of_several_partitions_counts_for_as_many(
    broker: Broker, watched: Watched
) -> None:
    await broker.configure("q")
    first = wait_for(broker, "q", batch=10, partitions=3)
    second = wait_for(broker, "q", batch=10, partitions=3)
    await parked(broker, 2)
    watched.forget()
    await broker.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(3)]))
    assert len((await bounded(first)).messages) == 3
    await turns()
    assert not second.done()
    assert [len(requests) for requests in watched.requests("pop")] == [1]


async def test_partitions_for_which_an_answer_had_no_room_serve_the_next(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(pop_max_bytes=100)
    await broker.configure("q")
    waiting = [wait_for(broker, "q", batch=10, partitions=3) for _ in range(3)]
    await parked(broker, 3)
    body = b'"' + b"x" * 58 + b'"'
    await broker.push(Push([PushItem("q", body, f"p{n}") for n in range(3)]))
    for future in waiting:
        assert payloads(await bounded(future)) == [body]


async def test_what_an_auto_acked_answer_had_no_room_for_serves_the_next(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(pop_max_bytes=100)
    await broker.configure("q")
    waiting = [wait_for(broker, "q", batch=10, auto_ack=True) for _ in range(3)]
    await parked(broker, 3)
    body = b'"' + b"x" * 58 + b'"'
    await broker.push(Push([PushItem("q", body)] * 3))
    for future in waiting:
        assert payloads(await bounded(future)) == [body]


async def test_items_are_shared_one_at_a_time(broker: Broker) -> None:
    await broker.configure("w", kind=QueueKind.WORK)
    waiting = [wait_for(broker, "w", batch=batch) for batch in (20, 6, 1)]
    await parked(broker, 3)
    await broker.push(Push([PushItem("w", b"%d" % n) for n in range(23)]))
    assert [len((await bounded(future)).messages) for future in waiting] == [16, 6, 1]


async def test_items_are_shared_among_more_pops_than_one_call_takes(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(pop_batch_max=16)
    await broker.configure("w", kind=QueueKind.WORK)
    waiting = [wait_for(broker, "w", batch=10) for _ in range(100)]
    await parked(broker, 100)
    await broker.push(Push([PushItem("w", b"%d" % n) for n in range(200)]))
    assert [len((await bounded(future)).messages) for future in waiting] == [2] * 100


async def test_groups_do_not_take_from_each_other(broker: Broker) -> None:
    waiting = [wait_for(broker, "q", group=group) for group in ("a", "b", DEFAULT_GROUP)]
    await parked(broker, 3)
    await push(broker, "q", b"1")
    for future in waiting:
        assert payloads(await bounded(future)) == [b"1"]


async def test_a_pop_of_another_partition_is_not_woken(broker: Broker, watched: Watched) -> None:
    named = wait_for(broker, "q", partition="mine")
    other = wait_for(broker, "q", partition="other")
    await parked(broker, 2)
    watched.forget()
    await push(broker, "q", b"1", partition="mine")
    assert payloads(await bounded(named)) == [b"1"]
    await turns()
    assert not other.done()
    assert watched.requests("pop") == [[Pop(queue="q", partition="mine")]]


async def test_of_a_named_and_an_open_pop_the_earlier_is_served(broker: Broker) -> None:
    for order in (("mine", None), (None, "mine")):
        queue = f"q-{order[0]}"
        await broker.configure(queue)
        first, second = (wait_for(broker, queue, partition=name) for name in order)
        await parked(broker, 2)
        await push(broker, queue, b"1", partition="mine")
        popped = await bounded(first)
        await turns()
        assert not second.done()
        await push(broker, queue, b"2", partition="mine")
        await ack(broker, popped)
        assert payloads(await bounded(second)) == [b"2"]


async def test_a_pop_over_labels_waits_for_all_queues_that_have_them(broker: Broker) -> None:
    waiting = [
        wait_for(broker, None, namespace="shop", task="mail"),
        wait_for(broker, None, namespace="shop"),
        wait_for(broker, None, task="mail"),
    ]
    strangers = [
        wait_for(broker, None, namespace="other"),
        wait_for(broker, None, namespace="shop", task="other"),
    ]
    await parked(broker, 5)
    for number, future in enumerate(waiting):
        name = f"q{number}"
        await push(broker, name, b"%d" % number, namespace="shop", task="mail")
        assert payloads(await bounded(future)) == [b"%d" % number]
    await until(lambda: is_still(broker))
    assert not any(future.done() for future in strangers)


async def test_a_pop_times_out_on_time_and_not_before(broker: Broker, clock: ManualClock) -> None:
    soon, late = wait_for(broker, "q", 1.0), wait_for(broker, "q", 30.0)
    await parked(broker, 2)
    clock.advance(0.99)
    await turns()
    assert not soon.done()
    clock.advance(0.01)
    assert await bounded(soon) == Popped(messages=[])
    clock.advance(28.99)
    await turns()
    assert not late.done()
    clock.advance(0.01)
    assert await bounded(late) == Popped(messages=[])
    await until(lambda: broker.measures.pops_parked == 0)


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_in_real_time_a_pop_times_out_within_a_few_milliseconds(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker(clock=None)
    loop = asyncio.get_running_loop()
    started = loop.time()
    assert (await broker.pop(Pop(queue="q"), 0.2)).messages == []
    assert 0.2 <= loop.time() - started < 1.0


async def test_who_comes_while_others_are_parked_does_not_ask_the_store(
    broker: Broker, watched: Watched
) -> None:
    wait_for(broker, "q")
    await parked(broker, 1)
    watched.forget()
    waiting = [wait_for(broker, "q") for _ in range(100)]
    assert broker.measures.pops_parked == 101
    await turns()
    assert watched.count("pop") == 0
    await broker.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(101)]))
    for future in waiting:
        assert len((await bounded(future)).messages) == 1


async def test_a_malformed_pop_is_refused_also_behind_others(broker: Broker) -> None:
    wait_for(broker, "q")
    await parked(broker, 1)
    with pytest.raises(InvalidRequestError):
        await bounded(wait_for(broker, "q", batch=0))
    assert broker.measures.pops_parked == 1


async def test_10000_parked_pops_cost_one_trivial_call_a_second(
    start_broker: StartBroker, watched: Watched, clock: ManualClock, place: Place
) -> None:
    broker = await start_broker(lifecycle_max_seconds=3600.0, sqlite_poll_ms=1_000.0)
    for number in range(10_000):
        wait_for(broker, f"q{number % 10}", 3600.0)
    await parked(broker, 10_000)
    for _ in range(6):
        clock.advance(1.0)
        await turns()
        await until(lambda: not watched.under_way.total())
    watched.forget()
    polls = broker.measures.polls
    for _ in range(40):
        clock.advance(0.1)
        await turns()
        await until(lambda: not watched.under_way.total())
    assert 3 <= broker.measures.polls - polls <= 4
    assert {name for name, _ in watched.calls} <= {"changed", "get_settings", "lifecycle", "pop"}
    # A few look now and then whatever the store says.
    looks = sum(len(requests) for requests in watched.requests("pop"))
    # Other tests write to this PostgreSQL; then one of each place looks.
    assert looks <= 8 + (10 * (broker.measures.polls - polls) if place.is_postgres else 0)


@pytest.mark.parametrize("place", ["memory"], indirect=True)
async def test_a_parked_pop_takes_little_memory_and_gives_it_back(broker: Broker) -> None:
    pop = Pop(queue="q")
    first = broker.submit_pop(pop, 30)
    await parked(broker, 1)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    futures = [broker.submit_pop(pop, 30) for _ in range(10_000)]
    after, _ = tracemalloc.get_traced_memory()
    assert (after - before) / 10_000 < 1_000
    for future in futures:
        future.cancel()
    futures.clear()
    await turns()
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left - before < 400_000
    assert broker.measures.pops_parked == 1
    assert not first.done()


@pytest.mark.parametrize("place", ["memory"], indirect=True)
async def test_more_pops_than_may_wait_are_refused(start_broker: StartBroker) -> None:
    broker = await start_broker(parked_max=10)
    waiting = [wait_for(broker, "q") for _ in range(10)]
    await parked(broker, 10)
    with pytest.raises(OverloadedError):
        await wait_for(broker, "q")
    waiting[3].cancel()
    again = wait_for(broker, "q")
    await turns()
    assert not again.done()
