"""Messages as they are kept: listing, describing, deleting, burying, and retrying dead ones."""

from __future__ import annotations

from msgspec import structs

from monarq.errors import ConflictError, MonarqError, NotFoundError
from monarq.ids import message_id, parse_message_id
from monarq.model import (
    DEFAULT_GROUP,
    Ack,
    AckStatus,
    DeadLetter,
    DeadLetterFilter,
    Item,
    QueueKind,
)
from monarq.model.pages import MOST_ROWS
from monarq.operations.dead_letters import Redrive
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.message_rows import item_as_message, message_row, message_rows
from monarq.server.paging import paged
from monarq.server.parameters import path_name, path_partition_id
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Store
from monarq.wire.messages import (
    BuryQuery,
    MessageBuried,
    MessageDeleted,
    MessageDetail,
    MessageRetried,
    MessagesAnswer,
    MessagesQuery,
)

_SEARCHED = 20
"""Pages of dead letters that are looked through for one message."""


async def list_messages(service: Service, request: Request) -> Response:
    query: MessagesQuery = request.query
    page = await message_rows(service.broker.store, query.queue, query)
    return json_answer(MessagesAnswer(messages=page.rows, **paged(query, page)))


async def get_message(service: Service, request: Request) -> Response:
    store = service.broker.store
    partition_id, transaction_id = _address(request)
    partition = await store.get_partition(partition_id)
    queue = await store.queue_settings(partition.queue)
    if queue.kind is QueueKind.WORK:
        item = await _find_item(store, partition.queue, partition_id, transaction_id)
        row = item_as_message(item)
    else:
        message = await store.get_message(partition_id, transaction_id)
        row = message_row(message, message.groups)
    return json_answer(MessageDetail(**structs.asdict(row), queue_options=queue.options))


async def _find_item(store: Store, queue: str, partition_id: int, transaction_id: str) -> Item:
    own = parse_message_id(transaction_id)
    if own is not None and own[0] == partition_id:
        return await store.get_item(message_id(*own))
    found = (await store.list_items(queue, transaction_id=transaction_id)).rows
    if not found:
        raise NotFoundError(f"queue {queue!r} has no item {transaction_id!r}")
    return found[0]


async def delete_message(service: Service, request: Request) -> Response:
    partition_id, transaction_id = _address(request)
    await service.broker.store.delete_message(
        partition_id, transaction_id, commands=request.principal.may_run_commands
    )
    return json_answer(
        MessageDeleted(
            success=True,
            deleted=1,
            partition_id=str(partition_id),
            transaction_id=transaction_id,
        )
    )


async def retry_message(service: Service, request: Request) -> Response:
    """Only the dead can be retried: what is alive will be delivered anyway."""
    store = service.broker.store
    partition_id, transaction_id = _address(request)
    partition = await store.get_partition(partition_id)
    letters = await _dead_letters_of(
        store,
        DeadLetterFilter(queue=partition.queue, partition=partition.partition),
        partition_id,
        transaction_id,
    )
    if not letters:
        raise NotFoundError(f"partition {partition_id} has no dead letter {transaction_id!r}")
    redriven = await service.broker.call(
        Redrive(ids=[letter.id for letter in letters]),
        commands=request.principal.may_run_commands,
    )
    if not redriven:
        raise ConflictError(f"{transaction_id!r} was redriven by someone else meanwhile")
    return json_answer(
        MessageRetried(
            success=True,
            redriven=redriven,
            partition_id=str(partition_id),
            transaction_id=transaction_id,
        )
    )


async def _dead_letters_of(
    store: Store, which: DeadLetterFilter, partition_id: int, transaction_id: str
) -> list[DeadLetter]:
    """Of one message, one a group; among the newest of its partition."""
    found: list[DeadLetter] = []
    after = None
    for _ in range(_SEARCHED):
        page = await store.list_dead_letters(which, limit=MOST_ROWS, after=after)
        found += [
            letter
            for letter in page.rows
            if letter.partition_id == partition_id
            and transaction_id in (letter.transaction_id, message_id(partition_id, letter.seq))
        ]
        after = page.next
        if after is None:
            break
    return found


async def bury_message(service: Service, request: Request) -> Response:
    """As an ack of `dead` without a lease id, so it must be under a live lease."""
    query: BuryQuery = request.query
    partition_id, transaction_id = _address(request)
    [outcome] = await service.broker.ack(
        [
            Ack(
                status=AckStatus.DEAD,
                partition_id=partition_id,
                transaction_id=transaction_id,
                group=query.consumer_group or DEFAULT_GROUP,
                error="sent to the dead letters by hand",
                commands=request.principal.may_run_commands,
            )
        ]
    )
    if isinstance(outcome, MonarqError):
        raise outcome
    return json_answer(
        MessageBuried(success=True, partition_id=str(partition_id), transaction_id=transaction_id)
    )


def _address(request: Request) -> tuple[int, str]:
    return path_partition_id(request), path_name(request, "transactionId")


_MESSAGE = "/api/v1/messages/{partitionId}/{transactionId}"

ROUTES = (
    Route(
        method="GET",
        path="/api/v1/messages",
        handler=list_messages,
        summary="List what a queue keeps, by partition and seq",
        tag="messages",
        query=MessagesQuery,
        answer=MessagesAnswer,
        errors=(404, 409),
    ),
    Route(
        method="GET",
        path=_MESSAGE,
        handler=get_message,
        summary="One message or item, with its state in each group",
        tag="messages",
        answer=MessageDetail,
        errors=(404, 409),
    ),
    Route(
        method="DELETE",
        path=_MESSAGE,
        handler=delete_message,
        summary="Remove a message's payload and keep it from every group; or remove an item",
        tag="messages",
        role=Role.ADMIN,
        answer=MessageDeleted,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path=f"{_MESSAGE}/retry",
        handler=retry_message,
        summary="Put a dead message or item back into its queue",
        tag="messages",
        role=Role.WRITE,
        answer=MessageRetried,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path=f"{_MESSAGE}/dlq",
        handler=bury_message,
        summary="Send a message or item that is under a lease to the dead letters",
        tag="messages",
        role=Role.WRITE,
        query=BuryQuery,
        answer=MessageBuried,
        errors=(404, 409),
    ),
)
