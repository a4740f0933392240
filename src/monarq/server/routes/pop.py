"""Pop: a lease on what is there, or a wait for it; 204 where there is nothing. With acks before it,
it does not wait, so that they are answered at once.

A queue that does not exist is an empty queue.
"""

from __future__ import annotations

from functools import partial

from msgspec import UNSET, structs

from monarq.errors import InvalidRequestError, MonarqError, drop_frames
from monarq.model import DEFAULT_GROUP, MAX_BATCH, MAX_PARTITIONS, Acked, Pop, Popped, StartFrom
from monarq.operations.operation import Role
from monarq.server.answers import error_headers, error_status, error_text
from monarq.server.encoding import acked_pop_answer, encode, popped_answer
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.routes.ack import asked_acks, decode_batch
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Outcome
from monarq.times import parse_utc
from monarq.wire.ack import AckBatchBody
from monarq.wire.pop import AckedPopAnswer, Autopilot, PopAnswer, PopQuery, PopRefused

MAX_WAIT_SECONDS = 3_600.0
_AUTOPILOT = Autopilot(batch=200, partitions=10)
_ONE = Autopilot(batch=1, partitions=1)
_NOTHING = Response(204)
_KNOWN_MAX = 1_024


class _Asked:
    """What a target asks for; made once for all requests with the same one."""

    __slots__ = ("autopilot", "group", "path", "plain", "pop", "query", "wait_seconds")

    def __init__(self, path: dict[str, str], query: PopQuery) -> None:
        if query.conflation:
            raise InvalidRequestError("conflation is not supported: every message is delivered")
        self.path = path
        self.query = query
        self.group = query.consumer_group or DEFAULT_GROUP
        sizes = _sizes(query)
        self.autopilot = sizes if query.autopilot else UNSET
        self.pop = Pop(
            queue=path.get("queue"),
            partition=path.get("partition"),
            namespace=query.namespace or None,
            task=query.task or None,
            group=self.group,
            batch=sizes.batch,
            partitions=sizes.partitions,
            lease_seconds=query.lease_time,
            auto_ack=query.auto_ack,
            start=_start(query),
            consumer=query.consumer,
        )
        self.plain = structs.replace(self.pop, commands=False)
        """For callers who may not work on shell commands."""
        self.wait_seconds = min(query.timeout / 1_000, MAX_WAIT_SECONDS) if query.wait else 0.0

    def answer(self, popped: Popped) -> Response:
        if not popped.messages:
            return _NOTHING
        return Response(200, popped_answer(popped, self.group, self.autopilot))


def _asked(service: Service, request: Request) -> _Asked:
    """The application gives the very same query and path to requests with the same target."""
    query, known = request.query, service.known_pops
    found: _Asked | None = known.get(id(query))
    if found is None or found.query is not query or found.path is not request.path:
        found = _Asked(request.path, query)
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known[id(query)] = found
    return found


def pop(service: Service, request: Request) -> Handled:
    asked = _asked(service, request)
    return Pending(
        service.broker.submit_pop(_as_caller(request, asked), asked.wait_seconds),
        asked.answer,
        partial(_give_back, service, asked.group),
    )


def ack_and_pop(service: Service, request: Request) -> Handled:
    asked = _asked(service, request)
    if asked.query.wait:
        raise InvalidRequestError(
            "a pop that comes with acks does not wait: leave out wait, and if nothing is there "
            "pop again without acks"
        )
    acks = asked_acks(request, asked.query.consumer_group)

    def finish(done: tuple[list[Outcome[Acked]], Outcome[Popped]]) -> Response:
        outcomes, popped = done
        acknowledged = acks.answers(outcomes)
        if isinstance(popped, MonarqError):
            drop_frames(popped)
            refused = PopRefused(error_text(popped), popped.code, acknowledged)
            return Response(error_status(popped), encode(refused), headers=error_headers(popped))
        return Response(200, acked_pop_answer(acknowledged, popped, asked.group, asked.autopilot))

    def undelivered(done: tuple[list[Outcome[Acked]], Outcome[Popped]]) -> None:
        if isinstance(done[1], Popped):
            _give_back(service, asked.group, done[1])

    future = service.broker.submit_ack_and_pop(acks.good, _as_caller(request, asked))
    return Pending(future, finish, undelivered)


def _as_caller(request: Request, asked: _Asked) -> Pop:
    """Return the pop with the caller's rights and, unless the request names one, its consumer."""
    principal = request.principal
    wanted = asked.pop if principal.may_run_commands else asked.plain
    subject = principal.subject
    if subject is not None and wanted.consumer is None:
        return structs.replace(wanted, consumer=subject)
    return wanted


def _sizes(query: PopQuery) -> Autopilot:
    """Return how many messages of how many partitions a pop takes at most.

    Larger numbers are cut and not refused: Queen has no limits, and its clients take the refusal
    of a pop for an empty queue.
    """
    default = _AUTOPILOT if query.autopilot else _ONE
    return Autopilot(
        batch=min(query.batch or default.batch, MAX_BATCH),
        partitions=min(query.partitions or default.partitions, MAX_PARTITIONS),
    )


def _start(query: PopQuery) -> StartFrom | int:
    """Where a new group begins; a point in time says more than a mode."""
    if query.subscription_from is None:
        # Queen's clients also send modes of their own for "all", such as `from_beginning`.
        is_new = query.subscription_mode in ("new", "new-only")
        return StartFrom.NEW if is_new else StartFrom.ALL
    if query.subscription_from == "now":
        return StartFrom.NEW
    return parse_utc(query.subscription_from, "subscriptionFrom")


def _give_back(service: Service, group: str, popped: Popped) -> None:
    if popped.lease_id is not None:
        service.broker.give_back(popped, group)


def _routes(path: str, operation: str, summary: str) -> tuple[Route, Route]:
    """To pop, and to pop after some acks."""
    return (
        Route(
            method="GET",
            path=path,
            handler=pop,
            operation=operation,
            summary=summary,
            tag="messages",
            role=Role.WRITE,
            query=PopQuery,
            answer=PopAnswer,
            empty=True,
            errors=(409,),
        ),
        Route(
            method="POST",
            path=path,
            handler=ack_and_pop,
            operation=f"ackAnd{operation[0].upper()}{operation[1:]}",
            summary=f"Answer messages, and then {summary[0].lower()}{summary[1:]}, without a wait",
            tag="messages",
            role=Role.WRITE,
            query=PopQuery,
            body=AckBatchBody,
            decode=decode_batch,
            answer=AckedPopAnswer,
            errors=(409,),
        ),
    )


ROUTES = (
    *_routes("/api/v1/pop/queue/{queue}", "pop", "Pop from a queue"),
    *_routes(
        "/api/v1/pop/queue/{queue}/partition/{partition}", "popPartition", "Pop from one partition"
    ),
    *_routes("/api/v1/pop", "popLabelled", "Pop from the queues of a namespace and/or task"),
)
