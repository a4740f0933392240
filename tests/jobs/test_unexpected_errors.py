"""A worker logs an error that nobody expects, and goes on or ends; it never goes on silently."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.errors import StoreUnavailableError
from monarq.job import CommandJob
from monarq.jobs.worker import Worker
from monarq.model import Ack, Acked, ItemState, Pop, Popped, Push, PushItem
from monarq.store.contract import Outcome

SECONDS = 30.0
QUEUES = ["first", "second"]


@pytest.fixture
async def mq(tmp_path: Path) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(f"sqlite:///{tmp_path}/mq.db") as client:
        for queue in QUEUES:
            await client.queue(queue).configure(kind="work", runs_commands=True, backoff_base=0)
        yield client


async def enqueue(mq: AsyncClient, queue: str, command: str) -> str:
    payload = msgspec.json.encode(CommandJob(command=command))
    [pushed] = await mq.link.push(Push([PushItem(queue, payload)], commands=True))
    return pushed.message_id


async def test_an_unexpected_error_of_a_pop_that_waits_ends_the_worker(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pop(asked: Pop, wait_seconds: float) -> Popped:
        if wait_seconds:
            raise ZeroDivisionError("broken")
        return Popped(messages=[])

    monkeypatch.setattr(mq.link, "pop", pop)
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(Worker(mq, QUEUES).run(), SECONDS)


async def test_what_one_queue_gives_is_begun_although_the_pop_of_another_fails(
    mq: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    item_id = await enqueue(mq, "second", "true")
    given = await mq.link.pop(Pop(queue="second"), 0.0)
    failed = asyncio.Event()

    async def pop(asked: Pop, wait_seconds: float) -> Popped:
        if not wait_seconds or failed.is_set():
            return Popped(messages=[])
        if asked.queue == "first":
            raise StoreUnavailableError("away")
        failed.set()
        return given

    answered = asyncio.Event()
    really_ack = mq.link.ack

    async def ack(acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        outcomes = await really_ack(acks)
        answered.set()
        return outcomes

    monkeypatch.setattr(mq.link, "pop", pop)
    monkeypatch.setattr(mq.link, "ack", ack)
    worker = Worker(mq, QUEUES, concurrency=2)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(answered.wait(), SECONDS)
    worker.stop()
    await asyncio.wait_for(running, SECONDS)
    assert (await mq.admin.get_item(item_id)).state is ItemState.DONE


@pytest.mark.parametrize("call", ["ack", "append_output"])
async def test_an_unexpected_error_when_a_job_is_told_is_logged(
    mq: AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
) -> None:
    async def broken(*_: Any) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(mq.link if call == "ack" else mq.link.admin, call, broken)
    item_id = await enqueue(mq, "first", "echo said")
    await asyncio.wait_for(Worker(mq, QUEUES, burst=True).run(), SECONDS)
    errors = [record.exc_info and record.exc_info[1] for record in caplog.records]
    assert [repr(error) for error in errors] == ["ZeroDivisionError('broken')"]
    assert {record.name for record in caplog.records} == {"monarq.worker"}
    # Only who watches the output misses something; an answer that is lost is missed by the lease.
    state = (await mq.admin.get_item(item_id)).state
    assert state is (ItemState.LEASED if call == "ack" else ItemState.DONE)
