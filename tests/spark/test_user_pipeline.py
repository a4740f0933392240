"""Pipelines of the user's own, run on Spark."""

import itertools
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from monarq.errors import ConflictError, InvalidRequestError, MonarqError
from monarq.spark.lake import Lake
from monarq.spark.pipelines.user.explaining import explain, explained_text
from monarq.spark.pipelines.user.reading import read_pipeline
from monarq.spark.pipelines.user.running import run_batch, run_stream
from monarq.store.contract import Store
from tests.documented import blocks
from tests.spark.seeding import fill, in_store, numbered

BATCH = """
name = "score"

[sources.orders]
queue = "orders"
payload_schema = "n INT"

[sources.names]
files = "names.csv"
format = "csv"
options = { header = true, inferSchema = true }

[[steps]]
name = "named"
python = "shop_steps.py:named"

[[steps]]
name = "scored"
sql = "SELECT *, n * 2 AS score FROM named"

[sinks.out]
from = "scored"
queue_column = "name"

[sinks.kept]
from = "scored"
files = "kept"
partition_by = ["name"]

[sinks.lake]
from = "scored"
lake = "lake"
table = "scored"
"""
FROM_THE_LAKE = """
name = "again"

[sources.past]
lake = "lake"
table = "scored"

[sinks.out]
from = "past"
queue = "again"
"""
STEPS = """
def named(orders, names, spark):
    assert spark is not None
    flat = orders.select("queue", "partition", "seq", "payload.n")
    return flat.join(names, flat.n % 2 == names.id).drop("id")


def broken(orders):
    return {}["x"]


def nothing(orders):
    return None
"""
STREAM = """
name = "follow"
mode = "stream"
checkpoint = "checkpoints"

[sources.orders]
queue = "orders"
payload_schema = "n INT"
options = { maxMessagesPerTrigger = 10 }

[[steps]]
name = "scored"
sql = "SELECT queue, partition, seq, payload.n, payload.n * 2 AS score FROM orders"

[[steps]]
name = "bare"
sql = "SELECT payload.n % 3 AS third FROM orders"

[sinks.out]
from = "scored"
queue = "scored"

[sinks.thirds]
from = "bare"
queue = "thirds"

[sinks.kept]
from = "scored"
files = "kept"

[sinks.noted]
from = "scored"
table = "noted_scores"
"""


_numbers = itertools.count()


def write(folder: Path, text: str) -> Path:
    # All tests share a process, in which a module's name means one module.
    module = f"steps_{next(_numbers)}"
    (folder / "names.csv").write_text("id,name\n0,even\n1,odd\n")
    (folder / f"{module}.py").write_text(STEPS)
    path = folder / "p.toml"
    path.write_text(text.replace("shop_steps", module))
    return path


def payloads_of(url: str, queue: str) -> list[Any]:
    async def listed(store: Store) -> list[Any]:
        rows = (await store.list_messages(queue, limit=1000)).rows
        return [json.loads(one.payload) for one in rows]

    found: list[Any] = in_store(url, listed)
    return found


def numbers(folder: Path) -> list[int]:
    """What any reader of Parquet sees."""
    table = ds.dataset(folder, format="parquet", partitioning="hive").to_table(columns=["n"])
    return sorted(table.column("n").to_pylist())


def untold(name: str, rows: int) -> None:
    """Whoever wants no progress."""


def test_a_batch_goes_to_queues_files_and_the_lake_once_however_often_it_runs(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 20, partitions=3))
    Lake.open_or_make(tmp_path / "lake", store="some")
    pipeline = read_pipeline(write(tmp_path, BATCH))
    place = {"url": store_url}
    for _ in range(2):
        rows = run_batch(spark, pipeline, place, untold)
        assert rows == {"out": 20, "kept": 20, "lake": 20}
        for name, first in (("even", 0), ("odd", 1)):
            found = sorted((one["n"], one["score"]) for one in payloads_of(store_url, name))
            assert found == [(n, 2 * n) for n in range(first, 20, 2)]
        assert numbers(tmp_path / "kept") == list(range(20))
        assert numbers(tmp_path / "lake/tables/scored") == list(range(20))
    again = read_pipeline(write(tmp_path, FROM_THE_LAKE))
    assert run_batch(spark, again, place, untold) == {"out": 20}


def test_explaining_writes_nothing(spark: SparkSession, store_url: str, tmp_path: Path) -> None:
    fill(store_url, numbered("orders", 2))
    Lake.open_or_make(tmp_path / "lake", store="some")
    explained = explain(spark, read_pipeline(write(tmp_path, BATCH)), {"url": store_url})
    said = explained_text(explained)
    assert "source orders: messages of queue orders" in said
    assert "score int" in said
    assert "sink out: scored to the queues that column name names" in said
    followed = explain(spark, read_pipeline(write(tmp_path, STREAM)), {"url": store_url})
    assert "messages of queue orders, followed" in explained_text(followed)
    assert not (tmp_path / "kept").exists()
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize(
    ("old", "new", "wrong"),
    [
        ("n * 2", "nope * 2", r"steps\[1\] \(scored\): .*nope"),
        ("FROM named", "FROM", r"steps\[1\] \(scored\): "),
        ('queue_column = "name"', 'queue_column = "nope"', r"sinks\.out: .*the columns are"),
        ('"n INT"', '"n INTT"', r"sources\.orders: .*payloadSchema"),
        ("shop_steps.py:named", "shop_steps.py:broken", r"steps\[0\] \(named\): KeyError"),
        ("shop_steps.py:named", "shop_steps.py:nothing", r"\(named\): nothing must return a Data"),
    ],
)
def test_what_spark_refuses_is_told_with_its_place(
    spark: SparkSession, store_url: str, tmp_path: Path, old: str, new: str, wrong: str
) -> None:
    fill(store_url, numbered("orders", 2))
    Lake.open_or_make(tmp_path / "lake", store="some")
    path = write(tmp_path, BATCH.replace(old, new))
    with pytest.raises(MonarqError, match=wrong) as caught:
        run_batch(spark, read_pipeline(path), {"url": store_url}, untold)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


def forget_last_batch(checkpoint: Path) -> None:
    """As if the driver had been killed after the sink had the batch, before Spark knew it."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


@pytest.mark.slow
def test_a_stream_goes_to_queues_files_and_tables_once_also_when_a_batch_is_repeated(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 25, partitions=3))
    pipeline = read_pipeline(write(tmp_path, STREAM))
    place = {"url": store_url}
    try:
        for first in (25, 30):
            rows = run_stream(spark, pipeline, place, threading.Event(), untold, once=True)
            assert set(rows) == {"out", "thirds", "kept", "noted"}
            for sink in rows:
                forget_last_batch(tmp_path / "checkpoints" / sink)
            fill(store_url, numbered("orders", 5, partitions=3, first=first))
        run_stream(spark, pipeline, place, threading.Event(), untold, once=True)
        expected = list(range(35))
        assert sorted(one["n"] for one in payloads_of(store_url, "scored")) == expected
        assert Counter(one["third"] for one in payloads_of(store_url, "thirds")) == Counter(
            n % 3 for n in expected
        )
        assert numbers(tmp_path / "kept") == expected
        noted = spark.table("noted_scores").select("n").collect()
        assert sorted(row.n for row in noted) == expected
    finally:
        spark.sql("DROP TABLE IF EXISTS noted_scores")


@pytest.mark.parametrize("sink", ["kept", "noted"])
def test_a_new_checkpoint_is_refused_where_another_has_written(
    spark: SparkSession, store_url: str, tmp_path: Path, sink: str
) -> None:
    """Its batches would count from 0 again, and be taken for those that are there."""
    fill(store_url, numbered("orders", 3))
    start = STREAM.partition("[sinks.out]")[0]
    ends = {"kept": 'files = "kept"', "noted": 'table = "noted_once"'}
    path = write(tmp_path, f'{start}[sinks.{sink}]\nfrom = "scored"\n{ends[sink]}\n')
    pipeline, place = read_pipeline(path), {"url": store_url}
    try:
        run_stream(spark, pipeline, place, threading.Event(), untold, once=True)
        (tmp_path / "checkpoints").rename(tmp_path / "old")
        fill(store_url, numbered("orders", 3, first=3))
        with pytest.raises(ConflictError, match="belongs to another checkpoint"):
            run_stream(spark, pipeline, place, threading.Event(), untold, once=True)
    finally:
        spark.sql("DROP TABLE IF EXISTS noted_once")


def test_a_stream_ends_when_it_is_told_to_and_when_it_fails(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 3))
    only_queue = STREAM.partition("[sinks.thirds]")[0]
    pipeline = read_pipeline(write(tmp_path, only_queue))
    stop = threading.Event()

    def told(name: str, rows: int) -> None:
        assert (name, rows) == ("out", 3)
        stop.set()

    rows = run_stream(spark, pipeline, {"url": store_url}, stop, told, once=False)
    assert rows == {"out": 3}
    assert not spark.streams.active
    broken = only_queue.replace("payload.n * 2 AS score", "raise_error('no') AS score")
    (tmp_path / "checkpoints").rename(tmp_path / "old")
    pipeline = read_pipeline(write(tmp_path, broken))
    with pytest.raises(MonarqError, match=r"sinks\.out"):
        run_stream(spark, pipeline, {"url": store_url}, threading.Event(), told, once=True)
    assert not spark.streams.active


def test_the_pipeline_of_the_guide_is_one(tmp_path: Path) -> None:
    [whole, settings] = blocks("docs/guide/pipelines-of-your-own.md", "toml")
    (tmp_path / "customers.csv").write_text("customer,tier\n")
    path = tmp_path / "enrich.toml"
    path.write_text(whole.code)
    assert read_pipeline(path).name == "enrich"
    path.write_text(whole.code + settings.code)
    assert read_pipeline(path).spark == {"spark.sql.shuffle.partitions": "8"}
    path.write_text(whole.code.replace('from = "enriched"', 'from = "enrichd"', 1))
    with pytest.raises(InvalidRequestError, match=r"enrich\.toml: sinks\.out\.from: there is no"):
        read_pipeline(path)
