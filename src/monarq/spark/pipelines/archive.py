"""Archive: from a broker's tables to a lake, each row once.

What is in is what the lake's commits say, and each commit moves on from where the one before it
ended: a run that is killed anywhere, repeated, or started twice, neither loses nor doubles a row.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from monarq.clock import Clock, SystemClock
from monarq.errors import ConflictError, InvalidRequestError
from monarq.spark.access import Access, SeqRange
from monarq.spark.lake.commits import Commit, DataFile, Gap, Kind, LakeState
from monarq.spark.lake.lake import Lake
from monarq.spark.lake.layout import TABLES
from monarq.spark.lake.writing import FileWriter
from monarq.spark.pipelines.archive_plan import (
    ArchiveBatch,
    ArchiveTask,
    MessageTask,
    lost_since,
    make_plan,
    refuse_gaps,
)
from monarq.spark.pipelines.jobs import run_tasks
from monarq.spark.pipelines.place import Place
from monarq.spark.pipelines.progress import Progress
from monarq.tables import get_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH_MESSAGES = 2_000_000


@dataclass(frozen=True)
class ArchiveOptions:
    queues: Sequence[str] = ()
    """Names or patterns; all queues, if there are none."""
    tables: Sequence[str] = tuple(TABLES)
    batch_messages: int = BATCH_MESSAGES
    """Messages of one commit, at most."""
    allow_gaps: bool = False
    decrypt: bool = False
    """Whether encrypted queues may be archived: a lake holds what it copies in the clear."""

    def __post_init__(self) -> None:
        for table in self.tables:
            if table not in TABLES:
                raise InvalidRequestError(
                    f"table {table!r} is not archived: use {', '.join(TABLES)}"
                )
        if self.batch_messages < 1:
            raise InvalidRequestError("a commit must be allowed at least one message")


@dataclass
class ArchiveReport:
    """What a run did."""

    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    bytes: int = 0
    files: int = 0
    commits: int = 0
    lost: int = 0

    @property
    def total(self) -> int:
        return sum(self.rows.values())

    def add(self, commit: Commit) -> None:
        for each in commit.added:
            self.rows[each.table] += each.rows
            self.bytes += each.bytes
        self.files += len(commit.added)
        self.commits += 1
        self.lost += sum(gap.last_seq - gap.first_seq + 1 for gap in commit.gaps)


class Watcher:
    """Is told how an archive comes on. This one does not care."""

    def looked(self, behind: Mapping[str, int]) -> None:
        """Of each queue, how many messages are not in the lake yet."""

    def committed(self, report: ArchiveReport) -> None:
        """What is in so far."""


class Archiver:
    """One run. Hold `lake.archiving()` around it, and `repair` the lake first. Spark is asked for
    only when there is something to copy."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        lake: Lake,
        place: Place,
        options: ArchiveOptions,
        *,
        run: str,
        progress: Progress | None = None,
        watcher: Watcher | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._place = place
        self._options = options
        self._run = run
        self._progress = progress or Progress()
        self._watcher = watcher or Watcher()
        self._clock = clock or SystemClock()
        self.report = ArchiveReport()

    def once(self) -> int:
        """Copy all that is there now; answers how many rows."""
        access = self._place.access()
        plan = make_plan(
            access,
            self._lake.state(),
            patterns=self._options.queues,
            tables=self._options.tables,
            batch_messages=self._options.batch_messages,
            decrypt=self._options.decrypt,
        )
        if not self._options.allow_gaps:
            refuse_gaps(plan.gaps)
        self._watcher.looked(plan.behind)
        before = self.report.total
        with self._progress.stage(plan.messages):
            for batch in plan.batches:
                self._copy(batch)
        tell_archived(access, self._lake.state(), plan.behind)
        copied = self.report.total - before
        if copied:
            self._watcher.looked(dict.fromkeys(plan.behind, 0))
        return copied

    def follow(self, stop: threading.Event, interval_seconds: float) -> None:
        """Copy what comes, until told to stop."""
        while not stop.is_set():
            if not self.once():
                stop.wait(interval_seconds)

    def _copy(self, batch: ArchiveBatch) -> None:
        with self._lake.batch() as name:
            write = partial(write_task, self._place, self._lake.files_root, name)
            share = batch.messages / max(1, len(batch.tasks))
            with self._progress.part(batch.messages) as part:
                files = run_tasks(
                    self._spark,
                    write,
                    batch.tasks,
                    ended=lambda ended: part.reached(round(ended * share)),
                )
            lost = self._lost_meanwhile(batch, files)
            if not files and not batch.seqs:
                # The ends of logs move also where nothing of these queues is in them.
                return
            commit = self._lake.commit(partial(self._commit, batch, name, files, lost))
            self.report.add(commit)
            self._watcher.committed(self.report)

    def _commit(
        self,
        batch: ArchiveBatch,
        name: str,
        files: list[DataFile],
        lost: list[Gap],
        state: LakeState,
    ) -> Commit:
        """Only if the lake is where this batch was planned from."""
        starts = [
            *((one.partition_id, one.first_seq) for one in batch.ranges),
            *((gap.partition_id, gap.first_seq) for gap in batch.gaps),
        ]
        is_ahead = any(state.seqs.get(partition, 0) >= first for partition, first in starts) or any(
            state.logs.get((task.table, queue)) != task.after
            for task in batch.log_tasks
            for queue in task.queues
        )
        if is_ahead:
            raise ConflictError(
                f"another archive into {self._lake.root} is running: it has committed what this "
                "one was about to; nothing is in twice"
            )
        return Commit(
            number=state.number + 1,
            kind=Kind.ARCHIVE,
            at=self._clock.now(),
            run=self._run,
            batch=name,
            added=files,
            seqs=batch.seqs,
            logs=batch.logs,
            gaps=[*batch.gaps, *lost],
        )

    def _lost_meanwhile(self, batch: ArchiveBatch, files: Sequence[DataFile]) -> list[Gap]:
        """What retention took while it was being copied: at most this."""
        if sum(each.rows for each in files if each.table == "messages") == batch.messages:
            return []
        wanted: dict[str, list[SeqRange]] = {}
        for one in batch.ranges:
            wanted.setdefault(one.queue, []).append(one)
        access = self._place.access()
        lost: list[Gap] = []
        for queue, ranges in wanted.items():
            lost += lost_since(access.plan(queue), ranges)
        if not self._options.allow_gaps:
            refuse_gaps(lost)
        return lost


def tell_archived(access: Access, state: LakeState, queues: Iterable[str]) -> None:
    """Say what is in to the queues that keep messages until it is."""
    wanted = set(queues)
    retaining = [
        queue
        for batch in access.rows("queues", ["queue", "options"])
        for queue, options in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        if queue in wanted and msgspec.json.decode(options).get("retainUntilArchived")
    ]
    for queue in retaining:
        known = access.archived(queue)
        partitions = access.plan(queue)["partition_id"].to_pylist()
        new = {
            each: state.seqs[each]
            for each in partitions
            if state.seqs.get(each, 0) > known.get(each, 0)
        }
        if new:
            access.set_archived(queue, new)


def write_task(
    place: Place, root: Path, batch: str, task: ArchiveTask, name: str
) -> list[DataFile]:
    """In a worker: read what the task says, and write it to files of the batch."""
    access = place.access()
    table = "messages" if isinstance(task, MessageTask) else task.table
    columns = get_table(table).column_names
    if isinstance(task, MessageTask):
        rows = access.messages([*task.ranges], columns)
    else:
        rows = access.log_rows(table, task.after, task.until, columns, queues=task.queues)
    return FileWriter(root, table, f"{batch}-{name}").write(rows)
