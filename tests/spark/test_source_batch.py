"""Batch reads: the same rows whichever way, and only what was asked for."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id

from monarq.model import Ack, AckStatus, Pop, PushItem, QueueKind
from monarq.spark.positions import write_offset
from monarq.store.contract import Store
from monarq.tables import TABLES, TableKind
from tests.server.serving import ServerProcess
from tests.spark.counting_proxy import CountingProxy
from tests.spark.seeding import Urls, fill, in_store, make_queue, numbered, rows_of

Read = Callable[..., DataFrame]

AWKWARD_PAYLOADS = [
    "null",
    "true",
    "0",
    "-12.5e-3",
    "9007199254740993",
    '""',
    '"ünïcödé ☃ 𝄞 \\u0000 \\n"',
    "[]",
    "{}",
    '{"deep": {"list": [1, [2, {"x": null}]]}, "dup": 1}',
    '{\n  "pretty": true\n}',
]


@pytest.fixture
def read(spark: SparkSession, store_url: str) -> Read:
    """Reads the store of this test with these options, and maybe a schema."""

    def reading(schema: str | None = None, url: str = store_url, **options: Any) -> DataFrame:
        reader = spark.read.format("monarq").options(url=url, **options)
        return (reader if schema is None else reader.schema(schema)).load()

    return reading


def _all(url: str, read: Read, table: str) -> list[tuple[Any, ...]]:
    frame = read(url=url, table=table, queuePattern="*")
    assert frame.columns == TABLES[table].column_names
    # Lag in seconds grows while one looks.
    return sorted(tuple(map(repr, row)) for row in frame.drop("lag_seconds").collect())


def _both_ways(urls: Urls, read: Read, table: str) -> list[list[tuple[Any, ...]]]:
    """What the store gives and what its broker gives, with nothing that came in between: once a
    minute the broker adds to the metrics."""
    before = _all(urls.store, read, table)
    while True:
        by_broker = _all(urls.broker, read, table)
        after = _all(urls.store, read, table)
        if before == after:
            return [after, by_broker]
        before = after


async def _live(store: Store) -> None:
    """Something in every table: consumed, failed to death, scheduled, done."""
    await store.configure("orders", options={"retryLimit": 0, "retryDelay": 0})
    await store.configure("jobs", kind=QueueKind.WORK, options={"maxAttempts": 1})
    popped = (await store.pop([Pop(queue="orders", group="billing", batch=5, consumer="c")]))[0]
    assert not isinstance(popped, Exception)
    dead, *good = popped.messages
    for status, messages in ((AckStatus.FAILED, [dead]), (AckStatus.COMPLETED, good)):
        for message in messages:
            await store.ack(
                [
                    Ack(
                        status=status,
                        transaction_id=message.transaction_id,
                        partition_id=message.partition_id,
                        lease_id=popped.lease_id,
                        group="billing",
                        error="out of paper" if status is AckStatus.FAILED else None,
                    )
                ]
            )
    for status in (AckStatus.COMPLETED, AckStatus.FAILED):
        leased = (await store.pop([Pop(queue="jobs", batch=1, consumer="w")]))[0]
        assert not isinstance(leased, Exception)
        await store.ack(
            [Ack(status=status, lease_id=leased.lease_id, error="boom", result=b'{"exit": 1}')]
        )
    await store.lifecycle()


def _fill_everything(url: str) -> None:
    fill(
        url,
        [
            PushItem("orders", text.encode(), f"p {n % 3}/ü", f"tx-{n}" if n % 2 else None, "tr")
            for n, text in enumerate(AWKWARD_PAYLOADS)
        ],
    )
    fill(url, numbered("orders", 30, partitions=2))
    make_queue(url, "empty")
    make_queue(url, "jobs", QueueKind.WORK)
    fill(url, [PushItem("jobs", b'{"n": 1}', priority=n % 3, delay_seconds=n) for n in range(6)])
    in_store(url, _live)


def test_the_broker_and_the_file_give_the_same_rows(
    read: Read, store_url: str, broker: ServerProcess
) -> None:
    _fill_everything(store_url)
    for table in TABLES:
        by_file, by_http = _both_ways(Urls(store=store_url, broker=broker.url), read, table)
        assert by_file == by_http, table
        assert by_file or table == "metrics"


async def test_postgres_and_its_broker_give_the_rows_that_were_pushed(
    read: Read, postgres_urls: Urls
) -> None:
    await asyncio.to_thread(_fill_everything, postgres_urls.store)
    for table, stated in TABLES.items():
        by_store, by_http = await asyncio.to_thread(_both_ways, postgres_urls, read, table)
        assert by_store == by_http, table
        assert by_store or stated.kind is TableKind.LOG
    frame = read(url=postgres_urls.store, queue="orders")
    rows = await asyncio.to_thread(rows_of, frame, "payload")
    assert sorted(row[0] for row in rows) == sorted(
        AWKWARD_PAYLOADS + [f'{{"n": {n}}}' for n in range(30)]
    )


def test_payloads_come_as_they_were_pushed(read: Read, store_url: str) -> None:
    big = json.dumps({"text": "ä" * 1_000_000})
    texts = [*AWKWARD_PAYLOADS, big]
    fill(store_url, [PushItem("orders", text.encode()) for text in texts])
    rows = read(queue="orders").orderBy("seq").collect()
    assert [row.payload for row in rows] == texts
    assert [row.seq for row in rows] == list(range(1, len(texts) + 1))
    assert {row.queue for row in rows} == {"orders"}
    assert [row.message_id for row in rows] == [row.transaction_id for row in rows]


def test_a_queue_without_messages_is_an_empty_table(read: Read, store_url: str) -> None:
    make_queue(store_url, "empty")
    frame = read(queue="empty")
    assert frame.count() == 0
    assert frame.columns == TABLES["messages"].column_names


def _sizes(frame: DataFrame) -> list[int]:
    """How many rows each task reads."""
    return [row["count"] for row in frame.groupBy(spark_partition_id()).count().collect()]


def test_one_huge_partition_is_cut(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 50_000))
    frame = read(queue="orders", minSplits=4)
    sizes = _sizes(frame)
    assert sizes == [12_500] * 4
    assert frame.select("seq").distinct().count() == 50_000


def test_ten_thousand_small_partitions_are_packed(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 20_000, partitions=10_000))
    frame = read(queue="orders", minSplits=3)
    sizes = _sizes(frame)
    assert len(sizes) == 3
    assert sum(sizes) == 20_000
    assert max(sizes) - min(sizes) <= 1
    assert frame.select("partition", "seq").distinct().count() == 20_000


def test_a_split_reads_at_most_what_is_said(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 100, partitions=3))
    frame = read(queue="orders", messagesPerSplit=7)
    sizes = _sizes(frame)
    assert max(sizes) <= 7
    assert sum(sizes) == 100


def test_a_read_of_keys_moves_no_payload(read: Read, store_url: str, broker: ServerProcess) -> None:
    size, count = 200_000, 50
    fill(store_url, numbered("orders", count, partitions=5, size=size))
    with CountingProxy(broker.host, broker.port) as proxy:
        keys = read("queue string, partition string, seq bigint", proxy.url, queue="orders")
        assert keys.count() == count
        assert proxy.received < size
        whole = read(url=proxy.url, queue="orders")
        assert whole.count() == count
        assert proxy.received > size * count


# --- which messages ----------------------------------------------------------------------


def test_several_queues_by_name_and_by_pattern(read: Read, store_url: str) -> None:
    for queue in ("eu-orders", "us-orders", "us-bills", "a,b"):
        fill(store_url, numbered(queue, 3))
    make_queue(store_url, "us-jobs", QueueKind.WORK)

    def queues(**options: Any) -> set[str]:
        return {row.queue for row in read(**options).collect()}

    assert queues(queues="eu-orders, us-bills") == {"eu-orders", "us-bills"}
    assert queues(queues='["a,b", "us-bills"]') == {"a,b", "us-bills"}
    assert queues(queuePattern="us-*") == {"us-orders", "us-bills"}
    assert queues(queuePattern="nothing*") == set()
    assert queues(table="messages", queuePattern="*") == {
        "eu-orders",
        "us-orders",
        "us-bills",
        "a,b",
    }


def test_partitions_by_name(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 20, partitions=5))
    assert read(queue="orders", partition="p-3").count() == 4
    rows = read(queue="orders", partitions="p-1,p-4").select("partition").distinct().collect()
    assert {row.partition for row in rows} == {"p-1", "p-4"}
    assert read(queue="orders", partition="nobody").count() == 0


def test_offsets_bound_what_is_read(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 10))

    def seqs(**options: str) -> list[int]:
        rows = read("seq bigint", queue="orders", **options).collect()
        return sorted(row.seq for row in rows)

    assert seqs(startingOffsets="earliest", endingOffsets="latest") == list(range(1, 11))
    assert seqs(startingOffsets="latest") == []
    assert seqs(endingOffsets="earliest") == []
    assert seqs(startingOffsets="4") == list(range(4, 11))
    assert seqs(endingOffsets="4") == [1, 2, 3, 4]
    assert seqs(startingOffsets="3", endingOffsets="7") == [3, 4, 5, 6, 7]
    assert seqs(startingOffsets="7", endingOffsets="3") == []
    assert seqs(startingOffsets='{"orders": {"p-0": 9}}') == [9, 10]
    assert seqs(endingOffsets='{"orders": {"p-0": 2}}') == [1, 2]
    assert seqs(endingOffsets='{"orders": {}}') == []
    assert seqs(endingOffsets='{"orders": {"p-0": 1000}}') == list(range(1, 11))


def test_an_offset_of_a_stream_bounds_a_batch(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 10, partitions=2))
    rows = read(queue="orders").select("message_id", "partition").distinct().collect()
    ids = {row.partition: int(row.message_id.partition("-")[0]) for row in rows}

    def offset(**seqs: int) -> str:
        positions = {ids[name.replace("_", "-")]: seq for name, seq in seqs.items()}
        return json.dumps(write_offset({"orders": positions}))

    between = read(
        queue="orders", startingOffsets=offset(p_0=2, p_1=0), endingOffsets=offset(p_0=4, p_1=1)
    )
    assert rows_of(between, "partition", "seq") == [("p-0", 3), ("p-0", 4), ("p-1", 1)]
    gone = json.dumps(write_offset({"orders": {999_999: 5}}))
    with pytest.raises(Exception, match="partition 999999 of queue 'orders' is gone"):
        read(queue="orders", endingOffsets=gone).count()


def test_times_bound_what_is_read(read: Read, store_url: str) -> None:
    for first in (0, 10, 20):
        fill(store_url, numbered("orders", 10, partitions=2, first=first))
    times = sorted(
        {row.created_at for row in read("created_at timestamp", queue="orders").collect()}
    )
    assert len(times) == 3
    middle = times[1].astimezone(UTC).isoformat()
    last = times[2].astimezone(UTC).isoformat()

    def numbers(**options: str) -> list[int]:
        rows = read("payload string", queue="orders", **options).collect()
        return sorted(json.loads(row.payload)["n"] for row in rows)

    assert numbers(startingOffsets=middle) == list(range(10, 30))
    assert numbers(endingOffsets=middle) == list(range(10))
    assert numbers(startingOffsets=middle, endingOffsets=last) == list(range(10, 20))
    later = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    assert numbers(startingOffsets=later) == []


def test_exact_offsets_that_are_gone_fail_loudly(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 10))

    async def clear(store: Store) -> None:
        await store.clear_queue("orders")

    in_store(store_url, clear)
    fill(store_url, numbered("orders", 5))
    assert read(queue="orders").count() == 5
    exact = {"startingOffsets": '{"orders": {"p-0": 8}}'}
    with pytest.raises(Exception, match="DataLossError: messages that were still to be read"):
        read(queue="orders", **exact).count()
    assert read(queue="orders", failOnDataLoss="false", **exact).count() == 5


def test_a_work_queue_is_read_as_items(read: Read, store_url: str) -> None:
    make_queue(store_url, "jobs", QueueKind.WORK)
    fill(store_url, [PushItem("jobs", b"1", priority=7)])
    [row] = read(queue="jobs").collect()
    assert (row.payload, row.priority, row.state, row.attempts) == ("1", 7, "ready", 0)


# --- filters -----------------------------------------------------------------------------


@pytest.mark.parametrize("pushed", [True, False])
def test_filters_narrow_what_is_planned_where_the_session_pushes_them(
    spark: SparkSession, read: Read, store_url: str, pushed: bool
) -> None:
    fill(store_url, numbered("orders", 12, partitions=4))
    name = "spark.sql.python.filterPushdown.enabled"
    assert spark.conf.get(name) == "true"
    spark.conf.set(name, str(pushed).lower())
    try:
        frame = read(queue="orders", messagesPerSplit=1)
        for condition, splits, numbers in (
            ("partition = 'p-3'", 3, [3, 7, 11]),
            ("partition in ('p-3', 'p-0') and seq < 2", 2, [0, 3]),
            ("seq between 2 and 3 and queue = 'orders'", 8, [4, 5, 6, 7, 8, 9, 10, 11]),
            ("seq = 2 and partition = 'p-1'", 1, [5]),
            ("queue = 'other'", 1, []),
            ("created_at >= timestamp'2999-01-01 00:00:00Z'", 1, []),
        ):
            narrowed = frame.filter(condition)
            assert narrowed.rdd.getNumPartitions() == (splits if pushed else 12), condition
            rows = narrowed.select("payload").collect()
            assert sorted(json.loads(row.payload)["n"] for row in rows) == numbers
    finally:
        spark.conf.set(name, "true")


# --- parsed payloads ---------------------------------------------------------------------


def test_payloads_are_parsed_and_what_does_not_fit_is_kept(read: Read, store_url: str) -> None:
    texts = ['{"n": 1, "who": "a"}', '{"n": "1"}', "[]", '{"who": null, "more": 1}', "null"]
    fill(store_url, [PushItem("orders", text.encode()) for text in texts])
    frame = read(queue="orders", payloadSchema="n INT, who STRING").orderBy("seq")
    assert frame.select("payload.n", "payload.who", "_corrupt").collect() == [
        (1, "a", None),
        (None, None, '{"n": "1"}'),
        (None, None, "[]"),
        (None, None, None),
        (None, None, None),
    ]
    assert [row.payload is None for row in frame.collect()] == [False, True, True, False, True]


def test_a_schema_of_the_users_own_parses_too(read: Read, store_url: str) -> None:
    fill(store_url, numbered("orders", 3))
    frame = read("payload struct<n: bigint>, seq bigint", queue="orders")
    assert rows_of(frame, "payload.n", "seq") == [(0, 1), (1, 2), (2, 3)]


def test_nested_types_come_through_spark(read: Read, store_url: str) -> None:
    payload = {
        "id": 7,
        "price": 12.5,
        "tags": ["a", None],
        "lines": [{"sku": "x", "n": 1}, {"sku": "y", "n": None}],
        "extra": {"k": {"v": [1, 2]}},
        "at": "2026-01-31T12:00:00Z",
        "exact": 1.25,
    }
    fill(store_url, [PushItem("orders", json.dumps(payload).encode())])
    schema = (
        "id BIGINT, price DOUBLE, tags ARRAY<STRING>, lines ARRAY<STRUCT<sku: STRING, n: INT>>, "
        "extra MAP<STRING, STRUCT<v: ARRAY<INT>>>, at TIMESTAMP, exact DECIMAL(10,2)"
    )
    [row] = read(queue="orders", payloadSchema=schema).select("payload.*").collect()
    assert row.lines[1].sku == "y"
    assert row.extra["k"].v == [1, 2]
    assert row.tags == ["a", None]
    assert str(row.exact) == "1.25"
    assert row.at.astimezone(UTC) == datetime(2026, 1, 31, 12, tzinfo=UTC)
