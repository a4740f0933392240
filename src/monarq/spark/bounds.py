"""Where reading begins and ends, as the options `startingOffsets` and `endingOffsets` say it.

Only reads texts; what a bound means for a queue is worked out by `ranges`.
"""

from __future__ import annotations

import json
from typing import Any, TypeAlias

from msgspec import Struct

from monarq.errors import InvalidRequestError
from monarq.spark.positions import Positions, is_offset, read_offset
from monarq.times import parse_time


class Earliest(Struct, frozen=True):
    """The first that is kept."""


class Latest(Struct, frozen=True):
    """Behind the last one there is now."""


class AtTime(Struct, frozen=True):
    """Starting: the first not older. Ending: the last that is older."""

    micros: int


class AtSeq(Struct, frozen=True):
    """The same seq in every partition; included, starting and ending."""

    seq: int


class Exact(Struct, frozen=True):
    """The seq for each partition of each queue; included, starting and ending."""

    seqs: dict[str, dict[str, int]]


class Reached(Struct, frozen=True):
    """The offset of a stream: what was read up to there."""

    positions: Positions


Bound: TypeAlias = Earliest | Latest | AtTime | AtSeq | Exact | Reached

ALLOWED = (
    "`earliest`, `latest`, a time such as `2026-01-31T12:00:00Z`, a seq, "
    '`{"queue": {"partition": seq}}`, or an offset of a stream'
)


def read_bound(text: str) -> Bound:
    match text.strip():
        case "earliest":
            return Earliest()
        case "latest":
            return Latest()
        case number if number.isascii() and number.isdigit() and len(number) < 16:
            return AtSeq(int(number))
        case document if document.startswith("{"):
            return _read_document(document)
        case moment:
            try:
                return AtTime(parse_time(moment, "offset"))
            except InvalidRequestError:
                raise ValueError from None


def _read_document(text: str) -> Bound:
    document: Any = json.loads(text)
    if is_offset(document):
        return Reached(read_offset(document))
    for partitions in document.values():
        if not isinstance(partitions, dict):
            raise ValueError
        for seq in partitions.values():
            if type(seq) is not int or not 0 <= seq <= 2**53:
                raise ValueError
    return Exact(document)
