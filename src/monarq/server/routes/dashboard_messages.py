"""Messages, dead letters and items as the dashboard looks for them."""

from __future__ import annotations

import contextlib

from monarq.clock import SECOND
from monarq.errors import NotFoundError
from monarq.ids import message_id, parse_message_id
from monarq.model import DeadLetterFilter, Delivery, Item, MessageDetail, QueueKind, Standing
from monarq.model.pages import MOST_ROWS
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.parameters import path_name, path_partition_id, time_or_none
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.store.contract.watching import MOST_PARTITIONS
from monarq.store.validation import wrong_kind
from monarq.times import iso, iso_or_none
from monarq.wire.dashboard import (
    DeliveriesAnswer,
    DeliveriesQuery,
    DeliveryRow,
    ErrorRow,
    ErrorsAnswer,
    ErrorsQuery,
    FindAnswer,
    FindQuery,
    FoundRow,
    GroupStateRow,
    GroupStatesAnswer,
    ItemSearchAnswer,
    ItemSearchQuery,
)
from monarq.wire.paging import PageQuery

_MOST_FOUND = 100
_MOST_QUEUES = 1000


async def find(service: Service, request: Request) -> Response:
    query: FindQuery = request.query
    store = service.broker.store
    own = parse_message_id(query.transaction_id)
    places: list[tuple[int, int]] = [own] if own is not None else []
    truncated = False
    if query.queue is not None:
        places += await store.find_messages(query.queue, query.transaction_id)
    elif own is None:
        places, truncated = await _find_anywhere(service, query.transaction_id)
    found = []
    for place in dict.fromkeys(places):
        # An id may be of a message that is gone, or of another queue.
        with contextlib.suppress(NotFoundError):
            row = await _found(store, *place)
            if query.queue in (None, row.queue):
                found.append(row)
    return json_answer(FindAnswer(found=found, truncated=truncated or len(places) >= _MOST_FOUND))


async def _find_anywhere(
    service: Service, transaction_id: str
) -> tuple[list[tuple[int, int]], bool]:
    """In all queues, those with few partitions first; and whether that was too much to do."""
    view = (await service.sampler.current()).view
    store = service.broker.store
    places: list[tuple[int, int]] = []
    partitions = 0
    flows = sorted(view.now.queues.values(), key=lambda flow: (flow.partitions, flow.queue))
    for number, flow in enumerate(flows):
        partitions += flow.partitions
        too_many = number >= _MOST_QUEUES or partitions > MOST_PARTITIONS
        if too_many or len(places) >= _MOST_FOUND:
            return places, True
        with contextlib.suppress(NotFoundError):
            places += await store.find_messages(flow.queue, transaction_id)
    return places, False


async def _found(store: Store, partition_id: int, seq: int) -> FoundRow:
    message = await store.get_message(partition_id, message_id(partition_id, seq))
    queue = await store.queue_settings(message.queue)
    return FoundRow(
        queue=message.queue,
        partition=message.partition,
        partition_id=str(partition_id),
        seq=seq,
        id=message.id,
        transaction_id=message.transaction_id,
        kind="item" if queue.kind is QueueKind.WORK else "message",
    )


# --- one message -----------------------------------------------------------------------------


async def _ordered_message(store: Store, request: Request) -> MessageDetail:
    """Return the message that the path names; raise `ConflictError` for an item."""
    message = await store.get_message(
        path_partition_id(request), path_name(request, "transactionId")
    )
    queue = await store.queue_settings(message.queue)
    if queue.kind is QueueKind.WORK:
        raise wrong_kind(queue)
    return message


async def list_deliveries(service: Service, request: Request) -> Response:
    query: DeliveriesQuery = request.query
    store = service.broker.store
    message = await _ordered_message(store, request)
    found = await store.deliveries_of(message.partition_id, message.seq, limit=query.limit)
    return json_answer(
        DeliveriesAnswer(
            deliveries=[_delivery(one) for one in found], truncated=len(found) == query.limit
        )
    )


def _delivery(one: Delivery) -> DeliveryRow:
    return DeliveryRow(
        group=one.group,
        consumer=one.consumer,
        lease_number=one.lease_number,
        leased_at=iso(one.leased_at),
        ended_at=iso(one.ended_at),
        seconds=max(0, one.ended_at - one.leased_at) / SECOND,
        first_seq=one.first_seq,
        last_seq=one.last_seq,
        completed=one.completed,
        failed=one.failed,
        released=one.released,
        dead=one.dead,
        expired=one.expired,
        error=one.error,
    )


async def list_states(service: Service, request: Request) -> Response:
    store = service.broker.store
    message = await _ordered_message(store, request)
    standings = await store.standings_of(message.partition_id)
    return json_answer(
        GroupStatesAnswer(
            groups=[
                _state(name, message.groups.get(name, "pending"), one, message.seq,
                       message.queue_options.retry_limit)
                for name, one in standings.items()
            ]
        )
    )  # fmt: skip


def _state(name: str, state: str, standing: Standing, seq: int, retry_limit: int) -> GroupStateRow:
    is_head = standing.position + 1 == seq
    attempts = standing.attempts if is_head else 0
    if state == "pending" and attempts:
        state = "retrying"
    is_leased = state == "leased"
    return GroupStateRow(
        group=name,
        state=state,  # type: ignore[arg-type]
        is_head=is_head,
        attempts=attempts,
        retry_limit=retry_limit,
        consumer=standing.consumer if is_leased else None,
        lease_until=iso_or_none(standing.lease_until) if is_leased else None,
        retry_at=iso_or_none(standing.retry_at) if is_head else None,
    )


# --- dead letters ----------------------------------------------------------------------------


async def list_errors(service: Service, request: Request) -> Response:
    query: ErrorsQuery = request.query
    which = DeadLetterFilter(
        queue=query.queue,
        group=query.consumer_group,
        partition=query.partition,
        failed_from=time_or_none(query.from_, "from"),
        failed_to=time_or_none(query.to, "to"),
    )
    found = await service.broker.store.dead_letter_errors(which, limit=MOST_ROWS)
    wanted = query.search.casefold() if query.search is not None else ""
    matching = [one for one in found if wanted in one.error.casefold()]
    shown = matching[: query.limit]
    return json_answer(
        ErrorsAnswer(
            errors=[
                ErrorRow(
                    queue=one.queue,
                    consumer_group=one.group,
                    error=one.error,
                    count=one.count,
                    oldest=iso(one.oldest_at),
                    newest=iso(one.newest_at),
                    newest_id=str(one.newest_id),
                )
                for one in shown
            ],
            total=sum(one.count for one in matching),
            truncated=len(found) == MOST_ROWS or len(shown) < len(matching),
        )
    )


# --- items -----------------------------------------------------------------------------------


async def search_items(service: Service, request: Request) -> Response:
    query: ItemSearchQuery = request.query
    store = service.broker.store
    wanted = query.search.casefold() if query.search is not None else None
    page = await collect(
        lambda limit, after: store.newest_items(
            query.queue, state=query.state, limit=limit, after=after
        ),
        PageQuery(limit=query.limit),
        keep=lambda item: wanted is None or _matches(item, wanted),
        size=lambda item: len(item.payload) + 300,
        step=100,
    )
    is_cut = page.next is not None or len(page.rows) > query.limit
    return json_answer(ItemSearchAnswer(items=page.rows[: query.limit], truncated=is_cut))


def _matches(item: Item, wanted: str) -> bool:
    texts = (item.id, item.transaction_id, item.error or "", item.consumer or "")
    if any(wanted in text.casefold() for text in texts):
        return True
    return wanted in item.payload.decode("utf-8", "replace").casefold()


_MESSAGE = "/api/v1/messages/{partitionId}/{transactionId}"

ROUTES = (
    Route(
        method="GET",
        path="/api/v1/dashboard/find",
        handler=find,
        operation="findMessages",
        summary="Look a message or item up by its id or transaction id",
        tag="dashboard",
        query=FindQuery,
        answer=FindAnswer,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=f"{_MESSAGE}/deliveries",
        handler=list_deliveries,
        summary="What the delivery log has of a message, newest first",
        tag="messages",
        query=DeliveriesQuery,
        answer=DeliveriesAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path=f"{_MESSAGE}/groups",
        handler=list_states,
        operation="listMessageStates",
        summary="A message's state in each group, with its attempts",
        tag="messages",
        answer=GroupStatesAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path="/api/v1/dashboard/dead-letters",
        handler=list_errors,
        operation="listErrors",
        summary="What dead letters died of, the most frequent first",
        tag="dashboard",
        query=ErrorsQuery,
        answer=ErrorsAnswer,
    ),
    Route(
        method="GET",
        path="/api/v1/dashboard/items",
        handler=search_items,
        summary="Search the items of a work queue, newest first",
        tag="dashboard",
        query=ItemSearchQuery,
        answer=ItemSearchAnswer,
        errors=(404, 409),
    ),
)
