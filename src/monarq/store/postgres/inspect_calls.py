"""The contract's calls that look at what is stored, mend it and keep it tidy."""

from __future__ import annotations

from monarq.model import (
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    Page,
)
from monarq.operations.messages import ListMessages
from monarq.store.contract.dead_letters import KeepingDeadLetters
from monarq.store.contract.inspecting import Inspecting
from monarq.store.postgres import dead_letters, inspection
from monarq.store.postgres.calls import Calls
from monarq.store.postgres.logs import DELIVERIES
from monarq.store.queries import logs


class InspectCalls(Calls, KeepingDeadLetters, Inspecting):
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
        return await logs.list_deliveries(self._tools, DELIVERIES, queue, limit, after)
