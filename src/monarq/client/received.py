"""What a pop gives: messages that can be read and answered."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, Generic, TypeVar, overload

import msgspec

from monarq.client.handlers import error_text
from monarq.client.link import Link
from monarq.client.payloads import PayloadType, as_json
from monarq.client.times import Moment, to_datetime, to_micros
from monarq.errors import AlreadyAckedError, LeaseError, LeaseUnknownError, MonarqError
from monarq.model import DEFAULT_GROUP, Ack, Acked, AckStatus, Message, Pop, Popped, Renew
from monarq.store.contract import Outcome

T = TypeVar("T")


class Received(Generic[T]):
    """A message or item under a lease. It wants one answer: `ack`, `fail`, `retry`, `release` or
    `bury`; without one it is delivered again when its lease is over."""

    def __init__(
        self, link: Link, message: Message, kind: PayloadType[T], lease_id: str | None, group: str
    ) -> None:
        self._link = link
        self._message = message
        self._kind = kind
        self.lease_id = lease_id
        """None if nothing needs an answer, as with `auto_ack`."""
        self.group = group
        self.answered = lease_id is None

    @property
    def id(self) -> str:
        return self._message.id

    @property
    def queue(self) -> str:
        return self._message.queue

    @property
    def partition(self) -> str:
        return self._message.partition

    @property
    def partition_id(self) -> int:
        return self._message.partition_id

    @property
    def seq(self) -> int:
        return self._message.seq

    @property
    def transaction_id(self) -> str:
        return self._message.transaction_id

    @property
    def trace_id(self) -> str | None:
        return self._message.trace_id

    @property
    def producer(self) -> str | None:
        """Who pushed it, as the broker knows it from the token."""
        return self._message.producer

    @property
    def attempts(self) -> int:
        """Which delivery this is, counted from 1."""
        return self._message.attempts

    @property
    def max_attempts(self) -> int | None:
        return self._message.max_attempts

    @property
    def priority(self) -> int | None:
        return self._message.priority

    @property
    def created_at(self) -> datetime:
        return to_datetime(self._message.created_at)

    @property
    def headers(self) -> dict[str, Any]:
        raw = self._message.headers
        return msgspec.json.decode(raw, type=dict[str, Any]) if raw else {}

    @property
    def data(self) -> bytes:
        """The payload as it was pushed: JSON."""
        return self._message.payload

    @property
    def payload(self) -> T:
        """The payload in the queue's type; `PayloadError` if it does not fit."""
        return self._kind.decode(self._message.payload)

    async def ack(self, result: Any = None, *, connection: Any = None) -> None:
        """Done. `result` is kept with an item's attempt. With `connection`, as of `push`, it is
        done when the transaction that is open on it is committed."""
        encoded = None if result is None else as_json(result, "the result")
        ack = self.to_ack(result=encoded)
        if connection is None:
            await self._answer(ack)
        else:
            await self._link.own_transactions.ack(connection, ack)
            self.answered = True

    async def fail(
        self, error: str | BaseException = "", *, retry_at: Moment | None = None
    ) -> None:
        """Deliver it again after the queue's delay or backoff, or bury it if its attempts are
        used up."""
        status = AckStatus.FAILED
        said = error_text(error) or None
        await self._answer(self.to_ack(status, error=said, retry_at=to_micros(retry_at)))

    async def retry(self, *, at: Moment | None = None) -> None:
        """As `fail`; an item goes to the tail instead, or waits until `at`."""
        await self._answer(self.to_ack(AckStatus.RETRY, retry_at=to_micros(at)))

    async def release(self) -> None:
        """Give it back as if it had never been delivered."""
        await self._answer(self.to_ack(AckStatus.RELEASE))

    async def bury(self, error: str | BaseException = "") -> None:
        """To the dead letters, now."""
        await self._answer(self.to_ack(AckStatus.DEAD, error=error_text(error) or None))

    async def renew(self, seconds: float) -> datetime:
        """Have the lease (of all that came with this message) last that long from now."""
        renewed = await self._link.renew(Renew(self._lease(), seconds))
        return to_datetime(renewed.expires_at)

    async def trace(self, event: str, data: Any = None, *, names: Sequence[str] = ()) -> None:
        """Note something about this message, to be found by it and by each of `names`."""
        await self._link.admin.add_trace(
            self.partition_id,
            self.transaction_id,
            as_json(data, "the data of a trace"),
            event_type=event,
            names=names,  # type: ignore[arg-type] # checked by the call
        )

    def to_ack(
        self,
        status: AckStatus = AckStatus.COMPLETED,
        *,
        error: str | None = None,
        retry_at: int | None = None,
        result: bytes | None = None,
    ) -> Ack:
        """The answer as a request, for a transaction or a batch of answers."""
        return Ack(
            status=status,
            transaction_id=self.transaction_id,
            partition_id=self.partition_id,
            lease_id=self._lease(),
            group=self.group,
            error=error,
            retry_at=retry_at,
            result=result,
        )

    async def _answer(self, ack: Ack) -> Acked:
        if self.answered:
            raise AlreadyAckedError(f"message {self.id} has its answer already")
        [outcome] = await self._link.ack([ack])
        if isinstance(outcome, MonarqError):
            raise outcome
        self.answered = True
        return outcome

    def _lease(self) -> str:
        if self.lease_id is None:
            raise AlreadyAckedError(f"message {self.id} was acked when it was popped")
        return self.lease_id

    def __repr__(self) -> str:
        return f"<{self.queue}/{self.partition} {self.id}, attempt {self.attempts}>"


class Batch(Sequence[Received[T]]):
    """What one pop gave, in order. All of it can be answered at once."""

    def __init__(self, link: Link, popped: Popped, kind: PayloadType[T], group: str) -> None:
        self._link = link
        self._kind = kind
        self.lease_id = popped.lease_id
        self.group = group or DEFAULT_GROUP
        self.is_being_answered = False
        """An answer to all that is left is under way: the lease may have ended with it."""
        self._messages = [
            Received(link, message, kind, popped.lease_id, self.group)
            for message in popped.messages
        ]

    @overload
    def __getitem__(self, index: int) -> Received[T]: ...

    @overload
    def __getitem__(self, index: slice) -> list[Received[T]]: ...

    def __getitem__(self, index: int | slice) -> Received[T] | list[Received[T]]:
        return self._messages[index]

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Received[T]]:
        return iter(self._messages)

    def __repr__(self) -> str:
        return f"<{len(self)} messages, the first of them {self._messages[:1]}>"

    @property
    def unanswered(self) -> list[Received[T]]:
        return [message for message in self._messages if not message.answered]

    def is_last_unanswered(self, message: Received[T]) -> bool:
        """Whether this one, the last of them, is all that wants an answer."""
        return message is self._messages[-1] and self.unanswered == [message]

    async def ack(self) -> None:
        """All that has no answer yet is done."""
        await self._answer(AckStatus.COMPLETED)

    async def ack_and_pop(self, pop: Pop) -> tuple[MonarqError | None, Batch[T]]:
        """`ack`, and what a pop that does not wait gives then, in one call; the error is what `ack`
        would raise. It takes nothing that others wait for already."""
        left = self.unanswered
        # By its name, where it can be: whoever has to repeat that is told that it was done.
        is_one = len(left) == 1
        acks = [left[0].to_ack()] if is_one else self._acks(left, AckStatus.COMPLETED, None)
        self.is_being_answered = True
        outcomes, popped = await self._link.ack_and_pop(acks, pop)
        following = Batch(self._link, popped, self._kind, pop.group)
        try:
            return await self._noted(left, acks, outcomes), following
        except BaseException:
            # Nobody will hear of it.
            await asyncio.shield(following.release())
            raise

    async def fail(self, error: str | BaseException = "") -> None:
        await self._answer(AckStatus.FAILED, error_text(error) or None)

    async def release(self) -> None:
        await self._answer(AckStatus.RELEASE)

    async def renew(self, seconds: float) -> None:
        if self.lease_id is not None:
            await self._link.renew(Renew(self.lease_id, seconds))

    async def _answer(self, status: AckStatus, error: str | None = None) -> None:
        left = self.unanswered
        if not left:
            return
        acks = self._acks(left, status, error)
        self.is_being_answered = True
        failure = await self._noted(left, acks, await self._link.ack(acks))
        if failure is not None:
            raise failure

    def _acks(self, left: list[Received[T]], status: AckStatus, error: str | None) -> list[Ack]:
        if len(left) == len(self._messages):
            return [Ack(status=status, lease_id=self.lease_id, group=self.group, error=error)]
        return [message.to_ack(status, error=error) for message in left]

    async def _noted(
        self, left: list[Received[T]], acks: list[Ack], outcomes: Sequence[Outcome[Acked]]
    ) -> MonarqError | None:
        """Who has an answer now; the first error."""
        faults = [each if isinstance(each, MonarqError) else None for each in outcomes]
        if acks[0].transaction_id is None and isinstance(faults[0], LeaseUnknownError):
            faults = await self._known_by_name(left, acks[0], faults[0])
        if len(faults) == len(left):
            for message, fault in zip(left, faults, strict=True):
                message.answered = fault is None
        elif not any(faults):
            for message in left:
                message.answered = True
        return next((fault for fault in faults if fault is not None), None)

    async def _known_by_name(
        self, left: list[Received[T]], whole: Ack, unknown: LeaseUnknownError
    ) -> list[MonarqError | None]:
        """A lease that has ended says nothing of its messages. Where the ack was repeated, they do:
        those that have their answer got it by the first one."""
        if not unknown.repeated:
            return [unknown]
        named = [message.to_ack(whole.status, error=whole.error) for message in left]
        faults: list[MonarqError | None] = []
        for outcome in await self._link.ack(named):
            if isinstance(outcome, LeaseError):
                outcome.repeated = True
            faults.append(None if isinstance(outcome, Acked | AlreadyAckedError) else outcome)
        return faults
