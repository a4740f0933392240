"""Batch writes through the data source: to a broker, to PostgreSQL and to SQLite."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jwt
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from monarq.errors import (
    ForbiddenError,
    InvalidRequestError,
    MonarqError,
    QueueFullError,
    StoreUnavailableError,
    UnauthorizedError,
)
from monarq.model import Item, Pop, QueueKind
from monarq.spark.failures import spark_failures
from monarq.spark.sink_store import SinkStore
from monarq.store import open_store
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.seeding import Urls, fill, in_store, make_queue, messages_of, numbered


def write(frame: DataFrame, url: str, **options: object) -> None:
    named = {name: str(value) for name, value in options.items()}
    with spark_failures():
        frame.write.format("monarq").options(url=url, **named).mode("append").save()


def payloads_of(url: str, queue: str) -> list[Any]:
    return [json.loads(message.payload) for message in messages_of(url, queue)]


@pytest.fixture(params=["sqlite", "broker", "postgres"])
def places(request: pytest.FixtureRequest) -> Iterator[Urls]:
    """Where to look, and where to write."""
    if request.param == "postgres":
        dsn = request.getfixturevalue("postgres_urls").store
        yield Urls(dsn, dsn)
        return
    store: str = request.getfixturevalue("store_url")
    broker = request.getfixturevalue("broker").url if request.param == "broker" else store
    yield Urls(store, broker)


class TestEveryWay:
    def test_columns_become_an_object_once_however_often_they_are_written(
        self, spark: SparkSession, places: Urls
    ) -> None:
        frame = spark.range(3000, numPartitions=3).select(
            "id", f.concat(f.lit('ü "'), "id").alias("name"), f.array("id").alias("list")
        )
        for _ in range(2):
            write(frame, places.broker, queue="made", messagesPerRequest=700)
        found = payloads_of(places.store, "made")
        expected = [{"id": n, "name": f'ü "{n}', "list": [n]} for n in range(3000)]
        assert sorted(found, key=lambda one: int(one["id"])) == expected

    def test_a_queue_is_copied_with_its_partitions_and_order_once(
        self, spark: SparkSession, places: Urls
    ) -> None:
        fill(places.store, numbered("orders", 2000, partitions=7))
        frame = spark.read.format("monarq").options(url=places.broker, queue="orders").load()
        sorted_frame = frame.repartition(2, "partition").sortWithinPartitions("partition", "seq")
        for one in (sorted_frame, frame):
            write(one, places.broker, queue="copy", messagesPerRequest=150)
        found = messages_of(places.store, "copy")
        assert Counter(one.transaction_id for one in found) == Counter(
            f"orders/{one.id}" for one in messages_of(places.store, "orders")
        )
        for number in range(7):
            own = [one for one in found if one.partition == f"p-{number}"]
            assert [json.loads(one.payload)["n"] for one in own] == list(range(number, 2000, 7))

    def test_rows_go_to_the_queue_and_partition_that_they_name(
        self, spark: SparkSession, places: Urls
    ) -> None:
        frame = spark.range(100).selectExpr(
            "id", "concat('route-', id % 3) AS route", "concat('lane ', id % 5) AS lane"
        )
        write(frame, places.broker, queueColumn="route", partitionColumn="lane")
        for route in range(3):
            found = messages_of(places.store, f"route-{route}")
            assert sorted((json.loads(one.payload)["id"], one.partition) for one in found) == [
                (n, f"lane {n % 5}") for n in range(100) if n % 3 == route
            ]

    def test_items_of_a_work_queue_have_a_priority_and_a_time(
        self, spark: SparkSession, places: Urls
    ) -> None:
        make_queue(places.store, "work", QueueKind.WORK)
        frame = spark.range(10).selectExpr(
            "to_json(struct(id)) AS payload",
            "CAST(id AS INT) AS priority",
            "IF(id % 2 = 0, TIMESTAMP '2100-01-02 03:04:05.000006Z', NULL) AS run_at",
            "'unused' AS partition",
        )
        for _ in range(2):
            write(frame, places.broker, queue="work")

        async def listed(store: Store) -> list[Item]:
            return (await store.list_items("work")).rows

        items: list[Item] = in_store(places.store, listed)
        due = int(datetime(2100, 1, 2, 3, 4, 5, 6, UTC).timestamp() * 1_000_000 + 0.5)
        assert sorted((one.payload, one.priority, one.run_at) for one in items) == [
            (f'{{"id":{n}}}'.encode(), n, due if n % 2 == 0 else None) for n in range(10)
        ]

    def test_rows_never_become_commands(self, spark: SparkSession, places: Urls) -> None:
        make_queue(places.store, "run", QueueKind.WORK, runsCommands=True)
        make_queue(places.store, "work", QueueKind.WORK)
        frame = spark.sql("""SELECT '{"command":"id","isCommand":true}' AS payload""")
        with pytest.raises(MonarqError, match="runs commands"):
            write(frame, places.broker, queue="run")
        write(frame, places.broker, queue="work")

        async def marks(store: Store) -> list[bool]:
            popped = await store.pop([Pop(queue=queue) for queue in ("run", "work")])
            assert not any(isinstance(one, MonarqError) for one in popped)
            return [message.is_command for one in popped for message in one.messages]

        assert in_store(places.store, marks) == [False]

    def test_equal_rows_are_all_pushed_however_they_are_spread(
        self, spark: SparkSession, places: Urls
    ) -> None:
        """By task alone their ids would meet, and all but one be taken for repeats."""
        rows = spark.range(400, numPartitions=4).selectExpr(
            "IF(id % 4 = 0, 'same', concat('v', id % 20)) AS value"
        )
        expected = Counter("same" if n % 4 == 0 else f"v{n % 20}" for n in range(400))
        for partitions in (4, 3):
            write(rows.repartition(partitions), places.broker, queue="made")
            found = Counter(one["value"] for one in payloads_of(places.store, "made"))
            assert found == expected

    def test_equal_items_are_all_pushed_too(self, spark: SparkSession, places: Urls) -> None:
        make_queue(places.store, "work", QueueKind.WORK)
        rows = spark.range(40, numPartitions=4).selectExpr(
            "'{}' AS payload", "IF(id % 2 = 0, 7, 8) AS priority"
        )
        write(rows, places.broker, queue="work")

        async def listed(store: Store) -> list[Item]:
            return (await store.list_items("work")).rows

        assert Counter(one.priority for one in in_store(places.store, listed)) == {7: 20, 8: 20}

    def test_a_bad_payload_is_told_in_one_line(self, spark: SparkSession, places: Urls) -> None:
        frame = spark.range(10).selectExpr("IF(id = 7, '{', '{}') AS payload")
        with pytest.raises(InvalidRequestError, match="a payload is not JSON") as caught:
            write(frame, places.broker, queue="made")
        assert "\n" not in str(caught.value)


def test_a_named_column_decides_what_is_the_same(spark: SparkSession, store_url: str) -> None:
    frame = spark.range(100).selectExpr("id AS n", "CAST(id % 10 AS STRING) AS key")
    write(frame, store_url, queue="made", transactionIdColumn="key")
    found = messages_of(store_url, "made")
    assert sorted(one.transaction_id for one in found) == [str(n) for n in range(10)]
    assert all("key" not in json.loads(one.payload) for one in found)


def test_another_write_id_writes_the_same_rows_again(spark: SparkSession, store_url: str) -> None:
    frame = spark.range(10)
    for name in ("monday", "tuesday", "tuesday"):
        write(frame, store_url, queue="made", writeId=name)
    assert Counter(one["id"] for one in payloads_of(store_url, "made")) == dict.fromkeys(
        range(10), 2
    )


def test_positions_make_ids_on_request(spark: SparkSession, store_url: str) -> None:
    frame = spark.range(20, numPartitions=2).selectExpr("1 AS one")
    for _ in range(2):
        write(frame, store_url, queue="made", transactionIds="position", writeId="w")
    found = sorted(one.transaction_id for one in messages_of(store_url, "made"))
    assert found == sorted(f"w@{task}/{row}" for task in range(2) for row in range(10))


def test_rows_made_of_one_message_need_a_column_that_tells_them_apart(
    spark: SparkSession, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    frame = (
        spark.read.format("monarq")
        .options(url=store_url, queue="orders")
        .load()
        .select("queue", "partition", "seq", f.explode(f.array(f.lit(1), f.lit(2))).alias("n"))
    )
    with pytest.raises(InvalidRequestError, match="several rows carry the identity orders/p-0/"):
        write(frame, store_url, queue="parts")
    named = frame.withColumn("key", f.concat_ws("/", "seq", "n"))
    write(named, store_url, queue="parts", transactionIdColumn="key")
    assert len(payloads_of(store_url, "parts")) == 20


def test_payloads_of_a_megabyte_and_every_json_type_arrive_as_they_were(
    spark: SparkSession, broker: ServerProcess, store_url: str
) -> None:
    values = ["null", "true", "-0.5e-7", '"\\u0000\\ud83d\\ude00"', "[]", '{"a":{"b":[1,null]}}']
    values += [json.dumps("ü" * 500_000), json.dumps({"x": "y" * 1_000_000})]
    frame = spark.createDataFrame([(value,) for value in values], "payload string")
    write(frame, broker.url, queue="made")
    found = sorted(one.payload for one in messages_of(store_url, "made"))
    assert found == sorted(value.encode() for value in values)


def test_a_report_says_how_many_rows_were_there_already(
    spark: SparkSession, broker: ServerProcess, tmp_path: Path
) -> None:
    """Equal rows of several tasks are no duplicates, until all is written again."""
    report = tmp_path / "report"
    rows = spark.range(6, numPartitions=3).selectExpr("id % 2 AS n")
    for duplicates in (0, 6):
        write(rows, broker.url, queue="q", reportFile=report)
        assert json.loads(report.read_text()) == {"rows": 6, "duplicates": duplicates}


def test_nothing_to_write_is_written(spark: SparkSession, store_url: str) -> None:
    write(spark.range(0), store_url, queue="made")
    write(spark.range(1), store_url, queue="made")
    assert len(payloads_of(store_url, "made")) == 1


class TestErrors:
    def test_a_store_that_cannot_be_opened_leaves_no_thread(self, tmp_path: Path) -> None:
        before = set(threading.enumerate())
        with pytest.raises(MonarqError):
            SinkStore(f"sqlite:///{tmp_path}", ())
        for thread in set(threading.enumerate()) - before:
            # It may be on its way out.
            thread.join(30)
            assert not thread.is_alive()

    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"queue": "q", "mesagesPerRequest": "5"}, "did you mean 'messagesPerRequest'"),
            ({"queue": "q", "requestsInFlight": "1000"}, "'requestsInFlight' must be .*32"),
            ({}, "one of the options 'queue' and 'queueColumn'"),
            ({"queue": "q", "partitionColumn": "nope"}, "the columns are id"),
            ({"queue": "a\x07b"}, "'queue'.*control characters"),
        ],
    )
    def test_a_wrong_option_is_named(
        self, spark: SparkSession, store_url: str, options: dict[str, str], wrong: str
    ) -> None:
        with pytest.raises(InvalidRequestError, match=wrong) as caught:
            write(spark.range(1), store_url, **options)
        assert "\n" not in str(caught.value)

    def test_a_queue_is_not_overwritten(self, spark: SparkSession, store_url: str) -> None:
        writer = spark.range(1).write.format("monarq").options(url=store_url, queue="q")
        with pytest.raises(InvalidRequestError, match="mode append"), spark_failures():
            writer.mode("overwrite").save()

    def test_a_broker_that_is_not_there_is_named(self, spark: SparkSession) -> None:
        with pytest.raises(StoreUnavailableError, match=r"no answer from http://127\.0\.0\.1:9"):
            write(spark.range(1), "http://127.0.0.1:9", queue="q", retrySeconds=0)

    def test_a_wrong_token_an_expired_one_and_a_wrong_role_are_told(
        self, spark: SparkSession, tmp_path: Path
    ) -> None:
        secret = "s" * 32

        def token(role: str, until: int = 4_000_000_000) -> str:
            return jwt.encode({"sub": "me", "role": role, "exp": until}, secret, "HS256")

        settings = {"store": f"sqlite:///{tmp_path}/m.db", "data_dir": str(tmp_path)}
        with ServerProcess(settings | {"auth": True, "jwt_secret": secret}) as server:
            for given, error in (
                ({}, UnauthorizedError),
                ({"token": "wrong"}, UnauthorizedError),
                ({"token": token("write", until=1_000_000_000)}, UnauthorizedError),
                ({"token": token("read")}, ForbiddenError),
            ):
                with pytest.raises(error) as caught:
                    write(spark.range(1), server.url, queue="q", **given)
                assert "\n" not in str(caught.value)
                assert str(given.get("token")) not in str(caught.value)
            write(spark.range(1), server.url, queue="q", token=token("write"))

    def test_a_full_queue_is_told(
        self, spark: SparkSession, broker: ServerProcess, store_url: str
    ) -> None:
        make_queue(store_url, "small", max_size=5)
        with pytest.raises(QueueFullError, match="maxSize"):
            write(spark.range(100, numPartitions=1), broker.url, queue="small", retrySeconds=0)

    def test_a_partition_of_a_work_queue_is_refused(
        self, spark: SparkSession, store_url: str
    ) -> None:
        make_queue(store_url, "work", QueueKind.WORK)
        with pytest.raises(MonarqError, match="partition"):
            write(spark.range(1), store_url, queue="work", partition="p")


def test_a_broker_that_dies_and_returns_costs_no_message_and_doubles_none(
    spark: SparkSession, broker: ServerProcess, store_url: str
) -> None:
    """Killed again and again while a job writes to it."""
    count = 40_000
    frame = spark.range(count, numPartitions=4).selectExpr("id", "repeat('x', 100) AS filler")
    done = threading.Event()

    def torment() -> None:
        for share in (1, 3, 5, 7):
            while _pushed(broker, "made") < count * share // 10:
                if done.wait(0.01):
                    return
            broker.kill()
            broker.start()

    with ThreadPoolExecutor(1) as other:
        tormented = other.submit(torment)
        try:
            write(frame, broker.url, queue="made", messagesPerRequest=500, retrySeconds=300)
        finally:
            done.set()
        tormented.result(300)
    assert sorted(one["id"] for one in payloads_of(store_url, "made")) == list(range(count))


def _pushed(server: ServerProcess, queue: str) -> int:
    rows = server.get("/api/v1/status/queues").json["queues"]
    return sum(int(row["messages"]["pushed"]) for row in rows if row["name"] == queue)


def test_an_encrypted_queue_is_written_with_its_key(spark: SparkSession, tmp_path: Path) -> None:
    key = "5" * 64
    url = f"sqlite:///{tmp_path}/secret.db"

    async def make() -> None:
        async with await open_store(url, keys=[bytes.fromhex(key)]) as store:
            await store.configure("vault", options={"encryptionEnabled": True})

    async def read() -> list[bytes]:
        async with await open_store(url, keys=[bytes.fromhex(key)]) as store:
            return [one.payload for one in (await store.list_messages("vault")).rows]

    asyncio.run(make())
    with pytest.raises(MonarqError, match="no key"):
        write(spark.range(1), url, queue="vault")
    write(spark.range(1), url, queue="vault", encryptionKey=key)
    assert asyncio.run(read()) == [b'{"id":0}']
