"""The records of a buffer file: how a push is written down, checked and found again.

    "MQ1" | flags | length | checksum of the body | checksum of these 12 bytes | body

Both checksums start from the file's salt, a random number in its name: bytes of a payload that
look like a record do not pass for one. A header that checks out vouches for the length, so a
damaged body costs one record; after a damaged header the next good one is searched for.

Knows bytes, not directories: it opens, renames and removes nothing.
"""

from __future__ import annotations

import os
import struct
import zlib
from enum import Enum

import msgspec
from msgspec import Struct

from monarq.crypto import BUFFERED, Cipher, open_value
from monarq.model import DEFAULT_PARTITION, Push, PushItem

MAGIC = b"MQ1"
SEALED_BODY = 1
HEADER = struct.Struct(">3sBIII")
MAX_BODY_BYTES = 1 << 30
_SEARCH_BYTES = 1 << 20


class _Item(Struct, array_like=True, frozen=True, gc=False):
    """A `PushItem` without the names of its fields; new fields go to the end."""

    queue: str
    payload: bytes
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    task: str | None = None
    headers: bytes | None = None
    priority: int | None = None
    run_at: int | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None
    attempts: int | None = None


class _Push(Struct, array_like=True, frozen=True):
    items: list[_Item]
    producer: str | None = None
    commands: bool = False


class _Body(Struct, array_like=True, frozen=True):
    mark: str
    at: int
    attempted: bool
    pushes: list[_Push]


class Entry(Struct, frozen=True):
    """What one record says: the pushes of one call to the store."""

    mark: str
    at: int
    """When it was written, in microseconds since the epoch."""
    pushes: list[Push]
    attempted: bool = False
    """Whether the store was asked before, so that it may have these pushes under this mark."""

    @property
    def messages(self) -> int:
        return sum(len(push.items) for push in self.pushes)


class Frame(Struct, frozen=True):
    """A whole record, as it lies in its file."""

    start: int
    end: int
    flags: int
    body: bytes


class Gap(Struct, frozen=True):
    """Bytes that are no record: a write that was cut short, or damage."""

    start: int
    end: int
    kind: GapKind


class GapKind(Enum):
    TORN = "torn"
    """The beginning of a record at the end of the file, or zeros: a write that never ended,
    and so was never answered."""
    DAMAGED = "damaged"


class UnreadableRecordError(Exception):
    """The body of a whole record is not what we write."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_Body)


def encode_entry(entry: Entry, salt: int, cipher: Cipher | None = None) -> bytes:
    body = _encoder.encode(
        _Body(
            entry.mark,
            entry.at,
            entry.attempted,
            [
                _Push(
                    [_Item(*msgspec.structs.astuple(item)) for item in push.items],
                    push.producer,
                    push.commands,
                )
                for push in entry.pushes
            ],
        )
    )
    flags = 0
    if cipher is not None:
        body, flags = cipher.seal(body, BUFFERED), SEALED_BODY
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"a record of {len(body)} bytes is too large for the buffer")
    start = MAGIC + bytes([flags]) + struct.pack(">II", len(body), zlib.crc32(body, salt))
    return b"".join((start, struct.pack(">I", zlib.crc32(start, salt)), body))


def decode_entry(frame: Frame, cipher: Cipher | None = None) -> Entry:
    """Raises `EncryptionKeyError` if it needs a key, `UnreadableRecordError` if it makes no
    sense although its checksum is right."""
    body = open_value(frame.body, cipher, BUFFERED) if frame.flags & SEALED_BODY else frame.body
    try:
        found = _decoder.decode(body)
    except msgspec.DecodeError as error:
        raise UnreadableRecordError(str(error)) from error
    return Entry(
        found.mark,
        found.at,
        [
            Push(
                [PushItem(*msgspec.structs.astuple(item)) for item in push.items],
                push.producer,
                push.commands,
            )
            for push in found.pushes
        ],
        found.attempted,
    )


def read_frame(file: int, offset: int, size: int, salt: int) -> Frame | Gap | None:
    """The record at `offset` of an open file of `size` bytes, or the gap; None at the end."""
    if offset >= size:
        return None
    if size - offset < HEADER.size:
        return Gap(offset, size, GapKind.TORN)
    header = os.pread(file, HEADER.size, offset)
    length = _checked_length(header, salt)
    if length is None:
        following = _find_header(file, offset + 1, size, salt)
        if following is None:
            is_torn = _is_zero(file, offset, size)
            return Gap(offset, size, GapKind.TORN if is_torn else GapKind.DAMAGED)
        return Gap(offset, following, GapKind.DAMAGED)
    start = offset + HEADER.size
    if start + length > size:
        return Gap(offset, size, GapKind.TORN)
    body = os.pread(file, length, start)
    if zlib.crc32(body, salt) != struct.unpack_from(">I", header, 8)[0]:
        return Gap(offset, start + length, GapKind.DAMAGED)
    return Frame(offset, start + length, header[3], body)


def _checked_length(header: bytes, salt: int) -> int | None:
    if len(header) < HEADER.size:
        return None
    magic, _, length, _, checksum = HEADER.unpack(header)
    if magic != MAGIC or zlib.crc32(header[:12], salt) != checksum or length > MAX_BODY_BYTES:
        return None
    return int(length)


def _find_header(file: int, offset: int, size: int, salt: int) -> int | None:
    """Where the next good header is, looking at a bounded piece of the file at a time."""
    while offset < size:
        piece = os.pread(file, _SEARCH_BYTES + HEADER.size, offset)
        at = piece.find(MAGIC)
        while at >= 0:
            if _checked_length(piece[at : at + HEADER.size], salt) is not None:
                return offset + at
            at = piece.find(MAGIC, at + 1)
        offset += _SEARCH_BYTES
    return None


def _is_zero(file: int, offset: int, size: int) -> bool:
    while offset < size:
        piece = os.pread(file, min(_SEARCH_BYTES, size - offset), offset)
        if not piece or piece.count(0) != len(piece):
            return not piece
        offset += len(piece)
    return True
