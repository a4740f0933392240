"""Jobs: shell commands for workers. Whoever may push may not therefore run commands."""

from __future__ import annotations

from monarq.model import Push, PushItem
from monarq.operations.operation import Role
from monarq.server.decoding import body_decoder
from monarq.server.encoding import encode
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.outlines import PushOutline
from monarq.server.routes.push import push_answer, trace_headers
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.times import micros_of
from monarq.wire.push import JobItemBody, JobsBody, PushedItem


def enqueue(service: Service, request: Request) -> Handled:
    body: JobsBody = request.body
    if not body.items:
        return Response(201, b"[]")
    headers = trace_headers(request.headers)
    items = [_item(item, headers) for item in body.items]
    asked = Push(items, request.principal.subject, commands=True)
    return Pending(service.broker.submit_push(asked, size=request.size), push_answer)


def _item(item: JobItemBody, headers: bytes | None) -> PushItem:
    return PushItem(
        item.queue,
        encode(item.payload),
        transaction_id=item.transaction_id,
        trace_id=item.trace_id,
        headers=headers,
        priority=item.priority,
        run_at=None if item.run_at is None else micros_of(item.run_at),
        delay_seconds=item.delay_seconds,
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
    )


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
