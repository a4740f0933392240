"""The records that workers and schedules leave in the store, as the dashboard shows them."""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import Struct

from monarq.clock import SECOND
from monarq.model import Record
from monarq.model.pages import walk
from monarq.operations.records import SCHEDULE_KIND, WORKER_KIND
from monarq.record_values import check_time, decode_value, skip
from monarq.store.contract import Store
from monarq.wire.dashboard import RunningJobLine, ScheduleLine, WorkerCounts, WorkerLine

LOST_AFTER_SECONDS = 15.0
_SHOWN_STOPPED_SECONDS = 3600.0


class _Process(Struct, rename="camel"):
    pid: int | None = None


class _Worker(Struct, rename="camel"):
    """As `monarq worker` writes it; what it does not say is not needed here."""

    id: str
    state: Literal["running", "stopping", "stopped"]
    host: str = ""
    process: _Process = msgspec.field(default_factory=_Process)
    queues: list[str] = []
    concurrency: int = 1
    started_at: str = ""
    heartbeat_at: str = ""
    running: list[RunningJobLine] = []
    completed: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        running = [job.started_at for job in self.running]
        for text in (self.started_at, self.heartbeat_at, *running):
            if text:
                check_time(text)


class _Schedule(Struct, rename="camel"):
    expression: str
    zone: str
    next_tick: str
    last_tick: str | None = None

    def __post_init__(self) -> None:
        check_time(self.next_tick)
        if self.last_tick is not None:
            check_time(self.last_tick)


async def read_workers(store: Store, now: int) -> list[WorkerLine]:
    """Those that run, are lost, or stopped within the hour; the running first."""
    found = []
    async for record in walk(
        lambda limit, after: store.list_records(WORKER_KIND, limit=limit, after=after)
    ):
        line = _line(record, now)
        if line is None:
            continue
        if line.state in ("running", "stopping") or line.silent_seconds < _SHOWN_STOPPED_SECONDS:
            found.append(line)
    order = ["running", "stopping", "lost", "stopped"]
    return sorted(found, key=lambda line: (order.index(line.state), line.id))


def _line(record: Record, now: int) -> WorkerLine | None:
    worker = decode_value(record, _Worker)
    if worker is None:
        return None
    if worker.id != record.key:
        skip(record, "it names another worker")
        return None
    silent = max(0.0, (now - record.updated_at) / SECOND)
    is_lost = worker.state != "stopped" and silent > LOST_AFTER_SECONDS
    return WorkerLine(
        id=worker.id,
        host=worker.host,
        pid=worker.process.pid,
        queues=worker.queues,
        concurrency=worker.concurrency,
        state="lost" if is_lost else worker.state,
        started_at=worker.started_at,
        heartbeat_at=worker.heartbeat_at,
        silent_seconds=round(silent, 1),
        running=worker.running,
        completed=worker.completed,
        failed=worker.failed,
    )


def count_workers(workers: list[WorkerLine]) -> WorkerCounts:
    at_work = [line for line in workers if line.state in ("running", "stopping")]
    return WorkerCounts(
        running=len(at_work),
        lost=sum(line.state == "lost" for line in workers),
        stopped=sum(line.state == "stopped" for line in workers),
        jobs=sum(len(line.running) for line in at_work),
    )


async def read_schedules(store: Store) -> list[ScheduleLine]:
    found = []
    async for record in walk(
        lambda limit, after: store.list_records(SCHEDULE_KIND, limit=limit, after=after)
    ):
        known = decode_value(record, _Schedule)
        if known is None:
            continue
        found.append(
            ScheduleLine(
                name=record.key,
                expression=known.expression,
                zone=known.zone,
                last_tick=known.last_tick,
                next_tick=known.next_tick,
            )
        )
    return found
