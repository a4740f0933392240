"""Tasks that do not return in time, and the worker and its process that go on without them."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.client import Client
from monarq.job import JobState
from monarq.jobs.processes import command_line
from monarq.jobs.worker import Worker
from monarq.model import ItemState
from tests.jobs.test_worker import until


@pytest.fixture
async def mq(tmp_path: Path) -> Any:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        yield client


async def test_functions_that_hang_do_not_hold_up_the_jobs_behind_them(mq: AsyncClient) -> None:
    may_return = threading.Event()

    @mq.task(retries=0, timeout=0.1, priority=9)
    def hang() -> None:
        may_return.wait()

    @mq.task(retries=0, timeout=20)
    def double(a: int) -> int:
        return 2 * a

    hung = [await hang.enqueue() for _ in range(3)]
    jobs = [await double.enqueue(number) for number in range(5)]
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, burst=True)
    await worker.run()
    assert worker.leaves_running == 3
    may_return.set()
    assert [await job.result() for job in jobs] == [0, 2, 4, 6, 8]
    for job in hung:
        item = await job.item()
        assert (await job.state(), item.error) == (JobState.DEAD, "timed out after 0.1 s")


async def test_stopping_now_cancels_a_coroutine_and_gives_its_job_back_uncounted(
    mq: AsyncClient,
) -> None:
    begun, cleaned = asyncio.Event(), asyncio.Event()

    @mq.task
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned.set()

    job = await wait.enqueue()
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, concurrency=3)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await begun.wait()
        worker.stop_now()
        await running
    assert cleaned.is_set()
    assert worker.leaves_running == 0
    item = await job.item()
    assert (item.state, item.attempts) == (ItemState.READY, 0)


async def test_what_ends_well_when_it_is_stopped_now_is_completed(mq: AsyncClient) -> None:
    begun = asyncio.Event()

    @mq.task
    async def wait() -> str:
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return "saved"

    job = await wait.enqueue()
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await begun.wait()
        worker.stop_now()
        await running
    assert await job.result(timeout=5) == "saved"


async def test_stopping_now_gives_the_job_of_a_function_back_that_runs_on(mq: AsyncClient) -> None:
    begun, may_return = threading.Event(), threading.Event()

    @mq.task
    def hang() -> None:
        begun.set()
        may_return.wait()

    job = await hang.enqueue()
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks)
    running = asyncio.create_task(worker.run())
    await until(begun.is_set)
    worker.stop_now()
    async with asyncio.timeout(30):
        await running
    assert worker.leaves_running == 1
    may_return.set()
    await until(lambda: not worker.leaves_running)
    item = await job.item()
    assert (item.state, item.attempts) == (ItemState.READY, 0)


async def test_a_coroutine_that_does_not_end_is_given_back_after_a_moment(mq: AsyncClient) -> None:
    begun, may_return, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    @mq.task
    async def hang() -> None:
        begun.set()
        while not may_return.is_set():
            try:
                await may_return.wait()
            except asyncio.CancelledError:
                continue
        ended.set()

    job = await hang.enqueue()
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, grace_seconds=0.05)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await begun.wait()
        worker.stop_now()
        await running
        assert worker.leaves_running == 1
        may_return.set()
        await ended.wait()
    item = await job.item()
    assert (item.state, item.attempts) == (ItemState.READY, 0)


async def test_a_coroutine_whose_job_was_cancelled_is_cancelled(mq: AsyncClient) -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @mq.task
    async def wait() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    job = await wait.enqueue()
    worker = Worker(mq, mq.tasks.queues, tasks=mq.tasks, renew_seconds=0.05)
    running = asyncio.create_task(worker.run())
    async with asyncio.timeout(30):
        await begun.wait()
        await job.cancel()
        await ended.wait()
        worker.stop()
        await running
    assert (await job.item()).state is ItemState.CANCELLED
    assert (worker.presence.completed, worker.presence.failed) == (0, 0)


APP = textwrap.dedent("""
    import asyncio
    import time
    from monarq import Client

    mq = Client("sqlite:///mq.db")

    @mq.task(retries=0, timeout=0.2)
    def hang() -> None:
        print("begun")
        time.sleep(600)

    def begin() -> None:
        open("begun", "w").close()

    @mq.task
    def function() -> None:
        begin()
        time.sleep(600)

    @mq.task
    async def coroutine() -> None:
        begin()
        while True:
            try:
                await asyncio.sleep(600)
            except asyncio.CancelledError:
                pass
""")


def test_a_worker_ends_though_a_function_that_it_gave_up_does_not(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = f"sqlite:///{tmp_path}/mq.db"
    with Client(address) as mq:
        job = mq.task(name="app:hang", retries=0, timeout=0.2)(lambda: None).enqueue()
    line = command_line("w-1", ["--store", address, "--app", "app:mq", "--burst"])
    assert line[0] == sys.executable
    done = subprocess.run(
        line, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "begun\n", "what it printed is not lost"
    assert "still run, and end with this process" in done.stderr
    with Client(address) as mq:
        assert mq.job(job.id).item().error == "timed out after 0.2 s"


@pytest.mark.slow
@pytest.mark.parametrize("task", ["function", "coroutine"])
def test_a_worker_ends_at_the_second_signal_whatever_it_runs(tmp_path: Path, task: str) -> None:
    (tmp_path / "app.py").write_text(APP)
    address = f"sqlite:///{tmp_path}/mq.db"
    with Client(address) as mq:
        job = mq.task(name=f"app:{task}")(lambda: None).enqueue()
    line = command_line("w-1", ["--store", address, "--app", "app:mq"])
    with subprocess.Popen(line, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 60
            while not (tmp_path / "begun").exists():
                assert time.monotonic() < deadline, "never begun"
                time.sleep(0.05)
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            while "stops when its jobs are done" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            assert process.wait(timeout=60) == 0
        finally:
            process.kill()
    with Client(address) as mq:
        item = mq.job(job.id).item()
        assert (item.state, item.attempts) == (ItemState.READY, 0)
