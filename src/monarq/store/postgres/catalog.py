"""What is known of queues and partitions without asking: a cache that may be wrong.

Procedures check what they are told from it (a queue's version, a partition's queue and name) and
refuse what is stale; then the caller forgets it here and comes again. The numbers of queues and
groups are never another one's, nor a version another change's, not even when the database was set
back to a backup.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, TypeVar

from msgspec import Struct

from monarq.model import Queue, QueueKind, QueueOptions
from monarq.store.postgres.database import Database, Work
from monarq.store.postgres.delivered_ids import DeliveredIds
from monarq.store.postgres.pushed_segments import PushedSegments
from monarq.store.validation import check_may_work

K = TypeVar("K")
V = TypeVar("V")
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
    runs_commands: bool


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
    def __init__(self, database: Database | Work) -> None:
        self._database = database
        self._queues: dict[str, Queue] = {}
        self._partition_ids: dict[int, dict[str, int]] = {}
        self._partition_count = 0
        self._facts: dict[int, PartitionFacts] = {}
        self._group_ids: dict[tuple[int, str], int] = {}
        self.delivered = DeliveredIds()
        self.pushed = PushedSegments()

    # Inside a transaction its own connection has to be used: the pool may be waiting for it.
    # What it sees may come to nothing, so it is not kept.

    async def queues(self, names: Iterable[str], unit: Work | None = None) -> dict[str, Queue]:
        """Those of the named queues that exist."""
        wanted = set(names)
        known = {name: self._queues[name] for name in wanted if name in self._queues}
        missing = wanted - known.keys()
        if missing:
            rows = await (unit or self._database).fetch(
                f"select {QUEUE_COLUMNS} from monarq.find_queues($1)", list(missing)
            )
            found = {row["name"]: queue_from(row) for row in rows}
            known |= found
            if unit is None:
                _keep(self._queues, found)
        return known

    async def partition_ids(
        self, queue_id: int, names: Collection[str], unit: Work | None = None
    ) -> dict[str, int]:
        """Ids of those partitions that exist."""
        ids = self._partition_ids.get(queue_id, {})
        known = {name: ids[name] for name in names if name in ids}
        if len(known) < len(names):
            missing = [name for name in names if name not in known]
            rows = await (unit or self._database).fetch(
                "select * from monarq.find_partitions($1, $2)", queue_id, missing
            )
            known |= {row["name"]: row["id"] for row in rows}
            if unit is None:
                self._keep_partitions(queue_id, rows)
        return known

    def _keep_partitions(self, queue_id: int, rows: list[Any]) -> None:
        self._partition_count += len(rows)
        if self._partition_count > _MOST:
            self._partition_ids.clear()
            self._partition_count = len(rows)
        ids = self._partition_ids.setdefault(queue_id, {})
        ids.update((row["name"], row["id"]) for row in rows)

    async def group_ids(self, wanted: Iterable[tuple[int, str]]) -> dict[tuple[int, str], int]:
        """Ids of those groups (queue id and name) that exist, or did when last asked."""
        keys = set(wanted)
        missing = [key for key in keys if key not in self._group_ids]
        if missing:
            rows = await self._database.fetch(
                "select * from monarq.find_groups($1, $2)",
                [queue_id for queue_id, _ in missing],
                [name for _, name in missing],
            )
            _keep(self._group_ids, {(row["queue_id"], row["name"]): row["id"] for row in rows})
        return {key: self._group_ids[key] for key in keys if key in self._group_ids}

    def forget_group(self, queue_id: int, group: str) -> None:
        self._group_ids.pop((queue_id, group), None)

    async def facts(
        self, partition_ids: Iterable[int], unit: Work | None = None
    ) -> dict[int, PartitionFacts]:
        """What is known of those that exist, or did when this was last asked."""
        wanted = set(partition_ids)
        known = {number: self._facts[number] for number in wanted if number in self._facts}
        missing = wanted - known.keys()
        if missing:
            rows = await (unit or self._database).fetch(
                "select * from monarq.partition_facts($1)", list(missing)
            )
            found = {
                row["id"]: PartitionFacts(
                    row["id"],
                    row["name"],
                    row["queue_id"],
                    row["queue"],
                    QueueKind(row["kind"]),
                    row["runs_commands"],
                )
                for row in rows
            }
            known |= found
            if unit is None:
                _keep(self._facts, found)
        return known

    async def check_may_work(self, partition_id: int, commands: bool) -> None:
        """Raise `ForbiddenError` if the caller may not work on the items of this partition."""
        if commands:
            return
        for facts in (await self.facts([partition_id])).values():
            check_may_work(facts.runs_commands, facts.queue, commands)

    def known_facts(self, partition_id: int) -> PartitionFacts | None:
        """Without asking anybody."""
        return self._facts.get(partition_id)

    def learn_partition(self, partition_id: int, name: str, queue: Queue) -> None:
        """Keep what a pop has said anyway, so that its ack need not ask."""
        known = self._facts.get(partition_id)
        if known is None or known.queue_id != queue.id or known.name != name:
            runs_commands = queue.options.runs_commands
            facts = PartitionFacts(
                partition_id, name, queue.id, queue.name, queue.kind, runs_commands
            )
            _keep(self._facts, {partition_id: facts})

    def forget_queue(self, name: str) -> None:
        self._queues.pop(name, None)

    def forget_all(self) -> None:
        self._queues.clear()
        self._partition_ids.clear()
        self._partition_count = 0
        self._facts.clear()
        self._group_ids.clear()
        self.delivered = DeliveredIds()


def _keep(cache: dict[K, V], found: dict[K, V]) -> None:
    if len(cache) > _MOST:
        cache.clear()
    cache.update(found)


async def make_queues(unit: Work, labels: Mapping[str, tuple[str, str]]) -> dict[str, Queue]:
    """Make ordered queues with these labels (namespace, task), unless they exist."""
    defaults = QueueOptions()
    made = await unit.fetch(
        f"insert into monarq.queues (name, namespace, task, kind, created_at, {_OPTION_LIST}) "
        "select n.name, n.namespace, n.task, 'ordered', monarq.time($1), "
        + ", ".join(f"${number}" for number in range(5, 5 + len(_OPTIONS)))
        + " from unnest($2::text[], $3::text[], $4::text[]) as n (name, namespace, task) "
        "order by n.name on conflict do nothing returning id",
        unit.now(),
        list(labels),
        [namespace for namespace, _ in labels.values()],
        [task for _, task in labels.values()],
        *(getattr(defaults, name) for name in _OPTIONS),
    )
    for row in made:
        await unit.fetch("select monarq.join_new_queue($1, $2)", unit.now(), row["id"])
    rows = await unit.fetch(
        f"select {QUEUE_COLUMNS} from monarq.queues where name = any($1)", list(labels)
    )
    return {row["name"]: queue_from(row) for row in rows}


async def make_partitions(unit: Work, queue_id: int, names: Iterable[str]) -> dict[str, int]:
    """Make the partitions that are missing; empty if the queue is gone."""
    rows = await unit.fetch(
        "select name, id from monarq.ensure_partitions($1, $2, $3)",
        unit.now(),
        queue_id,
        list(names),
    )
    return {row["name"]: row["id"] for row in rows}
