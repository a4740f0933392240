"""Streams into queues: a batch that is repeated adds nothing, and equal rows of different batches
are different messages."""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from monarq.errors import InvalidRequestError, StoreUnavailableError
from monarq.model import PushItem
from monarq.spark.failures import spark_failures
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, in_store
from tests.spark.streams import begin


def orders(count: int) -> list[PushItem]:
    """Three payloads, again and again."""
    return [PushItem("orders", b'{"n": %d}' % (number % 3), "p") for number in range(count)]


def followed(spark: SparkSession, url: str) -> DataFrame:
    options = {"url": url, "queue": "orders", "maxMessagesPerTrigger": "10"}
    return spark.readStream.format("monarq").options(**options).load()


def counted(url: str, queue: str) -> Counter[Any]:
    async def listed(store: Store) -> Counter[Any]:
        rows = (await store.list_messages(queue, limit=1000)).rows
        return Counter(json.loads(one.payload)["n"] for one in rows)

    found: Counter[Any] = in_store(url, listed)
    return found


def forget_last_batch(checkpoint: Path) -> None:
    """As if the driver had been killed after the sink had the batch, before Spark knew it."""
    commits = checkpoint / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (commits / name).unlink(missing_ok=True)


def through_the_format(frame: DataFrame, url: str, checkpoint: Path) -> None:
    writer = frame.writeStream.format("monarq").options(url=url, queue="copy")
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    with spark_failures():
        begin(writer).awaitTermination()


def through_foreach_batch(frame: DataFrame, url: str, checkpoint: Path) -> None:
    def write(batch: DataFrame, _: int) -> None:
        batch.write.format("monarq").options(url=url, queue="copy").mode("append").save()

    writer = frame.writeStream.option("checkpointLocation", str(checkpoint)).foreachBatch(write)
    with spark_failures():
        begin(writer.trigger(availableNow=True)).awaitTermination()


@pytest.mark.slow
@pytest.mark.parametrize("write", [through_the_format, through_foreach_batch])
def test_equal_rows_are_pushed_as_often_as_they_come_and_repeats_add_none(
    spark: SparkSession,
    store_url: str,
    tmp_path: Path,
    write: Callable[[DataFrame, str, Path], None],
) -> None:
    fill(store_url, orders(30))
    frame = followed(spark, store_url).select("payload").repartition(3)
    write(frame, store_url, tmp_path / "checkpoint")
    assert counted(store_url, "copy") == {0: 10, 1: 10, 2: 10}
    forget_last_batch(tmp_path / "checkpoint")
    fill(store_url, orders(6))
    write(frame, store_url, tmp_path / "checkpoint")
    assert counted(store_url, "copy") == {0: 12, 1: 12, 2: 12}


def test_a_wrong_option_of_a_stream_is_told_in_one_line(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, orders(1))
    frame = followed(spark, store_url)
    writer = frame.writeStream.format("monarq").options(url=store_url, queue="copy", writeid="\x07")
    writer = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    with pytest.raises(InvalidRequestError, match="'writeId'") as caught, spark_failures():
        begin(writer).awaitTermination()
    assert "\n" not in str(caught.value)


def test_a_broker_that_goes_away_fails_the_stream_in_one_line_and_nothing_is_lost(
    spark: SparkSession, broker: ServerProcess, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, orders(9))
    frame = followed(spark, store_url).select("payload")
    writer = frame.writeStream.format("monarq").option("checkpointLocation", str(tmp_path / "c"))
    writer = writer.options(queue="copy", retrySeconds="0").trigger(availableNow=True)
    broker.kill()
    with pytest.raises(StoreUnavailableError, match="no answer from") as caught, spark_failures():
        begin(writer.option("url", broker.url)).awaitTermination()
    assert "\n" not in str(caught.value)
    broker.start()
    with spark_failures():
        begin(writer.option("url", broker.url)).awaitTermination()
    assert counted(store_url, "copy") == {0: 3, 1: 3, 2: 3}
