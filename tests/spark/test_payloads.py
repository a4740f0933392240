"""Payloads parsed to a type: whole or not at all. No Spark runs here."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from monarq.errors import InvalidRequestError
from monarq.spark.ddl import read_type
from monarq.spark.parsing import PayloadParser
from monarq.spark.schemas import arrow_type, shape_of, spark_schema
from monarq.tables import TABLES


def _parse(schema: str, *texts: str) -> tuple[list[Any], list[str | None]]:
    values, corrupt = PayloadParser(read_type(schema)).parse(pa.array(texts, pa.string()))
    values.validate(full=True)
    assert values.type == arrow_type(read_type(schema))
    return values.to_pylist(), corrupt.to_pylist()


@pytest.mark.parametrize(
    ("schema", "text", "value"),
    [
        ("INT", "1", 1),
        ("BIGINT", "9223372036854775807", 2**63 - 1),
        ("DOUBLE", "1", 1.0),
        ("STRING", '"ü\\u0000"', "ü\0"),
        ("BOOLEAN", "true", True),
        ("DATE", '"2026-01-31"', date(2026, 1, 31)),
        ("TIMESTAMP", '"2026-01-31T13:00:00+01:00"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("TIMESTAMP_NTZ", '"2026-01-31T12:00:00"', datetime(2026, 1, 31, 12)),  # noqa: DTZ001
        ("DECIMAL(5,2)", "123.45", Decimal("123.45")),
        ("DECIMAL(20,0)", '"12345678901234567890"', Decimal(12345678901234567890)),
        ("BINARY", '"AAE="', b"\0\1"),
        ("ARRAY<INT>", "[1, null]", [1, None]),
        ("ARRAY<ARRAY<STRUCT<a: INT>>>", '[[{"a": 1}], [], null]', [[{"a": 1}], [], None]),
        ("MAP<STRING, INT>", '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        ("MAP<STRING, STRUCT<x INT>>", '{"a": {"x": 1}}', [("a", {"x": 1})]),
        ("`a b` INT, `c``d` INT", '{"a b": 1, "c`d": 2}', {"a b": 1, "c`d": 2}),
        ("a INT", '{"b": 1}', {"a": None}),
        ("a INT", '{"a": 1, "a": 2}', {"a": 2}),
        ("a STRUCT<b: STRUCT<c: INT>>", '{"a": {"b": null}}', {"a": {"b": None}}),
        ('a INT COMMENT "x"', '{"a": 1}', {"a": 1}),
    ],
)
def test_what_fits_is_the_value(schema: str, text: str, value: Any) -> None:
    assert _parse(schema, text) == ([value], [None])


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("INT", '"1"'),
        ("INT", "1.5"),
        ("INT", "2147483648"),
        ("TINYINT", "-129"),
        ("BIGINT", "9223372036854775808"),
        ("BIGINT", "1e400"),
        ("DOUBLE", '"1.0"'),
        ("STRING", "1"),
        ("BOOLEAN", "1"),
        ("DATE", '"yesterday"'),
        ("TIMESTAMP", '"2026-01-31T12:00:00"'),
        ("TIMESTAMP", "1700000000"),
        ("DECIMAL(5,2)", "1234.5"),
        ("DECIMAL(5,2)", "1.234"),
        ("DECIMAL(5,2)", '"NaN"'),
        ("BINARY", '"not base64"'),
        ("ARRAY<INT>", "{}"),
        ("ARRAY<INT>", '[1, "2"]'),
        ("MAP<STRING, INT>", "[]"),
        ("a INT NOT NULL", "{}"),
        ("a INT NOT NULL", '{"a": null}'),
        ("a INT", "[]"),
        ("a INT", '"a"'),
    ],
)
def test_what_does_not_fit_is_kept_as_text_and_spoils_no_other(schema: str, text: str) -> None:
    assert _parse(schema, "null", text, "null") == ([None] * 3, [None, text, None])


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(st.lists(JSON, max_size=5))
def test_any_payload_is_parsed_or_kept(payloads: list[Any]) -> None:
    schema = "a BIGINT, b ARRAY<STRUCT<a: STRING, c: DOUBLE>>, c MAP<STRING, DECIMAL(10,3)>"
    texts = [json.dumps(payload) for payload in payloads]
    values, corrupt = _parse(schema, *texts)
    for payload, text, value, kept in zip(payloads, texts, values, corrupt, strict=True):
        if payload is None:
            assert (value, kept) == (None, None)
        elif value is None:
            assert kept == text
        else:
            assert kept is None
            assert value["a"] == payload.get("a")


# --- the type of a payload ---------------------------------------------------------------


def test_types_are_read_as_spark_writes_them() -> None:
    expected = StructType(
        [
            StructField("id", LongType(), nullable=False),
            StructField("tags", ArrayType(StringType())),
            StructField(
                "more", MapType(StringType(), StructType([StructField("x", IntegerType())]))
            ),
            StructField("at", TimestampType()),
            StructField("price", DecimalType(12, 2)),
        ]
    )
    ddl = (
        "id bigint NOT NULL, tags Array<string>,more map<string,struct<x:int>>, `at` timestamp, "
        "price numeric(12, 2)"
    )
    assert read_type(ddl) == expected
    assert read_type(expected.json()) == expected
    assert read_type(expected.simpleString()).simpleString() == expected.simpleString()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the schema is empty"),
        ("a", "expected a type"),
        ("a INTT", "found 'INTT'"),
        ("a INT,", "expected a name, found the end"),
        ("a INT b INT", "expected the end, found 'b'"),
        ("ARRAY<INT", "expected '>'"),
        ("MAP<INT, INT>", "the keys of a map must be strings"),
        ("DECIMAL(39,0)", "expected a number from 1 to 38"),
        ("DECIMAL(3,4)", "expected a number from 0 to 3"),
        ("a INT, A INT", "the field 'a' stands twice"),
        ("STRUCT<>", "a struct needs at least one field"),
        ("a INT; drop", "'; drop' is not understood"),
        ('{"type": "struct"}', "this is no schema in Spark's JSON"),
        ('{"type": "udt"}', "this is no schema in Spark's JSON"),
        ('"interval"', "is no type of a payload"),
    ],
)
def test_what_is_no_type_is_refused(text: str, said: str) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        read_type(text)
    assert said in str(raised.value)


# --- schemas -----------------------------------------------------------------------------


@pytest.mark.parametrize("table", TABLES)
def test_every_table_fetches_what_its_schema_has(table: str) -> None:
    shape = shape_of(table, spark_schema(table))
    assert list(shape.fetched) == TABLES[table].column_names
    assert shape.schema.names == TABLES[table].column_names


def test_only_what_the_schema_names_is_fetched() -> None:
    shape = shape_of("messages", _schema(seq=LongType(), queue=StringType()))
    assert shape.fetched == ("seq", "queue")
    parsed = shape_of("messages", _schema(_corrupt=StringType(), payload=LongType()))
    assert parsed.fetched == ("payload",)
    assert parsed.payload == LongType()


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"sequence": LongType()}, "table 'messages' has no column 'sequence': it has queue, "),
        ({"seq": StringType()}, "the column 'seq' is of type bigint, not string"),
        ({"_corrupt": StringType()}, "is there only where payloads are parsed"),
        ({}, "the schema names no column"),
    ],
)
def test_a_schema_that_the_table_does_not_have_is_refused(
    schema: dict[str, DataType], said: str
) -> None:
    with pytest.raises(InvalidRequestError) as raised:
        shape_of("messages", _schema(**schema))
    assert said in str(raised.value)


def _schema(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])
