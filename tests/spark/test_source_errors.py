"""What goes wrong is told in one clear line, without the way it took through Spark."""

import socket
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from monarq.errors import MonarqError
from monarq.model import QueueKind
from monarq.spark.failures import as_monarq_error
from tests.server.serving import ServerProcess
from tests.spark.seeding import fill, make_queue, numbered
from tests.spark.streams import begin

SECRET = "a secret of thirty-two bytes or more"


def _told(error: BaseException) -> str:
    """The one line; Spark's own text must not bury it."""
    assert "\tat " not in str(error), "a stack of the JVM"
    assert str(error).count("  File ") <= 1, "the way through our own code"
    ours = as_monarq_error(error)
    assert isinstance(ours, MonarqError)
    return str(ours)


def _fail_to_load(spark: SparkSession, schema: str | None = None, **options: Any) -> str:
    reader = spark.read.format("monarq").options(**options)
    with pytest.raises(AnalysisException) as raised:
        (reader if schema is None else reader.schema(schema)).load().count()
    return _told(raised.value)


def test_a_mistake_is_told_when_the_table_is_loaded(spark: SparkSession, store_url: str) -> None:
    fill(store_url, numbered("orders", 1))
    make_queue(store_url, "jobs", QueueKind.WORK)
    good = {"url": store_url, "queue": "orders"}
    assert _fail_to_load(spark, **good, quee="x") == (
        "there is no option 'quee'; did you mean 'queue'?"
    )
    assert _fail_to_load(spark, **good | {"queue": "ordrs"}) == (
        "option 'queue': there is no queue 'ordrs'"
    )
    assert _fail_to_load(spark, **good, payloadSchema="a INTT").startswith(
        "option 'payloadSchema': expected a type ("
    )
    assert _fail_to_load(spark, "nobody string", **good).startswith(
        "table 'messages' has no column 'nobody': it has queue, partition, seq, "
    )
    assert _fail_to_load(spark, **good | {"queue": "jobs", "table": "messages"}).startswith(
        "option 'queue': 'jobs' is of kind work, and table messages is of ordered queues"
    )
    assert _fail_to_load(spark, url=store_url + "x", queue="orders").startswith("there is no store")


def test_a_broker_that_is_not_there_is_named(spark: SparkSession) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    assert _fail_to_load(spark, url=url, queue="orders").startswith(f"no answer from {url}: ")


def test_a_token_that_has_expired_is_refused_and_a_good_one_reads(
    spark: SparkSession, store_url: str, tmp_path: Path
) -> None:
    fill(store_url, numbered("orders", 7))

    def token(seconds: int) -> str:
        claims = {"sub": "spark", "role": "read", "exp": int(time.time()) + seconds}
        return jwt.encode(claims, SECRET, "HS256")

    settings = {"store": store_url, "data_dir": str(tmp_path), "auth": True, "jwt_secret": SECRET}
    with ServerProcess(settings) as server:
        options = {"url": server.url, "queue": "orders"}
        reader = spark.read.format("monarq").options(**options, token=token(3600))
        assert reader.load().count() == 7
        expired, missing = token(-3600), None
        for bad in (expired, missing):
            given = options if bad is None else options | {"token": bad}
            told = _fail_to_load(spark, **given)
            assert "token" in told or "credentials" in told
            assert expired not in told


def test_a_work_queue_is_no_stream(spark: SparkSession, store_url: str, tmp_path: Path) -> None:
    make_queue(store_url, "jobs", QueueKind.WORK)
    stream = spark.readStream.format("monarq").options(url=store_url, queue="jobs").load()
    writer = stream.writeStream.format("noop")
    query = begin(writer.option("checkpointLocation", str(tmp_path / "checkpoint")))
    with pytest.raises(Exception, match="table items cannot be read as a stream"):
        query.awaitTermination(300)


def test_a_plan_shows_neither_the_address_nor_the_key(spark: SparkSession) -> None:
    made = "CREATE TEMPORARY VIEW v USING monarq OPTIONS (url 'sqlite:///hidden', queue 'q', "
    [(plan,)] = spark.sql(f"EXPLAIN EXTENDED {made} encryptionKey '5eccee7')").collect()
    assert "encryptionKey" in plan
    assert "5eccee7" not in plan
    assert "hidden" not in plan
