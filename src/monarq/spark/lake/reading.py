"""What is committed to a lake, and nothing else, for Spark and for everyone."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import date
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING

from monarq.errors import InvalidRequestError
from monarq.spark.lake.commits import DataFile, LakeState
from monarq.spark.lake.lake import Lake
from monarq.spark.lake.layout import TABLES, folder_value, is_cut
from monarq.tables import ColumnType, get_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SQL_TYPES = {
    ColumnType.TEXT: "STRING",
    ColumnType.INT: "INT",
    ColumnType.LONG: "BIGINT",
    ColumnType.REAL: "DOUBLE",
    ColumnType.BOOL: "BOOLEAN",
    ColumnType.TIME: "TIMESTAMP",
}


def read(
    spark: SparkSession,
    lake: Lake | str | os.PathLike[str],
    table: str = "messages",
    *,
    queues: Iterable[str] | None = None,
    first_day: date | None = None,
    last_day: date | None = None,
    state: LakeState | None = None,
) -> DataFrame:
    """A table of the lake: its columns as from a broker, and `date`, the day (UTC) that each row
    is filed under. It stays as it is now, whatever is archived or compacted meanwhile.

    Give the same `state` (`lake.state()`) to several reads to see all tables at one moment.
    """
    lake, files = _chosen(lake, table, queues, first_day, last_day, state)
    columns = get_table(table).column_names
    schema = table_schema(table)
    if not files:
        return spark.createDataFrame([], schema)
    base = lake.files_root / table
    reader = spark.read.schema(schema).option("basePath", str(base))
    rows = reader.parquet(*(_uri(lake.files_root / each.path) for each in files))
    cut = {each.queue for each in files if is_cut(each.queue)}
    return _with_whole_names(rows, cut).select(*columns, "date")


def committed_files(
    lake: Lake | str | os.PathLike[str],
    table: str = "messages",
    *,
    queues: Iterable[str] | None = None,
    first_day: date | None = None,
    last_day: date | None = None,
) -> list[Path]:
    """The Parquet files of a table. They stay for a day, also if a compaction replaces them."""
    lake, files = _chosen(lake, table, queues, first_day, last_day, None)
    return [lake.files_root / each.path for each in files]


def table_schema(table: str) -> str:
    """The columns of a table in the lake, as DDL."""
    columns = [f"`{column.name}` {_SQL_TYPES[column.type]}" for column in get_table(table).columns]
    return ", ".join([*columns, "`date` DATE"])


def _chosen(
    lake: Lake | str | os.PathLike[str],
    table: str,
    queues: Iterable[str] | None,
    first_day: date | None,
    last_day: date | None,
    state: LakeState | None,
) -> tuple[Lake, list[DataFile]]:
    if table not in TABLES:
        raise InvalidRequestError(f"a lake has no table {table!r}: use one of {', '.join(TABLES)}")
    found = lake if isinstance(lake, Lake) else Lake.open(lake)
    files = [
        each
        for each in (state or found.state()).files_of(table, queues)
        if (first_day is None or each.date >= first_day)
        and (last_day is None or each.date <= last_day)
    ]
    return found, files


def _with_whole_names(rows: DataFrame, queues: set[str]) -> DataFrame:
    """Queues whose names are too long for a folder have but a part of it there."""
    if not queues:
        return rows
    from pyspark.sql import functions as f

    names = reduce(
        lambda found, queue: found.when(f.col("queue") == folder_value(queue), f.lit(queue)),
        sorted(queues),
        f,
    )
    return rows.withColumn("queue", names.otherwise(f.col("queue")))


def _uri(path: Path) -> str:
    """Spark takes paths for patterns, in which these characters mean something."""
    return "".join(f"\\{one}" if one in "{}[]*?\\" else one for one in str(path))
