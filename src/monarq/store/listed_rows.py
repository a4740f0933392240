"""The tables `queues` and `groups` as rows, from the calls that list them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Any

import msgspec

from monarq.model import Group, QueueCounts, QueueInfo
from monarq.store.contract import Store

_AT_ONCE = 1_000
_OF_COUNTS = frozenset(QueueCounts.__struct_fields__)


async def queue_rows(
    store: Store, columns: Sequence[str], wanted: set[str] | None
) -> AsyncGenerator[list[Any]]:
    """Pieces may be empty."""
    if wanted is not None:
        # What streams ask again and again: whether anything was pushed.
        names = sorted(wanted)
        for start in range(0, len(names), _AT_ONCE):
            queues = await store.describe_queues(names[start : start + _AT_ONCE])
            yield [_queue_row(queue, columns) for queue in queues]
        return
    after = None
    while True:
        page = await store.list_queues(limit=_AT_ONCE, after=after)
        yield [_queue_row(queue, columns) for queue in page.rows]
        if page.next is None:
            return
        after = page.next


def _queue_row(queue: QueueInfo, columns: Sequence[str]) -> tuple[Any, ...]:
    return tuple(_queue_value(queue, column) for column in columns)


def _queue_value(queue: QueueInfo, column: str) -> Any:
    if column == "queue":
        return queue.name
    if column == "options":
        return msgspec.json.encode(queue.options)
    return getattr(queue.counts if column in _OF_COUNTS else queue, column)


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
