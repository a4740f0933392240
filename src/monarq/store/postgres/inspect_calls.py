"""The contract's calls that look at what is stored, mend it and keep it tidy."""

from __future__ import annotations

from monarq.model import (
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    LoggedAttempt,
    MetricPoint,
    Page,
)
from monarq.operations.messages import ListMessages
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

    async def pass_messages(self, request: ListMessages) -> ListMessages:
        return await inspection.pass_messages(self._database, request)

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
