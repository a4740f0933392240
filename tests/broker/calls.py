"""Short forms of the broker's calls for tests."""

import asyncio
from collections.abc import Callable
from typing import Any

from monarq.broker.broker import Broker
from monarq.errors import MonarqError
from monarq.model import Ack, Acked, AckStatus, Pop, Popped, Push, Pushed, PushItem

#: How long a test waits for what must happen, on a machine that is busy with other tests.
BOUND = 30.0


async def until(condition: Callable[[], bool], what: str = "") -> None:
    """Wait for something that must become true."""
    async with asyncio.timeout(BOUND):
        while not condition():  # noqa: ASYNC110 - there is nothing to wait on
            await asyncio.sleep(0.001)


async def bounded(future: "asyncio.Future[Any]") -> Any:
    return await asyncio.wait_for(future, BOUND)


async def turns(count: int = 20) -> None:
    """Let the loop go round, for what must not happen."""
    for _ in range(count):
        await asyncio.sleep(0)


async def parked(broker: Broker, count: int) -> None:
    """Until so many pops are parked, and none is looking."""
    await until(lambda: is_still(broker) and broker.measures.pops_parked == count)


def is_still(broker: Broker) -> bool:
    measures = broker.measures
    return not measures.pops_pending and not measures.pop.in_flight


def message(queue: str, payload: bytes = b"{}", **fields: Any) -> Push:
    """A push of one message; `fields` are those of `PushItem`."""
    return Push([PushItem(queue, payload, **fields)])


async def push(broker: Broker, queue: str, payload: bytes = b"{}", **fields: Any) -> Pushed:
    [pushed] = await bounded(broker.submit_push(message(queue, payload, **fields)))
    return pushed


def wait_for(
    broker: Broker, queue: str | None, seconds: float = 30.0, **fields: Any
) -> "asyncio.Future[Popped]":
    """A pop that waits; `fields` are those of `Pop`."""
    return broker.submit_pop(Pop(queue=queue, **fields), seconds)


async def pop(broker: Broker, queue: str | None, **fields: Any) -> Popped:
    """A pop that does not."""
    popped: Popped = await bounded(broker.submit_pop(Pop(queue=queue, **fields)))
    return popped


async def ack(
    broker: Broker, popped: Popped, status: AckStatus = AckStatus.COMPLETED, **fields: Any
) -> list[Acked]:
    """Answer all messages of a pop one by one, in one call."""
    acks = [
        Ack(
            status=status,
            transaction_id=each.transaction_id,
            partition_id=each.partition_id,
            lease_id=popped.lease_id,
            **fields,
        )
        for each in popped.messages
    ]
    answers = await bounded(broker.submit_acks(acks))
    for answer in answers:
        if isinstance(answer, MonarqError):
            raise answer
    acked: list[Acked] = answers
    return acked


def payloads(popped: Popped) -> list[bytes]:
    return [each.payload for each in popped.messages]
