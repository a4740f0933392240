"""Queues: making and changing them, their counters, pausing, clearing, deleting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from monarq.errors import ConflictError, EncryptionKeyError, InvalidRequestError, NotFoundError
from monarq.model import (
    ConfiguredQueue,
    Page,
    Queue,
    QueueCounts,
    QueueInfo,
    QueueKind,
    QueueOptions,
)
from monarq.operations.queues import (
    ClearQueue,
    Configure,
    DeleteQueue,
    GetQueue,
    ListQueues,
    PauseQueue,
    QueueDeleted,
    QueuePaused,
    ResumeQueue,
)
from monarq.store import paging
from monarq.store.postgres.catalog import QUEUE_COLUMNS, queue_from
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
_COLUMNS = """
    (d.queue).*, d.pending, d.partitions, d.pushed, d.removed, d.completed, d.failed, d.dead,
    d.dead_letters, d.scheduled, d.ready, d.leased, d.done, d.cancelled, d.dead_items
"""
_DESCRIBED = f"select {_COLUMNS} from monarq.describe_queues($1, null, null, null, null) as d"
_LISTED = f"select {_COLUMNS} from monarq.describe_queues(null, $1, $2, $3, $4) as d"


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
    if old is not None:
        return await _update(unit, old, changes)
    made = await _insert(unit, name, new_kind, changes)
    # A push may make the queue, without that lock.
    return made or await _configure(unit, name, kind, changes, commands)


async def _check_dead_queue(
    unit: Work, name: str, kind: QueueKind, sealed: bool, marked: bool, dead_queue: str
) -> None:
    if dead_queue:
        await _check_target(unit, name, kind, sealed, marked, dead_queue)
    # The dead are moved inside the database, which cannot encrypt them.
    if sealed:
        user = await unit.fetchval(
            "select name from monarq.queues where dead_queue = $1 and not encryption_enabled "
            "order by id limit 1",
            name,
        )
        if user is not None:
            raise InvalidRequestError(
                f"queue {name!r} is the deadQueue of {user!r}, which is not encrypted: "
                "switch encryptionEnabled on there first"
            )


async def _check_target(
    unit: Work, name: str, kind: QueueKind, sealed: bool, marked: bool, dead_queue: str
) -> None:
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
    check_dead_queue_of_commands(name, marked, dead_queue, row["runs_commands"])
    if row["dead_queue"]:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} has a deadQueue of its own")
    user = await unit.fetchval(
        "select name from monarq.queues where dead_queue = $1 order by id limit 1", name
    )
    if user is not None:
        raise InvalidRequestError(
            f"queue {name!r} is the deadQueue of {user!r}, so it cannot have one itself"
        )
    if row["encryption_enabled"] and not sealed:
        raise InvalidRequestError(
            f"deadQueue {dead_queue!r} is encrypted, so {name!r} has to be: switch "
            "encryptionEnabled on for it too"
        )


async def _insert(unit: Work, name: str, kind: QueueKind, changes: dict[str, Any]) -> Queue | None:
    """Make a queue; None if somebody else made it meanwhile."""
    values = structs.asdict(QueueOptions()) | {"namespace": "", "task": ""} | changes
    columns = [*_OPTIONS, "namespace", "task"]
    row = await unit.fetchrow(
        f"insert into monarq.queues (name, kind, created_at, {', '.join(columns)}) "
        f"values ($1, $2, monarq.time($3), "
        + ", ".join(f"${number}" for number in range(4, 4 + len(columns)))
        + f") on conflict (name) do nothing returning {QUEUE_COLUMNS}",
        name,
        kind,
        unit.now(),
        *(values[column] for column in columns),
    )
    if row is None:
        return None
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
        raise _no_queue(name)
    return queue_from(row)


def _no_queue(name: str) -> NotFoundError:
    return NotFoundError(f"there is no queue {name!r}")


async def get_queue_of(database: Database, name: str, kind: QueueKind) -> Queue:
    """Return the queue; raise `ConflictError` if it is of the other kind."""
    queue = await get_queue(database, name)
    if queue.kind is not kind:
        raise wrong_kind(queue)
    return queue


# --- with counters -----------------------------------------------------------------------------


@handles(GetQueue)
async def describe_queue(tools: Tools, request: GetQueue) -> QueueInfo:
    found = await describe_queues(tools.database, [request.queue])
    if not found:
        raise _no_queue(request.queue)
    return found[0]


async def describe_queues(database: Database, names: Sequence[str]) -> list[QueueInfo]:
    return [_info_from(row) for row in await database.fetch(_DESCRIBED, list(names))]


@handles(ListQueues)
async def list_queues(tools: Tools, request: ListQueues) -> Page[QueueInfo]:
    after = paging.position(request.after, "queues", str)
    limit = request.limit
    rows = await tools.database.fetch(
        _LISTED, request.namespace, request.task, after or "", limit + 1
    )
    return paging.page([_info_from(row) for row in rows], limit, "queues", lambda row: row.name)


def _info_from(row: Any) -> QueueInfo:
    queue = queue_from(row)
    states: dict[str, int] = {}
    stored = row["pushed"] - row["removed"]
    if queue.kind is QueueKind.WORK:
        states = {state: row[state] for state in ("scheduled", "ready", "leased", "done")}
        states |= {"dead": row["dead_items"], "cancelled": row["cancelled"]}
        stored = sum(states.values())
    return queue.with_counts(
        row["partitions"],
        QueueCounts(
            stored=stored,
            pending=row["pending"],
            pushed=row["pushed"],
            completed=row["completed"],
            failed=row["failed"],
            dead=row["dead"],
            dead_letters=row["dead_letters"],
            states=states,
        ),
    )


# --- pausing, clearing, deleting -----------------------------------------------------------------


@handles(PauseQueue)
async def pause_queue(tools: Tools, request: PauseQueue) -> QueuePaused:
    return await _set_paused(tools, request.queue, True)


@handles(ResumeQueue)
async def resume_queue(tools: Tools, request: ResumeQueue) -> QueuePaused:
    return await _set_paused(tools, request.queue, False)


async def _set_paused(tools: Tools, name: str, paused: bool) -> QueuePaused:
    queue = await get_queue(tools.database, name)
    check_may_work(queue.options.runs_commands, name, tools.commands)
    changed = await tools.database.fetchval(
        f"update monarq.queues set paused = $2, {_NEXT_VERSION} where id = $1 returning id",
        queue.id,
        paused,
    )
    if changed is None:
        raise _no_queue(name)
    tools.catalog.forget_queue(name)
    return QueuePaused(queue=name, paused=paused)


@handles(ClearQueue)
async def clear_queue(tools: Tools, request: ClearQueue) -> int:
    queue = await get_queue(tools.database, request.queue)
    check_may_work(queue.options.runs_commands, queue.name, tools.commands)
    scheduled_only, keep_leased = request.scheduled_only, request.keep_leased
    check_partial_clear(queue, scheduled_only=scheduled_only, keep_leased=keep_leased)
    removed: int = await tools.database.fetchval(
        "select monarq.clear_queue($1, $2, $3, $4)",
        tools.database.now(),
        queue.id,
        scheduled_only,
        keep_leased,
    )
    return removed


@handles(DeleteQueue)
async def delete_queue(tools: Tools, request: DeleteQueue) -> QueueDeleted:
    deleted = await tools.database.atomically(
        lambda unit: _delete(unit, request.queue, tools.commands)
    )
    tools.catalog.forget_all()
    return deleted


async def _delete(unit: Work, name: str, commands: bool) -> QueueDeleted:
    await unit.fetch("select pg_advisory_xact_lock($1)", _CONFIGURING)
    row = await unit.fetchrow(_DESCRIBED, [name])
    if row is None:
        return QueueDeleted(deleted=False, queue=name, messages=0, dead_letters=0)
    found = _info_from(row)
    check_may_work(found.options.runs_commands, name, commands)
    user = await unit.fetchval("select name from monarq.queues where dead_queue = $1", name)
    if user is not None:
        raise ConflictError(f"queue {name!r} is the deadQueue of {user!r}")
    await unit.fetch("select monarq.delete_queue($1)", int(found.id))
    return QueueDeleted(
        deleted=True,
        queue=name,
        messages=found.counts.stored,
        dead_letters=found.counts.dead_letters,
    )
