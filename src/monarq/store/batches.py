"""Whole exports, piece by piece: many spans in few calls of the store, and rows page by page.

In memory is one piece at a time, whatever is exported. Needs no Arrow.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import Any

import msgspec

from monarq.model import Group, PartitionRange, Queue, QueueStats
from monarq.store.contract import Store
from monarq.store.exported import STORED_TABLES, ExportedSegment, Span
from monarq.store.positions import check_columns

MESSAGES_AT_ONCE = 1 << 15
_SPANS_AT_ONCE = 4_096
_ROWS_AT_ONCE = 10_000
_LISTED_AT_ONCE = 1_000


async def plan_of(store: Store, queue: str) -> AsyncGenerator[list[PartitionRange]]:
    """All partitions of an ordered queue, in one piece."""
    yield await store.export_plan(queue)


async def segments_of(
    store: Store, spans: Sequence[Span], columns: Sequence[str], *, max_bytes: int
) -> AsyncGenerator[list[ExportedSegment]]:
    """The segments of all these spans; no piece is empty."""
    for part in _parts(spans):
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


def _parts(spans: Sequence[Span]) -> Iterator[list[Span]]:
    """So that no part has very many messages: seqs have no holes, so that they can be counted."""
    part: list[Span] = []
    room = MESSAGES_AT_ONCE
    for partition_id, first, last in spans:
        while first <= last:
            end = min(last, first + room - 1)
            part.append((partition_id, first, end))
            room -= end - first + 1
            first = end + 1
            if room == 0 or len(part) == _SPANS_AT_ONCE:
                yield part
                part, room = [], MESSAGES_AT_ONCE
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
        listed = _queue_rows if table == "queues" else _group_rows
        async for rows in listed(store, columns, None if queues is None else set(queues)):
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


async def _queue_rows(
    store: Store, columns: Sequence[str], wanted: set[str] | None
) -> AsyncGenerator[list[Any]]:
    after = None
    while True:
        page = await store.list_queues(limit=_LISTED_AT_ONCE, after=after)
        queues = [queue for queue in page.rows if wanted is None or queue.name in wanted]
        stats = {each.queue: each for each in await store.stats_of([each.name for each in queues])}
        rows = [
            tuple(_QUEUE_COLUMNS[name](queue, stats[queue.name]) for name in columns)
            for queue in queues
            if queue.name in stats
        ]
        if rows:
            yield rows
        if page.next is None:
            return
        after = page.next


async def _group_rows(
    store: Store, columns: Sequence[str], wanted: set[str] | None
) -> AsyncGenerator[list[Any]]:
    after = None
    while True:
        page = await store.list_groups(limit=_LISTED_AT_ONCE, after=after)
        rows = [
            tuple(_group_value(group, name) for name in columns)
            for group in page.rows
            if wanted is None or group.queue in wanted
        ]
        if rows:
            yield rows
        if page.next is None:
            return
        after = page.next


_QUEUE_COLUMNS: dict[str, Callable[[Queue, QueueStats], Any]] = {
    "queue": lambda queue, _: queue.name,
    "kind": lambda queue, _: queue.kind.value,
    "namespace": lambda queue, _: queue.namespace,
    "task": lambda queue, _: queue.task,
    "paused": lambda queue, _: queue.paused,
    "created_at": lambda queue, _: queue.created_at,
    "partitions": lambda _, stats: stats.partitions,
    "pushed": lambda _, stats: stats.pushed,
    "stored": lambda _, stats: stats.stored,
    "pending": lambda _, stats: stats.pending,
    "completed": lambda _, stats: stats.completed,
    "failed": lambda _, stats: stats.failed,
    "dead": lambda _, stats: stats.dead,
    "dead_letters": lambda _, stats: stats.dead_letters,
    "options": lambda queue, _: msgspec.json.encode(queue.options),
}


def _group_value(group: Group, column: str) -> Any:
    return group.name if column == "consumer_group" else getattr(group, column)
