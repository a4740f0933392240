"""Streams: each message once, within the limits, and loudly where something is lost."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from monarq.model import Ack, Pop
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.counting_proxy import CountingProxy
from tests.spark.seeding import fill, in_store, numbered
from tests.spark.streams import begin

SECONDS = 300.0


class Batches:
    """What a stream delivered, batch by batch: rows as dictionaries."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[dict[str, Any]]]] = []
        self._changed = threading.Condition()

    def add(self, frame: DataFrame, batch_id: int) -> None:
        rows = [row.asDict(recursive=True) for row in frame.collect()]
        with self._changed:
            self.seen.append((batch_id, rows))
            self._changed.notify_all()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [row for _, rows in self.seen for row in rows]

    @property
    def numbers(self) -> list[int]:
        return sorted(json.loads(row["payload"])["n"] for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        return [len(rows) for _, rows in self.seen]

    def wait_for(self, count: int, query: StreamingQuery) -> None:
        deadline = time.monotonic() + SECONDS
        with self._changed:
            while len(self.rows) < count:
                assert query.isActive, query.exception()
                assert time.monotonic() < deadline, f"only {len(self.rows)} of {count} rows came"
                self._changed.wait(0.2)


Start = Callable[..., StreamingQuery]


@pytest.fixture
def batches() -> Batches:
    return Batches()


@pytest.fixture
def start(spark: SparkSession, store_url: str, tmp_path: Path, batches: Batches) -> Iterator[Start]:
    """Starts a stream into `batches`, with one checkpoint for all starts of the test."""
    queries: list[StreamingQuery] = []

    def starting(*, available_now: bool = False, url: str = store_url, **options: Any) -> Any:
        frame = spark.readStream.format("monarq").options(url=url, **options).load()
        writer = frame.writeStream.foreachBatch(batches.add)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        if available_now:
            writer = writer.trigger(availableNow=True)
        queries.append(begin(writer))
        return queries[-1]

    yield starting
    for query in queries:
        query.stop()


def _finish(query: StreamingQuery) -> None:
    assert query.awaitTermination(int(SECONDS)), "it did not end"


def test_available_now_takes_what_is_there_within_the_limit_and_ends(
    start: Start, batches: Batches, store_url: str
) -> None:
    fill(store_url, numbered("orders", 100, partitions=7))
    _finish(start(queue="orders", maxMessagesPerTrigger=30, available_now=True))
    assert batches.sizes == [30, 30, 30, 10]
    assert batches.numbers == list(range(100))
    # Again, from the checkpoint, with new messages, also in partitions that are new.
    fill(store_url, numbered("orders", 20, partitions=11, first=100))
    _finish(start(queue="orders", available_now=True))
    assert batches.sizes == [30, 30, 30, 10, 20]
    assert batches.numbers == list(range(120))


def test_available_now_ends_while_others_go_on_pushing(
    start: Start, batches: Batches, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    pushed = 10

    def push_more(frame: DataFrame, batch_id: int) -> None:
        nonlocal pushed
        pushed += fill(store_url, numbered("orders", 10, partitions=2, first=pushed))
        Batches.add(batches, frame, batch_id)

    batches.add = push_more  # type: ignore[method-assign]
    _finish(start(queue="orders", maxMessagesPerTrigger=4, available_now=True))
    assert batches.numbers == list(range(10))


def test_new_messages_and_partitions_join_a_running_stream(
    start: Start, batches: Batches, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    query = start(queue="orders", pollIntervalMs=10)
    batches.wait_for(10, query)
    fill(store_url, numbered("orders", 30, partitions=15, first=10))
    batches.wait_for(40, query)
    assert batches.numbers == list(range(40))


def test_a_queue_that_fits_the_pattern_later_joins_in(
    start: Start, batches: Batches, store_url: str
) -> None:
    fill(store_url, numbered("eu-orders", 3))
    query = start(queuePattern="*-orders", pollIntervalMs=10)
    batches.wait_for(3, query)
    fill(store_url, numbered("us-orders", 4))
    fill(store_url, numbered("us-bills", 4))
    fill(store_url, numbered("eu-orders", 1))
    batches.wait_for(8, query)
    assert sorted(row["queue"] for row in batches.rows) == ["eu-orders"] * 4 + ["us-orders"] * 4


@pytest.mark.parametrize(
    ("starting", "first"), [("latest", 10), ("6", 5), ('{"orders": {"p-0": 9}}', 8)]
)
def test_a_stream_begins_where_it_is_told(
    start: Start, batches: Batches, store_url: str, starting: str, first: int
) -> None:
    fill(store_url, numbered("orders", 10))
    _finish(start(queue="orders", startingOffsets=starting, available_now=True))
    fill(store_url, numbered("orders", 5, first=10))
    _finish(start(queue="orders", startingOffsets=starting, available_now=True))
    assert batches.numbers == list(range(first, 15))


def test_retention_that_overtakes_a_stream_fails_it(
    start: Start, batches: Batches, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    _finish(start(queue="orders", maxMessagesPerTrigger=4, available_now=True))
    fill(store_url, numbered("orders", 10, first=10))

    async def clear(store: Store) -> None:
        await store.clear_queue("orders")

    in_store(store_url, clear)
    fill(store_url, numbered("orders", 5, first=20))
    query = start(queue="orders", available_now=True)
    with pytest.raises(Exception, match="seq 11 to 25 were wanted, but partition 'p-0'"):
        query.awaitTermination(int(SECONDS))
    assert batches.numbers == list(range(10))
    _finish(start(queue="orders", failOnDataLoss="false", available_now=True))
    assert batches.numbers == [*range(10), *range(20, 25)]


def test_an_idle_stream_leaves_the_broker_alone(
    start: Start, batches: Batches, store_url: str, broker: ServerProcess
) -> None:
    fill(store_url, numbered("orders", 5))
    with CountingProxy(broker.host, broker.port) as proxy:
        query = start(queue="orders", url=proxy.url, pollIntervalMs=300)
        batches.wait_for(5, query)
        before, began = proxy.requests, time.monotonic()
        deadline = began + SECONDS
        while proxy.requests < before + 12:
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline, "it looks no more"
            time.sleep(0.05)
        took = time.monotonic() - began
        query.stop()
    # A look is the list of queues and a plan. Unthrottled, six looks take a tenth of a second.
    assert took > 3 * 0.3


def test_a_log_is_a_stream_too(start: Start, batches: Batches, store_url: str) -> None:
    def consume(count: int) -> None:
        async def work(store: Store) -> None:
            for _ in range(count):
                popped = (await store.pop([Pop(queue="orders", group="g", batch=2)]))[0]
                assert not isinstance(popped, Exception)
                await store.ack([Ack(lease_id=popped.lease_id, group="g")])

        in_store(store_url, work)

    fill(store_url, numbered("orders", 10))
    consume(2)
    options = {"table": "deliveries", "queue": "orders"}
    _finish(start(available_now=True, **options))
    assert [(row["first_seq"], row["completed"]) for row in batches.rows] == [(1, 2), (3, 2)]
    _finish(start(available_now=True, **options))
    assert len(batches.seen) == 1
    query = start(pollIntervalMs=10, **options)
    consume(3)
    batches.wait_for(5, query)
    assert sorted(row["first_seq"] for row in batches.rows) == [1, 3, 5, 7, 9]


def test_a_checkpoint_of_another_table_is_refused(start: Start, store_url: str) -> None:
    fill(store_url, numbered("orders", 3))
    _finish(start(queue="orders", available_now=True))
    query = start(table="deliveries", queue="orders", available_now=True)
    with pytest.raises(Exception, match="an offset of table 'messages', not of 'deliveries'"):
        query.awaitTermination(int(SECONDS))
