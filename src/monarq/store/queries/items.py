"""Items of work queues and their attempts, on both engines.

Each engine has its own SQL for a page of items in a state, since it has other indexes of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Raw, structs

from monarq.errors import NotFoundError
from monarq.ids import NumberText, message_id, parse_message_id
from monarq.model import (
    DEFAULT_PARTITION,
    Attempt,
    AttemptOutcome,
    Item,
    ItemDetail,
    ItemState,
    LoggedAttempt,
    Page,
)
from monarq.operations.items import ListItems
from monarq.store import kept_messages, paging, sealing
from monarq.store.collecting import MAX_BYTES
from monarq.store.queries.database import Queries, find_queue
from monarq.store.validation import check_item_id
from monarq.times import Micros, micros_or_none

_PARTITION = "(select id from monarq.partitions where queue_id = $1)"
"""The one that a work queue has."""
_ONE = "select * from monarq.items i where i.partition_id = $1 and i.seq = "
_OF_MESSAGE = """
(select seq from monarq.transaction_ids where partition_id = {partition} and transaction_id = $2)
"""
_WITH_TRANSACTION_ID = f"""
select * from monarq.items i where i.partition_id = {_PARTITION} and i.seq = coalesce(
    {_OF_MESSAGE.format(partition=_PARTITION)},
    (select cast($4 as bigint) where cast($3 as bigint) = {_PARTITION}))
"""


def first_items(condition: str, order: str) -> str:
    """SQL for the first $2 items of queue $1 in an order that an index has."""
    return (
        f"select * from monarq.items i where i.partition_id = {_PARTITION} and {condition} "
        f"order by {order} limit $2"
    )


def items_of(page: str, order: str = "i.seq") -> str:
    """SQL for the rows that `item` reads. The page is cut before anything is joined to it, so that
    no more of an index is read, whatever PostgreSQL knows of the tables."""
    return f"""
        select i.partition_id, i.seq, q.name, i.state, i.priority, case when i.state = 'ready'
                then p.last_seq - i.rank else i.priority + i.waited end,
            i.attempts, i.max_attempts, i.backoff_base, i.created_at, i.due_at, i.finished_at,
            i.consumer, i.transaction_id, i.trace_id, i.producer, i.error, i.headers, i.payload
        from ({page}) i cross join monarq.queues q cross join monarq.partitions p
        where q.id = i.queue_id and p.id = i.partition_id order by {order}
    """


_NEXT = items_of(first_items("i.state = 'ready'", "i.rank, i.turn"), "i.rank, i.turn")


async def find_items(db: Queries, queue_id: int, request: ListItems, select: str) -> Page[Item]:
    """`select` is SQL for the first $2 items of queue $1 behind seq $3, in the wanted state."""
    if request.transaction_id is not None:
        own = parse_message_id(request.transaction_id) or (0, 0)
        sql = items_of(_WITH_TRANSACTION_ID)
        rows = await db.fetch(sql, queue_id, request.transaction_id, *own)
        return Page([item(db, row) for row in rows if request.state in (None, row[3])])
    last = paging.position(request.after, "items", int) or 0
    if request.order == "next":
        return await _next_items(db, queue_id, request)
    rows = await db.fetch(select, queue_id, request.limit + 1, last)
    items = [item(db, row) for row in rows]
    return paging.page(items, request.limit, "items", lambda one: one.seq)


async def _next_items(db: Queries, queue_id: int, request: ListItems) -> Page[Item]:
    """Read a few items and then twice as many, until they are as many as asked for or hold
    `MAX_BYTES`."""
    limit = min(request.limit, 4)
    while True:
        found = [item(db, row) for row in await db.fetch(_NEXT, queue_id, limit)]
        held = sum(map(request.row_bytes, found))
        if len(found) < limit or limit == request.limit or 2 * held > MAX_BYTES:
            return Page(found)
        limit = min(request.limit, 2 * limit)


async def newest_items(
    db: Queries, queue_id: int, select: str, limit: int, after: str | None
) -> Page[Item]:
    before = paging.position(after, "newest items", int) or 2**62
    items = [item(db, row) for row in await db.fetch(select, queue_id, limit + 1, before)]
    return paging.page(items, limit, "newest items", lambda one: one.seq)


async def find_item(db: Queries, queue: str, partition_id: int, transaction_id: str) -> Item:
    """Return an item by its transaction id or its id; raise `NotFoundError`."""
    own = parse_message_id(transaction_id) or (0, 0)
    seq = f"coalesce(cast($3 as bigint), {_OF_MESSAGE.format(partition='$1')})"
    rows = await db.fetch(
        items_of(_ONE + seq),
        partition_id,
        transaction_id,
        own[1] if own[0] == partition_id else None,
    )
    if not rows:
        raise kept_messages.no_item(queue, partition_id, transaction_id)
    return item(db, rows[0])


async def get_item(db: Queries, item_id: str) -> ItemDetail:
    """Return an item with its finished attempts; raise `NotFoundError`."""
    place = check_item_id(item_id)
    rows = await db.fetch(items_of(f"{_ONE} $2"), *place)
    if not rows:
        raise no_item(item_id)
    attempts = await _history(db, *place)
    return ItemDetail(**structs.asdict(item(db, rows[0])), history=attempts)


def no_item(item_id: str) -> NotFoundError:
    return NotFoundError(f"there is no item {item_id}")


def item(db: Queries, row: Sequence[Any]) -> Item:
    """Return the item in a row of `items_of`."""
    (partition_id, seq, queue, state_text, priority, effective_priority, attempts, max_attempts,
     backoff_base, created_at, due_at, finished_at, consumer, transaction_id, trace_id, producer,
     error, stored, payload) = row  # fmt: skip
    state = ItemState(state_text)
    # Text on PostgreSQL.
    stored = stored.encode() if isinstance(stored, str) else stored
    headers = sealing.open_headers(stored, db.cipher)
    plain = sealing.open_payload(
        payload, db.cipher, queue, DEFAULT_PARTITION, transaction_id, stored
    )
    own_id = message_id(partition_id, seq)
    return Item(
        id=own_id,
        queue=queue,
        partition_id=NumberText(partition_id),
        seq=seq,
        transaction_id=transaction_id or own_id,
        state=state,
        priority=priority,
        effective_priority=effective_priority,
        attempts=attempts,
        max_attempts=max_attempts,
        backoff_base=backoff_base,
        created_at=Micros(created_at),
        run_at=micros_or_none(due_at if state is ItemState.SCHEDULED else None),
        lease_until=micros_or_none(due_at if state is ItemState.LEASED else None),
        finished_at=micros_or_none(finished_at),
        consumer=consumer,
        error=sealing.open_error(error, db.cipher, queue),
        trace_id=trace_id,
        producer=producer,
        raw=Raw(plain),
        raw_headers=UNSET if headers is None else Raw(headers),
    )


# --- attempts ---


# `cross join` keeps SQLite from beginning with the queues.
_ATTEMPTS = """
select a.id, a.partition_id, a.seq, q.name, a.attempt, a.started_at, a.ended_at, a.outcome,
    a.consumer, a.error, a.result
from monarq.attempts a cross join monarq.queues q
where q.id = a.queue_id
"""


async def _history(db: Queries, partition_id: int, seq: int) -> list[Attempt]:
    """Return the finished attempts of an item, oldest first."""
    rows = await db.fetch(
        f"{_ATTEMPTS} and a.partition_id = $1 and a.seq = $2 order by a.id", partition_id, seq
    )
    return [Attempt(**_attempt_fields(db, row)) for row in rows]


async def list_attempts(
    db: Queries, queue: str | None, limit: int, after: str | None
) -> Page[LoggedAttempt]:
    last = paging.position(after, "attempts", int) or 0
    condition, values = "", [last, limit + 1]
    if queue is not None:
        condition, values = "and a.queue_id = $3", [*values, (await find_queue(db, queue))[0]]
    rows = await db.fetch(f"{_ATTEMPTS} and a.id > $1 {condition} order by a.id limit $2", *values)
    found = paging.page(rows, limit, "attempts", lambda row: row[0])
    attempts = [
        LoggedAttempt(item_id=message_id(row[1], row[2]), queue=row[3], **_attempt_fields(db, row))
        for row in found.rows
    ]
    return Page(attempts, found.next)


def _attempt_fields(db: Queries, row: Sequence[Any]) -> dict[str, Any]:
    _, _, _, queue, attempt, started, ended, outcome, consumer, error, sealed_result = row
    result = sealing.open_result(sealed_result, db.cipher, queue)
    return {
        "attempt": attempt,
        "started_at": Micros(started),
        "ended_at": Micros(ended),
        "outcome": AttemptOutcome(outcome),
        "consumer": consumer,
        "error": sealing.open_error(error, db.cipher, queue),
        "raw_result": UNSET if result is None else Raw(result),
    }
