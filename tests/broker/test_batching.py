"""Inboxes: what goes to the store together, when, and how much of it."""

import asyncio
from collections import Counter

import pytest

from monarq.broker.broker import Broker
from monarq.errors import OverloadedError
from monarq.model import Ack, Pop, Push, Pushed, PushItem, Renew, Transaction
from tests.broker.calls import bounded, message, pop, push, turns, until
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched
from tests.store.conftest import Place

in_memory = pytest.mark.parametrize("place", ["memory"], indirect=True)


async def test_a_lone_push_leaves_at_once(broker: Broker, watched: Watched) -> None:
    future = broker.submit_push(message("q"))
    await turns(3)
    assert watched.count("push") == 1
    await bounded(future)


async def test_what_one_turn_brings_leaves_together(broker: Broker, watched: Watched) -> None:
    futures = [broker.submit_push(message("q", b"%d" % n)) for n in range(100)]
    answers = await bounded(asyncio.gather(*futures))
    assert [len(requests) for requests in watched.requests("push")] == [100]
    assert [answer[0].seq for answer in answers] == list(range(1, 101))


async def come_back(broker: Broker, count: int) -> list[asyncio.Future[list[Pushed]]]:
    """Two pushes in the first turn of the loop, and one in each turn after it."""
    futures = [broker.submit_push(message("q"))]
    while len(futures) < count:
        futures.append(broker.submit_push(message("q")))
        await asyncio.sleep(0)
    return futures


@in_memory
async def test_who_was_answered_together_leaves_together_again(
    broker: Broker, watched: Watched
) -> None:
    await bounded(asyncio.gather(*(broker.submit_push(message("q")) for _ in range(10))))
    await bounded(asyncio.gather(*await come_back(broker, 10)))
    assert [len(requests) for requests in watched.requests("push")] == [10, 10]


@in_memory
async def test_who_comes_back_does_not_wait_for_those_who_do_not(
    broker: Broker, watched: Watched
) -> None:
    await bounded(asyncio.gather(*(broker.submit_push(message("q")) for _ in range(10))))
    lone = broker.submit_push(message("q"))
    await turns(3)
    assert watched.count("push") == 2
    await bounded(lone)
    await bounded(asyncio.gather(*await come_back(broker, 5)))
    assert sum(len(requests) for requests in watched.requests("push")) == 16


@in_memory
async def test_nobody_waits_for_company_where_that_is_off(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(batch_wait_ms=0.0)
    await bounded(asyncio.gather(*(broker.submit_push(message("q")) for _ in range(10))))
    await bounded(asyncio.gather(*await come_back(broker, 10)))
    assert [len(requests) for requests in watched.requests("push")][:2] == [10, 2]


async def test_pushes_gather_while_the_store_is_busy(
    start_broker: StartBroker, watched: Watched, place: Place
) -> None:
    broker = await start_broker(push_concurrency=1)
    gate = watched.hold("push")
    first = broker.submit_push(message("q"))
    await turns()
    others = [broker.submit_push(message("q")) for _ in range(50)]
    await turns()
    assert watched.count("push") == 1
    gate.set()
    await bounded(asyncio.gather(first, *others))
    assert [len(requests) for requests in watched.requests("push")] == [1, 50]


@pytest.mark.parametrize("place", STORE_NAMES[2:], indirect=True)
async def test_with_a_connection_free_pushes_wait_for_company_but_not_long(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(push_concurrency=2, batch_wait_ms=20.0, batch_max=10)
    gate = watched.hold("push")
    first = broker.submit_push(message("q"))
    await until(lambda: watched.count("push") == 1)
    loop = asyncio.get_running_loop()
    started = loop.time()
    second = broker.submit_push(message("q"))
    await until(lambda: watched.count("push") == 2)
    assert loop.time() - started >= 0.019
    gate.set()
    await bounded(asyncio.gather(first, second))
    # A full batch does not wait.
    watched.forget()
    gate.clear()
    waiting = [broker.submit_push(message("q"))]
    await until(lambda: watched.count("push") == 1)
    waiting += [broker.submit_push(message("q")) for _ in range(10)]
    await turns(3)
    assert [len(requests) for requests in watched.requests("push")] == [1, 10]
    gate.set()
    await bounded(asyncio.gather(*waiting))


@pytest.mark.parametrize("place", STORE_NAMES[2:], indirect=True)
async def test_no_more_calls_are_made_at_once_than_the_settings_allow(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(
        push_concurrency=2, pop_concurrency=3, batch_max=1, pop_batch_max=1, batch_wait_ms=0.0
    )
    pushes = [broker.submit_push(message(f"q{n % 10}")) for n in range(30)]
    await bounded(asyncio.gather(*pushes))
    pops = [broker.submit_pop(Pop(queue=f"q{n % 10}")) for n in range(60)]
    await bounded(asyncio.gather(*pops))
    assert watched.most_under_way["push"] == 2
    assert 1 < watched.most_under_way["pop"] <= 3


async def test_pops_of_one_queue_are_in_one_call_at_a_time(
    start_broker: StartBroker, watched: Watched
) -> None:
    """Two calls would pass over what the other has locked, and find less than there is."""
    broker = await start_broker(pop_batch_max=4)
    items = [PushItem(queue, b"{}", f"p{n}") for queue in ("a", "b") for n in range(40)]
    await broker.push(Push(items))
    under_way: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def enter(name: str, requests: object) -> BaseException | None:
        if name == "pop":
            queues = {request.queue for request in requests}  # type: ignore[attr-defined]
            under_way.update(queues)
            most.update({queue: max(0, under_way[queue] - most[queue]) for queue in queues})
        return None

    def leave(name: str, requests: object) -> BaseException | None:
        if name == "pop":
            under_way.subtract({request.queue for request in requests})  # type: ignore[attr-defined]
        return None

    watched.disturb, watched.disturb_after = enter, leave
    pops = [broker.submit_pop(Pop(queue="ab"[n % 2])) for n in range(80)]
    found = [await bounded(future) for future in pops]
    assert all(len(popped.messages) == 1 for popped in found)
    assert most == {"a": 1, "b": 1}


@in_memory
async def test_pops_that_wait_behind_another_of_their_queue_are_bounded_too(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(inbox_max=10)
    gate = watched.hold("pop")
    under_way = broker.submit_pop(Pop(queue="q"))
    await turns()
    waiting = []
    for _ in range(10):
        waiting.append(broker.submit_pop(Pop(queue="q")))
        await turns(2)
    with pytest.raises(OverloadedError):
        await broker.submit_pop(Pop(queue="q"))
    waiting[0].cancel()
    gate.set()
    await bounded(asyncio.gather(under_way, *waiting[1:]))
    assert len(broker._parts.pops) == 0


@pytest.mark.parametrize("place", STORE_NAMES[:2], indirect=True)
async def test_sqlite_gets_one_call_of_a_kind_at_a_time(broker: Broker, watched: Watched) -> None:
    for _ in range(5):
        futures = [broker.submit_push(message("q")) for _ in range(20)]
        await turns(2)
        await bounded(asyncio.gather(*futures))
    assert watched.most_under_way["push"] == 1


@in_memory
async def test_a_batch_is_bounded_in_messages_and_bytes(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(batch_max=100, batch_max_bytes=10_000)
    many = [broker.submit_push(Push([PushItem("q", b"1")] * 30)) for _ in range(7)]
    await bounded(asyncio.gather(*many))
    assert [len(requests) for requests in watched.requests("push")] == [3, 3, 1]
    watched.forget()
    large = [broker.submit_push(message("q", b'"%s"' % (b"x" * 4_000))) for _ in range(5)]
    await bounded(asyncio.gather(*large))
    assert [len(requests) for requests in watched.requests("push")] == [2, 2, 1]
    watched.forget()
    # One that is larger than a batch goes alone.
    huge = broker.submit_push(Push([PushItem("q", b"1")] * 500))
    other = broker.submit_push(message("q"))
    await bounded(asyncio.gather(huge, other))
    assert [len(requests) for requests in watched.requests("push")] == [1, 1]


async def test_what_many_pops_of_one_call_get_is_bounded_together(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(pop_max_bytes=1_000)
    lanes = [f"p{number}" for number in range(40)]
    pushes = [
        broker.submit_push(Push([PushItem("q", b"%0100d" % 1, partition=lane)] * 10))
        for lane in lanes
    ]
    await bounded(asyncio.gather(*pushes))
    alone = await pop(broker, "q", batch=10)
    assert len(alone.messages) == 10
    watched.forget()
    pops = [broker.submit_pop(Pop(queue="q", batch=10)) for _ in lanes[1:]]
    answers = await bounded(asyncio.gather(*pops))
    assert max(len(requests) for requests in watched.requests("pop")) == len(pops)
    assert sum(len(answer.messages) * 100 for answer in answers) <= 8 * 1_000
    assert all(answer.messages for answer in answers)


async def test_acks_of_many_callers_go_together_and_each_gets_its_own(
    broker: Broker, watched: Watched
) -> None:
    await broker.push(Push([PushItem("q", b"%d" % n, f"p{n % 10}") for n in range(100)]))
    leases = [await pop(broker, "q", batch=10) for _ in range(10)]
    watched.forget()
    futures = [
        broker.submit_acks(
            [
                Ack(transaction_id=each.transaction_id, partition_id=each.partition_id)
                for each in popped.messages
            ]
        )
        for popped in leases
    ]
    stale = broker.submit_acks([Ack(lease_id="77-0123456789abcdef"), Ack(lease_id="nonsense")])
    for popped, future in zip(leases, futures, strict=True):
        answers = await bounded(future)
        assert [a.transaction_id for a in answers] == [m.transaction_id for m in popped.messages]
    assert {answer.code for answer in await bounded(stale)} == {"lease_unknown"}
    assert [len(requests) for requests in watched.requests("ack")] == [102]


async def test_renewals_and_transactions_of_many_callers(broker: Broker) -> None:
    await broker.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(5)]))
    leases = [await pop(broker, "q") for _ in range(5)]
    renewed = await bounded(
        asyncio.gather(
            *[broker.submit_renews([Renew(popped.lease_id or "", 600)]) for popped in leases]
        )
    )
    assert [each[0].lease_id for each in renewed] == [popped.lease_id for popped in leases]
    good = [
        broker.submit_transaction(Transaction([message("out"), Ack(lease_id=popped.lease_id)]))
        for popped in leases
    ]
    bad = broker.submit_transaction(Transaction([message("out"), Ack(lease_id="nonsense")]))
    for future in good:
        assert len((await bounded(future)).results) == 2
    with pytest.raises(Exception, match="nothing was carried out"):
        await bounded(bad)


# --- bounds ---


@in_memory
async def test_past_its_limits_an_inbox_refuses_at_once_and_recovers(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(inbox_max=10)
    for name, submit in (
        ("push", lambda: broker.submit_push(message("q"))),
        ("pop", lambda: broker.submit_pop(Pop(queue="q"))),
        ("ack", lambda: broker.submit_acks([Ack(lease_id="1-0123456789abcdef")])),
    ):
        gate = watched.hold(name)
        under_way = [submit()]
        await turns()
        waiting = [submit() for _ in range(10)]
        refused = [submit() for _ in range(5)]
        for future in refused:
            assert future.done()
            with pytest.raises(OverloadedError):
                future.result()
        gate.set()
        await bounded(asyncio.gather(*under_way, *waiting))
        await bounded(submit())
    assert broker.measures.overloaded == 15


@in_memory
async def test_waiting_pushes_are_bounded_in_bytes(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(inbox_max_bytes=10_000)
    gate = watched.hold("push")
    first = broker.submit_push(message("q"))
    await turns()
    waiting = [broker.submit_push(message("q", b'"%s"' % (b"x" * 6_000))) for _ in range(2)]
    with pytest.raises(OverloadedError):
        await broker.submit_push(message("q", b"1"))
    gate.set()
    await bounded(asyncio.gather(first, *waiting))
    await push(broker, "q", b"1")
