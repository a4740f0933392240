"""Replay: messages of a lake into a queue, each once.

A replayed message gets a transaction id made of the store that it came from and its id there. The
same message pushed to the same partition again is then a duplicate, so that a replay that is killed
or repeated pushes only what is missing. A copy that is archived and replayed in its turn keeps the
id of its original, so that no generation of copies is stored twice. Order within a partition is
kept.
"""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Struct

from monarq.errors import InvalidRequestError
from monarq.model import QueueKind
from monarq.spark.failures import first_line, spark_failures
from monarq.spark.lake.lake import Lake
from monarq.spark.lake.reading import read
from monarq.spark.pipelines.place import Place
from monarq.spark.pipelines.progress import Progress
from monarq.spark.sink_http import Written

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_ID = "monarq_transaction_id"
_QUEUE = "monarq_queue"


@dataclass(frozen=True)
class ReplayOptions:
    to: str | None = None
    """The queue that all go to; without, each to the queue that it came from."""
    queues: Sequence[str] = ()
    """Which are replayed; all, if there are none."""
    partitions: Sequence[str] = ()
    since: datetime | None = None
    until: datetime | None = None
    """Not included."""
    where: str | None = None
    """A condition in Spark's SQL."""
    rate: float | None = None
    """Messages a second, at most."""
    label: str = ""
    """Another label makes other transaction ids: messages are pushed once for each label."""

    def __post_init__(self) -> None:
        if self.rate is not None and not 0 < self.rate < 10_000_000:
            raise InvalidRequestError("the rate must be more than 0 messages a second")
        if self.since is not None and self.until is not None and self.since >= self.until:
            raise InvalidRequestError("the time to replay from must be before that to replay to")
        if len(self.label) > 64:
            raise InvalidRequestError("a label has at most 64 characters")


class ReplayCount(Struct, frozen=True, rename="camel"):
    """How many messages of a queue a replay is about."""

    queue: str
    to: str
    messages: int
    partitions: int


class Replayer:
    def __init__(
        self,
        spark: Callable[[], SparkSession],
        lake: Lake,
        place: Place,
        options: ReplayOptions,
        *,
        progress: Progress | None = None,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._place = place
        self._options = options
        self._progress = progress or Progress()
        self._state = lake.state()

    def count(self) -> list[ReplayCount]:
        """What a replay would push, if nothing of it was pushed before."""
        from pyspark.sql import functions as f

        with spark_failures():
            found = (
                self._chosen()
                .groupBy("queue", _QUEUE)
                .agg(f.count("*").alias("n"), f.countDistinct("partition").alias("p"))
                .orderBy("queue")
                .collect()
            )
        return [ReplayCount(row["queue"], row[_QUEUE], row["n"], row["p"]) for row in found]

    def push(self, total: int) -> int:
        """Push them, `total` as counted before. Those that are there already are not stored: how
        many these are."""
        if not total:
            return 0
        with spark_failures(), self._progress.stage(total):
            if self._options.rate is not None:
                return self._push_slowly(self._options.rate)
            with self._progress.part(total):
                return self._push()

    def _chosen(self) -> DataFrame:
        from pyspark.sql import functions as f

        options = self._options
        rows = read(
            self._spark(),
            self._lake,
            queues=options.queues or None,
            first_day=options.since.astimezone(UTC).date() if options.since else None,
            last_day=options.until.astimezone(UTC).date() if options.until else None,
            state=self._state,
        )
        if options.partitions:
            rows = rows.filter(f.col("partition").isin(list(options.partitions)))
        if options.since is not None:
            rows = rows.filter(f.col("created_at") >= f.lit(options.since))
        if options.until is not None:
            rows = rows.filter(f.col("created_at") < f.lit(options.until))
        if options.where is not None:
            rows = _filtered(rows, options.where)
        target = f.col("queue") if options.to is None else f.lit(options.to)
        return rows.withColumn(_ID, self._transaction_id()).withColumn(_QUEUE, target)

    def _transaction_id(self) -> Column:
        """Return the column `<store>:<id of the original message>[:<label>]`."""
        from pyspark.sql import functions as f

        store = str(self._lake.info.store)
        label = f":{self._options.label}" if self._options.label else ""
        replayed = rf"^{re.escape(store)}:(\d+-\d+)(:.*)?$"
        original = f.regexp_extract("transaction_id", replayed, 1)
        origin = f.when(original == "", f.col("message_id")).otherwise(original)
        return f.concat(f.lit(f"{store}:"), origin, f.lit(label))

    def _target(self) -> _Target:
        """Where they go. A work queue has one lane."""
        from monarq.spark.sink import target_kind
        from monarq.spark.sink_options import read_sink_options

        named = {**self._place.options, "transactionIdColumn": _ID}
        if self._options.to is None:
            named |= {"queueColumn": _QUEUE, "partitionColumn": "partition"}
            return _Target(["payload", "partition", "trace_id", _ID, _QUEUE], named, False)
        named["queue"] = self._options.to
        if target_kind(read_sink_options(named)) is QueueKind.WORK:
            return _Target(["payload", "trace_id", _ID], named, True)
        named["partitionColumn"] = "partition"
        return _Target(["payload", "partition", "trace_id", _ID], named, False)

    def _push(self) -> int:
        # All of a partition in one task, in the order in which they were pushed.
        rows = (
            self._chosen()
            .repartition("queue", "partition")
            .sortWithinPartitions("queue", "partition", "seq")
        )
        target = self._target()
        writer = rows.select(*target.columns).write.format("monarq").options(**target.options)
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report"
            writer.option("reportFile", str(report)).mode("append").save()
            return msgspec.json.decode(report.read_bytes(), type=Written).duplicates

    def _push_slowly(self, rate: float) -> int:
        """From here, in the order of time: one sender keeps to a rate best."""
        target = self._target()
        rows = self._chosen().orderBy("created_at", "queue", "partition", "seq")
        chosen = rows.select(*target.columns)
        sender = _Sender(chosen, target)
        sent = duplicates = 0
        for piece in _paced(chosen.toLocalIterator(prefetchPartitions=True), rate):
            duplicates += sender.push(piece)
            sent += len(piece)
            self._progress.move(sent)
        return duplicates


def _filtered(rows: DataFrame, where: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    try:
        return rows.filter(where)
    except AnalysisException as error:
        raise InvalidRequestError(
            f"the condition {where!r} cannot be used: {first_line(str(error))}"
        ) from None


class _Target(NamedTuple):
    columns: list[str]
    options: dict[str, str]
    is_work: bool


class _Sender:
    """Pushes rows from this process, as the sink does in a worker."""

    def __init__(self, rows: DataFrame, target: _Target) -> None:
        from monarq.spark.sink_columns import resolve_columns
        from monarq.spark.sink_options import read_sink_options

        self._options = read_sink_options(target.options)
        self._columns = resolve_columns(rows.schema, self._options, is_work=target.is_work)
        self._names = target.columns

    def push(self, rows: Sequence[Any]) -> int:
        """How many of them were there already."""
        import pyarrow as pa

        from monarq.spark.sink_writer import write_rows

        values = zip(*rows, strict=True)
        arrays = [pa.array(column, pa.string()) for column in values]
        batch = pa.RecordBatch.from_arrays(arrays, names=self._names)
        written, _ = write_rows(self._options, self._columns, [batch], scope="replay", task=0)
        return written.duplicates


def _paced(rows: Iterator[Any], rate: float) -> Iterator[list[Any]]:
    """Pieces of them, none before it is due."""
    size = max(1, min(1000, round(rate / 10)))
    started = time.monotonic()
    pause = threading.Event()
    given = 0
    piece: list[Any] = []
    for row in rows:
        piece.append(row)
        if len(piece) == size:
            yield piece
            given += size
            piece = []
            early = given / rate - (time.monotonic() - started)
            if early > 0:
                pause.wait(early)
    if piece:
        yield piece
