"""What rows become before they are pushed: transaction ids, requests, columns that fit or not."""

import json
from datetime import UTC, datetime
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from monarq.errors import InvalidRequestError
from monarq.spark.sink_columns import resolve_columns
from monarq.spark.sink_copies import missing_copies
from monarq.spark.sink_options import read_sink_options
from monarq.spark.sink_requests import PushRequest, pushes, requests
from monarq.spark.sink_rows import RowReader, Rows
from monarq.spark.transaction_ids import HashedIds, Identities, identity_ids

TARGET = {"url": "http://localhost:1", "queue": "q"}


def read(batch: pa.RecordBatch, schema: StructType, lanes: int = 1, **options: str) -> list[Rows]:
    checked = read_sink_options(TARGET | options)
    columns = resolve_columns(schema, checked, is_work=False)
    reader = RowReader(checked, columns, lanes=lanes, scope="", task=0)
    return list(reader.read(batch))


class TestTransactionIds:
    def test_names_with_slashes_do_not_meet(self) -> None:
        ids = identity_ids(
            [pa.array(["a/b", "a", "a%2Fb"]), pa.array(["c", "b/c", "c"]), pa.array([1, 1, 1])]
        )
        assert len(set(ids.to_pylist())) == 3
        assert ids[0].as_py() == "a%2Fb/c/1"

    def test_the_longest_names_make_ids_that_fit_and_differ(self) -> None:
        name = "n" * 255
        ids = identity_ids([pa.array([name, name]), pa.array([name, name]), pa.array([1, 2])])
        [first, second] = ids.to_pylist()
        assert first != second
        assert len(first) <= 255

    def test_a_partition_that_comes_back_counts_anew_and_its_messages_are_new(self) -> None:
        schema = StructType([*SOURCE.fields, StructField("message_id", StringType())])
        first, second = (
            source_rows(1, 1).append_column("message_id", pa.array([one])) for one in ("7-0", "8-0")
        )
        [before], [after] = read(first, schema), read(second, schema)
        assert before.transaction_id.to_pylist() == ["orders/7-0"]
        assert after.transaction_id.to_pylist() == ["orders/8-0"]
        assert before.partition == "p-0"

    def test_an_identity_that_two_rows_carry_is_refused_also_across_batches(self) -> None:
        task = Identities()
        task.check(pa.array(["a", "b"]))
        with pytest.raises(InvalidRequestError, match="several rows carry the identity a"):
            task.check(pa.array(["c", "a"]))
        with pytest.raises(InvalidRequestError, match="several rows carry the identity d"):
            task.check(pa.array(["d", "e", "d"]))

    def test_equal_rows_get_the_same_ids_in_any_order_and_any_batches(self) -> None:
        rows = ["a", "b", "a", "c", "a"]
        whole = self.ids(rows)
        parts = HashedIds("s")
        found = self.ids(["c", "a"], parts) + self.ids(["a", "b", "a"], parts)
        assert sorted(whole) == sorted(found)
        assert len(set(whole)) == 5

    def test_another_scope_queue_or_partition_is_another_id(self) -> None:
        one = self.ids(["a"])
        other = HashedIds("other").ids("q", "p", pa.array(["a"]), []).to_pylist()
        column = HashedIds("s").ids(pa.array(["q"]), "p", pa.array(["a"]), []).to_pylist()
        split = HashedIds("s").ids(pa.array(["q1"]), "p", pa.array(["a"]), []).to_pylist()
        assert len({*one, *other, *column, *split}) == 4

    def test_fields_that_flow_into_each_other_are_told_apart(self) -> None:
        def one(queue: str, partition: str) -> str:
            ids = HashedIds("s").ids(pa.array([queue]), pa.array([partition]), pa.array(["1"]), [])
            return str(ids[0].as_py())

        assert one("ab", "c") != one("a", "bc")

    @given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), max_size=30))
    def test_tasks_and_driver_together_give_every_row_an_id_of_its_own(
        self, dealt: list[tuple[int, str]]
    ) -> None:
        """However the rows are dealt to tasks, the ids are those of one task with all of them."""
        tasks = [HashedIds("s") for _ in range(3)]
        pushed: set[str] = set()
        for task, row in dealt:
            pushed |= set(self.ids([row], tasks[task]))
        for missing in missing_copies([task.told() for task in tasks]):
            assert (missing.queue, missing.partition) == ("q", "p")
            pushed |= {
                f"{missing.digest.hex()}-{number}" for number in range(missing.first, missing.total)
            }
        assert pushed == set(self.ids([row for _, row in dealt])) if dealt else not pushed
        assert len(pushed) == len(dealt)

    def test_the_driver_knows_where_a_copy_belongs(self) -> None:
        tasks = [HashedIds("s"), HashedIds("s")]
        for task, queues in zip(tasks, (["x", "y", "x"], ["z", "y"]), strict=True):
            task.ids(pa.array(queues), "p", pa.array(["1"] * len(queues)), [])
        [missing] = missing_copies([task.told() for task in tasks])
        assert (missing.queue, missing.partition, missing.first, missing.total) == ("y", "p", 1, 2)

    @staticmethod
    def ids(rows: list[str], task: HashedIds | None = None) -> list[str]:
        found: list[str] = (task or HashedIds("s")).ids("q", "p", pa.array(rows), []).to_pylist()
        return found


SOURCE = (
    StructType()
    .add("queue", StringType())
    .add("partition", StringType())
    .add("seq", LongType())
    .add("payload", StringType())
)


def source_rows(count: int, partitions: int) -> pa.RecordBatch:
    numbers = range(count)
    return pa.record_batch(
        {
            "queue": ["orders"] * count,
            "partition": [f"p-{number % partitions}" for number in numbers],
            "seq": [number // partitions for number in numbers],
            "payload": [str(number) for number in numbers],
        }
    )


def pushed(request: PushRequest) -> list[tuple[Any, str]]:
    """Payload and id of each row of a body."""
    body = json.loads(b"".join(request.body))
    if request.path == "/api/v1/push/columns":
        return list(zip(body["payloads"], body["transactionIds"], strict=True))
    return [(item["payload"], item["transactionId"]) for item in body["items"]]


class TestRequests:
    def test_bodies_and_pushes_say_the_same(self) -> None:
        at = datetime(2026, 1, 2, tzinfo=UTC)
        batch = pa.record_batch(
            {
                "payload": ['{"a": 1}', " 2 ", '"ü"'],
                "q": ['a"b', "c", "c"],
                "p": ["x", "y\\", "z"],
                "id": ["1", "2", "3"],
                "trace_id": ["t", None, None],
                "due": pa.array([None, at, None], pa.timestamp("us", "UTC")),
                "rank": [None, None, 7],
            }
        )
        schema = StructType()
        for name in ("payload", "q", "p", "id", "trace_id"):
            schema = schema.add(name, StringType())
        schema = schema.add("due", TimestampType()).add("rank", LongType())
        options = {
            "queueColumn": "q",
            "partitionColumn": "p",
            "transactionIdColumn": "id",
            "runAtColumn": "due",
            "priorityColumn": "rank",
        }
        checked = read_sink_options({"url": TARGET["url"], **options})
        columns = resolve_columns(schema, checked, is_work=False)
        [rows] = RowReader(checked, columns, lanes=1, scope="", task=0).read(batch)
        [request] = requests(rows, 10)
        items = json.loads(b"".join(request.body))["items"]
        assert request.count == 3
        assert request.places == {'a"b\nx', "c\ny\\", "c\nz"}
        chained = json.loads(b"".join(request.chained("m", "before")))
        assert (chained["items"], chained["mark"], chained["after"]) == (items, "m", "before")
        assert sorted(items, key=lambda item: str(item["transactionId"])) == [
            {"queue": 'a"b', "partition": "x", "transactionId": "1", "payload": {"a": 1}}
            | {"traceId": "t"},
            {"queue": "c", "partition": "y\\", "transactionId": "2", "payload": 2}
            | {"runAt": "2026-01-02T00:00:00.000000Z"},
            {"queue": "c", "partition": "z", "transactionId": "3", "payload": "ü", "priority": 7},
        ]
        [push] = pushes(rows, 10)
        by_id = {item.transaction_id: item for item in push.items}
        assert by_id["2"].run_at == int(at.timestamp()) * 1_000_000
        assert by_id["3"].priority == 7
        assert by_id["1"].payload == b'{"a": 1}'

    @pytest.mark.parametrize("most", [1, 7, 100, 1000])
    def test_every_row_is_in_one_body(self, most: int) -> None:
        [rows] = read(source_rows(100, 1), SOURCE)
        made = list(requests(rows, most))
        rows_of_all = [row for one in made for row in pushed(one)]
        assert rows_of_all == [(number, f"orders/p-0/{number}") for number in range(100)]
        assert all(one.count <= most for one in made)
        assert {place for one in made for place in one.places} == {"q\np-0"}

    def test_rows_of_one_partition_are_pushed_as_columns(self) -> None:
        batch = pa.record_batch({"payload": [' {"a": 1}', '"ü"', "3"], "id": ['"', "\\", "c\n"]})
        schema = StructType().add("payload", StringType()).add("id", StringType())
        [rows] = read(batch, schema, transactionIdColumn="id", partition='a"b')
        [request] = requests(rows, 10)
        assert request.path == "/api/v1/push/columns"
        assert request.places == {'q\na"b'}
        assert json.loads(b"".join(request.chained("m", None))) == {
            "queue": "q",
            "partition": 'a"b',
            "payloads": [{"a": 1}, "ü", 3],
            "transactionIds": ['"', "\\", "c\n"],
            "mark": "m",
        }

    @pytest.mark.parametrize(("size", "id_size"), [(1_000_000, 1), (1, 255), (300, 100)])
    def test_columns_are_never_more_than_a_broker_takes(self, size: int, id_size: int) -> None:
        count = 5_000_000 // (size + id_size)
        batch = pa.record_batch(
            {
                "payload": ['"' + "x" * size + '"'] * count,
                "id": [f"{number:\x01>{id_size}}" for number in range(count)],
            }
        )
        schema = StructType().add("payload", StringType()).add("id", StringType())
        [rows] = read(batch, schema, transactionIdColumn="id")
        made = list(requests(rows, count))
        assert all(one.path == "/api/v1/push/columns" for one in made)
        sizes = [sum(map(len, one.chained("m" * 48, "a" * 48))) for one in made]
        assert max(sizes) <= 2 << 20
        assert min(sizes[:-1]) > 1 << 20
        assert [row for one in made for row in pushed(one)] == [
            ("x" * size, f"{number:\x01>{id_size}}") for number in range(count)
        ]

    def test_large_payloads_are_spread_over_bodies(self) -> None:
        batch = pa.record_batch({"payload": ['"' + "x" * 3_000_000 + '"'] * 7})
        [rows] = read(batch, StructType().add("payload", StringType()))
        assert [one.count for one in requests(rows, 1000)] == [2, 2, 2, 1]

    def test_a_payload_larger_than_a_body_goes_alone(self) -> None:
        batch = pa.record_batch({"payload": ["1", '"' + "x" * 10_000_000 + '"', "2"]})
        [rows] = read(batch, StructType().add("payload", StringType()))
        assert [one.count for one in requests(rows, 1000)] == [1, 1, 1]

    def test_rows_of_a_partition_take_one_lane_in_their_order(self) -> None:
        lanes = read(source_rows(1000, 37), SOURCE, lanes=3)
        assert len(lanes) == 3
        seen: dict[str, int] = {}
        for rows in lanes:
            for partition, number in zip(
                rows.partition.to_pylist(),  # type: ignore[union-attr]
                map(int, rows.payload.to_pylist()),
                strict=True,
            ):
                assert seen.get(partition, -1) < number
                seen[partition] = number
        found = [set(rows.partition.to_pylist()) for rows in lanes]  # type: ignore[union-attr]
        assert sum(map(len, found)) == 37 == len(set.union(*found))
        assert sum(map(len, lanes)) == 1000

    def test_a_slice_of_a_batch_is_read_as_what_it_is(self) -> None:
        batch = source_rows(100, 1).slice(40, 10)
        [rows] = read(batch, SOURCE)
        [request] = requests(rows, 100)
        assert pushed(request) == [(number, f"orders/p-0/{number}") for number in range(40, 50)]


class TestColumns:
    @pytest.mark.parametrize(
        ("options", "wrong"),
        [
            ({"url": "ftp://x"}, "url"),
            ({"queue": ""}, "queue"),
            ({"queue": "q", "queueColumn": "x"}, "queueColumn"),
            ({"partition": "a", "partitionColumn": "b"}, "partitionColumn"),
            ({"messagesPerRequest": "0"}, "messagesPerRequest"),
            ({"messagesPerRequest": "many"}, "messagesPerRequest"),
            ({"transactionIds": "guess"}, "transactionIds"),
            ({"transactionIds": "column"}, "transactionIdColumn"),
            ({"transactionIds": "hash", "transactionIdColumn": "x"}, "transactionIdColumn"),
            ({"retrySeconds": "-1"}, "retrySeconds"),
            ({"encryptionKey": "00"}, "encryptionKey"),
            ({"qeueu": "q"}, "did you mean 'queue'"),
        ],
    )
    def test_a_wrong_option_is_named(self, options: dict[str, str], wrong: str) -> None:
        with pytest.raises(InvalidRequestError, match=wrong):
            read_sink_options(TARGET | options)

    def test_a_secret_is_not_repeated_in_an_error(self) -> None:
        with pytest.raises(InvalidRequestError) as caught:
            read_sink_options({"url": "sqlite:///x", "queue": "q", "encryptionKey": "geheim"})
        assert "geheim" not in str(caught.value)

    @pytest.mark.parametrize(
        ("options", "schema", "wrong"),
        [
            ({"partitionColumn": "nope"}, "payload string", "the columns are payload"),
            ({"partitionColumn": "n"}, "payload string, n int", "must be string, not int"),
            ({}, "payload string, extra int", "'extra' would be lost"),
            ({"transactionIds": "identity"}, "payload string", "needs the columns queue"),
            ({"partitionColumn": "p"}, "p string", "no column is left for the payload"),
        ],
    )
    def test_a_frame_that_does_not_fit_is_refused(
        self, options: dict[str, str], schema: str, wrong: str
    ) -> None:
        types = {"string": StringType(), "int": LongType()}
        frame = StructType()
        for field in schema.split(", "):
            name, kind = field.split()
            frame = frame.add(name, types[kind])
        with pytest.raises(InvalidRequestError, match=wrong.replace("int", "bigint")):
            resolve_columns(frame, read_sink_options(TARGET | options), is_work=False)

    def test_a_type_that_is_not_what_it_looks_like_is_refused(self) -> None:
        deep = StructType().add("list", ArrayType(VariantType()))
        schema = StructType().add("id", LongType()).add("deep", deep)
        with pytest.raises(InvalidRequestError, match=r"'deep\.list' is of type variant"):
            resolve_columns(schema, read_sink_options(TARGET), is_work=False)

    def test_a_row_without_a_payload_is_refused(self) -> None:
        batch = pa.record_batch({"payload": pa.array(["1", None])})
        with pytest.raises(InvalidRequestError, match="payload is null"):
            read(batch, StructType().add("payload", StringType()))
