"""How the messages of one push batch become one segment, and how to read part of one.

A segment is the payloads in one piece and where each begins, exactly as an Arrow binary
array is laid out: packing is one join, cutting is slicing, exporting copies nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise

MAX_MESSAGES = 1_000
MAX_BYTES = 512 * 1024


def pack(payloads: Sequence[bytes]) -> tuple[bytes, array[int]]:
    """The payloads as one piece, and the n + 1 offsets at which they begin and end."""
    return b"".join(payloads), array("i", chain((0,), accumulate(map(len, payloads))))


def unpack(data: bytes, offsets: Sequence[int]) -> list[bytes]:
    """The payloads between the offsets, the first of which `data` begins with."""
    base = offsets[0]
    if base:
        return [data[start - base : end - base] for start, end in pairwise(offsets)]
    return [data[start:end] for start, end in pairwise(offsets)]


def cuts(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Where to cut a batch, so that no segment has too many messages or bytes.

    Bounded, since a reader of one message may have to read its whole segment.
    """
    start = total = 0
    for index, size in enumerate(sizes):
        if index > start and (index - start == MAX_MESSAGES or total + size > MAX_BYTES):
            yield start, index
            start, total = index, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)
