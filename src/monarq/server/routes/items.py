"""Items of work queues: listing, describing, cancelling and retrying them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import UNSET, Raw, structs

from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import Attempt, Item, ItemState, Page
from monarq.model.pages import MOST_ROWS
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.message_rows import raw_or_unset
from monarq.server.paging import paged
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import MAX_BYTES, collect
from monarq.store.contract import Store
from monarq.times import iso, iso_or_none
from monarq.wire.items import AttemptRow, ItemDetail, ItemRow, ItemsAnswer, ItemsQuery


async def list_items(service: Service, request: Request) -> Response:
    query: ItemsQuery = request.query
    if query.pivot is not None:
        if query.after is not None:
            raise InvalidRequestError("give after or pivot, not both: they are the same")
        query = structs.replace(query, after=query.pivot)
    page = await _page(service.broker.store, query)
    rows = [ItemRow(**item_fields(item)) for item in page.rows]
    return json_answer(ItemsAnswer(items=rows, **paged(query, page)))


async def _page(store: Store, query: ItemsQuery) -> Page[Item]:
    if query.transaction_id is not None:
        return await _found(store, query, query.transaction_id)
    if query.order == "next":
        if query.state not in (None, ItemState.READY) or query.after is not None:
            raise InvalidRequestError("order=next lists one page of ready items")
        return Page(await _next_items(store, query))
    return await collect(
        lambda limit, after: store.list_items(
            query.queue, state=query.state, limit=limit, after=after
        ),
        query,
        size=_size,
    )


async def _next_items(store: Store, query: ItemsQuery) -> list[Item]:
    """Read the next items, first a few and then twice as many, until they are as many as asked
    for or hold `MAX_BYTES`."""
    wanted = min(query.offset + query.limit, MOST_ROWS)
    limit = min(wanted, 4)
    while True:
        found = await store.next_items(query.queue, limit=limit)
        held = sum(map(_size, found))
        if len(found) < limit or limit == wanted or 2 * held > MAX_BYTES:
            return found[query.offset :]
        limit = min(wanted, 2 * limit)


def _size(item: Item) -> int:
    return len(item.payload) + 600


async def _found(store: Store, query: ItemsQuery, transaction_id: str) -> Page[Item]:
    await store.get_queue(query.queue)
    try:
        item = await store.find_item(query.queue, transaction_id)
    except NotFoundError:
        return Page([])
    return Page([item] if query.state in (None, item.state) and not query.offset else [])


async def get_item(service: Service, request: Request) -> Response:
    store = service.broker.store
    return await _described(store, await store.get_item(request.path["id"]))


async def cancel_item(service: Service, request: Request) -> Response:
    store = service.broker.store
    return await _described(store, await _changed(request, store.cancel_item))


async def retry_item(service: Service, request: Request) -> Response:
    store = service.broker.store
    return await _described(store, await _changed(request, store.retry_item))


async def _changed(request: Request, change: Callable[..., Awaitable[Item]]) -> Item:
    return await change(request.path["id"], commands=request.principal.may_run_commands)


async def _described(store: Store, item: Item) -> Response:
    history = [_attempt_row(one) for one in await store.item_attempts(item.id)]
    return json_answer(ItemDetail(**item_fields(item), history=history))


def item_fields(item: Item) -> dict[str, Any]:
    """Of an `ItemRow`."""
    return {
        "id": item.id,
        "queue": item.queue,
        "partition_id": str(item.partition_id),
        "seq": item.seq,
        "transaction_id": item.transaction_id,
        "state": item.state,
        "priority": item.priority,
        "effective_priority": item.effective_priority,
        "attempts": item.attempts,
        "max_attempts": item.max_attempts,
        "backoff_base": item.backoff_base,
        "created_at": iso(item.created_at),
        "run_at": iso_or_none(item.run_at),
        "lease_until": iso_or_none(item.lease_until),
        "finished_at": iso_or_none(item.finished_at),
        "consumer": item.consumer,
        "error": item.error,
        "trace_id": item.trace_id,
        "producer_sub": item.producer,
        "data": Raw(item.payload),
        "headers": raw_or_unset(item.headers),
    }


def _attempt_row(attempt: Attempt) -> AttemptRow:
    return AttemptRow(
        attempt=attempt.attempt,
        started_at=iso(attempt.started_at),
        ended_at=iso(attempt.ended_at),
        outcome=attempt.outcome,
        consumer=attempt.consumer,
        error=attempt.error,
        result=UNSET if attempt.result is None else Raw(attempt.result),
    )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/items",
        handler=list_items,
        summary="List the items of a work queue",
        tag="items",
        query=ItemsQuery,
        answer=ItemsAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/api/v1/items/{id}",
        handler=get_item,
        summary="One item, with its finished attempts",
        tag="items",
        answer=ItemDetail,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/api/v1/items/{id}/cancel",
        handler=cancel_item,
        summary="Take an item out of its queue; a lease on it ends",
        tag="items",
        role=Role.WRITE,
        answer=ItemDetail,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/api/v1/items/{id}/retry",
        handler=retry_item,
        summary="Make an item ready again, with its attempts forgotten",
        tag="items",
        role=Role.WRITE,
        answer=ItemDetail,
        errors=(404, 409),
    ),
)
