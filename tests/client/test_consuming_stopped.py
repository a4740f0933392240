"""Consumers and loops that are stopped, left or closed lose nothing, and give back the rest."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.received import Received
from monarq.errors import ClientClosedError
from monarq.model import Ack, Acked
from monarq.store.contract import Outcome
from tests.client.waiting import until


async def test_stopping_finishes_what_runs_and_gives_back_the_rest(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(3))
    started, go_on = asyncio.Event(), asyncio.Event()

    async def handle(_: Received[int]) -> None:
        started.set()
        await go_on.wait()

    consumer = queue.consumer(handle, batch=3)
    async with consumer:
        await started.wait()
        stopping = asyncio.ensure_future(consumer.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        go_on.set()
        await stopping
    left = await queue.pop(3)
    assert [(message.payload, message.attempts) for message in left] == [(1, 1), (2, 1)]


async def test_stopping_while_it_waits_leases_nothing(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    consumer = queue.consumer(lambda _: None)
    async with consumer:
        await asyncio.sleep(0.05)
    await queue.push(1)
    assert len(await queue.pop()) == 1


async def test_cancelling_gives_the_message_back(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    started = asyncio.Event()

    async def handle(_: Received[int]) -> None:
        started.set()
        await asyncio.Event().wait()

    running = asyncio.ensure_future(queue.consume(handle))
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    [message] = await queue.pop(wait=5)
    assert message.attempts == 1


async def test_what_comes_with_the_last_answer_while_it_stops_is_given_back(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(2))
    seen: list[int] = []
    consumer = queue.consumer(lambda message: seen.append(message.payload))
    real = mq.link.ack_and_pop
    stopping: list[asyncio.Future[None]] = []

    async def then_stop(*args: Any) -> Any:
        answer = await real(*args)
        stopping.append(asyncio.ensure_future(consumer.stop()))
        await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(mq.link, "ack_and_pop", then_stop)
    async with consumer:
        await until(lambda: bool(stopping))
        await stopping[0]
    assert seen == [0]
    [left] = await queue.pop(wait=5)
    assert (left.payload, left.attempts) == (1, 1)


async def test_a_loop_that_is_left_at_the_first_of_a_batch_gives_it_back(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(4))
    messages = queue.messages(batch=2)
    seen = [(await anext(messages)).payload for _ in range(3)]
    await messages.aclose()
    assert seen == [0, 1, 2]
    left = await queue.pop(5, wait=5)
    assert [(message.payload, message.attempts) for message in left] == [(2, 1), (3, 1)]


async def test_a_consumer_ends_when_its_client_is_closed(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    handled = asyncio.Event()

    async def handle(_: Received[int]) -> None:
        handled.set()

    consuming = asyncio.create_task(queue.consume(handle))
    await handled.wait()
    await mq.close()
    with pytest.raises(ClientClosedError):
        async with asyncio.timeout(20):
            await consuming


async def test_closing_gives_back_what_a_loop_was_left_with(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(3))
    async for message in queue:
        if message.payload == 1:
            break
    del message
    gave_back = asyncio.Event()
    ack = mq.link.ack

    async def watched(acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        gave_back.set()
        return await ack(acks)

    mq.link.ack = watched  # type: ignore[method-assign]
    await mq.close()
    assert gave_back.is_set()
