"""What a worker takes for its own when its broker stops answering."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import pytest

from monarq.client.async_client import AsyncClient
from monarq.client.link import Link
from monarq.errors import StoreUnavailableError
from monarq.jobs import worker as worker_module
from monarq.jobs.commands import GRACE_SECONDS
from monarq.jobs.leases import MARGIN_SECONDS, Leases, SharedLease
from monarq.jobs.worker import LEASE_SECONDS, RENEW_SECONDS, Worker
from monarq.model import ItemState, Pop, Popped, Renew, Renewed
from tests.jobs.test_worker import enqueue, until

LEASE = 1.0


class OtherLink:
    """Answers the first so many renewals; those after them it never does, or refuses."""

    def __init__(self, answers: int = 0, error: Exception | None = None) -> None:
        self.answers = answers
        self.error = error
        self.asked = asyncio.Semaphore(0)
        self.halfway = asyncio.Event()
        self.over = asyncio.Event()
        """When somebody else could have it."""
        self._timers: list[asyncio.TimerHandle] = []
        self._grant()

    def _grant(self) -> None:
        for timer in self._timers:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers = [
            loop.call_later(LEASE / 2, self.halfway.set),
            loop.call_later(LEASE, self.over.set),
        ]

    async def renew(self, renew: Renew) -> Renewed:
        self.asked.release()
        if self.answers:
            self.answers -= 1
            self._grant()
            return Renewed(renew.lease_id, 0)
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()
        raise AssertionError("nothing comes")


@pytest.mark.parametrize("answers", [0, 3])
@pytest.mark.parametrize("error", [None, StoreUnavailableError("away")], ids=["hangs", "fails"])
async def test_a_lease_is_lost_before_its_end_whatever_renewals_are_under_way(
    answers: int, error: Exception | None
) -> None:
    link = OtherLink(answers, error)
    leases = Leases(cast(Link, link), lease_seconds=LEASE, renew_seconds=LEASE / 20)
    lost: asyncio.Future[tuple[bool, bool]] = asyncio.get_running_loop().create_future()
    leases.hold("1-a", lambda: lost.set_result((link.halfway.is_set(), link.over.is_set())))
    keeping = asyncio.create_task(leases.keep())
    async with asyncio.timeout(30):
        assert await lost == (True, False)
    keeping.cancel()
    assert leases.is_past("1-a")


async def test_a_renewal_that_is_not_answered_is_tried_again_in_time() -> None:
    link = OtherLink()
    leases = Leases(cast(Link, link), lease_seconds=LEASE, renew_seconds=LEASE / 20)
    lost = asyncio.Event()
    leases.hold("1-a", lost.set)
    keeping = asyncio.create_task(leases.keep())
    async with asyncio.timeout(30):
        await link.asked.acquire()
        await link.asked.acquire()
    assert not lost.is_set()
    keeping.cancel()


async def test_a_lease_that_was_let_go_is_not_lost() -> None:
    leases = Leases(cast(Link, OtherLink()), lease_seconds=0.1, renew_seconds=5)
    lost, other = asyncio.Event(), asyncio.Event()
    leases.hold("1-a", lost.set)
    leases.hold("2-b", other.set)
    leases.let_go("1-a")
    async with asyncio.timeout(30):
        await other.wait()
    assert not lost.is_set()


async def test_a_commands_supervisor_knows_the_end_of_its_lease_until_the_command_is_over() -> None:
    link = OtherLink(answers=1000)
    told: list[float] = []
    was_told = asyncio.Semaphore(0)

    def tell(end: float) -> None:
        told.append(end)
        was_told.release()

    leases = Leases(cast(Link, link), lease_seconds=LEASE, renew_seconds=LEASE / 20)
    lease = SharedLease(leases, "1-a", 1)
    lease.tell_end(tell)
    keeping = asyncio.create_task(leases.keep())
    async with asyncio.timeout(30):
        for _ in range(3):
            await was_told.acquire()
    lease.tell_end(None)
    known = list(told)
    async with asyncio.timeout(30):
        for _ in range(link.asked._value + 2):
            await link.asked.acquire()
    keeping.cancel()
    assert told == known
    assert sorted(set(known)) == known


def test_a_command_has_ended_by_the_end_of_its_lease() -> None:
    assert MARGIN_SECONDS > GRACE_SECONDS
    # There is time for a renewal that hangs, and for another after it.
    assert LEASE_SECONDS / 3 + 2 * RENEW_SECONDS < LEASE_SECONDS - MARGIN_SECONDS


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        await client.queue("jobs").configure(kind="work", runs_commands=True, backoff_base=0)
        yield client


async def test_a_worker_whose_broker_hangs_ends_its_command_before_another_has_it(
    mq: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two workers on one store; every call of the first hangs once its command runs."""
    file = tmp_path / "pid"
    item_id = await enqueue(
        mq, f"if test -e {file}; then ! kill -0 $(cat {file}); else echo $$ >{file}; sleep 600; fi"
    )
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as frozen:
        first = Worker(frozen, ["jobs"], lease_seconds=LEASE, renew_seconds=LEASE / 20)
        running = asyncio.create_task(first.run())
        await until(lambda: file.exists() and file.read_text().strip())

        async def never(*_: object) -> None:
            await asyncio.Event().wait()

        for call in ("renew", "pop", "ack"):
            monkeypatch.setattr(frozen.link, call, never)
        second = Worker(mq, ["jobs"])
        helping = asyncio.create_task(second.run())

        async def is_done() -> bool:
            return (await mq.admin.get_item(item_id)).state is ItemState.DONE

        try:
            await until(is_done)
        finally:
            running.cancel()
            second.stop()
            await asyncio.wait({running, helping}, timeout=30)
    attempts = (await mq.admin.get_item(item_id)).history
    assert [attempt.outcome for attempt in attempts] == ["expired", "completed"]


async def test_a_job_told_of_after_its_lease_was_over_is_not_begun(
    mq: AsyncClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the first pop comes when another worker has begun the job."""
    monkeypatch.setattr(worker_module, "_LATE_SECONDS", 0.0)
    file = tmp_path / "runs"
    await enqueue(mq, f"echo run >>{file}; sleep 600")
    other = Worker(mq, ["jobs"], lease_seconds=60)
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as late:
        pop, is_told = late.link.pop, asyncio.Event()

        async def pop_late(request: Pop, wait_seconds: float) -> Popped:
            popped = await pop(request, wait_seconds)
            if popped.messages:
                helping.append(asyncio.create_task(other.run()))
                await until(file.exists)
                is_told.set()
            return popped

        helping: list[asyncio.Task[None]] = []
        monkeypatch.setattr(late.link, "pop", pop_late)
        worker = Worker(late, ["jobs"], burst=True, lease_seconds=0.1)
        async with asyncio.timeout(30):
            await worker.run()
        assert is_told.is_set()
    other.stop_now()
    await asyncio.wait(helping, timeout=30)
    assert file.read_text() == "run\n"
