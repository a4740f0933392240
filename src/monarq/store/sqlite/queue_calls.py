"""The contract's calls on the hot path, and those about queues and groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from monarq.model import (
    POP_MAX_BYTES,
    Ack,
    Acked,
    Pop,
    Popped,
    Push,
    Pushed,
    Queue,
    QueueInfo,
    Renew,
    Renewed,
    StartFrom,
    Transaction,
    TransactionDone,
)
from monarq.store import validation
from monarq.store.contract import Outcome
from monarq.store.sqlite import acks, joining, pop, push, transactions
from monarq.store.sqlite.ack_and_pop import ack_and_pop
from monarq.store.sqlite.calls import Calls, each
from monarq.store.sqlite.queues import describe_queues


class QueueCalls(Calls):
    # --- the hot path ------------------------------------------------------------------

    async def push(
        self, requests: Sequence[Push], *, mark: str | None = None, after: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        for one in (mark, after):
            if one is not None:
                validation.check_mark(one)
        return await self._batch(
            requests, each(validation.check_push), partial(push.push, mark=mark, after=after)
        )

    async def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        validation.check_max_bytes(max_bytes)
        work = partial(pop.pop, max_bytes=max_bytes)
        return await self._batch(requests, each(validation.check_pop), work)

    async def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        return await self._batch(requests, acks.refusals, acks.ack)

    async def ack_and_pop(
        self, acks: Sequence[Ack], pops: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> tuple[list[Outcome[Acked]], list[Outcome[Popped]]]:
        validation.check_max_bytes(max_bytes)
        return await self._write(ack_and_pop(acks, pops, max_bytes))

    async def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        return await self._batch(requests, each(validation.check_renew), acks.renew)

    async def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        return await self._batch(
            requests, each(validation.check_transaction), transactions.transaction
        )

    # --- queues ------------------------------------------------------------------------

    async def queue_settings(self, name: str) -> Queue:
        return await self._read(lambda session: session.queue(name))

    async def describe_queues(self, queues: Sequence[str]) -> list[QueueInfo]:
        return await self._read(lambda session: describe_queues(session, queues))

    # --- groups ------------------------------------------------------------------------

    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        return await self._write(
            lambda session: joining.subscribe(session, group, start, queue, namespace, task)
        )
