"""What a client needs of a broker, wherever it runs.

The hot calls are methods of `Link`; all other calls, the operations of the API, are methods of
its `admin`.
"""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import Protocol

from monarq.client.own_transaction import OwnTransactions
from monarq.errors import InvalidRequestError, MonarqError
from monarq.model import (
    Ack,
    Acked,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.operations.calls import Calls
from monarq.store.contract import Outcome
from monarq.store.validation import (
    check_ack,
    check_json,
    check_list,
    check_pop,
    check_push,
    check_renew,
    check_transaction,
)


class Admin(Calls, Protocol):
    """The operations, and the call that stores exported messages again."""

    async def restore(self, push: Push) -> list[Pushed]: ...


class Link(abc.ABC):
    """One connection to a broker. Errors are those of `errors.py`, however far away it is.

    Requests are checked here, so that every way to a broker refuses the same ones in the same
    words: JSON cannot express some of what is refused, and a broker would never see it.
    """

    def __init__(self, own_transactions: OwnTransactions | None = None) -> None:
        self.own_transactions = own_transactions or OwnTransactions()

    @property
    @abc.abstractmethod
    def admin(self) -> Admin: ...

    @abc.abstractmethod
    async def open(self) -> None: ...

    @abc.abstractmethod
    async def close(self) -> None: ...

    async def push(self, push: Push) -> list[Pushed]:
        check_push(push)
        return await self._push(push)

    async def pop(self, pop: Pop, wait_seconds: float) -> Popped:
        check_pop(pop)
        return await self._pop(pop, wait_seconds)

    async def ack(self, acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        """Answers each ack, with its error in its place."""
        refused = _refused(acks)
        if not any(refused):
            return await self._ack(acks)
        sent = [ack for ack, error in zip(acks, refused, strict=True) if error is None]
        return _merged(refused, await self._ack(sent) if sent else [])

    async def ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> tuple[list[Outcome[Acked]], Popped]:
        """The acks, and then a pop that does not wait. Raises if the pop is refused: then the acks
        may have been carried out."""
        check_pop(pop)
        refused = _refused(acks)
        sent = [ack for ack, error in zip(acks, refused, strict=True) if error is None]
        if acks and not sent:
            return _merged(refused, []), await self._pop(pop, 0.0)
        outcomes, popped = await self._ack_and_pop(sent, pop)
        return _merged(refused, outcomes), popped

    async def renew(self, renew: Renew) -> Renewed:
        check_renew(renew)
        return await self._renew(renew)

    async def transaction(self, transaction: Transaction) -> TransactionDone:
        check_transaction(transaction)
        return await self._transaction(transaction)

    @abc.abstractmethod
    async def _push(self, push: Push) -> list[Pushed]: ...

    @abc.abstractmethod
    async def _pop(self, pop: Pop, wait_seconds: float) -> Popped: ...

    @abc.abstractmethod
    async def _ack(self, acks: Sequence[Ack]) -> list[Outcome[Acked]]: ...

    @abc.abstractmethod
    async def _ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> tuple[list[Outcome[Acked]], Popped]: ...

    @abc.abstractmethod
    async def _renew(self, renew: Renew) -> Renewed: ...

    @abc.abstractmethod
    async def _transaction(self, transaction: Transaction) -> TransactionDone: ...


def _refused(acks: Sequence[Ack]) -> list[InvalidRequestError | None]:
    """Return what is wrong with each ack, and None for each that is well-formed."""
    check_list(acks, "acks")
    return [_error_of(ack) for ack in acks]


def _error_of(ack: Ack) -> InvalidRequestError | None:
    try:
        check_ack(ack)
        if ack.result is not None:
            check_json(ack.result, "result")
    except InvalidRequestError as error:
        return error
    return None


def _merged(
    refused: Sequence[MonarqError | None], outcomes: Sequence[Outcome[Acked]]
) -> list[Outcome[Acked]]:
    """Return the outcomes of all acks, in order, of which some were not sent."""
    answered = iter(outcomes)
    return [next(answered) if error is None else error for error in refused]
