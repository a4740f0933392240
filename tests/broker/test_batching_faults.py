"""Calls that share a batch: what becomes of them if one is bad, goes away, or the store fails."""

import asyncio

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, QueueFullError, StoreUnavailableError
from monarq.model import Ack, AckStatus, Pop, Push, PushItem, Renew, Transaction
from monarq.store import Store, open_store
from tests.broker.calls import ack, bounded, message, payloads, pop, push, turns, until
from tests.broker.conftest import StartBroker
from tests.broker.watching import Watched
from tests.store.conftest import Place


async def serving(broker: Broker, clock: ManualClock) -> None:
    """Move time until the store is found again."""

    def is_serving() -> bool:
        clock.advance(0.25)
        return broker.state == "serving"

    await until(is_serving)


in_memory = pytest.mark.parametrize("place", ["memory"], indirect=True)


# --- one spoils nothing for the others ---


async def test_a_malformed_push_fails_alone(broker: Broker) -> None:
    futures = [broker.submit_push(message("q" if n != 5 else "\x00", b"%d" % n)) for n in range(10)]
    with pytest.raises(InvalidRequestError):
        await bounded(futures[5])
    for future in futures[:5] + futures[6:]:
        await bounded(future)
    assert len((await pop(broker, "q", batch=100)).messages) == 9


async def test_a_full_queue_refuses_one_caller_and_not_the_others(broker: Broker) -> None:
    await broker.configure("small", options={"maxSize": 1})
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


# --- callers that go away ---


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


async def test_an_error_for_a_caller_that_left_does_not_keep_its_request(
    broker: Broker, watched: Watched
) -> None:
    error = QueueFullError("the test refuses it")
    watched.disturb = lambda name, requests: error if name == "push" else None
    gate = watched.hold("push")
    future = broker.submit_push(message("q"))
    await until(lambda: watched.count("push") == 1)
    future.cancel()
    gate.set()
    await until(lambda: broker.measures.guilty == 1)
    assert error.__traceback__ is None, "its frames hold the request"


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


# --- a store that fails, or does not answer ---


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
        await broker.store.queue_settings("q")
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
