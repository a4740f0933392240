"""The asynchronous client."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any, TypeVar, overload

from monarq.client.connecting import open_link
from monarq.client.link import Admin, Link
from monarq.client.payloads import PayloadType
from monarq.client.queue import AsyncQueue
from monarq.client.transactions import AsyncTransaction
from monarq.clock import Clock
from monarq.model import Push, Pushed, PushItem

T = TypeVar("T")


class AsyncClient:
    """A connection to a broker: `async with AsyncClient("http://localhost:6632") as mq:`.

    `address` is the URL of a broker, several of them (any of which can serve), or the address of
    a store (`sqlite:///file`, `postgresql://…`, `memory:`): then the broker runs in this process.
    """

    def __init__(
        self,
        address: str | Sequence[str] = "http://127.0.0.1:6632",
        *,
        token: str | None = None,
        name: str | None = None,
        keys: Sequence[bytes] = (),
        schema: str = "monarq",
        clock: Clock | None = None,
        timeout: float = 30.0,
    ) -> None:
        """`token` is a JWT or API key; `name` is what this consumer is called in the delivery
        log; `keys` and `schema` are for stores."""
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.link: Link = open_link(
            address, token=token, keys=keys, schema=schema, clock=clock, timeout=timeout
        )

    async def connect(self) -> AsyncClient:
        await self.link.open()
        return self

    async def close(self) -> None:
        await self.link.close()

    async def __aenter__(self) -> AsyncClient:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @overload
    def queue(self, name: str) -> AsyncQueue[Any]: ...

    @overload
    def queue(self, name: str, payload: type[T]) -> AsyncQueue[T]: ...

    def queue(self, name: str, payload: Any = Any) -> AsyncQueue[Any]:
        """A handle on a queue; `payload` is the type that its payloads must have."""
        return AsyncQueue(self, name, PayloadType(payload))

    def transaction(self) -> AsyncTransaction:
        """`async with mq.transaction() as tx: tx.ack(message); tx.push(queue, payload)`."""
        return AsyncTransaction(self.link)

    @property
    def admin(self) -> Admin:
        """Everything else, by the names of the store's contract."""
        return self.link.admin

    async def push_items(self, items: list[PushItem]) -> list[Pushed]:
        """Items of any queues, all of them or none."""
        return await self.link.push(Push(items))
