"""Pushes that are answered before they are durable, as their sender asked."""

import logging

import pytest

from monarq.broker.broker import Broker
from monarq.clock import ManualClock
from monarq.errors import InvalidRequestError, OverloadedError
from monarq.model import PushStatus
from tests.broker.calls import bounded, message, payloads, pop, push, turns, until, wait_for
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched

lasting = pytest.mark.parametrize("place", STORE_NAMES[1:], indirect=True)
in_memory = pytest.mark.parametrize("place", ["memory"], indirect=True)


async def test_a_deferred_push_leaves_when_its_time_is_up(
    broker: Broker, clock: ManualClock, watched: Watched
) -> None:
    [pushed] = broker.push_later(message("q", b"1"), 500, 100)
    assert pushed.status is PushStatus.BUFFERED
    assert pushed.transaction_id
    clock.advance(0.49)
    await turns()
    assert watched.count("push") == 0
    clock.advance(0.01)
    popped = await bounded(wait_for(broker, "q"))
    assert [m.transaction_id for m in popped.messages] == [pushed.transaction_id]


async def test_deferred_pushes_leave_together_when_enough_have_come(
    broker: Broker, watched: Watched
) -> None:
    for number in range(10):
        broker.push_later(message("q", b"%d" % number), 60_000, 10)
    await until(lambda: broker.measures.push.messages == 10)
    assert [len(requests) for requests in watched.requests("push")] == [10]
    assert payloads(await pop(broker, "q", batch=10)) == [b"%d" % n for n in range(10)]


async def test_a_malformed_deferred_push_is_refused_at_once(broker: Broker) -> None:
    with pytest.raises(InvalidRequestError):
        broker.push_later(message("\x00"), 100, 10)


@in_memory
async def test_deferred_pushes_are_bounded(start_broker: StartBroker) -> None:
    broker = await start_broker(inbox_max_bytes=1_000)
    for _ in range(9):
        broker.push_later(message("q", b'"%s"' % (b"x" * 98)), 60_000, 1_000)
    with pytest.raises(OverloadedError):
        broker.push_later(message("q", b'"%s"' % (b"x" * 100)), 60_000, 1_000)


@lasting
async def test_deferred_pushes_are_stored_before_the_broker_ends(
    start_broker: StartBroker,
) -> None:
    broker = await start_broker()
    broker.push_later(message("q", b"1"), 60_000, 1_000)
    await broker.close(10)
    again = await start_broker()
    assert payloads(await pop(again, "q")) == [b"1"]


@in_memory
async def test_a_deferred_push_that_is_lost_is_said_aloud(
    broker: Broker, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await broker.configure("q", options={"maxSize": 1})
    await push(broker, "q")
    with caplog.at_level(logging.ERROR):
        broker.push_later(message("q", b"1"), 100, 10)
        clock.advance(0.1)
        await until(lambda: broker.measures.deferred_lost == 1)
    assert "is lost" in caplog.text
