"""Pushes that the published client gathers before it sends them."""

import asyncio
from typing import Any

import pytest

from tests.interop.conftest import NewQueen
from tests.interop.verbs import await_pop, data, pop

#: Longer than any test: only the count, or a flush, sends.
NEVER = 600_000


async def _buffer(queen: Any, name: str, payloads: Any, **options: int) -> None:
    for payload in payloads:
        queue = queen.queue(name).buffer({"message_count": 1000, "time_millis": NEVER} | options)
        assert await queue.push({"data": payload}) == {"buffered": True, "count": 1}


async def test_a_buffer_holds_messages_back_until_it_is_flushed(queen: Any, name: str) -> None:
    await _buffer(queen, name, range(250), message_count=1000)
    assert await pop(queen, name) == []
    assert queen.get_buffer_stats()["totalBufferedMessages"] == 250
    await queen.flush_all_buffers()
    assert queen.get_buffer_stats()["totalBufferedMessages"] == 0
    assert data(await pop(queen, name, batch=1000)) == list(range(250))


async def test_a_full_buffer_is_sent_by_itself(queen: Any, name: str) -> None:
    await _buffer(queen, name, range(10), message_count=10)
    assert data(await await_pop(queen, name)) == list(range(10))


async def test_an_old_buffer_is_sent_by_itself(queen: Any, name: str) -> None:
    await _buffer(queen, name, ["one", "two"], time_millis=50)
    assert data(await await_pop(queen, name)) == ["one", "two"]


async def test_one_queues_buffer_is_flushed_alone(queen: Any, name: str) -> None:
    await _buffer(queen, name, [1])
    await _buffer(queen, f"{name}-other", [2])
    await queen.queue(name).flush_buffer()
    assert data(await pop(queen, name)) == [1]
    assert await pop(queen, f"{name}-other") == []


async def test_closing_the_client_sends_what_is_buffered(new_queen: NewQueen, name: str) -> None:
    leaving, staying = new_queen(), new_queen()
    await _buffer(leaving, name, range(30))
    await leaving.close()
    assert data(await pop(staying, name)) == list(range(30))


async def _produce(
    new_queen: NewQueen, name: str, *, message_count: int, flush_every: int
) -> dict[str, list[int]]:
    """Five producers of 100 messages at once; what is in the partition of each then."""

    async def produce(partition: str) -> None:
        queen = new_queen()
        for n in range(100):
            queue = queen.queue(name).partition(partition)
            options = {"message_count": message_count, "time_millis": NEVER}
            await queue.buffer(options).push({"data": n})
            if n % flush_every == flush_every - 1:
                await queen.flush_all_buffers()
        await queen.flush_all_buffers()

    partitions = [f"producer-{n}" for n in range(5)]
    await asyncio.gather(*map(produce, partitions))
    queen = new_queen()
    return {
        partition: data(await queen.queue(name).partition(partition).wait(False).batch(1000).pop())
        for partition in partitions
    }


async def test_buffers_that_many_producers_flush_keep_the_order_of_each(
    new_queen: NewQueen, name: str
) -> None:
    found = await _produce(new_queen, name, message_count=1000, flush_every=7)
    assert all(numbers == list(range(100)) for numbers in found.values()), found


async def test_full_buffers_of_many_producers_lose_nothing(new_queen: NewQueen, name: str) -> None:
    found = await _produce(new_queen, name, message_count=7, flush_every=100)
    # The client sends what is full and what is flushed in requests at the same time, and so
    # leaves their order open; within a request it is kept.
    assert all(sorted(numbers) == list(range(100)) for numbers in found.values()), found


async def test_a_repeated_flush_stores_a_transaction_id_once(queen: Any, name: str) -> None:
    buffered = {"message_count": 1000, "time_millis": NEVER}
    for _ in range(2):
        await queen.queue(name).buffer(buffered).push({"transactionId": "same", "data": 1})
        await queen.flush_all_buffers()
    assert data(await pop(queen, name)) == [1]


@pytest.mark.parametrize("count", [0, 1])
async def test_flushing_when_there_is_nothing_is_harmless(queen: Any, count: int) -> None:
    for _ in range(count + 1):
        await queen.flush_all_buffers()
