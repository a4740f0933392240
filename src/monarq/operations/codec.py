"""Types of fields whose JSON form differs from their Python form, and the codec that knows both.

The server, the HTTP client and validation share this codec. A time is a `Micros`, an int of
microseconds since 1970 whose type tells it apart from a count; in JSON it is ISO 8601 text. Rows
must be made with `Micros(...)`: a plain int in such a field would be encoded as a number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Raw

from monarq.errors import InvalidRequestError
from monarq.ids import LongNumberText, NumberOrText, NumberText
from monarq.model.limits import MAX_RECORD_BYTES
from monarq.model.queue_options import OptionChanges
from monarq.times import MAX_TIME, Micros, StartTime, iso, parse_utc

T = TypeVar("T")

_NUMBER = re.compile(r"[1-9][0-9]{0,18}", re.ASCII)

Json = Annotated[
    bytes,
    Meta(
        min_length=1,
        max_length=MAX_RECORD_BYTES,
        description="any JSON value, 1 MiB at most",
        extra={"json": True},
    ),
]
"""A JSON text as bytes: raw in a body, not base64."""


def check_json(value: bytes, field: str) -> None:
    """Raise `InvalidRequestError` unless the bytes are JSON."""
    try:
        msgspec.json.decode(value, type=Raw)
    except msgspec.DecodeError:
        raise InvalidRequestError(f"{field} must be JSON, given as bytes") from None
    except RecursionError:
        raise InvalidRequestError(f"{field} is nested too deeply") from None


if TYPE_CHECKING:
    TimeArgument = int
    NumberArgument = int
    OptionsArgument = Mapping[str, Any]
else:
    TimeArgument = Micros
    NumberArgument = NumberText
    OptionsArgument = OptionChanges
"""Types of fields for which callers pass any int or mapping; validation converts it."""


def enc_hook(value: Any) -> Any:
    if isinstance(value, StartTime) and not value:
        return None
    if isinstance(value, Micros):
        return iso(int(value))
    if isinstance(value, NumberText):
        return str(int(value))
    if isinstance(value, OptionChanges):
        return value.by_api_name()
    raise NotImplementedError(f"{type(value).__name__} has no form in JSON")


def dec_hook(kind: type, value: Any) -> Any:
    if kind is OptionChanges:
        return OptionChanges.read(value)
    if issubclass(kind, NumberText):
        return kind(_number(value, 2**63 if kind is LongNumberText else 10**18))
    if not issubclass(kind, Micros):
        raise NotImplementedError(f"{kind.__name__} has no form in JSON")
    if value is None and kind is StartTime:
        return StartTime(0)
    if isinstance(value, str):
        try:
            # Nothing is older than the epoch, so any time before it means the same.
            return kind(max(0, parse_utc(value, "")))
        except InvalidRequestError as error:
            raise ValueError(str(error).strip()) from None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_TIME:
        raise ValueError("must be a time in microseconds since 1970")
    return kind(value)


def wire_hook(kind: type, value: Any) -> Any:
    """Decode a field that came as JSON, where times and ids are text."""
    if isinstance(value, int) and issubclass(kind, Micros):
        raise ValueError("must be a time in ISO 8601, such as 2026-01-31T12:00:00Z")
    if isinstance(value, int) and not issubclass(kind, NumberOrText):
        raise ValueError("must be a number, as text")
    return dec_hook(kind, value)


def _number(value: object, end: int) -> int:
    """Return a number from 1 up to, but not including, `end`, given as text or as a number."""
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and 0 < number < end:
        return number
    shown = repr(value)[:64]
    raise ValueError(f"must be a number, as a push or a pop has told it, not {shown}")


def schema_hook(kind: type) -> dict[str, Any]:
    if issubclass(kind, NumberText):
        text = {
            "type": "string",
            "pattern": f"^[1-9][0-9]{{0,{18 if kind is LongNumberText else 17}}}$",
            "description": "a number, as text",
        }
        number = {"type": "integer", "minimum": 1, "maximum": 10**18 - 1}
        return {"anyOf": [text, number]} if kind is NumberOrText else text
    if not issubclass(kind, Micros):
        raise NotImplementedError
    schema: dict[str, Any] = {
        "type": "string",
        "description": "ISO 8601, UTC, such as 2026-01-31T12:00:00.000000Z",
        "format": "date-time",
    }
    return {"anyOf": [schema, {"type": "null"}]} if kind is StartTime else schema


encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


def decode(content: bytes, kind: type[T]) -> T:
    return msgspec.json.decode(content, type=kind, dec_hook=wire_hook)


__all__ = [
    "Json",
    "Micros",
    "NumberArgument",
    "OptionsArgument",
    "StartTime",
    "TimeArgument",
    "check_json",
    "dec_hook",
    "decode",
    "enc_hook",
    "encode",
    "schema_hook",
    "wire_hook",
]
