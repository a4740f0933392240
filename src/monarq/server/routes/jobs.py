"""Jobs: shell commands for workers. Whoever may push may not therefore run commands."""

from __future__ import annotations

from msgspec import structs

from monarq.errors import InvalidRequestError
from monarq.job import CommandJob, read_job
from monarq.server.decoding import body_decoder
from monarq.server.exchange import Handled, Pending, Request, Response, Role
from monarq.server.outlines import PushOutline
from monarq.server.routes.push import push_answer, push_request
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.wire.push import JobsBody, PushedItem


def enqueue(service: Service, request: Request) -> Handled:
    body: JobsBody = request.body
    if not body.items:
        return Response(201, b"[]")
    for index, item in enumerate(body.items):
        if not isinstance(read_job(bytes(item.payload)), CommandJob):
            raise InvalidRequestError(f"items[{index}]: the payload needs a `command`")
    asked = structs.replace(push_request(body.items, request), commands=True)
    return Pending(service.broker.submit_push(asked, size=request.size), push_answer)


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/jobs",
        handler=enqueue,
        summary="Enqueue shell commands on queues that run commands: all of them, or none",
        tag="items",
        role=Role.JOBS,
        body=JobsBody,
        decode=body_decoder(JobsBody, PushOutline),
        answer=list[PushedItem],
        status=201,
        errors=(409, 429),
    ),
)
