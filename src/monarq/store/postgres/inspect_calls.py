"""The contract's calls that look at what is stored, mend it and keep it tidy."""

from __future__ import annotations

from monarq.model import (
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    LoggedAttempt,
    MetricPoint,
    Page,
    StoredMessage,
)
from monarq.store.contract.dead_letters import KeepingDeadLetters
from monarq.store.contract.inspecting import Inspecting
from monarq.store.contract.settings import KeepingSettings
from monarq.store.postgres import dead_letters, inspection, items, logs
from monarq.store.postgres.calls import Calls


class InspectCalls(Calls, KeepingDeadLetters, Inspecting, KeepingSettings):
    # --- dead letters --------------------------------------------------------------------

    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        return await dead_letters.list_dead_letters(
            self._database, self._cipher, which, limit, after
        )

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        return await dead_letters.count_dead_letters(self._database, self._cipher, which)

    # --- messages, logs ------------------------------------------------------------------

    async def list_messages(
        self,
        queue: str,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        created_from: int | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[StoredMessage]:
        return await inspection.list_messages(
            self._database,
            self._cipher,
            queue,
            partition=partition,
            first_seq=first_seq,
            created_from=created_from,
            limit=limit,
            after=after,
        )

    async def pass_messages(
        self,
        queue: str,
        offset: int,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        after: str | None = None,
    ) -> tuple[str | None, int]:
        return await inspection.pass_messages(
            self._database,
            queue,
            offset,
            partition=partition,
            first_seq=first_seq,
            after=after,
        )

    async def get_message(self, partition_id: int, transaction_id: str) -> StoredMessage:
        return await inspection.get_message(
            self._database, self._catalog, self._cipher, partition_id, transaction_id
        )

    async def delete_message(
        self, partition_id: int, transaction_id: str, *, commands: bool = True
    ) -> None:
        await inspection.delete_message(
            self._database, self._catalog, partition_id, transaction_id, commands=commands
        )

    async def list_deliveries(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Delivery]:
        return await logs.list_deliveries(self._database, self._cipher, queue, limit, after)

    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[LoggedAttempt]:
        return await items.list_attempts(self._database, self._cipher, queue, limit, after)

    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        return await logs.metrics(self._database, queue, since, until, limit, after)

    async def get_settings(self) -> dict[str, str]:
        return await logs.get_settings(self._database)

    async def set_setting(self, key: str, value: str | None) -> None:
        await logs.set_setting(self._database, key, value)
