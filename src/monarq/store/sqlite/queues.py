"""Queues: making, changing, listing, clearing and deleting them, and their stats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from monarq.errors import ConflictError, EncryptionKeyError, InvalidRequestError
from monarq.model import (
    ConfiguredQueue,
    ItemState,
    Page,
    Queue,
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
from monarq.store import paging, validation
from monarq.store.sqlite import groups, joining
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.queue_rows import (
    OPTION_COLUMNS,
    SELECT,
    insert_queue,
    option_values,
    to_queue,
)
from monarq.store.sqlite.session import Session

_UPDATE = f"""
update queues set namespace = ?, task = ?, version = version + 1,
    {", ".join(f"{column} = ?" for column in OPTION_COLUMNS)}
where id = ?
"""
# Everything that belongs to a queue or to its partitions.
_OF_QUEUE = ("dead_letters", "deliveries", "attempts", "metrics", "groups")
_OF_PARTITION = (
    "cursors", "ended_leases", "unresolved", "segments", "transaction_ids", "items",
)  # fmt: skip


def make_queue(
    session: Session,
    name: str,
    kind: QueueKind,
    namespace: str,
    task: str,
    options: QueueOptions,
) -> Queue:
    insert_queue(session.db, name, kind, namespace, task, session.now, options)
    queue = session.queue(name)
    session.counters.begin(queue.id)
    if kind is QueueKind.ORDERED:
        joining.join_new_queue(session, queue)
    return queue


@handles(Configure)
def configure(session: Session, request: Configure) -> ConfiguredQueue:
    return _configure(session, request, request.options or {}).configured()


def _configure(session: Session, request: Configure, options: Mapping[str, Any]) -> Queue:
    name, kind = request.queue, request.kind
    queue = session.find_queue(name)
    if queue is not None and kind not in (None, queue.kind):
        raise ConflictError(f"queue {name!r} exists, and is of kind {queue.kind}, not {kind}")
    if options.get("encryption_enabled") and session.cipher is None:
        raise EncryptionKeyError("encryptionEnabled needs a key, and this store was given none")
    if queue is None:
        chosen = replace(QueueOptions(), **options)
        validation.check_may_work(chosen.runs_commands, name, session.commands)
        kind = kind or QueueKind.ORDERED
        _check_dead_queue(session, name, kind, chosen)
        _check_sealing(session, name, chosen)
        validation.check_mark_of_commands(name, kind, None, chosen)
        return make_queue(session, name, kind, request.namespace or "", request.task or "", chosen)
    validation.check_may_work(queue.options.runs_commands, name, session.commands)
    changed = replace(queue.options, **options)
    validation.check_mark_of_commands(name, queue.kind, queue.options, changed)
    if changed.dead_queue != queue.options.dead_queue:
        _check_dead_queue(session, name, queue.kind, changed)
    _check_sealing(session, name, changed)
    if not options.keys().isdisjoint(("delayed_processing", "window_buffer")):
        _stop_waiting(session, queue)
    labels = (
        queue.namespace if request.namespace is None else request.namespace,
        queue.task if request.task is None else request.task,
    )
    if changed == queue.options and labels == (queue.namespace, queue.task):
        return queue
    session.db.execute(_UPDATE, (*labels, *option_values(changed), queue.id))
    session.forget_queues()
    if queue.kind is QueueKind.ORDERED:
        # Retention and eviction may be due at other times now.
        session.db.execute(
            "update partitions set check_at = ? where queue_id = ? and emptied_at is null",
            (session.now, queue.id),
        )
    return session.queue(name)


def _stop_waiting(session: Session, queue: Queue) -> None:
    """Partitions may wait for a delay that does not hold any more: the next pop finds out."""
    session.db.execute(
        """update cursors set available_at = :now
        where partition_id in (select id from partitions where queue_id = :queue)
            and available_at > :now and lease_until is null""",
        {"now": session.now, "queue": queue.id},
    )


def _check_dead_queue(session: Session, name: str, kind: QueueKind, options: QueueOptions) -> None:
    dead_queue = options.dead_queue
    if not dead_queue:
        return
    if dead_queue == name:
        raise InvalidRequestError(f"queue {name!r} cannot be its own deadQueue")
    target = session.find_queue(dead_queue)
    if target is None:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} does not exist: make it first")
    if target.kind is not kind:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} is of kind {target.kind}, not {kind}")
    validation.check_dead_queue_of_commands(
        name, options.runs_commands, dead_queue, target.options.runs_commands
    )
    if target.options.dead_queue:
        raise InvalidRequestError(f"deadQueue {dead_queue!r} has a deadQueue of its own")
    if (user := _user_of_dead_queue(session, name)) is not None:
        raise InvalidRequestError(
            f"queue {name!r} is the deadQueue of {user!r}, so it cannot have one itself"
        )


def _check_sealing(session: Session, name: str, options: QueueOptions) -> None:
    """What dies in the clear may not end in a queue that promises encryption."""
    dead_queue = session.find_queue(options.dead_queue) if options.dead_queue else None
    if dead_queue and dead_queue.options.encryption_enabled and not options.encryption_enabled:
        raise InvalidRequestError(
            f"deadQueue {dead_queue.name!r} is encrypted, so {name!r} has to be: switch "
            "encryptionEnabled on for it too"
        )
    if not options.encryption_enabled:
        return
    if (user := _user_of_dead_queue(session, name, "and not encryption_enabled")) is not None:
        raise InvalidRequestError(
            f"queue {name!r} is the deadQueue of {user!r}, which is not encrypted: "
            "switch encryptionEnabled on there first"
        )


def _user_of_dead_queue(session: Session, name: str, condition: str = "") -> str | None:
    row = session.db.execute(
        f"""select name from queues where dead_queue = ? and dead_queue <> '' {condition}
        order by id limit 1""",
        (name,),
    ).fetchone()
    return None if row is None else row[0]


@handles(GetQueue)
def get_queue(session: Session, request: GetQueue) -> QueueInfo:
    return session.counters.describe(session.queue(request.queue))


@handles(ListQueues)
def list_queues(session: Session, request: ListQueues) -> Page[QueueInfo]:
    name = paging.position(request.after, "queues", str)
    rows = session.db.execute(
        f"""{SELECT} where name > :name and (:namespace is null or namespace = :namespace)
            and (:task is null or task = :task)
        order by name limit :limit""",
        {
            "name": name or "",
            "namespace": request.namespace,
            "task": request.task,
            "limit": request.limit + 1,
        },
    )
    queues = paging.page(
        [to_queue(row) for row in rows], request.limit, "queues", lambda queue: queue.name
    )
    return Page([session.counters.describe(queue) for queue in queues.rows], queues.next)


def describe_queues(session: Session, names: Sequence[str]) -> list[QueueInfo]:
    found = (session.find_queue(name) for name in names)
    return [session.counters.describe(queue) for queue in found if queue is not None]


@handles(PauseQueue)
def pause_queue(session: Session, request: PauseQueue) -> QueuePaused:
    return _set_paused(session, request.queue, True)


@handles(ResumeQueue)
def resume_queue(session: Session, request: ResumeQueue) -> QueuePaused:
    return _set_paused(session, request.queue, False)


def _set_paused(session: Session, name: str, paused: bool) -> QueuePaused:
    queue = session.queue(name)
    validation.check_may_work(queue.options.runs_commands, name, session.commands)
    if queue.paused is not paused:
        session.db.execute(
            "update queues set paused = ?, version = version + 1 where id = ?",
            (paused, queue.id),
        )
        session.forget_queues()
    return QueuePaused(queue=name, paused=paused)


@handles(DeleteQueue)
def delete_queue(session: Session, request: DeleteQueue) -> QueueDeleted:
    name = request.queue
    queue = session.find_queue(name)
    if queue is None:
        return QueueDeleted(deleted=False, queue=name, messages=0, dead_letters=0)
    validation.check_may_work(queue.options.runs_commands, name, session.commands)
    if (user := _user_of_dead_queue(session, name)) is not None:
        raise ConflictError(f"queue {name!r} is the deadQueue of {user!r}")
    lost = session.counters.describe(queue).counts
    for table in _OF_PARTITION:
        session.db.execute(
            f"""delete from {table}
            where partition_id in (select id from partitions where queue_id = ?)""",
            (queue.id,),
        )
    for table in (*_OF_QUEUE, "partitions"):
        session.db.execute(f"delete from {table} where queue_id = ?", (queue.id,))
    session.db.execute("delete from subscriptions where queue_name = ?", (name,))
    session.db.execute("delete from queues where id = ?", (queue.id,))
    session.counters.forget_queue(queue.id)
    session.forget_queues()
    return QueueDeleted(
        deleted=True, queue=name, messages=lost.stored, dead_letters=lost.dead_letters
    )


@handles(ClearQueue)
def clear_queue(session: Session, request: ClearQueue) -> int:
    queue = session.queue(request.queue)
    validation.check_may_work(queue.options.runs_commands, queue.name, session.commands)
    validation.check_partial_clear(
        queue, scheduled_only=request.scheduled_only, keep_leased=request.keep_leased
    )
    if request.scheduled_only or request.keep_leased:
        return _clear_some_items(session, queue, request.scheduled_only)
    own = session.counters.read(queue.id)
    # Dead items are dead letters too, and stay with those.
    stored = own["pushed"] - own["removed"] - own["dead_items"]
    arguments = {"queue": queue.id, "now": session.now, "moved": MOVED}
    is_work = queue.kind is QueueKind.WORK
    for statement in _CLEAR_ITEMS if is_work else _CLEAR_MESSAGES:
        session.db.execute(statement, arguments)
    session.counters.add(queue.id, removed=stored)
    if is_work:
        for state, count in session.counters.describe(queue).counts.states.items():
            if state != ItemState.DEAD:
                session.counters.move(queue.id, state, None, count)
    else:
        groups.count_positions(session, queue)
    return stored


def _clear_some_items(session: Session, queue: Queue, scheduled_only: bool) -> int:
    """Remove the scheduled items, or all items without a live lease."""
    which = _SCHEDULED if scheduled_only else _WITHOUT_LEASE
    arguments = {"queue": queue.id, "now": session.now}
    counts = session.db.execute(
        f"select i.state, count(*) {_ITEMS_OF_QUEUE} and {which} group by i.state", arguments
    ).fetchall()
    session.db.execute(
        f"""delete from transaction_ids where (partition_id, seq) in (
            select i.partition_id, i.seq {_ITEMS_OF_QUEUE} and {which})""",
        arguments,
    )
    session.db.execute(
        f"""delete from items where (partition_id, seq) in (
            select i.partition_id, i.seq {_ITEMS_OF_QUEUE} and {which})""",
        arguments,
    )
    session.db.execute(_ORPHAN_ATTEMPTS, arguments)
    removed = 0
    for state, count in counts:
        session.counters.move(queue.id, state, None, count)
        removed += count
    session.counters.add(queue.id, removed=removed)
    return removed


_ITEMS_OF_QUEUE = """
    from items i where i.partition_id in (select id from partitions where queue_id = :queue)
"""
_SCHEDULED = "i.state = 'scheduled'"
_WITHOUT_LEASE = "i.state <> 'dead' and not (i.state = 'leased' and i.due_at > :now)"
_ORPHAN_ATTEMPTS = """
    update attempts set orphaned = 1 where queue_id = :queue and not exists (
        select 1 from items i where i.partition_id = attempts.partition_id
            and i.seq = attempts.seq)
"""
_CLEAR_MESSAGES = (
    """delete from segments
    where partition_id in (select id from partitions where queue_id = :queue)""",
    """delete from transaction_ids
    where partition_id in (select id from partitions where queue_id = :queue)""",
    """delete from unresolved
    where partition_id in (select id from partitions where queue_id = :queue)""",
    """update partitions set first_seq = last_seq + 1, held = 0,
        emptied_at = coalesce(emptied_at, :now), check_at = coalesce(emptied_at, :now)
    where queue_id = :queue""",
    """update cursors set position = p.last_seq, available_at = null, has_unresolved = 0,
        ended_by = case when lease_until is null then ended_by else :moved end,
        lost_before_no = case when lease_until is null then lost_before_no
            else lost_lease_no end,
        lost_lease_no = case when lease_until is null then lost_lease_no
            else max(lost_lease_no, lease_no) end,
        lease_until = null
    from (select id, last_seq from partitions where queue_id = :queue) as p
    where cursors.partition_id = p.id""",
)
_CLEAR_ITEMS = (
    """delete from transaction_ids
    where partition_id in (select id from partitions where queue_id = :queue)
        and not exists (select 1 from items i where i.partition_id = transaction_ids.partition_id
            and i.seq = transaction_ids.seq and i.state = 'dead')""",
    """delete from items
    where partition_id in (select id from partitions where queue_id = :queue)
        and state <> 'dead'""",
    _ORPHAN_ATTEMPTS,
)
