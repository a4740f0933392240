"""Groups: where they begin, how far they are, moving and removing them."""

from __future__ import annotations

from monarq.clock import SECOND
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import Group, Page, Queue, QueueKind, StartFrom
from monarq.operations.groups import DeleteGroup, ListGroups, Seek
from monarq.store import paging
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database, Work
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.validation import no_groups
from monarq.times import Micros, StartTime

# A procedure for the sake of its settings (see tuning.sql), so that SQLite has SQL of its own.
_TRIES = 10
"""How often a seek makes its group, which others may delete."""
_LIST = "select * from monarq.list_groups($1, $2, $3, $4, $5, $6)"


async def join_queue(database: Database, queue: str, group: str, start: StartFrom | int) -> int:
    began: int = await database.fetchval(
        "select monarq.join_queue($1, $2, $3, $4)",
        database.now(),
        queue,
        group,
        _start_number(database, start),
    )
    return began


async def join_labels(
    database: Database, namespace: str, task: str, group: str, start: StartFrom | int
) -> int:
    began: int = await database.fetchval(
        "select monarq.join_labels($1, $2, $3, $4, $5)",
        database.now(),
        namespace,
        task,
        group,
        _start_number(database, start),
    )
    return began


def _start_number(database: Database, start: StartFrom | int) -> int:
    """As the procedures take it: 0 for the beginning, -1 for now, or a time."""
    if isinstance(start, StartFrom):
        return -1 if start is StartFrom.NEW else 0
    if start > database.clock.now():
        raise InvalidRequestError("subscriptionFrom lies in the future")
    return start


async def subscribe(
    database: Database,
    group: str,
    start: StartFrom | int,
    queue: str | None,
    namespace: str | None,
    task: str | None,
) -> int:
    if queue is not None:
        if (
            await database.fetchval("select kind from monarq.queues where name = $1", queue)
            == "work"
        ):
            raise no_groups(queue)
        return await join_queue(database, queue, group, start)
    return await join_labels(database, namespace or "", task or "", group, start)


@handles(ListGroups)
async def list_groups(tools: Tools, request: ListGroups) -> Page[Group]:
    database = tools.database
    last = paging.position(request.after, "groups", tuple[str, str]) or (None, None)
    rows = await database.fetch(
        _LIST, database.now(), request.queue, request.group, *last, request.limit + 1
    )
    groups = [
        Group(
            name=row["name"],
            queue=row["queue"],
            start_at=StartTime(row["start_at"]),
            created_at=Micros(row["created_at"]),
            lag=row["lag"],
            lag_seconds=max(0, row["age"] or 0) / SECOND,
            completed=row["completed"],
            failed=row["failed"],
            dead=row["dead"],
        )
        for row in rows
    ]
    return paging.page(groups, request.limit, "groups", lambda group: (group.queue, group.name))


@handles(Seek)
async def seek(tools: Tools, request: Seek) -> int:
    database, catalog = tools.database, tools.catalog
    queue = await _find_queue(catalog, request.queue)
    queue_id, partition_id = queue.id, None
    if queue.kind is QueueKind.WORK:
        raise no_groups(queue.name)
    if request.partition is not None:
        partition_id = await find_partition(database, queue_id, request.queue, request.partition)
    group_id = await _find_group(catalog, queue_id, request.group)
    for _ in range(_TRIES):
        if group_id is not None:
            break
        # Again where somebody deletes the group that was made just now.
        await join_queue(
            database, request.queue, request.group, request.start(database.clock.now())
        )
        group_id = await _find_group(catalog, queue_id, request.group)
    if group_id is None:
        queue_id, group_id = await find_place(catalog, request.queue, request.group)
    mode, value = seek_mode(request)
    lag: int = await database.fetchval(
        "select monarq.seek($1, $2, $3, $4, $5, $6)",
        database.now(),
        queue_id,
        group_id,
        partition_id,
        mode,
        value,
    )
    return lag


def seek_mode(request: Seek) -> tuple[str, int]:
    """Where a seek goes, as the procedures take it."""
    if request.to is not None:
        return request.to.value, 0
    if request.time is not None:
        return "time", request.time
    assert request.seq is not None
    return "seq", request.seq


async def find_partition(database: Database, queue_id: int, queue: str, partition: str) -> int:
    partition_id: int | None = await database.fetchval(
        "select id from monarq.partitions where queue_id = $1 and name = $2", queue_id, partition
    )
    if partition_id is None:
        raise NotFoundError(f"queue {queue!r} has no partition {partition!r}")
    return partition_id


@handles(DeleteGroup)
async def delete_group(tools: Tools, request: DeleteGroup) -> int:
    queue_ids = await tools.database.atomically(lambda unit: _delete_group(unit, request))
    for queue_id in queue_ids:
        tools.catalog.forget_group(queue_id, request.group)
    return len(queue_ids)


async def _delete_group(unit: Work, request: DeleteGroup) -> list[int]:
    group, queue = request.group, request.queue
    rows = await unit.fetch(
        "select g.id, g.queue_id from monarq.groups g join monarq.queues q on q.id = g.queue_id "
        "where g.name = $1 and ($2::text is null or q.name = $2) order by g.queue_id",
        group,
        queue,
    )
    for row in rows:
        await unit.fetch(
            "select monarq.delete_group($1, $2, $3)", unit.now(), row["queue_id"], row["id"]
        )
    if request.forget_start:
        await unit.fetch(
            "delete from monarq.subscriptions "
            "where group_name = $1 and ($2::text is null or queue_name = $2)",
            group,
            queue,
        )
    return [row["queue_id"] for row in rows]


async def _find_queue(catalog: Catalog, queue: str) -> Queue:
    """Return a queue, asked for anew: it may have been made again."""
    catalog.forget_queue(queue)
    found = (await catalog.queues([queue])).get(queue)
    if found is None:
        raise NotFoundError(f"there is no queue {queue!r}")
    return found


async def _find_group(catalog: Catalog, queue_id: int, group: str) -> int | None:
    catalog.forget_group(queue_id, group)
    return (await catalog.group_ids([(queue_id, group)])).get((queue_id, group))


async def find_place(catalog: Catalog, queue: str, group: str) -> tuple[int, int]:
    """Ids of a queue and a group in it, asked for anew: they may have been made again."""
    queue_id = (await _find_queue(catalog, queue)).id
    group_id = await _find_group(catalog, queue_id, group)
    if group_id is None:
        raise NotFoundError(f"queue {queue!r} has no group {group!r}")
    return queue_id, group_id
