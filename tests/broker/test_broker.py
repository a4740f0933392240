"""The broker as a whole: from its start to its end, with and without a store."""

import asyncio
from pathlib import Path

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.config import Settings
from monarq.errors import (
    AlreadyPushedError,
    ConflictError,
    DrainingError,
    InvalidRequestError,
    SchemaVersionError,
    StoreUnavailableError,
)
from monarq.model import Ack, Pop, Popped, Push, Pushed, PushItem, PushStatus, Transaction
from monarq.store import Store
from tests.broker.calls import (
    ack,
    bounded,
    message,
    parked,
    payloads,
    pop,
    push,
    turns,
    until,
    wait_for,
)
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched

pytestmark = pytest.mark.smoke

in_memory = pytest.mark.parametrize("place", ["memory"], indirect=True)
lasting = pytest.mark.parametrize("place", STORE_NAMES[1:], indirect=True)


async def found_again(broker: Broker, clock: ManualClock) -> None:
    def is_back() -> bool:
        clock.advance(0.25)
        return broker.state != "store_down"

    await until(is_back)


async def drained_buffer(broker: Broker) -> None:
    await until(lambda: (h := broker.health().buffer) is not None and h.route == "direct")


# --- the start ---


async def test_a_broker_without_a_store_starts_and_serves_when_there_is_one(
    start_broker: StartBroker, watched: Watched, clock: ManualClock, tmp_path: Path
) -> None:
    watched.is_down = True
    broker = await start_broker(buffer_dir=tmp_path / "buffer", buffer_retry_seconds=0.02)
    assert broker.state == "store_down"
    assert not broker.health().store_ok
    [pushed] = await broker.push(message("q", b"1"))
    assert pushed.status is PushStatus.BUFFERED
    with pytest.raises(StoreUnavailableError):
        await pop(broker, "q")
    with pytest.raises(StoreUnavailableError):
        broker.store  # noqa: B018 - reading it raises
    watched.is_down = False
    await found_again(broker, clock)
    assert payloads(await bounded(wait_for(broker, "q"))) == [b"1"]


async def test_a_store_that_must_not_be_used_stops_the_start() -> None:
    async def opener() -> Store:
        raise SchemaVersionError("too new")

    with pytest.raises(SchemaVersionError):
        await Broker.start(opener, Settings())


# --- the store goes and comes ---


async def test_pushes_are_kept_while_the_store_is_down_and_stay_in_order(
    start_broker: StartBroker, watched: Watched, clock: ManualClock, tmp_path: Path
) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer", buffer_retry_seconds=0.02)
    waiting = wait_for(broker, "q", 3600, batch=100)
    await parked(broker, 1)
    watched.is_down = True
    for number in range(10):
        [pushed] = await bounded(broker.submit_push(message("q", b"%d" % number)))
        assert pushed.status is PushStatus.BUFFERED
        assert pushed.transaction_id
    with pytest.raises(InvalidRequestError):
        await bounded(broker.submit_push(message("\x00")))
    watched.is_down = False
    await found_again(broker, clock)
    for number in range(10, 20):
        await bounded(broker.submit_push(message("q", b"%d" % number)))
    await drained_buffer(broker)
    got: list[bytes] = []
    while len(got) < 20:
        popped = await bounded(waiting)
        got += payloads(popped)
        await ack(broker, popped)
        waiting = wait_for(broker, "q", 3600, batch=100)
    assert got == [b"%d" % number for number in range(20)]
    assert broker.measures.buffered >= 10


async def test_a_push_whose_answer_was_lost_is_stored_once(
    start_broker: StartBroker, watched: Watched, clock: ManualClock, tmp_path: Path
) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer", buffer_retry_seconds=0.02)
    lost: list[str] = []

    def disturb(name: str, _: object) -> BaseException | None:
        if name == "push" and not lost:
            lost.append(name)
            return StoreUnavailableError("the connection was lost on the way back")
        return None

    watched.disturb_after = disturb
    futures = [broker.submit_push(message("q", b"%d" % n)) for n in range(5)]
    for future in futures:
        [pushed] = await bounded(future)
        assert pushed.status is PushStatus.BUFFERED
    await found_again(broker, clock)
    await drained_buffer(broker)
    assert payloads(await pop(broker, "q", batch=100)) == [b"0", b"1", b"2", b"3", b"4"]


@in_memory
async def test_a_push_that_hangs_is_buffered_and_stored_once(
    start_broker: StartBroker, watched: Watched, clock: ManualClock, tmp_path: Path
) -> None:
    broker = await start_broker(
        buffer_dir=tmp_path / "buffer", buffer_retry_seconds=0.02, store_timeout_seconds=1.0
    )
    gate = watched.hold_answers("push")
    [pushed] = await bounded(broker.submit_push(message("q", b"1")))
    assert pushed.status is PushStatus.BUFFERED
    [again] = await bounded(broker.submit_push(message("q", b"2")))
    assert again.status is PushStatus.BUFFERED
    watched.late_gates.clear()
    gate.set()
    await found_again(broker, clock)
    await drained_buffer(broker)
    assert payloads(await pop(broker, "q", batch=100)) == [b"1", b"2"]


async def test_a_transaction_does_not_pass_what_is_in_the_buffer(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer")
    await broker.set_maintenance(push=True)
    [pushed] = await broker.push(message("q", b"1"))
    assert pushed.status is PushStatus.BUFFERED
    with pytest.raises(StoreUnavailableError):
        await bounded(broker.submit_transaction(Transaction([message("q", b"2")])))
    await broker.set_maintenance(push=False)
    await drained_buffer(broker)
    await bounded(broker.submit_transaction(Transaction([message("q", b"2")])))
    assert payloads(await pop(broker, "q", batch=100)) == [b"1", b"2"]


async def test_a_chained_push_is_stored_or_refused_but_never_buffered(
    start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer")

    def chained(text: bytes, mark: str, after: str | None) -> asyncio.Future[list[Pushed]]:
        return broker.submit_chained_push(message("q", text), mark=mark, after=after, size=1)

    await bounded(chained(b"1", "first", None))
    await broker.set_maintenance(push=True)
    with pytest.raises(StoreUnavailableError):
        await bounded(chained(b"2", "second", "first"))
    await broker.set_maintenance(push=False)
    await drained_buffer(broker)
    with pytest.raises(ConflictError):
        await bounded(chained(b"3", "third", "second"))
    await bounded(chained(b"2", "second", "first"))
    with pytest.raises(AlreadyPushedError):
        await bounded(chained(b"2", "second", "first"))
    assert payloads(await pop(broker, "q", batch=100)) == [b"1", b"2"]


async def test_a_chained_push_wakes_who_waits(broker: Broker) -> None:
    waiting = broker.submit_pop(Pop(queue="q"), wait_seconds=60)
    await bounded(broker.submit_chained_push(message("q", b"1"), mark="m", after=None, size=1))
    assert payloads(await bounded(waiting)) == [b"1"]


# --- maintenance ---


@lasting
async def test_maintenance_holds_over_a_restart(start_broker: StartBroker, tmp_path: Path) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer")
    await broker.set_maintenance(push=True, pop=True)
    assert broker.state == "maintenance"
    await broker.close(5)
    broker = await start_broker(buffer_dir=tmp_path / "buffer")
    assert (broker.maintenance_push, broker.maintenance_pop) == (True, True)
    [pushed] = await broker.push(message("q", b"1"))
    assert pushed.status is PushStatus.BUFFERED
    assert (await pop(broker, "q")).messages == []
    await broker.set_maintenance(push=False)
    assert broker.maintenance_pop
    await broker.set_maintenance(pop=False)
    assert broker.state == "serving"
    assert payloads(await bounded(wait_for(broker, "q"))) == [b"1"]


@in_memory
async def test_maintenance_of_pushes_needs_a_buffer(broker: Broker) -> None:
    with pytest.raises(ConflictError):
        await broker.set_maintenance(push=True)


async def test_in_maintenance_waiting_pops_time_out_as_usual(
    broker: Broker, clock: ManualClock
) -> None:
    await broker.set_maintenance(pop=True)
    await push(broker, "q", b"1")
    waiting = wait_for(broker, "q", 5)
    clock.advance(4.9)
    await turns()
    assert not waiting.done()
    clock.advance(0.1)
    assert await bounded(waiting) == Popped(messages=[])


# --- the end ---


async def test_draining_answers_the_parked_and_refuses_the_new(broker: Broker) -> None:
    waiting = [wait_for(broker, "q") for _ in range(10)]
    await parked(broker, 10)
    broker.drain()
    for future in waiting:
        assert future.done()
        assert future.result() == Popped(messages=[])
    for refused in (
        broker.submit_push(message("q")),
        broker.submit_pop(Pop(queue="q")),
        broker.submit_pop(Pop(queue="q"), 10),
        broker.submit_acks([Ack(lease_id="1-0123456789abcdef")]),
    ):
        with pytest.raises(DrainingError):
            await refused
    with pytest.raises(DrainingError):
        broker.push_later(message("q"), 100, 10)
    assert broker.state == "draining"


@lasting
async def test_what_was_taken_is_finished_before_the_end(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(push_concurrency=1)
    gate = watched.hold("push")
    futures = [broker.submit_push(message("q", b"1"))]
    await turns()
    futures += [broker.submit_push(message("q", b"%d" % n)) for n in range(2, 5)]
    closing = asyncio.ensure_future(broker.close(30))
    await turns(50)
    assert not closing.done()
    gate.set()
    await bounded(closing)
    for future in futures:
        assert future.result()[0].status is PushStatus.QUEUED
    again = await start_broker()
    assert payloads(await pop(again, "q", batch=10)) == [b"1", b"2", b"3", b"4"]


@lasting
async def test_a_lease_that_nobody_received_is_given_back_before_the_end(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker()
    await push(broker, "q", b"1")
    gate = watched.hold_answers("pop")
    popping = wait_for(broker, "q")
    await until(lambda: watched.under_way["pop"] == 1)
    popping.cancel()
    closing = asyncio.ensure_future(broker.close(30))
    await turns()
    watched.late_gates.clear()
    gate.set()
    await bounded(closing)
    again = await start_broker()
    assert [m.attempts for m in (await pop(again, "q")).messages] == [1]


async def test_closing_does_not_wait_longer_than_told(
    start_broker: StartBroker, watched: Watched
) -> None:
    broker = await start_broker(store_timeout_seconds=0.2)
    watched.hold("push")
    future = broker.submit_push(message("q"))
    await until(lambda: watched.under_way["push"] == 1)
    await bounded(asyncio.ensure_future(broker.close(0.05)))
    with pytest.raises((DrainingError, StoreUnavailableError)):
        await future


async def test_closing_twice_is_harmless(broker: Broker) -> None:
    await asyncio.gather(broker.close(1), broker.close(1))
    await broker.close(1)


# --- what it tells ---


async def test_health_and_measures_tell_what_is_going_on(
    start_broker: StartBroker, tmp_path: Path, watched: Watched
) -> None:
    broker = await start_broker(buffer_dir=tmp_path / "buffer")
    await broker.push(Push([PushItem("q", b"1"), PushItem("q", b"2")]))
    popped = await pop(broker, "q", batch=10)
    await ack(broker, popped)
    wait_for(broker, "q")
    await parked(broker, 1)
    health = broker.health()
    assert (health.state, health.store_ok, health.parked) == ("serving", True, 1)
    assert health.buffer is not None
    assert health.buffer.route == "direct"
    measures = broker.measures
    assert (measures.push.calls, measures.push.messages) == (1, 2)
    assert (measures.pop.calls, measures.pop.messages) == (2, 2)
    assert (measures.ack.calls, measures.ack.messages) == (1, 2)
    assert measures.push.seconds.total == 1
    assert measures.pop_steps["delivered"] == 1
    assert measures.pops_parked == 1
    watched.is_down = True
    await broker.push(message("q"))
    assert broker.health().store_error is not None
    assert broker.measures.store_failures == 1
