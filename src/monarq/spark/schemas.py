"""The schema of every table for Spark and, from Spark's, for Arrow.

Also works out what a read must fetch: the columns of the schema that the user asked for, and no
others.
"""

from __future__ import annotations

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from monarq.errors import InvalidRequestError
from monarq.tables import ColumnType, Table, get_table

CORRUPT = "_corrupt"
PAYLOAD = "payload"

_SPARK_TYPES: dict[ColumnType, DataType] = {
    ColumnType.TEXT: StringType(),
    ColumnType.INT: IntegerType(),
    ColumnType.LONG: LongType(),
    ColumnType.REAL: DoubleType(),
    ColumnType.BOOL: BooleanType(),
    ColumnType.TIME: TimestampType(),
}


def spark_schema(table: str, payload: DataType | None = None) -> StructType:
    """All columns of a table; with the type of a payload, it is parsed and `_corrupt` is there."""
    fields: list[StructField] = []
    for column in get_table(table).columns:
        if column.name == PAYLOAD and payload is not None:
            fields += [StructField(PAYLOAD, payload), StructField(CORRUPT, StringType())]
        else:
            kind = _SPARK_TYPES[column.type]
            fields.append(StructField(column.name, kind, column.nullable))
    if payload is not None and PAYLOAD not in get_table(table).column_names:
        raise InvalidRequestError(f"option 'payloadSchema': table {table} has no payloads")
    return StructType(fields)


class Shape(Struct, frozen=True):
    """What a read fetches and what it gives."""

    table: str
    schema: pa.Schema
    """Of the batches that Spark gets."""
    fetched: tuple[str, ...]
    """The columns that are asked of the store."""
    payload: DataType | None
    """The type that payloads are parsed to; None: they stay text."""


def shape_of(table: str, schema: StructType) -> Shape:
    """What to read so that Spark gets this schema; refuses what the table does not have."""
    known = get_table(table)
    payload: DataType | None = None
    fetched: list[str] = []
    for field in schema.fields:
        if field.name == CORRUPT and PAYLOAD in known.column_names:
            _check_type(field, StringType())
        elif field.name == PAYLOAD and not isinstance(field.dataType, StringType):
            known.column(PAYLOAD)
            payload = field.dataType
        else:
            _check_type(field, _SPARK_TYPES[_column_type(known, field.name)])
        source = PAYLOAD if field.name == CORRUPT else field.name
        if source not in fetched:
            fetched.append(source)
    if CORRUPT in schema.names and payload is None:
        raise InvalidRequestError(
            f"the column {CORRUPT!r} is there only where payloads are parsed: give {PAYLOAD!r} a "
            "type in the schema, or use the option 'payloadSchema'"
        )
    if not fetched:
        raise InvalidRequestError("the schema names no column; to count rows, read 'seq' alone")
    return Shape(table, arrow_schema(schema), tuple(fetched), payload)


def _column_type(table: Table, name: str) -> ColumnType:
    return table.column(name).type


def _check_type(field: StructField, expected: DataType) -> None:
    if field.dataType != expected:
        raise InvalidRequestError(
            f"the column {field.name!r} is of type {expected.simpleString()}, "
            f"not {field.dataType.simpleString()}"
        )


def arrow_schema(schema: StructType) -> pa.Schema:
    """As Spark expects it of a data source: it compares, and takes nothing else."""
    return pa.schema(
        [pa.field(field.name, arrow_type(field.dataType), field.nullable) for field in schema]
    )


_ARROW_TYPES: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    DateType: pa.date32(),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampNTZType: pa.timestamp("us"),
    TimestampType: pa.timestamp("us", tz="UTC"),
}


def arrow_type(kind: DataType) -> pa.DataType:
    match kind:
        case StructType():
            return pa.struct(list(arrow_schema(kind)))
        case ArrayType():
            return pa.list_(pa.field("element", arrow_type(kind.elementType), kind.containsNull))
        case MapType():
            return pa.map_(
                pa.field("key", arrow_type(kind.keyType), False),
                pa.field("value", arrow_type(kind.valueType), kind.valueContainsNull),
            )
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
    if type(kind) not in _ARROW_TYPES:
        raise InvalidRequestError(f"{kind.simpleString()} is no type of a payload")
    return _ARROW_TYPES[type(kind)]
