"""Compact: many small files of a lake into few large ones, while it is read and written.

A commit replaces files by one that has the same rows. Those who read the lake by its commits go on
with the files that they began with: replaced files are deleted only when `keep_seconds` have
passed. Nothing is changed but files that commits name and what a crash has left.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from monarq.clock import Clock, SystemClock, micros
from monarq.errors import ConflictError, InvalidRequestError, MonarqError
from monarq.spark.lake.commits import Commit, DataFile, Kind, LakeState
from monarq.spark.lake.lake import ORPHAN_SECONDS, Lake
from monarq.spark.lake.layout import TABLES
from monarq.spark.lake.writing import FILE_BYTES, FileWriter
from monarq.spark.pipelines.jobs import run_tasks
from monarq.spark.pipelines.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: A file smaller than this is put together with others.
SMALL_BYTES = FILE_BYTES // 2
KEEP_SECONDS = 86_400.0
#: Folders that one commit compacts at most.
_FOLDERS_AT_ONCE = 500


class CompactTask(Struct, frozen=True):
    """Files of one folder, to become one."""

    table: str
    queue: str
    day: date
    paths: list[str]
    rows: int


@dataclass
class CompactReport:
    files_before: int = 0
    files_after: int = 0
    rows: int = 0
    bytes: int = 0
    deleted: int = 0
    """Files that were replaced long enough ago."""
    orphans: int = 0
    """Files that belonged to no commit."""


class Compactor:
    """One run. Spark is asked for only when there is something to compact."""

    def __init__(
        self,
        spark: Callable[[], SparkSession],
        lake: Lake,
        *,
        run: str,
        tables: Sequence[str] = tuple(TABLES),
        keep_seconds: float = KEEP_SECONDS,
        small_bytes: int = SMALL_BYTES,
        progress: Progress | None = None,
        clock: Clock | None = None,
    ) -> None:
        for table in tables:
            if table not in TABLES:
                raise InvalidRequestError(f"a lake has no table {table!r}: use {', '.join(TABLES)}")
        if keep_seconds < 0:
            raise InvalidRequestError("files cannot be kept for less than no time")
        self._spark = spark
        self._lake = lake
        self._run = run
        self._tables = tables
        self._keep = micros(keep_seconds)
        self._keep_seconds = keep_seconds
        self._small_bytes = small_bytes
        self._progress = progress or Progress()
        self._clock = clock or SystemClock()
        self.report = CompactReport()

    def run(self) -> CompactReport:
        self._lake.repair()
        tasks = list(self._tasks(self._lake.state()))
        with self._progress.stage(sum(task.rows for task in tasks)):
            for start in range(0, len(tasks), _FOLDERS_AT_ONCE):
                self._compact(tasks[start : start + _FOLDERS_AT_ONCE])
        self._delete_replaced()
        self._delete_orphans()
        self._lake.drop_superfluous()
        return self.report

    def _tasks(self, state: LakeState) -> Iterator[CompactTask]:
        folders: dict[tuple[str, str, date], list[DataFile]] = defaultdict(list)
        for each in state.files.values():
            if each.table in self._tables and each.bytes < self._small_bytes:
                folders[each.table, each.queue, each.date].append(each)
        for (table, queue, day), files in folders.items():
            for some in _packed(files):
                if len(some) > 1:
                    paths = [each.path for each in some]
                    yield CompactTask(table, queue, day, paths, sum(each.rows for each in some))

    def _compact(self, tasks: Sequence[CompactTask]) -> None:
        rows = sum(task.rows for task in tasks)
        share = rows / len(tasks)
        with self._lake.batch() as name:
            with self._progress.part(rows) as part:
                files = run_tasks(
                    self._spark,
                    partial(rewrite, self._lake.files_root, name),
                    tasks,
                    ended=lambda ended: part.reached(round(ended * share)),
                )
            if sum(each.rows for each in files) != rows:
                raise MonarqError("a compaction did not find the rows that the commits name")
            removed = [path for task in tasks for path in task.paths]
            self._lake.commit(partial(self._commit, name, files, removed))
        self.report.files_before += len(removed)
        self.report.files_after += len(files)
        self.report.rows += rows
        self.report.bytes += sum(each.bytes for each in files)

    def _commit(
        self, name: str, files: list[DataFile], removed: list[str], state: LakeState
    ) -> Commit:
        if not state.files.keys() >= set(removed):
            raise ConflictError(
                f"another compaction of {self._lake.root} is running; nothing was changed"
            )
        return self._commit_of(state, name, added=files, removed=removed)

    def _commit_of(
        self,
        state: LakeState,
        name: str,
        *,
        added: list[DataFile] | None = None,
        removed: list[str] | None = None,
        forgotten: list[str] | None = None,
    ) -> Commit:
        return Commit(
            number=state.number + 1,
            kind=Kind.COMPACT,
            at=self._clock.now(),
            run=self._run,
            batch=name,
            added=added or [],
            removed=removed or [],
            forgotten=forgotten or [],
            base=state.as_base(),
        )

    # --- what is no longer needed -----------------------------------------------------------

    def _delete_replaced(self) -> None:
        """Files that nobody reads any more."""
        before = self._clock.now() - self._keep
        old = [path for path, at in self._lake.state().removed.items() if at <= before]
        if old:
            self._lake.commit(lambda state: self._commit_of(state, "", forgotten=old))
            self._lake.unlink(old)
            for path in old:
                (self._lake.files_root / path).unlink(missing_ok=True)
            self.report.deleted += len(old)

    def _delete_orphans(self) -> None:
        """What writers have left that are dead, and could not be seen to be."""
        before = time.time() - max(self._keep_seconds, ORPHAN_SECONDS)
        for path in self._lake.stray_files():
            try:
                is_old = path.stat().st_mtime < before
            except FileNotFoundError:
                # Its writer has just ended, or another compaction was quicker.
                continue
            if is_old:
                path.unlink(missing_ok=True)
                self.report.orphans += 1


def _packed(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Neighbours by name, and so by time, that make one file together."""
    some: list[DataFile] = []
    for each in sorted(files, key=lambda file: file.path):
        if some and sum(one.bytes for one in some) + each.bytes > FILE_BYTES:
            yield some
            some = []
        some.append(each)
    if some:
        yield some


def rewrite(root: Path, batch: str, task: CompactTask, name: str) -> list[DataFile]:
    """In a worker: write the rows of some files to one."""
    writer = FileWriter(root, task.table, f"{batch}-{name}")
    return writer.copy((root / path for path in task.paths), task.queue, task.day)
