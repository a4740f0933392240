"""Tells the store that a worker is there, what it runs, and hears whether it should stop."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from monarq.client.link import Link
from monarq.clock import SECOND, Clock
from monarq.errors import MonarqError, NotFoundError
from monarq.jobs.identity import ProcessIdentity, this_process
from monarq.model import Message, Record
from monarq.operations.records import STOP_KIND, WORKER_KIND
from monarq.record_values import check_time, decode_value, skip
from monarq.times import iso

log = logging.getLogger("monarq.worker")

HEARTBEAT_SECONDS = 2.0
LOST_AFTER_SECONDS = 15.0
HIDDEN = "(encrypted)"
#: How long one that is gone is remembered.
_REMEMBERED_SECONDS = 7 * 86_400.0

WorkerState = Literal["running", "stopping", "stopped"]


class RunningJob(Struct, frozen=True, kw_only=True, rename="camel"):
    id: str
    job: str
    """The id that people gave it."""
    queue: str
    attempt: int
    started_at: str
    what: str
    """The command or the task; `HIDDEN` for a job of an encrypted queue."""


class WorkerInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """What is known of a worker."""

    id: str
    host: str
    process: ProcessIdentity
    queues: list[str]
    concurrency: int
    state: WorkerState
    started_at: str
    heartbeat_at: str
    running: list[RunningJob]
    completed: int
    failed: int

    def __post_init__(self) -> None:
        check_time(self.started_at)
        check_time(self.heartbeat_at)


def _running_job(message: Message, what: str, began_at: int) -> RunningJob:
    return RunningJob(
        id=message.id,
        job=message.transaction_id,
        queue=message.queue,
        attempt=message.attempts,
        started_at=iso(began_at // 1000 * 1000),
        what=what,
    )


def read_worker(record: Record) -> WorkerInfo | None:
    """Return what a worker wrote, or None if the record is malformed."""
    info = decode_value(record, WorkerInfo)
    if info is not None and info.id != record.key:
        skip(record, "it names another worker")
        return None
    return info


def is_lost(record: Record, info: WorkerInfo, now: int) -> bool:
    """Whether it has said nothing for too long, though it did not stop."""
    silent = (now - record.updated_at) / SECOND
    return info.state != "stopped" and silent > LOST_AFTER_SECONDS


class Presence:
    def __init__(
        self,
        link: Link,
        worker_id: str,
        *,
        queues: list[str],
        concurrency: int,
        clock: Clock,
        on_stop: Callable[[], None],
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._link = link
        self._id = worker_id
        self._queues = queues
        self._concurrency = concurrency
        self._clock = clock
        self._on_stop = on_stop
        self._heartbeat_seconds = heartbeat_seconds
        self._started_at = iso(clock.now())
        self._process = this_process()
        self._changed = asyncio.Event()
        self._running: dict[tuple[int, int], tuple[Message, str, int]] = {}
        """By partition and seq: what is run, and since when. There may be very many in a second, of
        which hardly one is told."""
        self.state: WorkerState = "running"
        self.completed = 0
        self.failed = 0

    def began(self, message: Message, what: str) -> None:
        """`what` is the command or the task."""
        self._running[message.partition_id, message.seq] = (message, what, self._clock.now())

    def ended(self, message: Message, *, succeeded: bool | None) -> None:
        """`succeeded` is None if it was given back."""
        self._running.pop((message.partition_id, message.seq), None)
        if succeeded is True:
            self.completed += 1
        elif succeeded is False:
            self.failed += 1

    async def keep(self) -> None:
        """Runs for ever."""
        while True:
            await self.tell()
            await self._listen()
            await asyncio.sleep(self._heartbeat_seconds)

    async def tell(self) -> None:
        info = WorkerInfo(
            id=self._id,
            host=socket.gethostname(),
            process=self._process,
            queues=self._queues,
            concurrency=self._concurrency,
            state=self.state,
            started_at=self._started_at,
            heartbeat_at=iso(self._clock.now()),
            running=await self._told_jobs(),
            completed=self.completed,
            failed=self.failed,
        )
        try:
            await self._link.admin.put_record(
                WORKER_KIND, self._id, msgspec.json.encode(info), keep_seconds=_REMEMBERED_SECONDS
            )
        except MonarqError as error:
            log.warning("worker %s could not tell that it is there: %s", self._id, error)

    async def _told_jobs(self) -> list[RunningJob]:
        """Return what runs now. Records are not sealed, so what a job of an encrypted queue runs is
        hidden, and that of a queue whose options are not known."""
        plain: dict[str, bool] = {}
        for queue in {message.queue for message, _, _ in self._running.values()}:
            try:
                options = (await self._link.admin.get_queue(queue)).options
            except MonarqError:
                continue
            plain[queue] = not options.encryption_enabled
        return [
            _running_job(message, what if plain.get(message.queue) else HIDDEN, began_at)
            for message, what, began_at in self._running.values()
        ]

    async def _listen(self) -> None:
        try:
            await self._link.admin.get_record(STOP_KIND, self._id)
        except NotFoundError:
            return
        except MonarqError as error:
            log.warning("worker %s could not ask whether to stop: %s", self._id, error)
            return
        self._on_stop()

    async def forget_stop(self) -> None:
        try:
            await self._link.admin.delete_record(STOP_KIND, self._id)
        except MonarqError as error:
            log.warning("worker %s could not take its order to stop back: %s", self._id, error)


def new_worker_id() -> str:
    return f"{socket.gethostname()}-{os.getpid()}-{os.urandom(2).hex()}"
