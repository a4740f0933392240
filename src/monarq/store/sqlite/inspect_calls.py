"""The contract's calls that look at what is stored, mend it and keep it tidy."""

from __future__ import annotations

from functools import partial

from monarq.model import (
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    LifecycleReport,
    Page,
)
from monarq.operations.messages import ListMessages
from monarq.store import rekeying
from monarq.store.queries import logs
from monarq.store.rekeying import RekeyStep
from monarq.store.sqlite import dead_letters, lifecycle, messages
from monarq.store.sqlite import rekeying as sqlite_rekeying
from monarq.store.sqlite.calls import Calls
from monarq.store.sqlite.logs import DELIVERIES

_MOST_POINTS = 10_000
_MOST_AT_ONCE = 100_000


class InspectCalls(Calls):
    # --- dead letters --------------------------------------------------------------------

    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        return await self._read(
            lambda session: dead_letters.list_dead_letters(session, which, limit, after)
        )

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        return await self._read(lambda session: dead_letters.count_dead_letters(session, which))

    # --- messages ------------------------------------------------------------------------

    async def pass_messages(self, request: ListMessages) -> ListMessages:
        return await self._read(lambda session: messages.pass_messages(session, request))

    # --- logs ----------------------------------------------------------------------------

    async def list_deliveries(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Delivery]:
        return await self._query(
            lambda db: logs.list_deliveries(db, DELIVERIES, queue, limit, after)
        )

    async def rekey_step(self, *, limit: int = 100, after: str | None = None) -> RekeyStep:
        cipher = self._cipher
        if cipher is None:
            raise rekeying.no_key()
        place = rekeying.place(after, sqlite_rekeying.TABLES)
        step = partial(sqlite_rekeying.step, cipher=cipher, at=place, limit=limit)
        seen = await self._read(partial(step, writes=False))
        return await self._write(partial(step, writes=True)) if seen.changed else seen

    # --- the broker's own ----------------------------------------------------------------

    async def lifecycle(self, *, limit: int = 1000) -> LifecycleReport:
        return await self._write(lambda session: lifecycle.lifecycle(session, limit))
