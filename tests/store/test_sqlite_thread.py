"""The thread of the SQLite store: what gets there, and what comes back."""

import asyncio
import gc
import threading
import weakref
from functools import partial

import pytest

from monarq.store.sqlite.thread import WorkThread


def is_alive(name: str) -> bool:
    return any(thread.name == name for thread in threading.enumerate())


async def until_gone(name: str) -> None:
    async with asyncio.timeout(30):
        while is_alive(name):  # noqa: ASYNC110 (threads tell nobody of their end)
            await asyncio.sleep(0.001)


async def test_works_are_done_in_order_by_one_thread_that_is_not_the_loops() -> None:
    thread = WorkThread("in-order")
    done: list[int] = []

    def note(number: int) -> str:
        done.append(number)
        return threading.current_thread().name

    names = await asyncio.gather(*(thread.run(partial(note, number)) for number in range(100)))
    assert done == list(range(100))
    assert set(names) == {"in-order"}
    thread.stop()
    await until_gone("in-order")


async def test_an_error_is_raised_where_the_answer_is_awaited_and_the_thread_goes_on() -> None:
    thread = WorkThread("errors")

    def fail() -> None:
        raise LookupError("nothing there")

    with pytest.raises(LookupError, match="nothing there"):
        await thread.run(fail)
    assert await thread.run(lambda: 5) == 5
    thread.stop()


async def test_what_is_given_up_before_it_began_is_not_done() -> None:
    thread = WorkThread("given-up")
    begun, go_on = threading.Event(), threading.Event()
    done: list[str] = []

    def wait() -> None:
        begun.set()
        assert go_on.wait(30)
        done.append("begun")

    first, second = thread.run(wait), thread.run(lambda: done.append("second"))
    assert await asyncio.to_thread(begun.wait, 30)
    first.cancel()
    second.cancel()
    go_on.set()
    await thread.run(lambda: done.append("last"))
    assert done == ["begun", "last"]
    thread.stop()


def test_a_loop_that_is_gone_stops_nobody_else() -> None:
    thread = WorkThread("gone")
    go_on = threading.Event()

    async def leave() -> None:
        thread.run(lambda: go_on.wait(30))

    async def use() -> int:
        return await thread.run(lambda: 7)

    asyncio.run(leave())
    go_on.set()
    assert asyncio.run(use()) == 7
    thread.stop()


async def test_nothing_of_a_work_that_is_done_is_kept() -> None:
    class Large:
        pass

    thread = WorkThread("kept")
    made: list[weakref.ref[Large]] = []

    def make() -> Large:
        large = Large()
        made.append(weakref.ref(large))
        return large

    def fail() -> None:
        large = make()
        raise LookupError(large)

    gc.disable()
    try:
        await thread.run(make)
        with pytest.raises(LookupError):
            await thread.run(fail)
        assert await thread.run(lambda: [one() for one in made]) == [None, None]
    finally:
        gc.enable()
    thread.stop()


async def test_the_thread_ends_when_nobody_has_it_any_more() -> None:
    thread = WorkThread("forgotten")
    assert await thread.run(lambda: 1) == 1
    assert is_alive("forgotten")
    del thread
    await until_gone("forgotten")
