"""Pushes and acks inside a transaction of the caller's own, on the same PostgreSQL.

What is pushed becomes visible when the caller commits, and never if the caller rolls back; so a
message about a row is there exactly if the row is. Consumers that wait find it by their own look
at the store, within `poll_max_ms`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.clock import Clock, SystemClock
from monarq.crypto import Cipher
from monarq.errors import TransactionFailedError
from monarq.model import Ack, Acked, Push, Pushed, Transaction, TransactionDone


class OwnTransactions:
    """How to reach the queues through a connection that is not ours."""

    def __init__(
        self, *, schema: str = "monarq", keys: Sequence[bytes] = (), clock: Clock | None = None
    ) -> None:
        self._schema = schema
        self._cipher = Cipher(keys) if keys else None
        self._clock = clock or SystemClock()

    async def push(self, connection: Any, push: Push) -> list[Pushed]:
        done = await self._carry_out(connection, push)
        [pushed] = done.results
        assert isinstance(pushed, list)
        return pushed

    async def ack(self, connection: Any, ack: Ack) -> Acked:
        done = await self._carry_out(connection, ack)
        [acked] = done.results
        assert isinstance(acked, Acked)
        return acked

    async def _carry_out(self, connection: Any, operation: Push | Ack) -> TransactionDone:
        from monarq.store.postgres.foreign import adopt
        from monarq.store.postgres.transactions import run_within

        work = await adopt(connection, self._clock, self._schema)
        try:
            return await run_within(work, self._cipher, Transaction([operation]))
        except TransactionFailedError as error:
            raise error.cause from None
