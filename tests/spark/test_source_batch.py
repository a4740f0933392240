"""Batch reads of the data source."""

from pyspark.sql import SparkSession

from tests.spark.seeding import fill, numbered, rows_of


def test_a_queue_is_read_whole(spark: SparkSession, store_url: str) -> None:
    fill(store_url, numbered("orders", 100, partitions=3))
    frame = spark.read.format("monarq").options(url=store_url, queue="orders").load()
    assert rows_of(frame, "payload") == sorted((f'{{"n": {n}}}',) for n in range(100))
