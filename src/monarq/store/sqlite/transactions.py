"""Transactions: pushes and acks of both kinds of queue, all or none of them."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.errors import MonarqError, TransactionFailedError
from monarq.model import Acked, Push, Pushed, Transaction, TransactionDone
from monarq.store.contract import Outcome
from monarq.store.sqlite import fencing
from monarq.store.sqlite.acks import Acking
from monarq.store.sqlite.appending import Appender
from monarq.store.sqlite.push import push_one
from monarq.store.sqlite.session import Session


def transaction(
    session: Session, requests: Sequence[Transaction], refused: Sequence[MonarqError | None]
) -> list[Outcome[TransactionDone]]:
    """`refused`: the errors of requests that are malformed."""
    answers: list[Outcome[TransactionDone]] = []
    for request, error in zip(requests, refused, strict=True):
        if error is not None:
            answers.append(error)
            continue
        try:
            with session.savepoint():
                answers.append(_carry_out(session, request))
        except MonarqError as mistake:
            answers.append(mistake)
    return answers


def _carry_out(session: Session, request: Transaction) -> TransactionDone:
    for lease in request.required_leases:
        try:
            fencing.covered(session, lease)
        except MonarqError as error:
            raise TransactionFailedError(None, error) from error
    results: dict[int, list[Pushed] | Acked] = {}
    appender = Appender(session)
    for index, operation in enumerate(request.operations):
        if isinstance(operation, Push):
            try:
                results[index] = push_one(session, appender, operation)
            except MonarqError as error:
                raise TransactionFailedError(index, error) from error
    appender.flush()
    acking = Acking(session)
    for index, operation in enumerate(request.operations):
        if not isinstance(operation, Push):
            try:
                results[index] = acking.carry_out(operation)
            except MonarqError as error:
                raise TransactionFailedError(index, error) from error
    return TransactionDone([results[index] for index in range(len(results))])
