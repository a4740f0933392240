"""A broker inside this process, on a store that this process opens: no server at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from monarq.broker.broker import Broker
from monarq.client.link import Admin, Link
from monarq.client.own_transaction import OwnTransactions
from monarq.clock import Clock
from monarq.config import Settings
from monarq.errors import ClientClosedError, MonarqError
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
from monarq.operations.operation import Operation
from monarq.store import open_store
from monarq.store.contract import Outcome, Store

_DRAIN_SECONDS = 10.0
R = TypeVar("R")


class EmbeddedAdmin(Calls):
    def __init__(self, link: EmbeddedLink) -> None:
        self._link = link

    async def call(self, request: Operation[R]) -> R:
        return await self._link.broker.call(request)

    async def restore(self, push: Push) -> list[Pushed]:
        return await self._link.broker.restore(push)


class EmbeddedLink(Link):
    """Pushes are answered when they are stored: there is no buffer, a store that is down is an
    error."""

    def __init__(
        self,
        address: str,
        *,
        keys: Sequence[bytes] = (),
        schema: str = "monarq",
        clock: Clock | None = None,
        settings: Settings | None = None,
        subject: str | None = None,
    ) -> None:
        super().__init__(OwnTransactions(schema=schema, keys=keys, clock=clock))
        self._address = address
        self._keys = keys
        self._schema = schema
        self._clock = clock
        self._settings = settings or Settings()
        self._subject = subject
        self._broker: Broker | None = None
        self._admin = EmbeddedAdmin(self)

    async def open(self) -> None:
        broker = await Broker.start(self._open_store, self._settings, clock=self._clock)
        try:
            # A broker waits for its store; whoever connects to one wants to know.
            await broker.store.ping()
        except BaseException:
            await broker.close(0)
            raise
        self._broker = broker

    async def _open_store(self) -> Store:
        return await open_store(
            self._address, clock=self._clock, keys=self._keys, schema=self._schema
        )

    async def close(self) -> None:
        if self._broker is not None:
            await self._broker.close(_DRAIN_SECONDS)
            self._broker = None

    @property
    def broker(self) -> Broker:
        if self._broker is None:
            raise ClientClosedError("the client is not connected: use `async with`, or connect")
        return self._broker

    @property
    def admin(self) -> Admin:
        return self._admin

    async def _push(self, push: Push) -> list[Pushed]:
        return await self.broker.push(Push(push.items, self._subject, push.commands))

    async def _pop(self, pop: Pop, wait_seconds: float) -> Popped:
        return await self.broker.pop(pop, wait_seconds)

    async def _ack(self, acks: Sequence[Ack]) -> list[Outcome[Acked]]:
        return await self.broker.ack(acks)

    async def _ack_and_pop(
        self, acks: Sequence[Ack], pop: Pop
    ) -> tuple[list[Outcome[Acked]], Popped]:
        acked, popped = await self.broker.ack_and_pop(acks, pop)
        if isinstance(popped, MonarqError):
            raise popped
        return acked, popped

    async def _renew(self, renew: Renew) -> Renewed:
        [outcome] = await self.broker.renew([renew])
        if isinstance(outcome, MonarqError):
            raise outcome
        return outcome

    async def _transaction(self, transaction: Transaction) -> TransactionDone:
        return await self.broker.transaction(transaction)
