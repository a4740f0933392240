"""Decodes the values of records.

Anybody who may write a record may write any JSON into it. A value that does not have the expected
shape is logged with the record's kind and key and skipped: one bad record must not keep a command,
a worker or the dashboard from reading the others. A type that is decoded here states every bound
that its readers rely on, such as a time zone or a range, as `Meta` or in `__post_init__`.
"""

from __future__ import annotations

import logging
from datetime import datetime
from functools import lru_cache
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from monarq.model import Record

log = logging.getLogger("monarq.records")

T = TypeVar("T")

#: Malformed records whose warning is remembered, so that a reader that polls logs each once.
_REMEMBERED = 1000

Micros = Annotated[int, Meta(ge=0, le=253_402_300_799_999_999)]
"""Microseconds since the epoch, up to the end of the year 9999."""


def decode_value(record: Record, kind: type[T]) -> T | None:
    """Return the record's value as `kind`. Log a malformed one, and return None."""
    try:
        return msgspec.json.decode(record.value, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        skip(record, str(error))
        return None


def skip(record: Record, why: str) -> None:
    """Log that this version of the record is malformed and ignored."""
    _warn(record.kind, record.key, record.updated_at, why)


def check_time(text: str) -> None:
    """Raise `ValueError` unless the text is a time in ISO 8601 with a time zone. Readers that show
    times as text keep them as text."""
    if datetime.fromisoformat(text).tzinfo is None:
        raise ValueError("expected a time with a time zone")


# Of the process, as the log is: two brokers in it log the same record of their store once.
@lru_cache(maxsize=_REMEMBERED)
def _warn(kind: str, key: str, updated_at: int, why: str) -> None:
    log.warning("record %a of kind %a is malformed and ignored: %s", key, kind, ascii(why)[1:-1])
