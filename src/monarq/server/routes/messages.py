"""Messages as they are kept: operations; burying messages, and retrying dead ones."""

from __future__ import annotations

from monarq.errors import ConflictError, MonarqError, NotFoundError
from monarq.ids import message_id
from monarq.model import (
    DEFAULT_GROUP,
    Ack,
    AckStatus,
    DeadLetter,
    DeadLetterFilter,
)
from monarq.model.pages import MOST_ROWS
from monarq.operations.dead_letters import Redrive
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.operations import routes_of
from monarq.server.parameters import path_name, path_partition_id
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Store
from monarq.wire.messages import BuryQuery, MessageBuried, MessageRetried

_SEARCHED = 20
"""Pages of dead letters that are looked through for one message."""


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
    *routes_of("messages"),
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
