"""Rows of tables of a lake, made by hand, and what readers find in it."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from monarq.spark.lake import Lake
from monarq.spark.lake.commits import Commit, Kind, LakeState
from monarq.spark.lake.writing import FileWriter
from monarq.tables import arrow_schema

START = datetime(2026, 1, 31, 12, tzinfo=UTC)


def message(queue: str, seq: int, at: datetime = START, partition_id: int = 1) -> dict[str, Any]:
    return {
        "queue": queue,
        "partition": f"p{partition_id}",
        "seq": seq,
        "message_id": f"{partition_id}-{seq}",
        "transaction_id": f"{partition_id}-{seq}",
        "trace_id": None,
        "payload": f'{{"n":{seq}}}',
        "producer": None,
        "created_at": at,
    }


def messages(queue: str, seqs: Iterable[int], **options: Any) -> list[dict[str, Any]]:
    return [message(queue, seq, **options) for seq in seqs]


def one_a_day(queue: str, days: int) -> list[dict[str, Any]]:
    return [message(queue, day, START + timedelta(days=day)) for day in range(1, days + 1)]


def batches(rows: Sequence[dict[str, Any]], size: int = 100) -> list[pa.RecordBatch]:
    table = pa.Table.from_pylist(list(rows), arrow_schema("messages"))
    return table.to_batches(max_chunksize=size)


def add(lake: Lake, rows: Sequence[dict[str, Any]], **named: Any) -> Commit:
    """Commit these messages."""
    with lake.batch() as batch:
        files = FileWriter(lake.files_root, "messages", f"{batch}-0").write(batches(rows))

        def build(state: LakeState) -> Commit:
            return Commit(
                number=state.number + 1,
                kind=Kind.ARCHIVE,
                at=1,
                run="r",
                batch=batch,
                added=files,
                **named,
            )

        return lake.commit(build)


def ids_by_pyarrow(root: Path) -> list[tuple[str, str]]:
    """What pyarrow sees who knows nothing of commits."""
    if not (root / "messages").exists():
        return []
    schema = pa.schema([("queue", pa.string()), ("date", pa.date32())])
    found = ds.dataset(
        root / "messages", format="parquet", partitioning=ds.partitioning(schema, flavor="hive")
    )
    rows = found.to_table(columns=["queue", "message_id"]).to_pylist()
    return sorted((row["queue"], row["message_id"]) for row in rows)


def ids_by_duckdb(root: Path) -> list[tuple[str, str]]:
    """What DuckDB sees by a pattern."""
    if not list((root / "messages").rglob("*.parquet")):
        return []
    folder = str(root / "messages").replace("'", "''").replace("[", "[[]")
    pattern = f"{folder}/**/*.parquet"
    with duckdb.connect() as connection:
        rows = connection.sql(
            f"select queue, message_id from read_parquet('{pattern}', hive_partitioning = true, "
            "hive_types_autocast = false)"
        ).fetchall()
    return sorted((str(queue), str(message_id)) for queue, message_id in rows)


def ids_of(rows: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    return sorted((row["queue"], row["message_id"]) for row in rows)
