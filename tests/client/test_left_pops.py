"""Pops whose callers go away, at any moment: what is leased to nobody is there for the next."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.received import Batch
from monarq.errors import ClientClosedError
from tests.client.conftest import served
from tests.client.waiting import until

ROUNDS = 40


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with served(tmp_path) as url:
        yield url


async def turns(count: int) -> None:
    """Of the loop, so that a caller goes at another moment in each round."""
    for _ in range(count):
        await asyncio.sleep(0)


async def is_there(other: AsyncClient, number: int) -> None:
    """Unharmed: it was given back, not delivered."""
    [message] = await other.queue("q").pop()
    assert (message.payload, message.attempts) == (number, 1)
    await message.ack()


@pytest.mark.parametrize("wait", [30.0, 0.0])
async def test_a_pop_that_is_cancelled_while_its_answer_comes_leases_nothing(
    url: str, wait: float
) -> None:
    async with AsyncClient(url) as mq, AsyncClient(url) as other:
        delivered = 0
        for number in range(ROUNDS):
            popping = asyncio.ensure_future(mq.queue("q").pop(wait=wait))
            await turns(number % 8 * 8)
            await other.queue("q").push(number)
            await turns(number % 5)
            popping.cancel()
            [got] = await asyncio.gather(popping, return_exceptions=True)
            if isinstance(got, Batch) and got:
                assert [message.payload for message in got] == [number]
                await got.ack()
                delivered += 1
            else:
                await is_there(other, number)
        assert delivered < ROUNDS


@pytest.mark.slow
async def test_a_client_that_is_closed_while_an_answer_comes_leases_nothing(url: str) -> None:
    async with AsyncClient(url) as other:
        for number in range(ROUNDS):
            async with AsyncClient(url) as mq:
                popping = asyncio.ensure_future(mq.queue("q").pop(wait=30))
                await turns(number % 8 * 8)
                await other.queue("q").push(number)
                await turns(number % 5)
            [got] = await asyncio.gather(popping, return_exceptions=True)
            assert isinstance(got, Batch | ClientClosedError)
            if isinstance(got, Batch):
                # It was answered before the client was closed, and is its caller's.
                await other.queue("q").clear()
            else:
                await is_there(other, number)


@pytest.mark.slow
async def test_a_consumer_that_is_stopped_while_a_message_comes_loses_none(url: str) -> None:
    handled: list[int] = []
    async with AsyncClient(url) as mq, AsyncClient(url) as other:
        for number in range(ROUNDS):
            async with mq.queue("q").consumer(lambda message: handled.append(message.payload)):
                await turns(number % 8 * 8)
                await other.queue("q").push(number)
                await turns(number % 5)
            for message in await other.queue("q").pop(10):
                assert message.attempts == 1
                handled.append(message.payload)
                await message.ack()
            assert handled == list(range(number + 1))


async def test_who_leaves_before_there_is_anything_does_not_wait_for_it(url: str) -> None:
    async with AsyncClient(url) as mq:
        popping = asyncio.ensure_future(mq.queue("q").pop(wait=3600))
        await until(lambda: bool(mq.link._pops._under_way))  # type: ignore[attr-defined]
        popping.cancel()
        async with asyncio.timeout(30):
            with contextlib.suppress(asyncio.CancelledError):
                await popping
        await mq.queue("q").push(1)
        assert len(await mq.queue("q").pop()) == 1
