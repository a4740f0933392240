"""Two brokers on one store: what one does reaches those who wait at the other."""

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator

import pytest

from monarq.broker.broker import Broker
from monarq.broker.peers import Peers
from monarq.clock import SECOND, ManualClock
from monarq.model import Ack, Acked, Pop, Push, PushItem
from tests.broker.calls import (
    ack,
    bounded,
    is_still,
    parked,
    payloads,
    pop,
    push,
    turns,
    until,
    wait_for,
)
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.store.conftest import Place

SHARED = STORE_NAMES[1:]

pytestmark = pytest.mark.parametrize("place", SHARED, indirect=True)


@pytest.fixture
async def peers() -> AsyncIterator[list[Peers]]:
    async with contextlib.AsyncExitStack() as stack:
        made = [await Peers.start("127.0.0.1", 0) for _ in range(2)]
        for each in made:
            stack.callback(each.close)
        for each, other in (made, made[::-1]):
            host, port = other.address
            each.set_peers([f"{host}:{port}"])
        yield made


async def move_until(
    clock: ManualClock, broker: Broker, done: "asyncio.Future[object]", most: float
) -> float:
    """Move time in small steps until it is done; how far that was. It stands still while the
    broker works."""
    passed = 0.0
    while not done.done():
        assert passed < most, f"nothing happened in {passed} s"
        clock.advance(0.02)
        passed += 0.02
        await turns(5)
        await until(lambda: is_still(broker) and not broker._parts.poller.is_asking)
    return passed


async def test_without_notices_a_push_at_another_broker_is_found_by_asking(
    start_broker: StartBroker, clock: ManualClock, place: Place
) -> None:
    here, there = await start_broker(), await start_broker()
    waiting = wait_for(here, "q")
    await parked(here, 1)
    await push(there, "q", b"1")
    passed = await move_until(clock, here, waiting, 2.5)
    assert payloads(waiting.result()) == [b"1"]
    assert passed <= (2.2 if place.is_postgres else 0.5)


async def test_what_an_ack_elsewhere_frees_is_found_by_asking(
    start_broker: StartBroker, clock: ManualClock
) -> None:
    here, there = await start_broker(), await start_broker()
    await there.push(Push([PushItem("q", b"1"), PushItem("q", b"2")]))
    popped = await pop(there, "q")
    waiting = wait_for(here, "q")
    await parked(here, 1)
    await ack(there, popped)
    await move_until(clock, here, waiting, 2.5)
    assert payloads(waiting.result()) == [b"2"]


async def test_postgresql_is_asked_more_rarely_while_nothing_changes(
    start_broker: StartBroker, clock: ManualClock, place: Place
) -> None:
    here, there = await start_broker(), await start_broker()
    waiting = wait_for(here, "q", 3600)
    await parked(here, 1)
    times: list[int] = []
    polls = 0
    for _ in range(500):
        clock.advance(0.01)
        await turns(5)
        await until(lambda: is_still(here) and not here._parts.poller.is_asking)
        if here.measures.polls > polls:
            polls = here.measures.polls
            times.append(clock.now())
    gaps = [(later - sooner) / SECOND for sooner, later in itertools.pairwise(times)]
    if not place.is_postgres:
        assert gaps == pytest.approx([0.02] * len(gaps), abs=0.011)
        return
    assert gaps[:4] == pytest.approx([0.2, 0.4, 0.8, 1.0], abs=0.11)
    assert all(gap == pytest.approx(1.0, abs=0.11) for gap in gaps[3:])
    await push(there, "q", b"1")
    await move_until(clock, here, waiting, 2.5)
    again = wait_for(here, "q", 3600)
    await parked(here, 1)
    await push(there, "q", b"2", partition="other")
    assert await move_until(clock, here, again, 2.5) <= 0.5


async def test_a_notice_wakes_at_once(start_broker: StartBroker, peers: list[Peers]) -> None:
    here = await start_broker(peers=peers[0])
    there = await start_broker(peers=peers[1])
    waiting = wait_for(here, "q")
    await parked(here, 1)
    # Time stands still, so that nobody asks by himself.
    await push(there, "q", b"1")
    popped = await bounded(waiting)
    assert payloads(popped) == [b"1"]
    await push(there, "q", b"2")
    waiting = wait_for(there, "q")
    await parked(there, 1)
    await ack(here, popped)
    assert payloads(await bounded(waiting)) == [b"2"]


@pytest.mark.parametrize(
    "then", [Pop(queue="other"), Pop(queue="q", partition="other"), Pop(queue="q", group="other")]
)
async def test_what_a_joint_call_frees_wakes_those_who_wait_elsewhere_at_once(
    start_broker: StartBroker, peers: list[Peers], then: Pop
) -> None:
    here = await start_broker(peers=peers[0])
    there = await start_broker(peers=peers[1])
    await there.push(Push([PushItem("q", b"1"), PushItem("q", b"2"), PushItem("q", b"3", "other")]))
    popped = await pop(there, "q", partition="Default")
    waiting = wait_for(here, "q", partition="Default")
    await parked(here, 1)
    # Time stands still, so that nobody asks by himself.
    [acked], _ = await there.ack_and_pop([Ack(lease_id=popped.lease_id)], then)
    assert isinstance(acked, Acked)
    second = await bounded(waiting)
    assert payloads(second) == [b"2"]
    # One by one, and with nothing left for its own pop.
    await push(there, "q", b"4")
    waiting = wait_for(there, "q", partition="Default")
    await parked(there, 1)
    [message] = second.messages
    done = Ack(
        transaction_id=message.transaction_id,
        partition_id=message.partition_id,
        lease_id=second.lease_id,
    )
    [acked], _ = await here.ack_and_pop([done], then)
    assert isinstance(acked, Acked)
    assert payloads(await bounded(waiting)) == [b"4"]


async def test_a_notice_that_may_be_about_anything_wakes_all(
    start_broker: StartBroker, peers: list[Peers]
) -> None:
    from monarq.broker.notices import NoticeKind

    here = await start_broker(peers=peers[0])
    there = await start_broker()
    waiting = [wait_for(here, "q") for _ in range(5)]
    await parked(here, 5)
    await there.push(Push([PushItem("q", b"{}", f"p{n}") for n in range(5)]))
    peers[1].notify(NoticeKind.MESSAGE_AVAILABLE)
    for future in waiting:
        await bounded(future)


async def test_two_brokers_give_each_message_once(
    start_broker: StartBroker, peers: list[Peers]
) -> None:
    brokers = [await start_broker(peers=peers[0]), await start_broker(peers=peers[1])]
    waiting = [wait_for(brokers[n % 2], "q") for n in range(100)]
    for broker in brokers:
        await parked(broker, 50)
    for start in range(0, 100, 10):
        items = [PushItem("q", b"%d" % n, f"p{n}") for n in range(start, start + 10)]
        await brokers[start // 10 % 2].push(Push(items))
    got = [payload for future in waiting for payload in payloads(await bounded(future))]
    assert sorted(map(int, got)) == list(range(100))


async def test_maintenance_of_one_broker_is_seen_by_the_other(
    start_broker: StartBroker, peers: list[Peers], clock: ManualClock
) -> None:
    told = await start_broker(peers=peers[0])
    teller = await start_broker(peers=peers[1])
    alone = await start_broker()
    await teller.set_maintenance(pop=True)
    await until(lambda: told.maintenance_pop)
    assert not alone.maintenance_pop
    clock.advance(2.01)
    await until(lambda: alone.maintenance_pop)
    await push(teller, "q", b"1")
    for broker in (told, teller, alone):
        assert (await pop(broker, "q")).messages == []


async def test_maintenance_wakes_those_who_waited_when_it_ends(start_broker: StartBroker) -> None:
    broker: Broker = await start_broker()
    early = wait_for(broker, "q")
    await parked(broker, 1)
    await broker.set_maintenance(pop=True)
    late = wait_for(broker, "q")
    await push(broker, "q", b"1")
    await push(broker, "q", b"2", partition="other")
    await parked(broker, 2)
    await broker.set_maintenance(pop=False)
    assert {*payloads(await bounded(early)), *payloads(await bounded(late))} == {b"1", b"2"}
