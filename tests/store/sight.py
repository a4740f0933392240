"""All that can be seen of a store, read in one go."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from monarq.model import (
    Cursor,
    DeadLetter,
    DeadLetterFilter,
    Group,
    Item,
    LoggedAttempt,
    PartitionRange,
    QueueCounts,
    QueueFlow,
    QueueInfo,
    QueueKind,
    StoredMessage,
)
from monarq.store import Store
from tests.store.calls import next_items
from tests.store.scenarios import every


@dataclass
class Sight:
    queues: list[QueueInfo]
    flows: list[QueueFlow] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    dead_letters: list[DeadLetter] = field(default_factory=list)

    # By queue, and by queue and group.
    plans: dict[str, list[PartitionRange]] = field(default_factory=dict)
    messages: dict[str, list[StoredMessage]] = field(default_factory=dict)
    cursors: dict[tuple[str, str], list[Cursor]] = field(default_factory=dict)
    items: dict[str, list[Item]] = field(default_factory=dict)
    next_items: dict[str, list[Item]] = field(default_factory=dict)
    attempts: dict[str, list[LoggedAttempt]] = field(default_factory=dict)


async def look(store: Store) -> Sight:
    sight = Sight(await every(store.list_queues))
    sight.groups = await every(store.list_groups)
    reads: list[Awaitable[None]] = []

    async def read(into: dict[Any, Any], key: Any, rows: Awaitable[Any]) -> None:
        into[key] = await rows

    async def read_all(name: str, call: Callable[..., Awaitable[Any]], *args: Any) -> None:
        setattr(sight, name, await every(call, *args))

    reads.append(read_all("flows", store.queue_flows))
    reads.append(read_all("dead_letters", store.list_dead_letters, DeadLetterFilter()))
    for queue in sight.queues:
        name = queue.name
        if queue.kind is QueueKind.WORK:
            reads.append(read(sight.items, name, every(store.list_items, name)))
            reads.append(read(sight.next_items, name, next_items(store, name, 1000)))
            reads.append(read(sight.attempts, name, every(store.list_attempts, queue=name)))
        else:
            reads.append(read(sight.plans, name, store.export_plan(name)))
            reads.append(read(sight.messages, name, every(store.list_messages, name)))
    for group in sight.groups:
        key = (group.queue, group.name)
        reads.append(read(sight.cursors, key, every(store.list_cursors, *key)))
    await asyncio.gather(*reads)
    return sight


def described(queue: QueueFlow | QueueInfo) -> tuple[Any, ...]:
    """What `queue_flows` and `list_queues` both tell of a queue."""
    if isinstance(queue, QueueFlow):
        name, counts = queue.queue, queue
    else:
        name, counts = queue.name, queue.counts
    labels = (queue.kind, queue.namespace, queue.task, queue.paused, queue.partitions)
    return (name, *labels, *(getattr(counts, field) for field in QueueCounts.__struct_fields__))
