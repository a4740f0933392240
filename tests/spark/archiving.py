"""Archives queues of a store in tests, and says what must be in the lake."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
from pyspark.sql import SparkSession

from monarq.model import DEFAULT_GROUP, Ack, AckStatus, Pop, PushItem, QueueKind
from monarq.spark.access import SeqRange, open_access
from monarq.spark.lake import Lake, read
from monarq.spark.lake.layout import TABLES
from monarq.spark.pipelines.archive import ArchiveOptions, Archiver
from monarq.spark.pipelines.place import Place
from monarq.store.contract import Store
from monarq.tables import get_table
from tests.spark.lake_rows import ids_by_duckdb, ids_by_pyarrow
from tests.spark.seeding import fill, in_store, make_queue, numbered

Rows = list[tuple[Any, ...]]


def archiver(
    spark: SparkSession | Callable[[], SparkSession], lake: Lake, url: str, **options: Any
) -> Archiver:
    start = spark if not isinstance(spark, SparkSession) else lambda: spark
    return Archiver(start, lake, Place(url), ArchiveOptions(**options), run="test")


def archive(spark: SparkSession, lake: Lake, url: str, **options: Any) -> int:
    with lake.archiving():
        lake.repair()
        return archiver(spark, lake, url, **options).once()


def rows_in_store(url: str, table: str) -> Rows:
    """All rows of a table, by the way that the archive reads."""
    access = open_access(url)
    columns = get_table(table).column_names
    try:
        if table == "messages":
            ranges = [
                SeqRange(queue.name, row["partition_id"], row["partition"], 1, row["last_seq"])
                for queue in access.queues()
                if queue.kind == "ordered"
                for row in access.plan(queue.name).to_pylist()
            ]
            batches = access.messages(ranges, columns)
        else:
            batches = access.log_rows(table, None, None, columns)
        return sorted(
            (
                tuple(row[name] for name in columns)
                for batch in batches
                for row in batch.to_pylist()
            ),
            key=repr,
        )
    finally:
        access.close()


def rows_in_lake(spark: SparkSession, lake: Lake, table: str) -> Rows:
    rows = read(spark, lake, table).drop("date").toArrow().to_pylist()
    columns = get_table(table).column_names
    return sorted((tuple(row[name] for name in columns) for row in rows), key=repr)


def expect_all(spark: SparkSession, lake: Lake, url: str) -> None:
    """Every row of the store is in the lake, once, for every reader."""
    for table in TABLES:
        assert rows_in_lake(spark, lake, table) == rows_in_store(url, table), table
    expect_messages(lake.root, url)


def expect_messages(root: Path, url: str) -> None:
    """Also without Spark: by content and count, as readers see it who know nothing of commits."""
    columns = get_table("messages").column_names
    rows = rows_in_store(url, "messages")
    queue, message_id, payload = (columns.index(one) for one in ("queue", "message_id", "payload"))
    expected = sorted((row[queue], row[message_id]) for row in rows)
    assert ids_by_pyarrow(root) == expected
    assert ids_by_duckdb(root) == expected
    with duckdb.connect() as connection:
        found = connection.execute(
            "select message_id, payload from read_parquet(?, hive_partitioning = false)",
            [str(root / "messages" / "**" / "*.parquet")],
        ).fetchall()
    assert Counter(found) == Counter((row[message_id], row[payload]) for row in rows)


def fill_everything(url: str) -> None:
    """Messages of several queues and partitions, answered ones, dead ones, and jobs that ran."""
    fill(url, numbered("orders", 500, partitions=7))
    fill(url, numbered("mäil/out", 30))
    make_queue(url, "jobs", QueueKind.WORK)
    fill(url, [PushItem("jobs", b'{"job": %d}' % number) for number in range(5)])
    in_store(url, _answer)


async def _answer(store: Store) -> None:
    for status in (AckStatus.COMPLETED, AckStatus.DEAD):
        for queue, group in (("orders", "g"), ("jobs", DEFAULT_GROUP)):
            [popped] = await store.pop([Pop(queue=queue, group=group, batch=3)])
            assert not isinstance(popped, Exception), popped
            ack = Ack(lease_id=popped.lease_id, status=status, error="näh", group=group)
            assert not isinstance((await store.ack([ack]))[0], Exception)
