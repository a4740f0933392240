"""Tasks that were leased together: cancelled one by one, and blocking the loop for all."""

import asyncio
import threading
from collections.abc import Mapping

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.job import TaskJob
from monarq.jobs.worker import Worker
from monarq.model import ItemState, QueueKind
from tests.jobs.test_worker import _Task as Task
from tests.jobs.test_worker import mq as mq
from tests.jobs.test_worker import until


@pytest.fixture
async def tasks_queue(mq: AsyncClient) -> AsyncClient:
    await mq.queue("tasks").configure(kind=QueueKind.WORK)
    return mq


async def push(mq: AsyncClient, name: str, *args: object) -> str:
    job = TaskJob(task=name, args=list(args))
    return (await mq.queue("tasks").push(msgspec.to_builtins(job))).message_id


def make_worker(mq: AsyncClient, tasks: Mapping[str, Task], **options: float) -> Worker:
    return Worker(mq, ["tasks"], tasks=tasks, concurrency=5, **options)  # type: ignore[arg-type]


async def test_cancelling_one_of_several_leased_tasks_ends_it_and_no_other(
    tasks_queue: AsyncClient,
) -> None:
    release = asyncio.Event()
    begun: set[int] = set()
    ended: list[int] = []

    async def wait(number: int) -> int:
        begun.add(number)
        try:
            await release.wait()
        except asyncio.CancelledError:
            ended.append(number)
            raise
        return number

    ids = [await push(tasks_queue, "wait", number) for number in range(3)]
    worker = make_worker(tasks_queue, {"wait": Task(wait)}, renew_seconds=0.2)
    running = asyncio.create_task(worker.run())
    await until(lambda: len(begun) == 3)
    # The lease is one: only then it goes on when one of its tasks is cancelled.
    assert [assignment.lease.is_shared for assignment in worker._task_runs.values()] == [True] * 3
    await tasks_queue.admin.cancel_item(ids[1])
    await until(lambda: ended)
    assert ended == [1]
    release.set()
    worker.stop()
    await asyncio.wait_for(running, 30)
    states = [(await tasks_queue.admin.get_item(each)).state for each in ids]
    assert states == [ItemState.DONE, ItemState.CANCELLED, ItemState.DONE]
    assert worker.presence.completed == 2


async def test_a_task_that_blocks_the_loop_past_its_lease_is_logged_by_name(
    tasks_queue: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    async def block() -> bool:
        return go_on.wait(30)

    async def other() -> None:
        await asyncio.sleep(0.01)

    class Noticing:
        """Lets the task go on when it was logged."""

        def filter(self, record: object) -> bool:
            if "has blocked the event loop" in str(record):
                go_on.set()
            return True

    caplog.handler.addFilter(noticing := Noticing())  # type: ignore[arg-type]
    await push(tasks_queue, "other")
    await push(tasks_queue, "block")
    worker = make_worker(
        tasks_queue, {"block": Task(block), "other": Task(other)}, lease_seconds=1.0
    )
    worker._burst = True
    try:
        await asyncio.wait_for(worker.run(), 60)
    finally:
        caplog.handler.removeFilter(noticing)  # type: ignore[arg-type]
    assert go_on.is_set()
    [said] = [record for record in caplog.records if "has blocked" in record.getMessage()]
    assert said.getMessage().startswith("task block (job ")
    assert "go_on.wait(30)" in said.getMessage(), "where it blocks"
