"""Whole exports, piece by piece: many spans in few calls of the store, and rows page by page.

In memory is one piece at a time, whatever is exported. Needs no Arrow.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from monarq.model import PartitionRange
from monarq.store.contract import Store
from monarq.store.exported import MOST_SPANS, STORED_TABLES, ExportedSegment, Span
from monarq.store.listed_rows import group_rows, queue_rows
from monarq.store.positions import check_columns

MESSAGES_AT_ONCE = 1 << 15
_ROWS_AT_ONCE = 10_000


async def plan_of(
    store: Store, queue: str, created_from: int | None, created_to: int | None
) -> AsyncGenerator[list[PartitionRange]]:
    """All partitions of an ordered queue, in one piece."""
    yield await store.export_plan(queue, created_from=created_from, created_to=created_to)


async def segments_of(
    store: Store,
    spans: Iterable[Sequence[int]],
    columns: Sequence[str],
    *,
    max_bytes: int,
    messages: int = MESSAGES_AT_ONCE,
) -> AsyncGenerator[list[ExportedSegment]]:
    """The segments of all these spans; no piece is empty, nor has many more than so many bytes or
    messages. Messages that are pushed after a span's turn began are left out."""
    async for part in _kept_parts(store, spans, messages):
        left = part
        while left:
            found = await store.export_messages(left, columns, max_bytes=max_bytes)
            if found.segments:
                yield found.segments
            if found.next is None:
                break
            index, seq = found.next
            partition_id, _, last_seq = left[index]
            left = [(partition_id, seq, last_seq)] * (seq <= last_seq) + left[index + 1 :]


async def _kept_parts(
    store: Store, spans: Iterable[Sequence[int]], messages: int
) -> AsyncGenerator[list[Span]]:
    """Parts of what is kept of the spans: a span may be far longer than its partition, and walking
    seqs that do not exist would take for ever."""
    left = iter(spans)
    while some := [(one[0], one[1], one[2]) for one in islice(left, MOST_SPANS)]:
        for part in _parts(await store.kept_spans(some), messages):
            yield part


def _parts(spans: Iterable[Sequence[int]], messages: int) -> Iterator[list[Span]]:
    """So that no part has very many messages: seqs have no holes, so that they can be counted. Of
    many small partitions a part has fewer messages, since each costs something too."""
    part: list[Span] = []
    room, most = messages, messages // 8
    for partition_id, first, last in spans:
        while first <= last:
            end = min(last, first + room - 1)
            part.append((partition_id, first, end))
            room -= end - first + 1
            first = end + 1
            if room == 0 or len(part) == most:
                yield part
                part, room = [], messages
    if part:
        yield part


async def rows_of(
    store: Store,
    table: str,
    columns: Sequence[str],
    *,
    after: str | None = None,
    until: str | None = None,
    queues: Sequence[str] | None = None,
) -> AsyncGenerator[list[Any]]:
    """The rows of any table but `messages`, as tuples; no piece is empty."""
    check_columns(table, columns)
    if table not in STORED_TABLES:
        listed = queue_rows if table == "queues" else group_rows
        async for rows in listed(store, columns, None if queues is None else set(queues)):
            if rows:
                yield rows
        return
    while True:
        found = await store.export_rows(
            table, columns, after=after, until=until, queues=queues, limit=_ROWS_AT_ONCE
        )
        if found.rows:
            yield found.rows
        if found.next is None:
            return
        after = found.next
