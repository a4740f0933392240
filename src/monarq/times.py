"""Points in time as the API writes and reads them: ISO 8601 in UTC, such as
`2026-01-31T12:00:00.000000Z`.

Whoever reads one must say which field it was, so that a bad one is never taken for a good one.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Annotated

import msgspec
from msgspec import Meta

from monarq.errors import InvalidRequestError

Time = Annotated[datetime, Meta(tz=True, description="ISO 8601 with a time zone, such as `Z`")]
"""For wire structs: decoded strictly, with a time zone."""

_WITHOUT_ZONE = re.compile(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(:\d\d(?:\.\d{1,9})?)?)?", re.ASCII)

MAX_TIME = 253_402_300_799_000_000
"""The end of the year 9999."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


@lru_cache(maxsize=1024)
def iso(micros: int) -> str:
    """Always with six decimals, so that times sort as text."""
    return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def iso_or_none(micros: int | None) -> str | None:
    return None if micros is None else iso(micros)


def micros_of(time: datetime) -> int:
    return (time - _EPOCH) // _MICROSECOND


def parse_time(text: str, field: str) -> int:
    """Return the microseconds since the epoch, or raise an error that names the field."""
    return _parse(text, text, field, "with a time zone")


def parse_utc(text: str, field: str) -> int:
    """As `parse_time`, but a date, or a time without a zone, is UTC, as in Queen."""
    full = text
    if found := _WITHOUT_ZONE.fullmatch(text):
        date, minute, second = found.groups()
        full = f"{date}T{minute or '00:00'}{second or ':00'}Z"
    return _parse(full, text, field, "(UTC if it names no zone)")


def _parse(full: str, given: str, field: str, zone: str) -> int:
    try:
        time = msgspec.convert(full, Time)
    except msgspec.ValidationError:
        raise InvalidRequestError(
            f"{field} must be a time in ISO 8601 {zone}, such as "
            f"2026-01-31T12:00:00Z, not {given[:64]!r}"
        ) from None
    return micros_of(time)


class Micros(int):
    """A time in microseconds since 1970. The type tells it apart from a count, so that the JSON
    codec can write it as ISO 8601 text."""


class StartTime(Micros):
    """The time of the first message that is for a group. 0, which is null in JSON, stands for
    the beginning."""


def micros_or_none(value: int | None) -> Micros | None:
    return None if value is None else Micros(value)
