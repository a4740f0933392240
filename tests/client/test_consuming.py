"""Consuming with handlers."""

import asyncio
import threading
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.received import Batch, Received
from monarq.errors import InvalidRequestError, LeaseError
from tests.client.waiting import until


async def test_every_message_is_handled_and_acked(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(50))
    seen: list[int] = []

    async def handle(message: Received[int]) -> None:
        seen.append(message.payload)

    async with queue.consumer(handle, batch=7) as consumer:
        await until(lambda: consumer.handled == 50)
    assert seen == list(range(50))
    assert (await queue.stats()).completed == 50


async def test_a_plain_function_runs_in_a_thread(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    threads: list[str] = []

    async with queue.consumer(lambda _: threads.append(threading.current_thread().name)):
        await until(lambda: bool(threads))
    assert threads[0].startswith("monarq-consumer")


async def test_messages_are_handled_at_the_same_time_up_to_the_concurrency(
    mq: AsyncClient,
) -> None:
    queue = mq.queue("q")
    for number in range(6):
        await queue.partition(f"p{number}").push(number)
    running = most = 0
    go_on = asyncio.Event()

    async def handle(_: Received[int]) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 3:
            go_on.set()
        await go_on.wait()
        running -= 1

    async with queue.consumer(handle, concurrency=3) as consumer:
        await until(lambda: consumer.handled == 6)
    assert most == 3


async def test_what_fails_is_retried_before_anything_behind_it(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.configure(retry_delay=0, retry_limit=5)
    await queue.push_many("abc")
    seen: list[str] = []

    async def handle(message: Received[str]) -> None:
        seen.append(message.payload)
        if message.payload == "b" and message.attempts < 3:
            raise RuntimeError("not yet")

    errors: list[BaseException] = []
    async with queue.consumer(handle, batch=10, on_error=errors.append) as consumer:
        await until(lambda: consumer.handled == 3)
    assert seen == ["a", "b", "b", "b", "c"]
    assert [str(error) for error in errors] == ["not yet"] * 2


async def test_an_item_that_fails_does_not_hold_up_the_others(mq: AsyncClient) -> None:
    queue = mq.queue("w")
    await queue.configure(kind="work", backoff_base=100)
    await queue.push_many("abc")
    seen: list[str] = []

    async def handle(message: Received[str]) -> None:
        seen.append(message.payload)
        if message.payload == "a":
            raise RuntimeError

    async with queue.consumer(handle, batch=10) as consumer:
        await until(lambda: consumer.handled == 2)
    assert seen == ["a", "b", "c"]
    assert (await queue.stats()).states["scheduled"] == 1


async def test_a_batch_handler_gets_whole_batches(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(10))
    sizes: list[int] = []

    async def handle(batch: Batch[int]) -> None:
        sizes.append(len(batch))

    async with queue.consumer(handle, batch=5, each=False) as consumer:
        await until(lambda: consumer.handled == 10)
    assert sizes == [5, 5]


async def test_a_handler_may_answer_by_itself(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(2))

    async def handle(message: Received[int]) -> None:
        if message.payload == 0:
            await message.bury("no")

    async with queue.consumer(handle, batch=2) as consumer:
        await until(lambda: consumer.handled == 2)
    stats = await queue.stats()
    assert (stats.dead, stats.completed) == (1, 1)


async def test_a_lease_is_renewed_while_a_handler_runs(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    finished: list[int] = []

    async def handle(message: Received[int]) -> None:
        await asyncio.sleep(2.0)
        finished.append(message.attempts)

    async with queue.consumer(handle, lease=1.5, concurrency=2) as consumer:
        await until(lambda: consumer.handled == 1)
    assert finished == [1]
    assert (await queue.stats()).completed == 1


@pytest.mark.parametrize("each", [True, False])
async def test_the_next_messages_come_with_the_answer_to_the_last(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch, each: bool
) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(6))
    asked: list[str] = []

    def noted(name: str) -> None:
        real = getattr(mq.link, name)

        async def call(*args: Any) -> Any:
            asked.append(name)
            return await real(*args)

        monkeypatch.setattr(mq.link, name, call)

    for name in ("pop", "ack", "ack_and_pop"):
        noted(name)
    seen: list[int] = []

    async def handle(got: Any) -> None:
        seen.extend([got.payload] if each else [message.payload for message in got])

    async with queue.consumer(handle, batch=2, each=each) as consumer:
        await until(lambda: asked[-2:] == ["ack_and_pop", "pop"] and consumer.handled == 6)
    alone = ["ack"] if each else []
    assert asked == ["pop", *([*alone, "ack_and_pop"] * 3), "pop"]
    assert seen == list(range(6))
    assert (await queue.stats()).completed == 6


@pytest.mark.parametrize("each", [True, False])
async def test_an_answer_that_comes_too_late_does_not_lose_what_comes_with_it(
    mq: AsyncClient, each: bool
) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(3))
    seen: list[int] = []

    async def handle(got: Any) -> None:
        message = got if each else got[0]
        seen.append(message.payload)
        if message.payload == 1:
            await mq.ack([message.to_ack()])

    async with queue.consumer(handle, each=each) as consumer:
        await until(lambda: consumer.handled == 3)
    assert seen == [0, 1, 2]
    assert (await queue.stats()).completed == 3


async def test_what_fails_last_is_handled_again_before_anything_else(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.configure(retry_delay=0, retry_limit=5)
    await queue.push_many("abcd")
    seen: list[str] = []

    async def handle(message: Received[str]) -> None:
        seen.append(message.payload)
        if message.payload == "b" and message.attempts < 2:
            raise RuntimeError("not yet")

    async with queue.consumer(handle, batch=2) as consumer:
        await until(lambda: consumer.handled == 4)
    assert seen == list("abbcd")


async def test_a_loop_is_told_of_an_answer_that_came_too_late(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(2))
    messages = queue.messages()
    first = await anext(messages)
    await mq.ack([first.to_ack()])
    with pytest.raises(LeaseError):
        await anext(messages)
    [left] = await queue.pop(wait=5)
    assert (left.payload, left.attempts) == (1, 1)


async def test_what_cannot_pass_by_itself_ends_the_consumer(mq: AsyncClient) -> None:
    with pytest.raises(InvalidRequestError):
        await mq.queue("q").consume(lambda _: None, batch=-1)


async def test_a_loop_over_a_queue_acks_what_it_went_past(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    await queue.push_many(range(5))
    seen = []
    messages = queue.messages(batch=3)
    async for message in messages:
        seen.append(message.payload)
        if message.payload == 3:
            break
    await messages.aclose()
    assert seen == [0, 1, 2, 3]
    assert (await queue.stats()).completed == 3
    assert [message.payload for message in await queue.pop(5, wait=5)] == [3, 4]


class UnspeakableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("raised", "said"),
    [
        (ValueError("y" * 200_000), "ValueError: yyy"),
        (ValueError("half \udcff, nul \0"), "ValueError: half ?, nul \ufffd"),
        (UnspeakableError(), "UnspeakableError"),
        (StopIteration(), "RuntimeError: StopIteration was raised"),
    ],
    ids=["long", "no text", "unspeakable", "stop iteration"],
)
async def test_whatever_a_handler_raises_fails_its_message_alone(
    mq: AsyncClient, raised: Exception, said: str
) -> None:
    queue = mq.queue("q")
    await queue.configure(retry_limit=0)
    await queue.push_many(["bad", "good"])

    def handle(message: Received[str]) -> None:
        if message.payload == "bad":
            raise raised

    async with queue.consumer(handle) as consumer:
        await until(lambda: consumer.handled == 1)
    [letter] = (await queue.dead_letters()).rows
    assert letter.error is not None
    assert letter.error.startswith(said)


async def test_a_handler_whose_own_task_was_cancelled_fails_its_message_alone(
    mq: AsyncClient,
) -> None:
    queue = mq.queue("q")
    await queue.configure(retry_limit=0)
    await queue.push_many(["bad", "good"])

    async def handle(message: Received[str]) -> None:
        if message.payload == "bad":
            own = asyncio.create_task(asyncio.sleep(60))
            own.cancel()
            await own

    async with queue.consumer(handle) as consumer:
        await until(lambda: consumer.handled == 1)
    [letter] = (await queue.dead_letters()).rows
    assert letter.error == "RuntimeError: something that it waited for was cancelled"


def test_a_handler_that_cannot_be_called_is_refused_at_once(mq: AsyncClient) -> None:
    queue = mq.queue("q")
    with pytest.raises(InvalidRequestError, match="must be a function, not 3"):
        queue.consumer(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError, match="concurrency must be a whole number from 1 "):
        queue.consumer(print, concurrency=0)
