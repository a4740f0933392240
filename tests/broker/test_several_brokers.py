"""Several brokers in one process: each has its own state, on two stores and on one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.config import Settings
from monarq.errors import DrainingError
from monarq.health import State
from monarq.model import Ack, Pop, QueueKind
from monarq.store import open_store
from tests.broker.calls import BOUND, bounded, message, parked, pop, push, turns, wait_for
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.conftest import new_place

ON_ONE_STORE = pytest.mark.parametrize("place", ["sqlite", POSTGRES_NAMES[-1]], indirect=True)


@pytest.fixture(params=STORE_NAMES)
async def two(
    request: pytest.FixtureRequest, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> AsyncIterator[tuple[Broker, Broker]]:
    """Brokers on two stores of one kind; on PostgreSQL two schemas of one database."""
    clock = ManualClock()
    async with contextlib.AsyncExitStack() as stack:
        brokers = []
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
            place = await stack.enter_async_context(
                new_place(request.param, tmp_path / name, postgres_servers)
            )
            brokers.append(await start_on(place.address, place.schema, clock))
            stack.push_async_callback(brokers[-1].close, 10)
        yield brokers[0], brokers[1]


async def start_on(address: str, schema: str, clock: ManualClock) -> Broker:
    settings = Settings(store=address, schema=schema)
    return await Broker.start(
        lambda: open_store(address, clock=clock, schema=schema), settings, clock=clock
    )


async def test_brokers_on_two_stores_see_nothing_of_each_other(two: tuple[Broker, Broker]) -> None:
    one, other = two
    await one.store.configure("q", kind=QueueKind.WORK)
    await push(one, "q", b"1")
    waiting = wait_for(other, "q")
    await parked(other, 1)
    await push(one, "q", b"2")
    await turns()
    assert not waiting.done()
    assert (one.health().parked, other.health().parked) == (0, 1)
    await push(other, "q", b"3", partition="p")  # ordered here, a work queue there
    [found] = (await bounded(waiting)).messages
    assert (found.payload, found.partition) == (b"3", "p")
    assert [queue.kind for queue in (await one.store.list_queues()).rows] == [QueueKind.WORK]
    assert [queue.kind for queue in (await other.store.list_queues()).rows] == [QueueKind.ORDERED]
    assert (one.measures.push.messages, other.measures.push.messages) == (2, 1)
    assert (one.measures.pop.messages, other.measures.pop.messages) == (0, 1)


async def test_a_lease_of_one_store_is_none_of_the_other(two: tuple[Broker, Broker]) -> None:
    one, other = two
    for broker in two:
        await push(broker, "q")
    popped = await pop(one, "q")
    ack = Ack(lease_id=popped.lease_id)
    [refused] = await other.ack([ack])
    assert isinstance(refused, Exception)
    [acked] = await one.ack([ack])
    assert not isinstance(acked, Exception)
    assert len((await pop(other, "q")).messages) == 1


async def test_maintenance_and_the_end_of_one_broker_are_not_the_others(
    two: tuple[Broker, Broker],
) -> None:
    one, other = two
    await push(other, "q")
    await one.set_maintenance(push=None, pop=True)
    assert (one.health().maintenance_pop, other.health().maintenance_pop) == (True, False)
    await one.close(1)
    with pytest.raises(DrainingError):
        await bounded(one.submit_push(message("q")))
    assert other.state is State.SERVING
    assert len((await pop(other, "q")).messages) == 1


@ON_ONE_STORE
async def test_brokers_on_one_store_share_its_messages_and_nothing_else(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    one, other = await start_broker(), await start_broker()
    waiting = wait_for(other, "q", consumer="me")
    await parked(other, 1)
    assert (one.health().parked, other.health().parked) == (0, 1)
    await push(one, "q", b"1")
    await turns()
    assert not waiting.done()  # nobody tells it: it looks by itself, in time
    clock.advance(10)
    popped = await bounded(waiting)
    [found] = popped.messages
    assert found.payload == b"1"
    assert (one.measures.push.messages, other.measures.push.messages) == (1, 0)
    assert (one.measures.pop.messages, other.measures.pop.messages) == (0, 1)
    [acked] = await one.ack([Ack(lease_id=popped.lease_id)])
    assert not isinstance(acked, Exception)
    await other.close(1)
    assert (one.state, other.state) == (State.SERVING, State.DRAINING)
    await push(one, "q", b"2")
    assert [m.payload for m in (await pop(one, "q")).messages] == [b"2"]


@pytest.mark.parametrize("kind", ["sqlite", POSTGRES_NAMES[-1]])
async def test_brokers_of_two_loops_work_side_by_side(
    kind: str, tmp_path: Path, postgres_servers: Mapping[str, str]
) -> None:
    """Each in a thread with a loop of its own, on one store, and both under load."""
    async with new_place(kind, tmp_path, postgres_servers) as place:
        clock = ManualClock()
        both = threading.Barrier(2)
        found: dict[str, list[bytes]] = {}

        async def work(name: str) -> None:
            broker = await start_on(place.address, place.schema, clock)
            try:
                await asyncio.to_thread(both.wait, BOUND)
                for number in range(50):
                    await push(broker, name, b"%d" % number)
                popped = await broker.pop(Pop(queue=name, batch=100), 0.0)
                found[name] = [each.payload for each in popped.messages]
            finally:
                await broker.close(10)

        async with asyncio.timeout(BOUND):
            await asyncio.gather(
                *(asyncio.to_thread(asyncio.run, work(name)) for name in ("a", "b"))
            )
        expected = [b"%d" % number for number in range(50)]
        assert found == {"a": expected, "b": expected}
