"""Extending a lease, also one over several partitions, as a whole."""

from __future__ import annotations

from functools import partial

from monarq.errors import MonarqError
from monarq.model import QueueOptions, Renew, Renewed
from monarq.operations.operation import Role
from monarq.server.encoding import encode
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Outcome
from monarq.times import iso
from monarq.wire.lease import ExtendAnswer, ExtendBody

_DEFAULT_SECONDS = QueueOptions().lease_time
"""For Queen's clients, which never say how long."""


def extend(service: Service, request: Request) -> Handled:
    body: ExtendBody = request.body
    seconds = _DEFAULT_SECONDS if body.seconds is None else body.seconds
    lease_id = request.path["leaseId"]
    asked = Renew(lease_id, seconds, request.principal.may_run_commands)
    return Pending(service.broker.submit_renews([asked]), partial(_answer, lease_id))


def _answer(lease_id: str, outcomes: list[Outcome[Renewed]]) -> Response:
    outcome = outcomes[0]
    if isinstance(outcome, MonarqError):
        raise outcome
    deadline = iso(outcome.expires_at)
    return Response(
        200, encode(ExtendAnswer(0, lease_id, True, None, 1, deadline, deadline, deadline))
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/lease/{leaseId}/extend",
        handler=extend,
        operation="extendLease",
        summary="Move a lease's deadline to so many seconds from now, never nearer",
        tag="messages",
        role=Role.WRITE,
        body=ExtendBody,
        needs_body=False,
        answer=ExtendAnswer,
        errors=(409,),
    ),
)
