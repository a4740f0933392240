"""Payloads parsed to a type: an Arrow array of values, and one of the texts that do not fit.

A payload fits as a whole or not at all. Numbers, texts and the rest must be what the type says:
nothing is guessed from the text of a value. Fields that the type does not name are left out, and
fields that the payload does not have are null.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa
from msgspec import Meta
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
    StructType,
    TimestampNTZType,
    TimestampType,
)

from monarq.spark.schemas import arrow_type


def _integer(bits: int) -> Any:
    # msgspec takes no bounds of 64 bits; larger numbers are told by Arrow.
    if bits == 64:
        return int
    return Annotated[int, Meta(ge=-(2 ** (bits - 1)), le=2 ** (bits - 1) - 1)]


_PYTHON_TYPES: dict[type[DataType], Any] = {
    BinaryType: bytes,
    BooleanType: bool,
    ByteType: _integer(8),
    DateType: datetime.date,
    DecimalType: decimal.Decimal,
    DoubleType: float,
    FloatType: float,
    IntegerType: _integer(32),
    LongType: _integer(64),
    ShortType: _integer(16),
    StringType: str,
    TimestampNTZType: Annotated[datetime.datetime, Meta(tz=False)],
    TimestampType: Annotated[datetime.datetime, Meta(tz=True)],
}


class PayloadParser:
    """Parses payloads to one type."""

    def __init__(self, kind: DataType) -> None:
        self._kind = kind
        self._decode = msgspec.json.Decoder(_python_type(kind) | None).decode

    def parse(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The values (null where a payload is null or does not fit), and the texts of those that
        do not fit (null elsewhere)."""
        texts = payloads.to_pylist()
        values, corrupt = self._decoded(texts)
        try:
            return _column(values, self._kind), pa.array(corrupt, pa.string())
        except (pa.ArrowInvalid, OverflowError):
            # Some value is what the type says but beyond what it holds: find out which.
            for at, value in enumerate(values):
                try:
                    _column([value], self._kind)
                except (pa.ArrowInvalid, OverflowError):
                    values[at], corrupt[at] = None, texts[at]
            return _column(values, self._kind), pa.array(corrupt, pa.string())

    def _decoded(self, texts: Sequence[str]) -> tuple[list[Any], list[str | None]]:
        decode: Callable[[str], Any] = self._decode
        values: list[Any] = []
        corrupt: list[str | None] = [None] * len(texts)
        for at, text in enumerate(texts):
            try:
                values.append(decode(text))
            except (msgspec.DecodeError, RecursionError, decimal.InvalidOperation):
                values.append(None)
                corrupt[at] = text
        return values, corrupt


def _python_type(kind: DataType) -> Any:
    match kind:
        case StructType():
            names = [f"f{at}" for at in range(len(kind.fields))]
            fields = [
                (name, _python_type(field.dataType) | None, None)
                if field.nullable
                else (name, _python_type(field.dataType))
                for name, field in zip(names, kind.fields, strict=True)
            ]
            renamed = dict(zip(names, kind.names, strict=True))
            return msgspec.defstruct("Payload", fields, rename=renamed, gc=False, kw_only=True)
        case ArrayType():
            element = _python_type(kind.elementType)
            return list[element | None] if kind.containsNull else list[element]  # type: ignore[valid-type]
        case MapType():
            value = _python_type(kind.valueType)
            return dict[str, value | None] if kind.valueContainsNull else dict[str, value]  # type: ignore[valid-type]
    return _PYTHON_TYPES[type(kind)]


def _column(values: list[Any], kind: DataType) -> pa.Array:
    """An Arrow array of these values; made field by field, since they are structs of Python."""
    match kind:
        case StructType():
            children = [
                _column(
                    [None if value is None else getattr(value, f"f{at}") for value in values],
                    field.dataType,
                )
                for at, field in enumerate(kind.fields)
            ]
            missing = pa.array([value is None for value in values], pa.bool_())
            return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=missing)
        case ArrayType() if _has_struct(kind):
            flat = [one for value in values if value is not None for one in value]
            return pa.ListArray.from_arrays(
                _offsets(values), _column(flat, kind.elementType), type=arrow_type(kind)
            )
        case MapType() if _has_struct(kind):
            kept = [value for value in values if value is not None]
            keys = pa.array([key for value in kept for key in value], pa.string())
            items = _column([one for value in kept for one in value.values()], kind.valueType)
            return pa.MapArray.from_arrays(_offsets(values), keys, items, type=arrow_type(kind))
        case MapType():
            pairs = [None if value is None else list(value.items()) for value in values]
            return pa.array(pairs, arrow_type(kind))
    return pa.array(values, arrow_type(kind))


def _offsets(values: list[Any]) -> pa.Array:
    """Where each list begins; null, as Arrow takes it, for a list that is null."""
    offsets: list[int | None] = []
    at = 0
    for value in values:
        offsets.append(None if value is None else at)
        at += 0 if value is None else len(value)
    return pa.array([*offsets, at], pa.int32())


def _has_struct(kind: DataType) -> bool:
    match kind:
        case StructType():
            return True
        case ArrayType():
            return _has_struct(kind.elementType)
        case MapType():
            return _has_struct(kind.valueType)
    return False
