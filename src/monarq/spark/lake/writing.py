"""Rows into Parquet files of a batch, by queue and day. Runs in Spark's workers.

Files are durable before they are named to anyone. They are in no commit yet: if a writer fails or
is killed, what it has written counts for nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from monarq.spark.lake.commits import DataFile, sync_folder
from monarq.spark.lake.layout import TABLES, folder
from monarq.tables import arrow_schema

#: A file is ended when it has this size.
FILE_BYTES = 256 << 20
#: Files that one writer has open at a time, and what it holds of them in memory.
_OPEN_FILES = 64
_HELD_BYTES = 256 << 20
_ROW_GROUP_BYTES = 64 << 20


def file_schema(table: str) -> pa.Schema:
    """What is in a file: the queue is told by its folder."""
    schema = arrow_schema(table)
    return schema.remove(schema.get_field_index("queue"))


class _OpenFile:
    """One file that grows by row groups."""

    def __init__(self, root: Path, path: str, table: str, queue: str, day: date) -> None:
        self.path = root / path
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._named = (path, queue, day)
        self._held: list[pa.RecordBatch] = []
        self.held_bytes = 0
        self._rows = 0
        self._file = self.path.open("wb")
        self._writer = pq.ParquetWriter(self._file, file_schema(table), compression="zstd")

    @property
    def bytes(self) -> int:
        """As far as they are written."""
        return self._file.tell()

    def add(self, batch: pa.RecordBatch) -> None:
        self._held.append(batch)
        self.held_bytes += batch.nbytes
        self._rows += batch.num_rows
        if self.held_bytes >= _ROW_GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """What is held, as a row group."""
        if self._held:
            self._writer.write_table(pa.Table.from_batches(self._held))
            self._held, self.held_bytes = [], 0

    def end(self) -> DataFile:
        self.write()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size = self._file.tell()
        self._file.close()
        sync_folder(self.path.parent)
        path, queue, day = self._named
        return DataFile(path=path, queue=queue, date=day, rows=self._rows, bytes=size)

    def abandon(self) -> None:
        """What is in the writer is not worth writing, and may be what failed."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()
        self.path.unlink(missing_ok=True)


class FileWriter:
    """Writes one table's rows; `stem` names its files, and nobody else's, of the batch."""

    def __init__(self, root: Path, table: str, stem: str) -> None:
        self._root = root
        self._table = table
        self._stem = stem
        self._time = TABLES[table]
        self._open: dict[tuple[str, date], _OpenFile] = {}
        self._ended: list[DataFile] = []
        self._count = 0

    def write(self, batches: Iterable[pa.RecordBatch]) -> list[DataFile]:
        """All of these rows. On an error, nothing is left of them."""
        with self._whole():
            for batch in batches:
                self._add(batch)
        return self._ended

    def copy(self, files: Iterable[Path], queue: str, day: date) -> list[DataFile]:
        """The rows of files of one folder, in their order."""
        with self._whole():
            for path in files:
                # Not by name: Arrow would look for columns in the folders of its path.
                with path.open("rb") as source, pq.ParquetFile(source) as file:
                    for batch in file.iter_batches(columns=file_schema(self._table).names):
                        self._append((queue, day), batch)
        return self._ended

    @contextlib.contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
            while self._open:
                self._end(next(iter(self._open)))
        except BaseException:
            for file in self._open.values():
                file.abandon()
            for ended in self._ended:
                (self._root / ended.path).unlink(missing_ok=True)
            raise

    def _add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        days = pc.cast(batch.column(self._time), pa.date32(), safe=False)
        queues = batch.column("queue")
        rows = batch.select(file_schema(self._table).names)
        first = (queues[0].as_py(), days[0].as_py())
        is_first = pc.and_(pc.equal(queues, queues[0]), pc.equal(days, days[0]))
        if pc.all(is_first).as_py():
            self._append(first, rows)
            return
        places = pa.table({"queue": queues, "day": days}).group_by(["queue", "day"]).aggregate([])
        for queue, day in zip(places["queue"], places["day"], strict=True):
            mask = pc.and_(pc.equal(queues, queue), pc.equal(days, day))
            self._append((queue.as_py(), day.as_py()), rows.filter(mask))

    def _append(self, place: tuple[str, date], rows: pa.RecordBatch) -> None:
        file = self._open.pop(place, None)
        if file is None:
            if len(self._open) >= _OPEN_FILES:
                self._end(next(iter(self._open)))
            queue, day = place
            name = f"{self._stem}-{self._count}.parquet"
            self._count += 1
            path = f"{folder(self._table, queue, day)}/{name}"
            file = _OpenFile(self._root, path, self._table, queue, day)
        # Behind all others: the first is the one that was not written to for the longest time.
        self._open[place] = file
        file.add(rows)
        if sum(each.held_bytes for each in self._open.values()) >= _HELD_BYTES:
            max(self._open.values(), key=lambda each: each.held_bytes).write()
        if file.bytes >= FILE_BYTES:
            self._end(place)

    def _end(self, place: tuple[str, date]) -> None:
        file = self._open[place]
        ended = file.end()
        del self._open[place]
        self._ended.append(ended)
