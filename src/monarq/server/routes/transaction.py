"""Transactions: pushes and acks, all of them or none."""

from __future__ import annotations

from functools import partial
from uuid import uuid4

from monarq.errors import NotFoundError, TransactionFailedError
from monarq.model import Ack, Push, Transaction, TransactionDone
from monarq.operations.operation import Role
from monarq.server.decoding import body_decoder
from monarq.server.encoding import encode, pushed_items
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.outlines import TransactionOutline
from monarq.server.routes.ack import ack_request
from monarq.server.routes.push import push_request
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.wire.transaction import (
    AckOperation,
    AckResult,
    PushResult,
    TransactionAnswer,
    TransactionBody,
)


def transaction(service: Service, request: Request) -> Handled:
    body: TransactionBody = request.body
    operations: list[Push | Ack] = []
    commands = request.principal.may_run_commands
    for index, operation in enumerate(body.operations):
        if isinstance(operation, AckOperation):
            try:
                operations.append(ack_request(operation, None, commands))
            except NotFoundError as error:
                raise TransactionFailedError(index, error) from None
        else:
            operations.append(push_request(operation.items, request))
    asked = Transaction(operations, body.required_leases or [])
    return Pending(service.broker.submit_transaction(asked), partial(_answer, asked))


def _answer(asked: Transaction, done: TransactionDone) -> Response:
    results: list[PushResult | AckResult] = []
    for index, (operation, result) in enumerate(zip(asked.operations, done.results, strict=True)):
        if isinstance(result, list):
            results.append(PushResult(index, True, pushed_items(result)))
        else:
            assert isinstance(operation, Ack)
            results.append(
                AckResult(
                    success=True,
                    transaction_id=operation.transaction_id,
                    error=None,
                    queue_name=result.queue,
                    partition_name=result.partition,
                    lease_released=result.lease_released,
                    dlq=result.dead > 0,
                    count=result.count,
                    index=index,
                )
            )
    return Response(200, encode(TransactionAnswer(True, str(uuid4()), results)))


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/transaction",
        handler=transaction,
        summary="Push and ack, all or nothing",
        tag="messages",
        role=Role.WRITE,
        body=TransactionBody,
        decode=body_decoder(TransactionBody, TransactionOutline),
        answer=TransactionAnswer,
        errors=(409, 429),
    ),
)
