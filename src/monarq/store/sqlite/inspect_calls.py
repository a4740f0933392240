"""The contract's calls that look at what is stored, mend it and keep it tidy."""

from __future__ import annotations

from functools import partial

from monarq.model import (
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    LifecycleReport,
    LoggedAttempt,
    MetricPoint,
    Page,
)
from monarq.operations.messages import ListMessages
from monarq.store import rekeying
from monarq.store.rekeying import RekeyStep
from monarq.store.sqlite import dead_letters, item_calls, lifecycle, logs, messages
from monarq.store.sqlite import rekeying as sqlite_rekeying
from monarq.store.sqlite.calls import Calls

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
        return await self._read(lambda session: logs.list_deliveries(session, queue, limit, after))

    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[LoggedAttempt]:
        return await self._read(
            lambda session: item_calls.list_attempts(session, queue, limit, after)
        )

    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        return await self._read(
            lambda session: logs.metrics(session, queue, since, until, limit, after)
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

    async def get_settings(self) -> dict[str, str]:
        return await self._read(logs.get_settings)

    async def set_setting(self, key: str, value: str | None) -> None:
        await self._write(lambda session: logs.set_setting(session, key, value))
