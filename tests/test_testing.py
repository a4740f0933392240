"""The helpers that users' own tests are written with."""

import pytest

from monarq.job import JobState
from monarq.testing import TestBroker


async def test_what_was_pushed_can_be_asserted() -> None:
    async with TestBroker() as broker:
        queue = broker.client.queue("orders")
        await queue.push({"n": 1})
        await queue.push({"n": 1})
        await broker.assert_pushed("orders")
        await broker.assert_pushed("orders", {"n": 1})
        await broker.assert_pushed("orders", {"n": 1}, times=2)
        assert await broker.pushed("orders") == [{"n": 1}, {"n": 1}]
        with pytest.raises(AssertionError, match="was not pushed to 'orders'"):
            await broker.assert_pushed("orders", {"n": 2})
        with pytest.raises(AssertionError, match="pushed 2 times"):
            await broker.assert_pushed("orders", {"n": 1}, times=1)
        with pytest.raises(AssertionError, match="2 are left"):
            await broker.assert_empty("orders")
        await (await queue.pop(2)).ack()
        await broker.assert_empty("orders")
        await broker.assert_empty("no such queue")


async def test_tasks_are_run_until_nothing_is_due() -> None:
    async with TestBroker() as broker:
        seen: list[int] = []

        @broker.client.task(queue="sums")
        def note(number: int) -> None:
            seen.append(number)

        await note.enqueue(1)
        later = await note.schedule(after=60).enqueue(2)
        await broker.assert_enqueued(note, 1)
        await broker.assert_enqueued(note, 2)
        with pytest.raises(AssertionError, match="does not wait"):
            await broker.assert_enqueued(note, 3)
        assert await broker.drain() == 1
        assert await later.state() is JobState.SCHEDULED
        await broker.advance(60)
        assert await broker.drain() == 1
        assert seen == [1, 2]
        await broker.assert_empty("sums")


async def test_time_stands_still_until_it_is_moved() -> None:
    async with TestBroker() as broker:
        queue = broker.client.queue("q")
        await queue.push("x")
        await queue.pop(lease=30)
        await broker.advance(29)
        assert not await queue.pop()
        await broker.advance(1)
        [message] = await queue.pop()
        assert message.attempts == 2


async def test_a_task_that_fails_is_retried_after_its_backoff() -> None:
    async with TestBroker() as broker:
        tried: list[int] = []

        @broker.client.task(retries=2, backoff=10)
        def fail() -> None:
            tried.append(1)
            raise ValueError

        job = await fail.enqueue()
        await broker.drain()
        await broker.advance(9)
        await broker.drain()
        assert len(tried) == 1
        await broker.advance(1)
        await broker.drain()
        await broker.advance(100)
        await broker.drain()
        assert len(tried) == 3
        assert await job.state() is JobState.DEAD


async def test_nothing_is_shared_between_two() -> None:
    async with TestBroker() as one, TestBroker() as two:
        await one.client.queue("q").push(1)
        assert await two.pushed("q") == []


async def test_a_unique_task_is_stored_again_when_time_was_moved_behind_its_span() -> None:
    async with TestBroker() as broker:
        seen: list[int] = []

        @broker.client.task(unique_for=60)
        def note(number: int) -> None:
            seen.append(number)

        first, again = await note.enqueue(1), await note.enqueue(1)
        assert (first.is_new, again.is_new) == (True, False)
        await broker.drain()
        await broker.advance(120)
        assert (await note.enqueue(1)).is_new
        assert not (await note.enqueue(1)).is_new
        await broker.drain()
        assert seen == [1, 1]
