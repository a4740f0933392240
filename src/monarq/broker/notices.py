"""What brokers tell each other, and how it looks in a datagram.

    "MN" | version | flags | sender: 8 bytes | stamp: 8 bytes | notices | code: 16 bytes, with a key

    a notice: kind | count: 4 bytes | length and name of the queue | of the partition

A stamp is the time in microseconds, and grows with every datagram of a sender. The code is the
beginning of an HMAC-SHA256 over all before it. Knows no sockets; decoding trusts nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

from msgspec import Struct

MAX_DATAGRAM = 1200
"""Passes every network path without being cut up."""
VERSION = 1
AUTHENTICATED = 1
_MAGIC = b"MN"
_HEADER = struct.Struct(">2sBB8sQ")
_NOTICE = struct.Struct(">BI")
_CODE_BYTES = 16
_NONE = 0xFFFF
_MAX_COUNT = 0xFFFF_FFFF


class NoticeKind(IntEnum):
    MESSAGE_AVAILABLE = 1
    PARTITION_FREE = 2
    SETTINGS_CHANGED = 3


_KINDS = frozenset(map(int, NoticeKind))


class Notice(Struct, frozen=True):
    """`queue` None: it may concern any queue; `partition` None: any partition of it."""

    kind: NoticeKind
    queue: str | None = None
    partition: str | None = None
    count: int = 1


class Datagram(Struct, frozen=True):
    sender: bytes
    stamp: int
    is_authenticated: bool
    notices: list[Notice]


class MalformedError(Exception):
    """Not a datagram of ours, or of a version that we do not know."""


class UnauthenticatedError(Exception):
    """Without the code that our key demands, with a wrong one, or with one that we cannot check."""


def encode(
    notices: Iterable[Notice], sender: bytes, stamps: Iterator[int], key: bytes | None
) -> Iterator[bytes]:
    """As few datagrams as they fit in."""
    room = MAX_DATAGRAM - _HEADER.size - (_CODE_BYTES if key else 0)
    pieces: list[bytes] = []
    size = 0
    for notice in notices:
        piece = _encode_notice(notice, room)
        if size + len(piece) > room:
            yield _seal(pieces, sender, next(stamps), key)
            pieces, size = [], 0
        pieces.append(piece)
        size += len(piece)
    if pieces:
        yield _seal(pieces, sender, next(stamps), key)


def decode(data: bytes, key: bytes | None) -> Datagram:
    """Raises `MalformedError` or `UnauthenticatedError`. Notices of kinds that we do not know
    are left out: a newer broker may send them."""
    if not _HEADER.size <= len(data) <= MAX_DATAGRAM:
        raise MalformedError("not of a length that we send")
    magic, version, flags, sender, stamp = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != VERSION:
        raise MalformedError("not ours, or of another version")
    is_authenticated = bool(flags & AUTHENTICATED)
    if is_authenticated != (key is not None):
        raise UnauthenticatedError
    end = len(data)
    if key is not None:
        end -= _CODE_BYTES
        if end < _HEADER.size or not hmac.compare_digest(data[end:], _code(data[:end], key)):
            raise UnauthenticatedError
    return Datagram(sender, stamp, is_authenticated, list(_decode_notices(data, end)))


def derive_key(secret: str) -> bytes | None:
    return hashlib.sha256(b"monarq peers " + secret.encode()).digest() if secret else None


def _encode_notice(notice: Notice, room: int) -> bytes:
    """A name that does not fit is left out, which wakes more than needed, never fewer."""
    start = _NOTICE.pack(notice.kind, min(max(notice.count, 0), _MAX_COUNT))
    queue, partition = _encode_name(notice.queue), _encode_name(notice.partition)
    if notice.queue is None or len(start) + len(queue) + 2 > room:
        queue, partition = _encode_name(None), _encode_name(None)
    elif len(start) + len(queue) + len(partition) > room:
        partition = _encode_name(None)
    return start + queue + partition


def _encode_name(name: str | None) -> bytes:
    if name is None:
        return struct.pack(">H", _NONE)
    data = name.encode("utf-8", "replace")
    return struct.pack(">H", min(len(data), _NONE - 1)) + data


def _seal(pieces: list[bytes], sender: bytes, stamp: int, key: bytes | None) -> bytes:
    flags = AUTHENTICATED if key else 0
    data = _HEADER.pack(_MAGIC, VERSION, flags, sender, stamp) + b"".join(pieces)
    return data + _code(data, key) if key else data


def _code(data: bytes, key: bytes) -> bytes:
    return hmac.digest(key, data, "sha256")[:_CODE_BYTES]


def _decode_notices(data: bytes, end: int) -> Iterator[Notice]:
    at = _HEADER.size
    while at < end:
        if at + _NOTICE.size > end:
            raise MalformedError("a notice is cut short")
        kind, count = _NOTICE.unpack_from(data, at)
        queue, at = _decode_name(data, at + _NOTICE.size, end)
        partition, at = _decode_name(data, at, end)
        if queue is None and partition is not None:
            raise MalformedError("a partition of no queue")
        if kind in _KINDS:
            yield Notice(NoticeKind(kind), queue, partition, count)


def _decode_name(data: bytes, at: int, end: int) -> tuple[str | None, int]:
    if at + 2 > end:
        raise MalformedError("a name is cut short")
    (length,) = struct.unpack_from(">H", data, at)
    at += 2
    if length == _NONE:
        return None, at
    if at + length > end:
        raise MalformedError("a name is cut short")
    try:
        return data[at : at + length].decode(), at + length
    except UnicodeDecodeError:
        raise MalformedError("a name is not UTF-8") from None
