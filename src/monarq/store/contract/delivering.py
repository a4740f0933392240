"""The hot path: calls that take many requests and answer each in its place."""

from __future__ import annotations

import abc
from collections.abc import Sequence
from typing import TypeAlias, TypeVar

from monarq.errors import MonarqError
from monarq.model import (
    POP_MAX_BYTES,
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

T = TypeVar("T")
Outcome: TypeAlias = T | MonarqError


class Delivering(abc.ABC):
    @abc.abstractmethod
    async def push(
        self, requests: Sequence[Push], *, mark: str | None = None, after: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        """Store each request's items, all or none of them; one `Pushed` an item, in order.

        A queue that does not exist is made, as an ordered one. Within a partition commit
        order is seq order, without a hole. A transaction id that the partition already has
        is not stored again: `duplicate`, with the seq of the first.

        `mark` makes a call safe to repeat when nobody knows what became of it: text of up to 64
        printable ASCII characters, another one for every call that is not such a repeat. If
        anything of a call was stored, its mark is, in the same transaction, for a day. A call
        whose mark is there stores nothing and raises `AlreadyPushedError`, whatever it holds;
        the error says which requests of the first were refused. Of calls with one mark at the
        same time, one is stored.

        `after` is the mark of a call that must have been stored before: else nothing is, and
        `ConflictError` is raised. A call that was there first, and that has a partition with
        this one in common, is waited for. So whoever sends the second before the first is
        answered keeps their order, whatever becomes of the first.

        Errors: `InvalidRequestError`, `QueueFullError`, `EncryptionKeyError`.
        """

    async def restore(self, push: Push) -> list[Pushed]:
        """Push what an import brings, with the producer and the attempts of the original. For
        callers that may say whose a message is: admins, or the owner of the store."""
        [outcome] = await self.push([push])
        if isinstance(outcome, MonarqError):
            raise outcome
        return outcome

    @abc.abstractmethod
    async def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        """Lease what is available to each request; no messages where there is nothing.

        Ordered: up to `partitions` partitions that were available longest, up to `batch`
        messages in all, under one lease id. Work: up to `batch` items by effective priority;
        requests of one call for the same queue share what is there, dealt one at a time.
        Each request gets at most `max_bytes` of payloads as they are stored, or one message that
        is larger: what would pass it stays for the next pop.

        Errors: `InvalidRequestError`, `EncryptionKeyError` (then nothing stays leased),
        `ForbiddenError` (`Pop.commands`).
        """

    @abc.abstractmethod
    async def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        """Answer messages or items under a live lease.

        Errors, each leaving things as they were: the `LeaseError`s, `NotFoundError`,
        `InvalidRequestError`, `ForbiddenError` (`Ack.commands`).
        """

    @abc.abstractmethod
    async def ack_and_pop(
        self, acks: Sequence[Ack], pops: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> tuple[list[Outcome[Acked]], list[Outcome[Popped]]]:
        """The same as `ack` and then `pop`, for one commit instead of two: the pops find what the
        acks freed.

        Where a store has to make two commits of it after all, and fails as a whole, the acks may
        have taken effect without the pops.
        """

    @abc.abstractmethod
    async def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        """Move the deadline of live leases to `seconds` from now, never nearer than it was."""

    @abc.abstractmethod
    async def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        """Carry out each transaction's pushes and acks, all or none of them.

        Every lease in `required_leases` must be live. A failure is a
        `TransactionFailedError` that names the operation and holds its error.
        """
