"""Dead letters: listing, redriving and purging them."""

from __future__ import annotations

from msgspec import Raw, structs

from monarq.errors import InvalidRequestError
from monarq.ids import message_id
from monarq.model import DeadLetter, DeadLetterFilter
from monarq.model.pages import MOST_ROWS
from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.message_rows import raw_or_unset
from monarq.server.paging import paged
from monarq.server.parameters import time_or_none
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.collecting import collect
from monarq.times import iso, micros_of
from monarq.wire.dead_letters import (
    DeadLetterRow,
    DeadLettersAnswer,
    DeadLettersQuery,
    Purged,
    PurgeQuery,
    RedriveBody,
    Redriven,
)


async def list_dead_letters(service: Service, request: Request) -> Response:
    query: DeadLettersQuery = request.query
    # Cut and not refused, since Queen's clients take a refusal for an empty list.
    query = structs.replace(query, limit=min(query.limit, MOST_ROWS))
    store = service.broker.store
    which = _chosen(query)
    page = await collect(
        lambda limit, after: store.list_dead_letters(which, limit=limit, after=after),
        query,
        size=lambda letter: len(letter.payload) + len(letter.error) + 400,
    )
    return json_answer(
        DeadLettersAnswer(
            messages=[_row(letter) for letter in page.rows],
            total=await _total(service, which),
            **paged(query, page),
        )
    )


def _chosen(query: DeadLettersQuery | PurgeQuery) -> DeadLetterFilter:
    return DeadLetterFilter(
        queue=query.queue,
        group=query.consumer_group,
        partition=query.partition,
        failed_from=time_or_none(query.from_, "from"),
        failed_to=time_or_none(query.to, "to"),
        error=query.error,
        ids=None if query.ids is None else [int(one) for one in query.ids],
    )


async def _total(service: Service, which: DeadLetterFilter) -> int:
    """From the counters, where they say it."""
    store = service.broker.store
    if which == DeadLetterFilter():
        return (await service.totals.read()).dead_letters
    if which == DeadLetterFilter(queue=which.queue) and which.queue is not None:
        return sum(stats.dead_letters for stats in await store.stats_of([which.queue]))
    return await store.count_dead_letters(which)


def _row(letter: DeadLetter) -> DeadLetterRow:
    return DeadLetterRow(
        id=str(letter.id),
        message_id=message_id(letter.partition_id, letter.seq),
        transaction_id=letter.transaction_id,
        partition_id=str(letter.partition_id),
        queue=letter.queue,
        partition=letter.partition,
        consumer_group=letter.group,
        error_message=letter.error,
        retry_count=max(0, letter.attempts - 1),
        attempts=letter.attempts,
        data=Raw(letter.payload),
        trace_id=letter.trace_id,
        producer_sub=letter.producer,
        created_at=iso(letter.created_at),
        failed_at=iso(letter.failed_at),
        headers=raw_or_unset(letter.headers),
    )


async def redrive(service: Service, request: Request) -> Response:
    body: RedriveBody = request.body
    which = DeadLetterFilter(
        queue=body.queue,
        group=body.consumer_group,
        partition=body.partition,
        failed_from=None if body.from_ is None else micros_of(body.from_),
        failed_to=None if body.to is None else micros_of(body.to),
        error=body.error,
        ids=None if body.ids is None else [int(one) for one in body.ids],
    )
    _check_meant(which, body.all)
    redriven = await service.broker.store.redrive(
        which,
        to=body.to_queue,
        limit=body.limit,
        commands=request.principal.may_run_commands,
    )
    return json_answer(Redriven(redriven=redriven))


async def purge(service: Service, request: Request) -> Response:
    query: PurgeQuery = request.query
    which = _chosen(query)
    _check_meant(which, query.all)
    deleted = await service.broker.store.purge_dead_letters(
        which, commands=request.principal.may_run_commands
    )
    return json_answer(Purged(deleted=deleted))


def _check_meant(which: DeadLetterFilter, everything: bool) -> None:
    """A filter that was forgotten must not mean all dead letters of all queues."""
    if (which == DeadLetterFilter()) is not everything:
        raise InvalidRequestError(
            "say which dead letters: queue, consumerGroup, partition, from, to, error or ids; "
            "or all=true for all of them, without a filter"
        )


ROUTES = (
    Route(
        method="GET",
        path="/api/v1/dlq",
        handler=list_dead_letters,
        summary="List dead letters, newest first",
        tag="dead letters",
        query=DeadLettersQuery,
        answer=DeadLettersAnswer,
    ),
    Route(
        method="POST",
        path="/api/v1/dlq/redrive",
        handler=redrive,
        operation="redrive",
        summary="Put dead letters back into their queue, or into another",
        tag="dead letters",
        role=Role.WRITE,
        body=RedriveBody,
        answer=Redriven,
        errors=(404, 409),
    ),
    Route(
        method="DELETE",
        path="/api/v1/dlq",
        handler=purge,
        operation="purgeDeadLetters",
        summary="Remove dead letters for good",
        tag="dead letters",
        role=Role.ADMIN,
        query=PurgeQuery,
        answer=Purged,
    ),
)
