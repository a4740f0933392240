"""The tables `queues` and `groups` as rows, from the calls that list them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from monarq.model import Group, Queue, QueueStats
from monarq.store.contract import Store

_AT_ONCE = 1_000
_OF_STATS = frozenset(QueueStats.__struct_fields__)
_OF_QUEUE = frozenset(("queue", "kind", "namespace", "task", "paused", "created_at", "options"))


async def queue_rows(
    store: Store, columns: Sequence[str], wanted: set[str] | None
) -> AsyncGenerator[list[Any]]:
    """Pieces may be empty."""
    if wanted is not None and _OF_STATS.issuperset(columns):
        # What streams ask again and again: whether anything was pushed.
        names = sorted(wanted)
        for start in range(0, len(names), _AT_ONCE):
            stats = await store.stats_of(names[start : start + _AT_ONCE])
            yield [tuple(getattr(one, column) for column in columns) for one in stats]
        return
    needs_stats = not _OF_QUEUE.issuperset(columns)
    after = None
    while True:
        page = await store.list_queues(limit=_AT_ONCE, after=after)
        queues = [queue for queue in page.rows if wanted is None or queue.name in wanted]
        names = [queue.name for queue in queues] if needs_stats else []
        stats_of = {one.queue: one for one in await store.stats_of(names)} if names else {}
        yield [
            tuple(_queue_value(queue, stats_of.get(queue.name), column) for column in columns)
            for queue in queues
            if queue.name in stats_of or not needs_stats
        ]
        if page.next is None:
            return
        after = page.next


def _queue_value(queue: Queue, stats: QueueStats | None, column: str) -> Any:
    if column == "queue":
        return queue.name
    if column == "options":
        return msgspec.json.encode(queue.options)
    return getattr(queue if column in _OF_QUEUE else stats, column)


async def group_rows(
    store: Store, columns: Sequence[str], wanted: set[str] | None
) -> AsyncGenerator[list[Any]]:
    """Pieces may be empty."""
    after = None
    while True:
        page = await store.list_groups(limit=_AT_ONCE, after=after)
        yield [
            tuple(_group_value(group, column) for column in columns)
            for group in page.rows
            if wanted is None or group.queue in wanted
        ]
        if page.next is None:
            return
        after = page.next


def _group_value(group: Group, column: str) -> Any:
    return group.name if column == "consumer_group" else getattr(group, column)
