"""Looking at items and their attempts; cancelling and retrying them."""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import UNSET, Raw, structs

from monarq.crypto import Cipher
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.ids import NumberText, message_id, parse_message_id
from monarq.model import (
    DEFAULT_PARTITION,
    Item,
    ItemDetail,
    ItemState,
    Page,
    QueueKind,
)
from monarq.operations.items import CancelItem, GetItem, ListItems, RetryItem
from monarq.store import kept_messages, paging, sealing
from monarq.store.collecting import MAX_BYTES
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.postgres.queues import get_queue_of
from monarq.store.queries.items import history
from monarq.store.validation import check_item_id
from monarq.times import Micros, micros_or_none

_ITEMS = """
    select i.*, q.name as queue, case when i.state = 'ready'
        then p.last_seq - i.rank else i.priority + i.waited end as effective_priority
    from {source} i join monarq.queues q on q.id = i.queue_id
    join monarq.partitions p on p.id = i.partition_id
"""
_ONE = _ITEMS.format(source="monarq.items")
_PARTITION = "(select id from monarq.partitions where queue_id = $1)"
"""The one that a work queue has."""


_USUAL_PRIORITY = 5
_UNMOVED = f"i.seq - {_USUAL_PRIORITY}"
"""The rank of what the index by state leaves out; it has to be written as it is there."""


class _Direction(NamedTuple):
    """Which way a list goes, as SQL says it."""

    order: str
    behind: str
    up_to: str
    last: str
    end: int


_OLDEST_FIRST = _Direction("", ">", "<=", "max", 2**63 - 1)
_NEWEST_FIRST = _Direction("desc", "<", ">=", "min", 0)


def items_by_seq(state: ItemState | None, *, newest_first: bool = False) -> str:
    """SQL for the first $2 items of queue $1 behind seq $3."""
    direction = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    order = f"i.seq {direction.order}"
    behind = f"i.seq {direction.behind} $3"
    if state is None:
        return _joined(_first(behind, order), order)
    if not isinstance(state, ItemState):
        raise InvalidRequestError(f"state must be one of {', '.join(ItemState)}")
    if state is ItemState.READY:
        return _joined(_first_ready(direction), order)
    if state is ItemState.LEASED:
        leased = f"select * from monarq.leased_items($1) i where {behind} order by {order} limit $2"
        return _joined(leased, order)
    # Not a parameter: the index by state leaves some out.
    return _joined(_first(f"{behind} and i.state = '{state}'", order), order)


def _joined(page: str, order: str) -> str:
    # Cut before anything is joined to it, so that no more of the index is read, whatever
    # PostgreSQL knows of the tables.
    return f"{_ITEMS.format(source=f'({page})')} order by {order}"


def _first(condition: str, order: str) -> str:
    """In an order that an index has."""
    return (
        f"select * from monarq.items i where i.partition_id = {_PARTITION} and {condition} "
        f"order by {order} limit $2"
    )


def _first_ready(direction: _Direction) -> str:
    """Those that are by rank as by seq are in the index of what to deliver next, the others in the
    one by state. If these fill the page, the former are read no further than it reaches."""
    order, behind, up_to, last, end = direction
    others = _first(
        f"i.state = 'ready' and i.rank <> {_UNMOVED} and i.seq {behind} $3", f"i.seq {order}"
    )
    reach = f"coalesce((select {last}(seq) from others having count(*) = $2), {end})"
    unmoved = _first(
        f"i.state = 'ready' and i.rank = {_UNMOVED} and i.rank {behind} $3 - {_USUAL_PRIORITY} "
        f"and i.rank {up_to} {reach} - {_USUAL_PRIORITY}",
        f"i.rank {order}, i.turn {order}",
    )
    return (
        f"with others as materialized ({others}) select * from (select * from others "
        f"union all ({unmoved})) i order by i.seq {order} limit $2"
    )


@handles(ListItems)
async def list_items(tools: Tools, request: ListItems) -> Page[Item]:
    return await find_items(tools, request)


async def find_items(tools: Tools, request: ListItems) -> Page[Item]:
    if request.transaction_id is not None:
        return await _with_transaction_id(tools, request, request.transaction_id)
    last = paging.position(request.after, "items", int) or 0
    queue_id = await work_queue(tools.database, request.queue)
    if request.order == "next":
        return await _next_items(tools, request, queue_id)
    rows = await tools.database.fetch(
        items_by_seq(request.state), queue_id, request.limit + 1, last
    )
    items = [item_from(row, tools.cipher) for row in rows]
    return paging.page(items, request.limit, "items", lambda item: item.seq)


async def _with_transaction_id(tools: Tools, request: ListItems, transaction_id: str) -> Page[Item]:
    queue_id = await work_queue(tools.database, request.queue)
    own = parse_message_id(transaction_id) or (0, 0)
    row = await tools.database.fetchrow(
        f"{_ONE} where i.partition_id = {_PARTITION} "
        "and i.seq = coalesce((select seq from monarq.transaction_ids "
        f"where partition_id = {_PARTITION} and transaction_id = $2), "
        f"(select $4::bigint where $3 = {_PARTITION}))",
        queue_id,
        transaction_id,
        *own,
    )
    if row is None or request.state not in (None, row["state"]):
        return Page([])
    return Page([item_from(row, tools.cipher)])


async def _next_items(tools: Tools, request: ListItems, queue_id: int) -> Page[Item]:
    """Read a few items and then twice as many, until they are as many as asked for or hold
    `MAX_BYTES`."""
    select = _joined(_first("i.state = 'ready'", "i.rank, i.turn"), "i.rank, i.turn")
    limit = min(request.limit, 4)
    while True:
        rows = await tools.database.fetch(select, queue_id, limit)
        found = [item_from(row, tools.cipher) for row in rows]
        held = sum(map(request.row_bytes, found))
        if len(found) < limit or limit == request.limit or 2 * held > MAX_BYTES:
            return Page(found)
        limit = min(request.limit, 2 * limit)


async def find_item(tools: Tools, queue: str, partition_id: int, transaction_id: str) -> Item:
    """Return an item by its transaction id or its id; raise `NotFoundError`."""
    own = parse_message_id(transaction_id) or (0, 0)
    row = await tools.database.fetchrow(
        f"{_ONE} where i.partition_id = $1 and i.seq = coalesce($3, (select seq "
        "from monarq.transaction_ids where partition_id = $1 and transaction_id = $2))",
        partition_id,
        transaction_id,
        own[1] if own[0] == partition_id else None,
    )
    if row is None:
        raise kept_messages.no_item(queue, partition_id, transaction_id)
    return item_from(row, tools.cipher)


@handles(GetItem)
async def get_item(tools: Tools, request: GetItem) -> ItemDetail:
    return await _detail(tools, request.item_id)


async def _detail(tools: Tools, item_id: str) -> ItemDetail:
    partition_id, seq = check_item_id(item_id)
    row = await tools.database.fetchrow(
        f"{_ONE} where i.partition_id = $1 and i.seq = $2", partition_id, seq
    )
    if row is None:
        raise _no_item(item_id)
    attempts = await history(tools, partition_id, seq)
    return ItemDetail(**structs.asdict(item_from(row, tools.cipher)), history=attempts)


@handles(CancelItem)
async def cancel_item(tools: Tools, request: CancelItem) -> ItemDetail:
    problem = await _change(tools, "cancel_item", request.item_id)
    item = await _detail(tools, request.item_id)
    if problem == "conflict":
        raise ConflictError(f"item {item.id} is {item.state}, there is nothing to cancel")
    return item


@handles(RetryItem)
async def retry_item(tools: Tools, request: RetryItem) -> ItemDetail:
    if await _change(tools, "retry_item", request.item_id) == "conflict":
        raise ConflictError(f"item {request.item_id} is leased: cancel it first, or wait")
    return await _detail(tools, request.item_id)


async def _change(tools: Tools, function: str, item_id: str) -> str | None:
    """Call one of monarq's functions on an item. Return its problem, if there was one."""
    partition_id, seq = check_item_id(item_id)
    await tools.catalog.check_may_work(partition_id, tools.commands)
    problem: str | None = await tools.database.fetchval(
        f"select monarq.{function}($1, $2, $3)", tools.database.now(), partition_id, seq
    )
    if problem == "not_found":
        raise _no_item(item_id)
    return problem


async def work_queue(database: Database, queue: str) -> int:
    return (await get_queue_of(database, queue, QueueKind.WORK)).id


def _no_item(item_id: str) -> NotFoundError:
    return NotFoundError(f"there is no item {item_id}")


def item_from(row: Any, cipher: Cipher | None) -> Item:
    state, sealed_headers = ItemState(row["state"]), row["headers"]
    headers = sealed_headers and sealing.open_headers(sealed_headers.encode(), cipher)
    own_id = message_id(row["partition_id"], row["seq"])
    return Item(
        id=own_id,
        queue=row["queue"],
        partition_id=NumberText(row["partition_id"]),
        seq=row["seq"],
        transaction_id=row["transaction_id"] or own_id,
        state=state,
        priority=row["priority"],
        effective_priority=row["effective_priority"],
        attempts=row["attempts"],
        max_attempts=row["max_attempts"],
        backoff_base=row["backoff_base"],
        created_at=Micros(row["created_at"]),
        run_at=micros_or_none(row["due_at"] if state is ItemState.SCHEDULED else None),
        lease_until=micros_or_none(row["due_at"] if state is ItemState.LEASED else None),
        finished_at=micros_or_none(row["finished_at"]),
        consumer=row["consumer"],
        error=sealing.open_error(row["error"], cipher, row["queue"]),
        trace_id=row["trace_id"],
        producer=row["producer"],
        raw=Raw(
            sealing.open_payload(
                row["payload"],
                cipher,
                row["queue"],
                DEFAULT_PARTITION,
                row["transaction_id"],
                sealed_headers,
            )
        ),
        raw_headers=UNSET if headers is None else Raw(headers),
    )
