"""Pushes that are gathered on the client's side."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.buffering import UnsentError
from monarq.errors import QueueFullError


async def everything(mq: AsyncClient, queue: str) -> list[Any]:
    return [message.payload for message in await mq.queue(queue).pop(10_000)]


async def test_everything_is_sent_in_order_when_the_block_is_left(mq: AsyncClient) -> None:
    async with mq.queue("q").buffer(max_count=100, max_seconds=60) as buffer:
        for number in range(1050):
            await buffer.add(number)
    assert buffer.sent == 1050
    assert await everything(mq, "q") == list(range(1050))


async def test_what_waited_long_enough_is_sent(mq: AsyncClient) -> None:
    async with mq.queue("q").buffer(max_seconds=0.02) as buffer:
        waiting = asyncio.ensure_future(mq.queue("q").pop(wait=20))
        await buffer.add("x")
        assert [message.payload for message in await waiting] == ["x"]


async def test_a_flush_returns_when_all_is_stored(mq: AsyncClient) -> None:
    async with mq.queue("q").buffer(max_seconds=60) as buffer:
        await buffer.add(1)
        await buffer.flush()
        assert (await mq.queue("q").stats()).pushed == 1


async def test_what_cannot_be_sent_is_handed_back(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.configure(max_size=5)
    buffer = queue.buffer(max_count=3, max_seconds=60)
    await buffer.__aenter__()
    for number in range(6):
        await buffer.add(number)
    with pytest.raises(UnsentError) as caught:
        await buffer.__aexit__()
    assert [item.payload for item in caught.value.unsent] == [b"3", b"4", b"5"]
    assert "pass" in str(caught.value) or "full" in str(caught.value)
    assert await everything(mq, "q") == [0, 1, 2]


async def test_unsent_pushes_can_be_pushed_again_and_are_stored_once(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    async with queue.buffer() as buffer:
        first = await buffer.add("x")
        await buffer.flush()
        await buffer.add("x", transaction_id=first)
    assert await everything(mq, "q") == ["x"]


async def test_a_bad_payload_is_refused_when_it_is_added(mq: AsyncClient) -> None:
    async with mq.queue("q", int).buffer() as buffer:
        with pytest.raises(Exception, match="no int"):
            await buffer.add("x")  # type: ignore[arg-type]
        await buffer.add(1)
    assert await everything(mq, "q") == [1]


async def test_two_batches_at_most_wait_for_a_store(tmp_path: Path) -> None:
    """Backpressure: whoever adds faster than the store takes waits."""
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as mq:
        buffer = mq.queue("q").buffer(max_count=2, max_seconds=60)
        # Not entered: nothing is sent.
        for number in range(4):
            await buffer.add(number)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(buffer.add(4), 0.05)


async def test_queue_full_is_the_cause(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.configure(max_size=1)
    with pytest.raises(QueueFullError):
        await queue.push_many([1, 2])
