"""Writes Arrow columns as JSON text, whole columns at a time, as Spark's `to_json` does: fields
that are null are left out, times are ISO 8601, binary is base64.

Numbers, text, times and structs take no loop over rows; lists and maps do.
"""

from __future__ import annotations

import base64
import datetime
import decimal
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from monarq.errors import InvalidRequestError

_CONTROL = r"[\x00-\x1f]"
_ESCAPED = r'[\x00-\x1f"\\]'
_encode = msgspec.json.Encoder(decimal_format="number").encode


def json_object(names: list[str], columns: list[pa.Array]) -> pa.Array:
    """One object a row."""
    parts = []
    for name, column in zip(names, columns, strict=True):
        if pa.types.is_null(column.type):
            continue
        key = "," + _encode(name).decode() + ":"
        text = pc.binary_join_element_wise(key, json_values(column), "")
        parts.append(pc.fill_null(text, "") if column.null_count else text)
    length = len(columns[0])
    if not parts:
        return pa.array(["{}"] * length, pa.string())
    joined = parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, "")
    bare = pc.utf8_slice_codeunits(joined, 1)
    return pc.binary_join_element_wise("{", bare, "}", "")


def json_values(column: pa.Array) -> pa.Array:
    """One JSON value a row; null where the column is."""
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return json_strings(column.cast(pa.string()))
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return column.cast(pa.string())
    if pa.types.is_decimal(kind):
        return column.cast(pa.string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_timestamp(kind):
        return _times(column)
    if pa.types.is_date(kind):
        return _quoted(column.cast(pa.string()))
    if pa.types.is_struct(kind):
        names = [kind.field(index).name for index in range(kind.num_fields)]
        objects = json_object(names, column.flatten()) if names else pa.array(["{}"] * len(column))
        valid = column.is_valid()
        return pc.if_else(valid, objects, pa.scalar(None, pa.string()))
    return _one_by_one(column)


def json_strings(column: pa.Array) -> pa.Array:
    """Text as JSON strings."""
    if pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
        column = pc.replace_substring(column, "\\", "\\\\")
        column = pc.replace_substring(column, '"', '\\"')
        if pc.any(pc.match_substring_regex(column, _CONTROL)).as_py():
            for number in range(0x20):
                column = pc.replace_substring(column, chr(number), f"\\u{number:04x}")
    return _quoted(column)


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise('"', column, '"', "")


def _floats(column: pa.Array) -> pa.Array:
    text = column.cast(pa.string())
    special = pc.invert(pc.is_finite(column))
    if not pc.any(special).as_py():
        return text
    # As Spark: JSON has no such numbers, so they are text.
    names = pc.case_when(
        pc.make_struct(pc.is_nan(column), pc.greater(column, pa.scalar(0, column.type))),
        '"NaN"',
        '"Infinity"',
        '"-Infinity"',
    )
    return pc.if_else(special, names, text)


def _times(column: pa.Array) -> pa.Array:
    zone = "Z" if column.type.tz else ""
    micros = column.cast(pa.timestamp("us", "UTC" if column.type.tz else None))
    text = pc.strftime(micros, format="%Y-%m-%dT%H:%M:%S")
    return pc.binary_join_element_wise('"', text, f'{zone}"', "")


def _one_by_one(column: pa.Array) -> pa.Array:
    try:
        texts = [
            None if value is None else _encode(_plain(value, column.type))
            for value in column.to_pylist(maps_as_pydicts="lossy")
        ]
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(f"{column.type} cannot be written as JSON: {error}") from None
    return pa.array(texts, pa.binary()).cast(pa.string())


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value of Arrow as JSON has it, null fields of structs left out."""
    if value is None or isinstance(value, bool | int | str | decimal.Decimal):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime.datetime):
        return _iso(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if pa.types.is_struct(kind):
        return {
            name: _plain(inner, kind.field(name).type)
            for name, inner in value.items()
            if inner is not None
        }
    if pa.types.is_map(kind):
        return {
            str(name): _plain(inner, kind.item_type)
            for name, inner in value.items()
            if inner is not None
        }
    if isinstance(value, list):
        return [_plain(inner, kind.value_type) for inner in value]
    raise TypeError(f"a value of type {type(value).__name__}")


def _iso(value: datetime.datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(timespec="microseconds")
    utc = value.astimezone(datetime.UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="microseconds") + "Z"
