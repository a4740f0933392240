"""Inboxes: what goes to the store together, when, and what becomes of it if something fails."""

import asyncio
from collections import Counter

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.errors import (
    InvalidRequestError,
    OverloadedError,
    QueueFullError,
    StoreUnavailableError,
)
from monarq.model import Ack, AckStatus, Pop, Push, Pushed, PushItem, Renew, Transaction
from monarq.store import Store, open_store
from tests.broker.calls import ack, bounded, message, payloads, pop, push, turns, until
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched
from tests.store.conftest import Place


async def serving(broker: Broker, clock: ManualClock) -> None:
    """Move time until the store is found again."""

    def is_serving() -> bool:
        clock.advance(0.25)
        return broker.state == "serving"

    await until(is_serving)


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


# --- one spoils nothing for the others ------------------------------------------------------


async def test_a_malformed_push_fails_alone(broker: Broker) -> None:
    futures = [broker.submit_push(message("q" if n != 5 else "\x00", b"%d" % n)) for n in range(10)]
    with pytest.raises(InvalidRequestError):
        await bounded(futures[5])
    for future in futures[:5] + futures[6:]:
        await bounded(future)
    assert len((await pop(broker, "q", batch=100)).messages) == 9


async def test_a_full_queue_refuses_one_caller_and_not_the_others(broker: Broker) -> None:
    await broker.store.configure("small", options={"maxSize": 1})
    futures = [broker.submit_push(message("small")), broker.submit_push(message("small"))]
    other = broker.submit_push(message("q"))
    await bounded(futures[0])
    with pytest.raises(QueueFullError):
        await bounded(futures[1])
    await bounded(other)


@pytest.mark.parametrize("guilty", [[0], [9], [3, 4], [0, 5, 9], list(range(10))])
async def test_a_request_that_makes_the_store_fail_fails_alone(
    broker: Broker, watched: Watched, guilty: list[int]
) -> None:
    poison = [b"poison %d" % n for n in guilty]

    def disturb(name: str, requests: object) -> BaseException | None:
        if name == "push" and any(
            item.payload.strip(b'"') in poison
            for request in requests  # type: ignore[attr-defined]
            for item in request.items
        ):
            return RuntimeError("the test's own")
        return None

    watched.disturb = disturb
    futures = [
        broker.submit_push(message("q", b'"poison %d"' % n if n in guilty else b"%d" % n))
        for n in range(10)
    ]
    for number, future in enumerate(futures):
        if number in guilty:
            with pytest.raises(RuntimeError, match="the test's own"):
                await bounded(future)
        else:
            await bounded(future)
    assert broker.measures.guilty == len(guilty)
    good = [b"%d" % n for n in range(10) if n not in guilty]
    assert payloads(await pop(broker, "q", batch=100)) == good


@in_memory
async def test_a_batch_that_is_being_halved_waits_like_any_other(
    broker: Broker, watched: Watched
) -> None:
    failed: list[str] = []

    def disturb(name: str, _: object) -> BaseException | None:
        if name == "push" and not failed:
            failed.append(name)
            # The buffer is nearly replayed: pushes wait for that.
            broker._parts.pushes.hold(True)
            return RuntimeError("the test's own")
        return None

    watched.disturb = disturb
    futures = [broker.submit_push(message("q", b"%d" % n)) for n in range(4)]
    await until(lambda: bool(failed))
    await turns(50)
    assert not any(future.done() for future in futures)
    broker._parts.pushes.hold(False)
    await bounded(asyncio.gather(*futures))
    assert payloads(await pop(broker, "q", batch=10)) == [b"0", b"1", b"2", b"3"]


async def test_a_pop_and_an_ack_that_make_the_store_fail_fail_alone(
    broker: Broker, watched: Watched
) -> None:
    await broker.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(4)]))

    def disturb(name: str, requests: object) -> BaseException | None:
        asked = str(requests)
        return RuntimeError("the test's own") if "poison" in asked else None

    watched.disturb = disturb
    bad = broker.submit_pop(Pop(queue="q", consumer="poison"))
    good = [broker.submit_pop(Pop(queue="q")) for _ in range(3)]
    with pytest.raises(RuntimeError):
        await bounded(bad)
    leases = [await bounded(future) for future in good]
    assert all(len(popped.messages) == 1 for popped in leases)
    bad_ack = broker.submit_acks([Ack(lease_id=leases[0].lease_id, error="poison")])
    good_ack = broker.submit_acks([Ack(lease_id=leases[1].lease_id)])
    with pytest.raises(RuntimeError):
        await bounded(bad_ack)
    assert (await bounded(good_ack))[0].count == 1


# --- bounds -------------------------------------------------------------------------------


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


# --- callers that go away ------------------------------------------------------------------


async def test_a_cancelled_push_that_has_not_left_is_not_stored(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(push_concurrency=1)
    gate = watched.hold("push")
    first = broker.submit_push(message("q", b"1"))
    await turns()
    cancelled = broker.submit_push(message("q", b"2"))
    last = broker.submit_push(message("q", b"3"))
    cancelled.cancel()
    gate.set()
    await bounded(asyncio.gather(first, last))
    assert payloads(await pop(broker, "q", batch=10)) == [b"1", b"3"]


async def test_a_push_cancelled_on_its_way_spoils_nothing(broker: Broker, watched: Watched) -> None:
    gate = watched.hold("push")
    futures = [broker.submit_push(message("q", b"%d" % n)) for n in range(3)]
    await until(lambda: watched.count("push") == 1)
    futures[1].cancel()
    gate.set()
    await bounded(asyncio.gather(futures[0], futures[2]))
    assert payloads(await pop(broker, "q", batch=10)) == [b"0", b"1", b"2"]


async def test_a_pop_cancelled_before_it_left_leases_nothing(
    broker: Broker, watched: Watched
) -> None:
    await push(broker, "q", b"1")
    future = broker.submit_pop(Pop(queue="q"))
    future.cancel()
    await turns()
    assert watched.count("pop") == 0
    assert payloads(await pop(broker, "q")) == [b"1"]


async def test_a_pop_that_does_not_wait_gives_back_what_it_was_given_too_late(
    broker: Broker, watched: Watched
) -> None:
    await push(broker, "q", b"1")
    gate = watched.hold_answers("pop")
    future = broker.submit_pop(Pop(queue="q", group="g"))
    await until(lambda: watched.under_way["pop"] == 1)
    future.cancel()
    gate.set()
    del watched.late_gates["pop"]
    await until(lambda: broker.measures.pop_steps["given_back"] == 1)
    await until(lambda: broker.measures.ack.messages == 1)
    popped = await pop(broker, "q", group="g")
    assert [m.attempts for m in popped.messages] == [1]
    await ack(broker, popped, AckStatus.COMPLETED, group="g")


# --- a store that fails, or does not answer ---------------------------------------------------


async def test_without_a_buffer_a_store_that_fails_fails_the_calls_and_they_recover(
    broker: Broker, watched: Watched
) -> None:
    await push(broker, "q", b"1")
    watched.is_down = True
    with pytest.raises(StoreUnavailableError):
        await push(broker, "q", b"2")
    assert broker.state == "store_down"
    for future in (
        broker.submit_pop(Pop(queue="q")),
        broker.submit_pop(Pop(queue="q"), 10),
        broker.submit_acks([Ack(lease_id="1-0123456789abcdef")]),
        broker.submit_renews([Renew("1-0123456789abcdef", 1)]),
        broker.submit_transaction(Transaction([message("q")])),
    ):
        with pytest.raises(StoreUnavailableError):
            await bounded(future)
    with pytest.raises(StoreUnavailableError):
        await broker.store.get_queue("q")
    watched.is_down = False


async def test_a_store_that_is_back_is_found_and_wakes_those_who_waited(
    broker: Broker, watched: Watched, clock: ManualClock, place: Place
) -> None:
    waiting = broker.submit_pop(Pop(queue="q"), 60)
    await until(lambda: broker.measures.pops_parked == 1)
    watched.is_down = True
    with pytest.raises(StoreUnavailableError):
        await push(broker, "q", b"1")
    store: Store | None = None
    if place.name != "memory":
        # Somebody else pushes while this broker cannot.
        store = await open_store(place.address, clock=clock, schema=place.schema)
        await store.push([message("q", b"2")])
        await store.close()
    watched.is_down = False
    await serving(broker, clock)
    if place.name == "memory":
        await push(broker, "q", b"2")
    assert payloads(await bounded(waiting)) == [b"2"]


@in_memory
async def test_a_store_that_never_answers_is_given_up_and_what_it_leases_later_is_given_back(
    start_broker: StartBroker, watched: Watched, clock: ManualClock
) -> None:
    broker = await start_broker(store_timeout_seconds=1.0)
    await push(broker, "q", b"1")
    pops, pushes = watched.hold_answers("pop"), watched.hold_answers("push")
    popping = broker.submit_pop(Pop(queue="q"))
    pushing = broker.submit_push(message("q", b"2"))
    with pytest.raises(StoreUnavailableError, match="did not answer"):
        await bounded(popping)
    with pytest.raises(StoreUnavailableError):
        await bounded(pushing)
    assert broker.measures.abandoned == 2
    assert broker.measures.pop.in_flight == 0
    watched.late_gates.clear()
    pops.set()
    pushes.set()
    await until(lambda: broker.measures.pop_steps["given_back"] == 1)
    await serving(broker, clock)
    await until(lambda: broker.measures.ack.messages == 1)
    popped = await pop(broker, "q", batch=10)
    assert payloads(popped) == [b"1", b"2"]
    assert [m.attempts for m in popped.messages] == [1, 1]


async def test_a_flood_of_one_kind_does_not_starve_the_others(broker: Broker) -> None:
    stop = False

    async def flood() -> None:
        while not stop:
            await asyncio.gather(*[broker.submit_push(message("flood")) for _ in range(50)])

    floods = [asyncio.ensure_future(flood()) for _ in range(4)]
    try:
        for _ in range(20):
            await push(broker, "q", b"1")
            popped = await pop(broker, "q")
            assert len(popped.messages) == 1
            await ack(broker, popped)
    finally:
        stop = True
        await bounded(asyncio.gather(*floods))
