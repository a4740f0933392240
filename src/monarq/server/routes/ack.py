"""Ack: the answer to what was popped, one by one or many at once; each is judged alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec import UNSET, Raw, Struct, UnsetType

from monarq.errors import InvalidRequestError, MonarqError, NotFoundError, drop_frames
from monarq.model import DEFAULT_GROUP, MAX_BATCH, Ack, Acked, AckStatus
from monarq.operations.operation import Role
from monarq.server.answers import error_headers, error_status, error_text
from monarq.server.decoding import body_decoder
from monarq.server.encoding import encode
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.outlines import AckOutline
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.contract import Outcome
from monarq.times import micros_of
from monarq.wire.ack import AckAnswer, AckBatchBody, AckBody

_STATUSES = {
    None: AckStatus.COMPLETED,
    "completed": AckStatus.COMPLETED,
    "success": AckStatus.COMPLETED,
    "failed": AckStatus.FAILED,
    "retry": AckStatus.RETRY,
    "release": AckStatus.RELEASE,
    "dead": AckStatus.DEAD,
    "dlq": AckStatus.DEAD,
}


# --- one -------------------------------------------------------------------------------


def ack(service: Service, request: Request) -> Handled:
    body: AckBody = request.body
    try:
        asked = ack_request(body, None, request.principal.may_run_commands)
    except NotFoundError as error:
        return _single(body.transaction_id, [error])
    return Pending(service.broker.submit_acks([asked]), partial(_single, body.transaction_id))


def ack_request(body: AckBody, group: str | None, commands: bool) -> Ack:
    """What a body asks of the broker; `group` where it names none itself. `commands`: whether the
    caller may work on shell commands."""
    return Ack(
        status=_STATUSES[body.status],
        transaction_id=body.transaction_id,
        partition_id=None if body.partition_id is None else partition_number(body.partition_id),
        lease_id=body.lease_id,
        group=body.consumer_group or group or DEFAULT_GROUP,
        error=body.error,
        retry_at=None if body.retry_at is None else micros_of(body.retry_at),
        result=_result(body.result),
        commands=commands,
    )


@lru_cache(maxsize=4096)
def partition_number(given: str | int) -> int:
    """Partition ids are text to the outside; one that cannot be ours names no partition."""
    if isinstance(given, int):
        number = given
    else:
        number = int(given) if given.isascii() and given.isdecimal() and len(given) < 19 else 0
    if not 0 < number < 10**18:
        raise NotFoundError(f"there is no partition {str(given)[:64]!r}")
    return number


def _result(raw: Raw | UnsetType) -> bytes | None:
    result = None if isinstance(raw, UnsetType) else bytes(raw)
    return None if result == b"null" else result


def _single(transaction_id: str | None, outcomes: list[Outcome[Acked]]) -> Response:
    outcome = outcomes[0]
    answer = encode(ack_answer(transaction_id, outcome))
    if isinstance(outcome, MonarqError):
        return Response(error_status(outcome), answer, headers=error_headers(outcome))
    return Response(200, answer)


def ack_answer(transaction_id: str | None, outcome: Outcome[Acked]) -> AckAnswer:
    if isinstance(outcome, MonarqError):
        drop_frames(outcome)
        return AckAnswer(
            False, transaction_id, error_text(outcome), None, None, False, False, outcome.code
        )
    return AckAnswer(
        True,
        transaction_id,
        None,
        outcome.queue,
        outcome.partition,
        outcome.lease_released,
        outcome.dead > 0,
        UNSET,
        outcome.count if transaction_id is None else UNSET,
    )


# --- many ------------------------------------------------------------------------------


_COMMAS_MAX = 20 * MAX_BATCH


class _Envelope(Struct, rename="camel", forbid_unknown_fields=True):
    """A batch of which the single acks are not looked at yet."""

    acknowledgments: list[Raw] | None = None
    consumer_group: Any = None
    lease_id: Any = None
    status: Any = None
    error: Any = None
    retry_at: Any = None


_decode_batch = body_decoder(AckBatchBody, AckOutline)
_decode_envelope = body_decoder(_Envelope, AckOutline)
_decode_one = body_decoder(AckBody)


class AckBatch(Struct):
    """A decoded batch: each ack, or why it cannot be read."""

    acks: Sequence[AckBody | InvalidRequestError]
    consumer_group: str | None


def decode_batch(body: bytes) -> AckBatch:
    """One ack that is malformed spoils only itself: if the whole cannot be decoded at once,
    each ack is decoded alone."""
    try:
        read: AckBatchBody = _decode_batch(body)
        given: Sequence[AckBody | InvalidRequestError] | None = read.acknowledgments
    except InvalidRequestError:
        if body.count(b",") > _COMMAS_MAX:
            # Not worth the memory: a list of so much may be of next to nothing.
            raise
        envelope: _Envelope = _decode_envelope(body)
        acks = envelope.acknowledgments
        if acks is None or len(acks) > MAX_BATCH:
            raise
        envelope.acknowledgments = None
        read = _decode_batch(encode(envelope))
        given = [_one(raw) for raw in acks]
    if given is not None:
        if (read.lease_id, read.status, read.error, read.retry_at) != (None,) * 4:
            raise InvalidRequestError("give acknowledgments, or a leaseId and status, not both")
        return AckBatch(given, read.consumer_group)
    if read.lease_id is None:
        raise InvalidRequestError("acknowledgments, or a leaseId and status, must be given")
    whole = AckBody(
        lease_id=read.lease_id, status=read.status, error=read.error, retry_at=read.retry_at
    )
    return AckBatch([whole], read.consumer_group)


def _one(raw: Raw) -> AckBody | InvalidRequestError:
    try:
        decoded: AckBody = _decode_one(bytes(raw))
    except InvalidRequestError as error:
        return error
    return decoded


class AskedAcks(NamedTuple):
    good: list[Ack]
    refused: list[AckAnswer | None]
    """What those are told that cannot even be asked; None for the others."""

    def answers(self, outcomes: Sequence[Outcome[Acked]]) -> list[AckAnswer]:
        answered = [
            ack_answer(request.transaction_id, outcome)
            for request, outcome in zip(self.good, outcomes, strict=True)
        ]
        if len(answered) == len(self.refused):
            return answered
        rest = iter(answered)
        return [answer or next(rest) for answer in self.refused]


def asked_acks(request: Request, group: str | None = None) -> AskedAcks:
    """What a request with a batch asks of the broker; `group` where the batch names none."""
    batch: AckBatch = request.body
    commands = request.principal.may_run_commands
    asked = AskedAcks([], [])
    for body in batch.acks:
        if isinstance(body, InvalidRequestError):
            asked.refused.append(ack_answer(None, body))
            continue
        try:
            asked.good.append(ack_request(body, batch.consumer_group or group, commands))
            asked.refused.append(None)
        except NotFoundError as error:
            asked.refused.append(ack_answer(body.transaction_id, error))
    return asked


def ack_batch(service: Service, request: Request) -> Handled:
    asked = asked_acks(request)
    if not asked.good:
        return Response(200, encode(asked.answers([])))
    return Pending(
        service.broker.submit_acks(asked.good),
        lambda outcomes: Response(200, encode(asked.answers(outcomes))),
    )


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/ack",
        handler=ack,
        summary="Answer a message, or all of a lease",
        tag="messages",
        role=Role.WRITE,
        body=AckBody,
        answer=AckAnswer,
        errors=(404, 409),
    ),
    Route(
        method="POST",
        path="/api/v1/ack/batch",
        handler=ack_batch,
        summary="Answer many messages, each on its own, or all of a lease",
        tag="messages",
        role=Role.WRITE,
        body=AckBatchBody,
        decode=decode_batch,
        answer=list[AckAnswer],
    ),
)
