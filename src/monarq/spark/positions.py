"""How far a stream has read, and how that is written down as its offset.

Positions are kept per partition id: everything up to a position has been read. In the offset
they are packed, since Spark writes it down for every batch and a queue may have 100,000
partitions: per queue, ids (as differences) and positions as little-endian int64, columns one
behind the other, zlib, base64. Equal positions give equal text: Spark compares offsets as text.
"""

from __future__ import annotations

import base64
import binascii
import sys
import zlib
from array import array
from itertools import accumulate
from typing import Any, TypeAlias

from monarq.errors import InvalidRequestError

Positions: TypeAlias = dict[str, dict[int, int]]
"""Per queue and partition id, the last seq that was read."""

_VERSION = 1
_LEVEL = 6


def write_offset(positions: Positions) -> dict[str, Any]:
    """The offset of a stream of messages."""
    return {
        "queues": {queue: _pack(positions[queue]) for queue in sorted(positions)},
        "table": "messages",
        "version": _VERSION,
    }


def read_offset(offset: dict[str, Any]) -> Positions:
    check_offset(offset, "messages")
    try:
        return {queue: _unpack(text) for queue, text in offset["queues"].items()}
    except (KeyError, AttributeError, ValueError, TypeError, zlib.error, binascii.Error):
        raise InvalidRequestError("this is no offset of a stream of messages") from None


def write_log_offset(table: str, position: str | None) -> dict[str, Any]:
    """The offset of a stream of one of the logs; None is its beginning."""
    return {"position": position or "", "table": table, "version": _VERSION}


def read_log_offset(offset: dict[str, Any], table: str) -> str | None:
    check_offset(offset, table)
    position = offset.get("position")
    if not isinstance(position, str):
        raise InvalidRequestError(f"this is no offset of a stream of {table}")
    return position or None


def is_offset(document: Any) -> bool:
    return isinstance(document, dict) and type(document.get("version")) is int


def check_offset(offset: dict[str, Any], table: str) -> None:
    """Refuse an offset of another table, or of a newer Monarq."""
    if offset.get("version") != _VERSION:
        raise InvalidRequestError(
            f"an offset of version {offset.get('version')} cannot be read: this Monarq writes "
            f"version {_VERSION}"
        )
    if offset.get("table") != table:
        raise InvalidRequestError(
            f"this is an offset of table {offset.get('table')!r}, not of {table!r}: "
            "use another checkpoint location"
        )


def _pack(positions: dict[int, int]) -> str:
    ids = sorted(positions)
    differences = array("q", ids)
    if ids:
        differences[1:] = array("q", map(int.__sub__, ids[1:], ids))
    seqs = array("q", map(positions.__getitem__, ids))
    packed = zlib.compress(_little_endian(differences) + _little_endian(seqs), _LEVEL)
    return base64.b64encode(packed).decode()


def _unpack(text: str) -> dict[int, int]:
    data = zlib.decompress(base64.b64decode(text, validate=True))
    numbers = array("q")
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    half, odd = divmod(len(numbers), 2)
    if odd:
        raise ValueError
    return dict(zip(accumulate(numbers[:half]), numbers[half:], strict=True))


def _little_endian(numbers: array[int]) -> bytes:
    if sys.byteorder == "big":
        numbers = array("q", numbers)
        numbers.byteswap()
    return numbers.tobytes()
