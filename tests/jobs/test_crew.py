"""Jobs side by side on few tasks of the loop."""

import asyncio
import contextlib
import contextvars

import pytest

from monarq.jobs.crew import Crew

SEEN: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="")


async def test_jobs_that_wait_run_side_by_side() -> None:
    met = asyncio.Barrier(5)

    async def work(_: int) -> None:
        await met.wait()

    crew = Crew(5, work)
    crew.give(range(5))
    async with asyncio.timeout(10):
        await crew.idle()
    assert crew.room == 5


async def test_no_more_jobs_than_its_size_run_at_once() -> None:
    running = most = 0

    async def work(_: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    crew = Crew(3, work)
    crew.give(range(50))
    async with asyncio.timeout(10):
        await crew.idle()
    assert most == 3


async def test_jobs_that_never_wait_share_a_task_of_the_loop() -> None:
    tasks = set()

    async def work(_: int) -> None:
        tasks.add(asyncio.current_task())

    crew = Crew(100, work)
    crew.give(range(100))
    await crew.idle()
    assert len(tasks) <= 2


async def test_a_job_that_ends_before_it_is_waited_for_does_not_make_anybody_wait() -> None:
    async def work(_: int) -> None: ...

    crew = Crew(1, work)
    crew.give([1])
    # Its end is counted from the call, not from when the loop comes to it.
    waiting = asyncio.ensure_future(crew.one_ended())
    async with asyncio.timeout(10):
        await waiting


async def test_what_a_job_leaves_in_its_context_is_not_seen_by_the_next() -> None:
    seen = []

    async def work(number: int) -> None:
        seen.append(SEEN.get())
        SEEN.set(f"by {number}")

    crew = Crew(1, work)
    crew.give(range(5))
    async with asyncio.timeout(10):
        await crew.idle()
    assert seen == [""] * 5


async def test_a_job_that_fails_or_cancels_itself_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    done = []

    async def work(number: int) -> None:
        if number == 0:
            raise ValueError("broken")
        if number == 1:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        if number == 2:
            raise asyncio.CancelledError
        await asyncio.sleep(0)
        done.append(number)

    crew = Crew(1, work)
    crew.give(range(6))
    async with asyncio.timeout(10):
        await crew.idle()
    assert done == [3, 4, 5]
    assert "could not be handled" in caplog.text


async def test_jobs_that_never_wait_leave_the_loop_its_turns() -> None:
    loop = asyncio.get_running_loop()
    order: list[int] = []

    async def work(number: int) -> None:
        until = loop.time() + 0.02
        while loop.time() < until:
            pass
        order.append(number)

    crew = Crew(5, work)
    crew.give(range(5))
    loop.call_soon(order.append, -1)
    await crew.idle()
    assert order.index(-1) <= 1


async def test_closing_ends_what_runs() -> None:
    ended = asyncio.Event()

    async def work(_: int) -> None:
        try:
            await asyncio.sleep(600)
        finally:
            ended.set()

    crew = Crew(2, work)
    crew.give([1])
    await asyncio.sleep(0)
    await crew.close()
    assert ended.is_set()


async def test_closing_ends_also_with_a_job_that_swallows_its_cancellation() -> None:
    begun = asyncio.Event()

    async def work(_: int) -> None:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    crew = Crew(1, work)
    crew.give([1])
    await begun.wait()
    async with asyncio.timeout(10):
        await crew.close()


async def test_jobs_that_are_taken_back_are_not_done() -> None:
    may_end = asyncio.Event()
    both = asyncio.Barrier(3)
    done = []

    async def work(number: int) -> None:
        done.append(number)
        await both.wait()
        await may_end.wait()

    crew = Crew(2, work)
    crew.give(range(5))
    async with asyncio.timeout(10):
        await both.wait()
        assert (crew.room, crew.begun, crew.waiting) == (-3, 2, 3)
        assert crew.take_back(-1) == []
        assert crew.take_back(2) == [3, 4]
        assert (crew.room, crew.waiting) == (-1, 1)
        assert crew.take_back(5) == [2]
        assert (crew.room, crew.waiting) == (0, 0)
        may_end.set()
        await crew.idle()
    assert done == [0, 1]
