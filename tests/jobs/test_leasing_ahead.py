"""Jobs that a worker has leased before there is room for them."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.embedded import EmbeddedLink
from monarq.client.tasks import Task, TaskOptions
from monarq.job import TaskJob
from monarq.jobs import worker as worker_module
from monarq.jobs.leases import Leases, SharedLease
from monarq.jobs.pace import Pace, Stuck
from monarq.jobs.worker import Worker
from monarq.model import Item, ItemState, Push, PushItem, QueueKind

AHEAD = 10
NAMES = ("blocked", "quick", "slow")


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        await client.queue("tasks").configure(kind=QueueKind.WORK, max_attempts=1)
        yield client


class Doings:
    """Jobs that wait to be let through, and what became of them."""

    def __init__(self, mq: AsyncClient) -> None:
        self.mq = mq
        self.begun = asyncio.Semaphore(0)
        self.ended = asyncio.Semaphore(0)
        self.may_end = asyncio.Event()
        self.running = self.most = 0
        self.done: list[int] = []

    async def blocked(self, _: int) -> None:
        self.begun.release()
        await self.may_end.wait()

    async def quick(self, number: int) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0)
        self.running -= 1
        self.done.append(number)
        self.ended.release()

    async def slow(self, number: int) -> None:
        # Nobody else has a turn meanwhile; afterwards somebody has.
        time.sleep(0.01)  # noqa: ASYNC251
        self.done.append(number)

    async def enqueue(self, task: str, count: int) -> None:
        jobs = [TaskJob(task=task, args=[number]) for number in range(count)]
        await self.mq.link.push(Push([PushItem("tasks", msgspec.json.encode(j)) for j in jobs]))

    def worker(self, concurrency: int, *, burst: bool = False) -> Worker:
        tasks = {name: Task(getattr(self, name), name, TaskOptions()) for name in NAMES}
        return Worker(self.mq, ["tasks"], tasks=tasks, concurrency=concurrency, burst=burst)

    async def items(self, state: ItemState) -> list[Item]:
        return (await self.mq.admin.list_items("tasks", state=state, limit=1000)).rows


@pytest.fixture
def doings(mq: AsyncClient) -> Doings:
    return Doings(mq)


@pytest.fixture
def leases_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a worker does whose jobs were short until now."""
    paces = iter([AHEAD])
    monkeypatch.setattr(Pace, "ahead", lambda *_: next(paces, 0))


async def times(signal: asyncio.Semaphore, count: int) -> None:
    async with asyncio.timeout(30):
        for _ in range(count):
            await signal.acquire()


@pytest.mark.usefixtures("leases_ahead")
async def test_what_does_not_begin_is_given_back_for_another_worker(
    doings: Doings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.01)
    await doings.enqueue("blocked", 2)
    await doings.enqueue("quick", AHEAD)
    stuck = doings.worker(2)
    running = asyncio.create_task(stuck.run())
    await times(doings.begun, 2)
    other = doings.worker(2)
    helping = asyncio.create_task(other.run())
    await times(doings.ended, AHEAD)
    assert stuck.presence.completed == 0
    doings.may_end.set()
    stuck.stop()
    other.stop()
    await asyncio.gather(running, helping)
    assert sorted(doings.done) == list(range(AHEAD))
    assert [item.attempts for item in await doings.items(ItemState.DONE)] == [1] * (2 + AHEAD)


async def test_what_there_is_room_for_is_kept_however_long_it_waits(
    doings: Doings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_module, "_LOOK_SECONDS", 0.0)
    await doings.enqueue("slow", 5)
    await doings.worker(5, burst=True).run()
    assert doings.done == list(range(5))
    link = doings.mq.link
    assert isinstance(link, EmbeddedLink)
    assert link.broker.measures.ack.messages == 5


@pytest.mark.usefixtures("leases_ahead")
async def test_stopping_gives_back_uncounted_what_has_not_begun(doings: Doings) -> None:
    await doings.enqueue("blocked", 2)
    await doings.enqueue("quick", AHEAD + 5)
    worker = doings.worker(2)
    running = asyncio.create_task(worker.run())
    await times(doings.begun, 2)
    assert len(await doings.items(ItemState.LEASED)) == 2 + AHEAD
    worker.stop()
    doings.may_end.set()
    await running
    assert doings.done == []
    assert len(await doings.items(ItemState.DONE)) == 2
    ready = await doings.items(ItemState.READY)
    assert [item.attempts for item in ready] == [0] * (AHEAD + 5)


async def test_no_more_run_at_once_than_there_is_room_for(
    doings: Doings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "ahead", lambda *_: 100)
    await doings.enqueue("quick", 500)
    await doings.worker(3, burst=True).run()
    assert doings.most == 3
    assert sorted(doings.done) == list(range(500))


async def test_every_job_is_done_once_whichever_workers_stop_meanwhile(doings: Doings) -> None:
    await doings.enqueue("quick", 1000)
    workers = [doings.worker(5) for _ in range(3)]
    running = [asyncio.create_task(worker.run()) for worker in workers]
    for worker in workers:
        await times(doings.ended, 50)
        worker.stop()
    await asyncio.gather(*running)
    assert await doings.items(ItemState.LEASED) == []
    await doings.worker(5, burst=True).run()
    assert sorted(doings.done) == list(range(1000))
    assert [item.attempts for item in await doings.items(ItemState.DONE)] == [1] * 1000


@pytest.mark.usefixtures("leases_ahead")
async def test_nothing_begins_under_a_lease_whose_time_is_over(doings: Doings) -> None:
    await doings.enqueue("blocked", 1)
    await doings.enqueue("quick", AHEAD)
    worker = doings.worker(1, burst=True)
    running = asyncio.create_task(worker.run())
    await times(doings.begun, 1)
    # As if the loop had stood still for longer than the lease.
    for lease in {assignment.lease for assignment in worker._crew._jobs}:
        worker._leases._held[lease.id].until = 0.0
    doings.may_end.set()
    await running
    assert doings.done == []


async def test_a_lease_is_over_when_its_time_has_passed_without_a_renewal(mq: AsyncClient) -> None:
    assert SharedLease(Leases(mq.link, lease_seconds=0, renew_seconds=5), "1-a", 1).is_over
    assert not SharedLease(Leases(mq.link, lease_seconds=30, renew_seconds=5), "1-a", 1).is_over


def test_as_many_are_leased_ahead_as_begin_in_a_moment() -> None:
    pace = Pace(0.0)
    assert pace.ahead(1000, 0.1) == 500
    assert pace.ahead(1000, 0.101) == 500
    assert pace.ahead(1000, 0.11) == 250
    assert pace.ahead(1001, 1.1) == 0
    assert pace.ahead(10**9, 2.1) == 1000


def test_jobs_are_stuck_when_one_has_waited_from_look_to_look() -> None:
    stuck = Stuck()
    assert not stuck.look(begun=5, waiting=3)
    assert not stuck.look(begun=8, waiting=2)
    assert stuck.look(begun=9, waiting=1)
    assert not stuck.look(begun=10, waiting=0)
    assert not stuck.look(begun=10, waiting=0)
