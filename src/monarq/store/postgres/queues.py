"""Queues: making and changing them, their counters, pausing, clearing, deleting."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from monarq.errors import ConflictError, EncryptionKeyError, InvalidRequestError, NotFoundError
from monarq.model import ConfiguredQueue, Page, Queue, QueueKind, QueueOptions, QueueStats
from monarq.operations.queues import Configure
from monarq.store import paging
from monarq.store.postgres.catalog import QUEUE_COLUMNS, Catalog, queue_from
from monarq.store.postgres.database import Database, Work
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.validation import (
    check_dead_queue_of_commands,
    check_mark_of_commands,
    check_may_work,
    check_partial_clear,
    wrong_kind,
)

_CONFIGURING = 0x6D6F6E61727122
_OPTIONS = QueueOptions.__struct_fields__
_TIMED = {
    "retention_enabled",
    "retain_until_archived",
    "retention_seconds",
    "completed_retention_seconds",
    "max_wait_time_seconds",
    "expire_timeout",
}
_DELAYING = {"delayed_processing", "window_buffer"}
_NEXT_VERSION = "version = greatest(version + 1, monarq.time(null))"
_STATS = "select * from monarq.queue_stats($1, $2, $3)"


@handles(Configure)
async def configure(tools: Tools, request: Configure) -> ConfiguredQueue:
    changes = dict(request.options or {})
    if changes.get("encryption_enabled") and tools.cipher is None:
        raise EncryptionKeyError("encryptionEnabled needs a key, and this store was given none")
    labels = {"namespace": request.namespace, "task": request.task}
    changes |= {label: value for label, value in labels.items() if value is not None}
    queue = await tools.database.atomically(
        lambda unit: _configure(unit, request.queue, request.kind, changes, tools.commands)
    )
    tools.catalog.forget_queue(request.queue)
    return queue.configured()


async def _configure(
    unit: Work, name: str, kind: QueueKind | None, changes: dict[str, Any], commands: bool
) -> Queue:
    # Dead-queue rules look at several queues: one change of settings at a time.
    await unit.fetch("select pg_advisory_xact_lock($1)", _CONFIGURING)
    found = await unit.fetchrow(
        f"select {QUEUE_COLUMNS} from monarq.queues where name = $1 for update", name
    )
    old = queue_from(found) if found else None
    if old is not None and kind is not None and kind is not old.kind:
        raise ConflictError(f"queue {name!r} exists, and is of kind {old.kind}, not {kind}")
    new_kind = old.kind if old is not None else kind or QueueKind.ORDERED
    options = old.options if old is not None else QueueOptions()
    marked = changes.get("runs_commands", options.runs_commands)
    check_may_work(options.runs_commands if old is not None else marked, name, commands)
    check_mark_of_commands(
        name,
        new_kind,
        None if old is None else options,
        structs.replace(options, runs_commands=marked),
    )
    if "dead_queue" in changes or "encryption_enabled" in changes:
        sealed = changes.get("encryption_enabled", options.encryption_enabled)
        dead_queue = changes.get("dead_queue", options.dead_queue)
        await _check_dead_queue(unit, name, new_kind, sealed, marked, dead_queue)
    if old is None:
        return await _insert(unit, name, new_kind, changes)
    return await _update(unit, old, changes)


async def _check_dead_queue(
    unit: Work, name: str, kind: QueueKind, sealed: bool, marked: bool, dead_queue: str
) -> None:
    # The dead are moved inside the database, which cannot encrypt them.
    if sealed:
        user = await unit.fetchval(
            "select name from monarq.queues where dead_queue = $1 and not encryption_enabled", name
        )
        if user is not None:
            raise InvalidRequestError(
                f"queue {name!r} is the deadQueue of {user!r}, which is not encrypted: "
                "switch encryptionEnabled on there first"
            )
    if not dead_queue:
        return
    if dead_queue == name:
        raise InvalidRequestError(f"queue {name!r} cannot be its own deadQueue")
    row = await unit.fetchrow(
        "select kind, dead_queue, encryption_enabled, runs_commands from monarq.queues "
        "where name = $1",
        dead_queue,
    )
    if row is None:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} does not exist: make it first")
    if row["kind"] != kind:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} is of kind {row['kind']}, not {kind}")
    if row["encryption_enabled"] and not sealed:
        raise InvalidRequestError(
            f"deadQueue {dead_queue!r} is encrypted, so {name!r} has to be: switch "
            "encryptionEnabled on for it too"
        )
    check_dead_queue_of_commands(name, marked, dead_queue, row["runs_commands"])
    if row["dead_queue"]:
        raise InvalidRequestError(
            f"deadQueue {dead_queue!r} has a deadQueue of its own ({row['dead_queue']!r})"
        )
    user = await unit.fetchval("select name from monarq.queues where dead_queue = $1", name)
    if user is not None:
        raise InvalidRequestError(
            f"queue {name!r} is the deadQueue of {user!r}, so it cannot have one itself"
        )


async def _insert(unit: Work, name: str, kind: QueueKind, changes: dict[str, Any]) -> Queue:
    values = structs.asdict(QueueOptions()) | {"namespace": "", "task": ""} | changes
    columns = [*_OPTIONS, "namespace", "task"]
    row = await unit.fetchrow(
        f"insert into monarq.queues (name, kind, created_at, {', '.join(columns)}) "
        f"values ($1, $2, monarq.time($3), "
        + ", ".join(f"${number}" for number in range(4, 4 + len(columns)))
        + f") returning {QUEUE_COLUMNS}",
        name,
        kind,
        unit.now(),
        *(values[column] for column in columns),
    )
    queue = queue_from(row)
    await unit.fetch("select monarq.join_new_queue($1, $2)", unit.now(), queue.id)
    return queue


async def _update(unit: Work, old: Queue, changes: dict[str, Any]) -> Queue:
    if not changes:
        return old
    assignments = ", ".join(f"{column} = ${number}" for number, column in enumerate(changes, 2))
    row = await unit.fetchrow(
        f"update monarq.queues set {_NEXT_VERSION}, {assignments} where id = $1 "
        f"returning {QUEUE_COLUMNS}",
        old.id,
        *changes.values(),
    )
    if changes.keys() & _TIMED:
        await unit.fetch(
            "update monarq.partitions set check_at = monarq.time($2) where queue_id = $1",
            old.id,
            unit.now(),
        )
    if changes.keys() & _DELAYING:
        # Partitions that wait for the old delay: the next pop finds out when they are due.
        await unit.fetch(
            "update monarq.cursors c set available_at = monarq.time($2) from monarq.groups g "
            "where g.queue_id = $1 and c.group_id = g.id and c.lease_no is null "
            "and c.available_at > monarq.time($2)",
            old.id,
            unit.now(),
        )
    return queue_from(row)


async def get_queue(database: Database, name: str) -> Queue:
    row = await database.fetchrow(
        f"select {QUEUE_COLUMNS} from monarq.queues where name = $1", name
    )
    if row is None:
        raise NotFoundError(f"there is no queue {name!r}")
    return queue_from(row)


async def get_queue_of(database: Database, name: str, kind: QueueKind) -> Queue:
    """The queue, which has to be of this kind."""
    queue = await get_queue(database, name)
    if queue.kind is not kind:
        raise wrong_kind(queue)
    return queue


async def list_queues(
    database: Database, namespace: str | None, task: str | None, limit: int, after: str | None
) -> Page[Queue]:
    rows = await database.fetch(
        f"select {QUEUE_COLUMNS} from monarq.queues "
        "where ($1::text is null or namespace = $1) and ($2::text is null or task = $2) "
        "and ($3::text is null or name > $3) order by name limit $4",
        namespace,
        task,
        paging.position(after, "queues", str),
        limit + 1,
    )
    return paging.page([queue_from(row) for row in rows], limit, "queues", lambda q: q.name)


async def delete_queue(database: Database, catalog: Catalog, name: str, *, commands: bool) -> bool:
    found = await database.atomically(lambda unit: _delete(unit, name, commands))
    catalog.forget_all()
    return found


async def _delete(unit: Work, name: str, commands: bool) -> bool:
    await unit.fetch("select pg_advisory_xact_lock($1)", _CONFIGURING)
    found = await unit.fetchrow("select id, runs_commands from monarq.queues where name = $1", name)
    if found is None:
        return False
    check_may_work(found["runs_commands"], name, commands)
    user = await unit.fetchval("select name from monarq.queues where dead_queue = $1", name)
    if user is not None:
        raise ConflictError(f"queue {name!r} is the deadQueue of {user!r}")
    await unit.fetch("select monarq.delete_queue($1)", found["id"])
    return True


async def clear_queue(
    database: Database, name: str, scheduled_only: bool, keep_leased: bool, *, commands: bool
) -> int:
    queue = await get_queue(database, name)
    check_may_work(queue.options.runs_commands, name, commands)
    check_partial_clear(queue, scheduled_only=scheduled_only, keep_leased=keep_leased)
    removed: int = await database.fetchval(
        "select monarq.clear_queue($1, $2, $3, $4)",
        database.now(),
        queue.id,
        scheduled_only,
        keep_leased,
    )
    return removed


async def set_paused(
    database: Database, catalog: Catalog, name: str, paused: bool, *, commands: bool
) -> Queue:
    queue = await get_queue(database, name)
    check_may_work(queue.options.runs_commands, name, commands)
    row = await database.fetchrow(
        f"update monarq.queues set paused = $2, {_NEXT_VERSION} where id = $1 "
        f"returning {QUEUE_COLUMNS}",
        queue.id,
        paused,
    )
    if row is None:
        raise NotFoundError(f"there is no queue {name!r}")
    catalog.forget_queue(name)
    return queue_from(row)


async def queue_stats(
    database: Database, queue: str | None, limit: int, after: str | None
) -> Page[QueueStats]:
    last = paging.position(after, "queues", str)
    rows = await database.fetch(_STATS, queue, last, limit + 1)
    if queue is not None and not rows and after is None:
        raise NotFoundError(f"there is no queue {queue!r}")
    stats = [stats_from(row) for row in rows]
    return paging.page(stats, limit, "queues", lambda one: one.queue)


def stats_from(row: Any) -> QueueStats:
    states: dict[str, int] = {}
    stored = row["pushed"] - row["removed"]
    if row["kind"] == QueueKind.WORK:
        states = {
            state: row[state] for state in ("scheduled", "ready", "leased", "done", "cancelled")
        }
        states["dead"] = row["dead_items"]
        stored = sum(states.values())
    return QueueStats(
        queue=row["name"],
        kind=QueueKind(row["kind"]),
        partitions=row["partitions"],
        pushed=row["pushed"],
        stored=stored,
        pending=row["pending"],
        completed=row["completed"],
        failed=row["failed"],
        dead=row["dead"],
        dead_letters=row["dead_letters"],
        states=states,
    )
