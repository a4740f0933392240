"""Reads what stands in a path or a query beyond what its type says, and refuses it by name."""

from __future__ import annotations

import re

from monarq.errors import InvalidRequestError
from monarq.server.exchange import Request
from monarq.store.validation import check_name, check_time
from monarq.times import parse_utc

_NUMBER = re.compile(r"[1-9][0-9]{0,17}", re.ASCII)


def path_name(request: Request, name: str) -> str:
    value = request.path[name]
    check_name(value, name)
    return value


def path_partition_id(request: Request) -> int:
    return partition_number(request.path["partitionId"])


def partition_number(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidRequestError(
            f"partitionId must be a number, as a push or a pop has told it, not {text[:64]!r}"
        )
    return int(text)


def time_or_none(text: str | None, field: str) -> int | None:
    """Return the microseconds since the epoch. A date, or a time without a zone, is UTC."""
    if text is None:
        return None
    # Nothing here is older than the epoch, so any time before it means the same.
    at = max(0, parse_utc(text, field))
    check_time(at, field)
    return at
