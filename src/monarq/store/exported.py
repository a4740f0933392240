"""The pieces in which a store gives what it is asked to export, see `tables` for the columns.

Knows nothing of Arrow, so that stores need none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

Span: TypeAlias = tuple[int, int, int]
"""A partition's id, and the first and the last seq that are wanted of it."""

MOST_SPANS = 10_000
MOST_ROWS = 100_000
STORED_TABLES = ("deliveries", "dead_letters", "attempts", "metrics", "items")
"""Those that stores export by rows; the others follow from calls that list them."""


class ExportedSegment(NamedTuple):
    """Messages `start` to `end` (from 0, the end not included) of a stored segment.

    `data` and `offsets` are as in `model.Segment`, of the whole segment; None where the columns
    that were asked for do not need them. The lists too are of the whole segment, and None where
    no message has such a value or nobody asked.
    """

    queue: str
    partition: str
    partition_id: int
    first_seq: int
    """Of the stored segment."""
    created_at: int
    start: int
    end: int
    data: bytes | None
    offsets: bytes | None
    transaction_ids: list[str | None] | None
    trace_ids: list[str | None] | None
    producers: list[str | None] | None


class ExportedMessages(NamedTuple):
    segments: list[ExportedSegment]
    next: tuple[int, int] | None = None
    """If it stopped early: in which span, by its index, and with which seq to go on."""


class ExportedRows(NamedTuple):
    rows: list[Any]
    """Tuples of the columns that were asked for, in their order; text may be bytes."""
    next: str | None = None
    """Pass as `after` to go on; None at the end."""


def cut_spans(spans: Iterable[Span], kept: Iterable[Sequence[int]]) -> list[Span]:
    """Cut spans to what is `kept`: partition ids with their first and last seq."""
    bounds = {partition_id: (first, last) for partition_id, first, last in kept}
    found = []
    for partition_id, first, last in spans:
        if partition_id in bounds:
            first_kept, last_kept = bounds[partition_id]
            span = (partition_id, max(first, first_kept), min(last, last_kept))
            if span[1] <= span[2]:
                found.append(span)
    return found
