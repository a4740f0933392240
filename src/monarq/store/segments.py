"""How the messages of one push batch become one segment, and how to read part of one.

A segment is the payloads in one piece and where each begins, exactly as an Arrow binary
array is laid out: packing is one join, cutting is slicing, exporting copies nothing.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import accumulate, islice
from operator import sub
from typing import TypeVar

from msgspec import structs

from monarq.model import Segment

T = TypeVar("T")

MAX_MESSAGES = 1_000
MAX_BYTES = 512 * 1024


def pack(payloads: Sequence[bytes]) -> tuple[bytes, array[int]]:
    """The payloads as one piece, and the n + 1 offsets at which they begin and end."""
    return b"".join(payloads), array("i", [0, *accumulate(map(len, payloads))])


def to_bytes(offsets: array[int]) -> bytes:
    """Offsets as they are stored: little-endian int32."""
    if sys.byteorder == "big":
        offsets = array("i", offsets)
        offsets.byteswap()
    return offsets.tobytes()


def from_bytes(stored: bytes) -> array[int]:
    offsets = array("i", stored)
    if sys.byteorder == "big":
        offsets.byteswap()
    return offsets


def unpack(data: bytes, offsets: Sequence[int]) -> list[bytes]:
    """The payloads between the offsets, the first of which `data` begins with."""
    return list(unpacked(data, offsets))


def unpacked(data: bytes, offsets: Sequence[int]) -> Iterator[bytes]:
    """The same, made one by one."""
    return map(BytesIO(data).read, map(sub, islice(offsets, 1, None), offsets))


def packed(payloads: Sequence[bytes]) -> list[tuple[int, int, bytes, array[int]]]:
    """The payloads as segments: from and to which of them, the piece and its offsets."""
    data, offsets = pack(payloads)
    if len(payloads) <= MAX_MESSAGES and len(data) <= MAX_BYTES:
        return [(0, len(payloads), data, offsets)]
    return [
        (start, end, *pack(payloads[start:end])) for start, end in cuts(list(map(len, payloads)))
    ]


def cut_up(data: bytes, sizes: Sequence[int]) -> Iterator[tuple[int, int, bytes, array[int]]]:
    """The same for payloads that are one piece already."""
    at = 0
    for start, end in cuts(sizes):
        bounds = array("i", accumulate(sizes[start:end], initial=0))
        yield start, end, data[at : at + bounds[-1]], bounds
        at += bounds[-1]


def cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where to cut a batch, so that no segment has too many messages or bytes.

    Bounded, since a reader of one message may have to read its whole segment.
    """
    ends = list(accumulate(sizes))
    start = before = 0
    while start < len(ends):
        most = min(start + MAX_MESSAGES, len(ends))
        end = max(start + 1, bisect_right(ends, before + MAX_BYTES, start, most))
        yield start, end
        start, before = end, ends[end - 1]


def cut(segment: Segment, first_seq: int, last_seq: int) -> Segment | None:
    """The part of a segment with these seqs, both ends included; None if there is none."""
    start = max(0, first_seq - segment.first_seq)
    end = min(segment.count, last_seq - segment.first_seq + 1)
    if start >= end:
        return None
    if start == 0 and end == segment.count:
        return segment
    offsets = from_bytes(segment.offsets)[start : end + 1]
    base = offsets[0]
    return structs.replace(
        segment,
        first_seq=segment.first_seq + start,
        count=end - start,
        data=segment.data[base : offsets[-1]],
        offsets=to_bytes(array("i", (offset - base for offset in offsets))),
        transaction_ids=part(segment.transaction_ids, start, end),
        trace_ids=part(segment.trace_ids, start, end),
        producers=part(segment.producers, start, end),
        headers=part(segment.headers, start, end),
    )


def part(values: list[T] | None, start: int, end: int) -> list[T] | None:
    """Of a list that may not be there."""
    return None if values is None else values[start:end]
