"""What is known of queues and partitions without asking: a cache that may be wrong.

Procedures check what they are told from it (a queue's version, that a partition exists) and
refuse what is stale; then the caller forgets it here and comes again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from monarq.model import Queue, QueueKind, QueueOptions
from monarq.store.postgres.database import Database

_OPTIONS = QueueOptions.__struct_fields__
_MOST = 200_000
_OPTION_LIST = ", ".join(_OPTIONS)
QUEUE_COLUMNS = f"id, name, kind, namespace, task, paused, version, created_at, {_OPTION_LIST}"


class PartitionFacts(Struct, frozen=True):
    """What never changes about a partition."""

    id: int
    name: str
    queue_id: int
    queue: str
    kind: QueueKind


def queue_from(row: Any) -> Queue:
    return Queue(
        id=row["id"],
        name=row["name"],
        kind=QueueKind(row["kind"]),
        namespace=row["namespace"],
        task=row["task"],
        paused=row["paused"],
        version=row["version"],
        created_at=row["created_at"],
        options=QueueOptions(**{name: row[name] for name in _OPTIONS}),
    )


class Catalog:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._queues: dict[str, Queue] = {}
        self._partition_ids: dict[tuple[int, str], int] = {}
        self._facts: dict[int, PartitionFacts] = {}
        self._group_ids: dict[tuple[int, str], int] = {}

    async def queues(self, names: Iterable[str]) -> dict[str, Queue]:
        """Those of the named queues that exist."""
        wanted = set(names)
        missing = wanted - self._queues.keys()
        if missing:
            _make_room(self._queues)
            rows = await self._database.fetch(
                f"select {QUEUE_COLUMNS} from monarq.queues where name = any($1)", list(missing)
            )
            self._queues.update((row["name"], queue_from(row)) for row in rows)
        return {name: self._queues[name] for name in wanted if name in self._queues}

    async def make_queues(self, labels: Mapping[str, tuple[str, str]]) -> None:
        """Make ordered queues with these labels (namespace, task), unless they exist."""
        defaults = QueueOptions()
        await self._database.fetch(
            f"insert into monarq.queues (name, namespace, task, kind, created_at, {_OPTION_LIST}) "
            "select n.name, n.namespace, n.task, 'ordered', monarq.time($1), "
            + ", ".join(f"${number}" for number in range(5, 5 + len(_OPTIONS)))
            + " from unnest($2::text[], $3::text[], $4::text[]) as n (name, namespace, task) "
            "order by n.name on conflict do nothing",
            self._database.now(),
            list(labels),
            [namespace for namespace, _ in labels.values()],
            [task for _, task in labels.values()],
            *(getattr(defaults, name) for name in _OPTIONS),
        )

    async def partition_ids(self, queue_id: int, names: Iterable[str]) -> dict[str, int]:
        """Ids of partitions, made where they are missing; empty if the queue is gone."""
        wanted = set(names)
        missing = [name for name in wanted if (queue_id, name) not in self._partition_ids]
        if missing:
            _make_room(self._partition_ids)
            rows = await self._database.fetch(
                "select name, id from monarq.ensure_partitions($1, $2, $3)",
                self._database.now(),
                queue_id,
                missing,
            )
            self._partition_ids.update(((queue_id, row["name"]), row["id"]) for row in rows)
        known = self._partition_ids
        return {name: known[queue_id, name] for name in wanted if (queue_id, name) in known}

    async def group_ids(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
        """Ids of those groups (queue id and name) that exist, or did when last asked."""
        keys = set(wanted)
        missing = [key for key in keys if key not in self._group_ids]
        if missing:
            _make_room(self._group_ids)
            rows = await self._database.fetch(
                "select g.queue_id, g.name, g.id from monarq.groups g "
                "join unnest($1::bigint[], $2::text[]) as w (queue_id, name) "
                "on g.queue_id = w.queue_id and g.name = w.name",
                [queue_id for queue_id, _ in missing],
                [name for _, name in missing],
            )
            self._group_ids.update(((row["queue_id"], row["name"]), row["id"]) for row in rows)
        return {key: self._group_ids[key] for key in keys if key in self._group_ids}

    def forget_group(self, queue_id: int, group: str) -> None:
        self._group_ids.pop((queue_id, group), None)

    async def facts(self, partition_ids: Iterable[int]) -> dict[int, PartitionFacts]:
        """What is known of those that exist, or did when this was last asked."""
        wanted = set(partition_ids)
        missing = wanted - self._facts.keys()
        if missing:
            _make_room(self._facts)
            rows = await self._database.fetch(
                "select p.id, p.name, p.queue_id, q.name as queue, q.kind from monarq.partitions p "
                "join monarq.queues q on q.id = p.queue_id where p.id = any($1)",
                list(missing),
            )
            for row in rows:
                self.note(row["id"], row["name"], row["queue_id"], row["queue"], row["kind"])
        return {number: self._facts[number] for number in wanted if number in self._facts}

    def note(self, number: int, name: str, queue_id: int, queue: str, kind: str) -> PartitionFacts:
        facts = self._facts.get(number)
        if facts is None:
            facts = PartitionFacts(number, name, queue_id, queue, QueueKind(kind))
            self._facts[number] = facts
        return facts

    def forget_queue(self, name: str) -> None:
        self._queues.pop(name, None)

    def forget_all(self) -> None:
        self._queues.clear()
        self._partition_ids.clear()
        self._facts.clear()
        self._group_ids.clear()


def _make_room(cache: dict[Any, Any]) -> None:
    if len(cache) > _MOST:
        cache.clear()
