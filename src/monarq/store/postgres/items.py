"""Looking at items and their attempts; cancelling and retrying them."""

from __future__ import annotations

from typing import NamedTuple

from monarq.errors import ConflictError, InvalidRequestError
from monarq.model import (
    Item,
    ItemDetail,
    ItemState,
    Page,
    QueueKind,
)
from monarq.operations.items import CancelItem, GetItem, ListItems, RetryItem
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.postgres.queues import get_queue_of
from monarq.store.queries import items
from monarq.store.queries.items import first_items, items_of
from monarq.store.validation import check_item_id

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
        return items_of(first_items(behind, order), order)
    if not isinstance(state, ItemState):
        raise InvalidRequestError(f"state must be one of {', '.join(ItemState)}")
    if state is ItemState.READY:
        return items_of(_first_ready(direction), order)
    if state is ItemState.LEASED:
        leased = f"select * from monarq.leased_items($1) i where {behind} order by {order} limit $2"
        return items_of(leased, order)
    # Not a parameter: the index by state leaves some out.
    return items_of(first_items(f"{behind} and i.state = '{state}'", order), order)


def _first_ready(direction: _Direction) -> str:
    """Those that are by rank as by seq are in the index of what to deliver next, the others in the
    one by state. If these fill the page, the former are read no further than it reaches."""
    order, behind, up_to, last, end = direction
    others = first_items(
        f"i.state = 'ready' and i.rank <> {_UNMOVED} and i.seq {behind} $3", f"i.seq {order}"
    )
    reach = f"coalesce((select {last}(seq) from others having count(*) = $2), {end})"
    unmoved = first_items(
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
    queue_id = await work_queue(tools.database, request.queue)
    return await items.find_items(tools, queue_id, request, items_by_seq(request.state))


@handles(GetItem)
async def get_item(tools: Tools, request: GetItem) -> ItemDetail:
    return await items.get_item(tools, request.item_id)


@handles(CancelItem)
async def cancel_item(tools: Tools, request: CancelItem) -> ItemDetail:
    problem = await _change(tools, "cancel_item", request.item_id)
    item = await items.get_item(tools, request.item_id)
    if problem == "conflict":
        raise ConflictError(f"item {item.id} is {item.state}, there is nothing to cancel")
    return item


@handles(RetryItem)
async def retry_item(tools: Tools, request: RetryItem) -> ItemDetail:
    if await _change(tools, "retry_item", request.item_id) == "conflict":
        raise ConflictError(f"item {request.item_id} is leased: cancel it first, or wait")
    return await items.get_item(tools, request.item_id)


async def _change(tools: Tools, function: str, item_id: str) -> str | None:
    """Call one of monarq's functions on an item. Return its problem, if there was one."""
    partition_id, seq = check_item_id(item_id)
    await tools.catalog.check_may_work(partition_id, tools.commands)
    problem: str | None = await tools.database.fetchval(
        f"select monarq.{function}($1, $2, $3)", tools.database.now(), partition_id, seq
    )
    if problem == "not_found":
        raise items.no_item(item_id)
    return problem


async def work_queue(database: Database, queue: str) -> int:
    return (await get_queue_of(database, queue, QueueKind.WORK)).id
