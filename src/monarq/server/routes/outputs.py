"""What running attempts of items print: written by whoever runs them, read by whoever watches."""

from __future__ import annotations

import base64

from monarq.operations.operation import Role
from monarq.server.answers import json_answer
from monarq.server.exchange import Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.wire.outputs import OutputAnswer, OutputAppended, OutputBody, OutputQuery


async def append_output(service: Service, request: Request) -> Response:
    body: OutputBody = request.body
    item_id = request.path["id"]
    size = await service.broker.store.append_output(
        item_id, body.attempt, body.data, commands=request.principal.may_run_commands
    )
    return json_answer(OutputAppended(id=item_id, attempt=body.attempt, size=size))


async def read_output(service: Service, request: Request) -> Response:
    query: OutputQuery = request.query
    item_id = request.path["id"]
    part = await service.broker.store.read_output(
        item_id, query.attempt, start=query.start, max_bytes=query.max_bytes
    )
    return json_answer(
        OutputAnswer(
            id=item_id,
            attempt=query.attempt,
            data=base64.b64encode(part.data).decode(),
            next=part.next,
        )
    )


_OUTPUT = "/api/v1/items/{id}/output"

ROUTES = (
    Route(
        method="POST",
        path=_OUTPUT,
        handler=append_output,
        summary="Note what a running attempt printed",
        tag="items",
        role=Role.WRITE,
        body=OutputBody,
        answer=OutputAppended,
        errors=(404,),
    ),
    Route(
        method="GET",
        path=_OUTPUT,
        handler=read_output,
        summary="What an attempt has printed so far",
        tag="items",
        query=OutputQuery,
        answer=OutputAnswer,
    ),
)
