"""The PostgreSQL store: the contract, carried out by the modules beside this one."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.clock import Clock
from monarq.crypto import Cipher
from monarq.model import (
    POP_MAX_BYTES,
    Ack,
    Acked,
    LifecycleReport,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.operations import STORE_OPERATIONS
from monarq.operations.handlers import check
from monarq.store import queries, rekeying
from monarq.store.contract import Outcome, Store
from monarq.store.postgres import (
    acks,
    dead_letters,
    groups,
    inspection,
    items,
    outputs,
    push,
    queues,
    renewals,
    traces,
    transactions,
)
from monarq.store.postgres import rekeying as postgres_rekeying
from monarq.store.postgres.ack_and_pop import ack_and_pop
from monarq.store.postgres.database import Database
from monarq.store.postgres.export_calls import ExportCalls
from monarq.store.postgres.handlers import handles
from monarq.store.postgres.inspect_calls import InspectCalls
from monarq.store.postgres.pop import Popper
from monarq.store.postgres.queue_calls import QueueCalls
from monarq.store.postgres.watching import WatchingCalls
from monarq.store.rekeying import RekeyStep
from monarq.store.validation import check_max_bytes
from monarq.store.validation.calls import checks_arguments


@checks_arguments
class PostgresStore(QueueCalls, InspectCalls, ExportCalls, WatchingCalls, Store):
    def __init__(self, database: Database, cipher: Cipher | None) -> None:
        super().__init__(database, cipher)
        self._popper = Popper(database, self._catalog, cipher)
        self._seen = ""

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock,
        cipher: Cipher | None,
        schema: str = "monarq",
        connections: int = 10,
        timeout_seconds: float | None = None,
    ) -> PostgresStore:
        database = await Database.connect(
            dsn,
            clock=clock,
            schema=schema,
            connections=connections,
            timeout_seconds=timeout_seconds,
        )
        store = cls(database, cipher)
        try:
            store._seen = await database.snapshot()
        except BaseException:
            await database.close()
            raise
        return store

    async def close(self) -> None:
        await self._database.close()

    async def ping(self) -> None:
        await self._database.fetch("select 1 from monarq.queues limit 1")
        # It was away, and may have come back as it was some time ago.
        self._catalog.forget_all()

    async def changed(self) -> bool:
        snapshot = await self._database.snapshot()
        was, self._seen = self._seen, snapshot
        return snapshot != was

    # --- the hot path ------------------------------------------------------------------

    async def push(
        self, requests: Sequence[Push], *, mark: str | None = None, after: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        return await push.push(self._database, self._catalog, self._cipher, requests, mark, after)

    async def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        check_max_bytes(max_bytes)
        return await self._popper.pop(requests, max_bytes)

    async def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        return await acks.ack(self._database, self._catalog, self._cipher, requests)

    async def ack_and_pop(
        self, acks: Sequence[Ack], pops: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> tuple[list[Outcome[Acked]], list[Outcome[Popped]]]:
        check_max_bytes(max_bytes)
        return await ack_and_pop(
            self._database, self._catalog, self._cipher, self._popper, acks, pops, max_bytes
        )

    async def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        return await renewals.renew(self._database, requests)

    async def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        return [
            await transactions.run(self._database, self._catalog, self._cipher, request)
            for request in requests
        ]

    async def rekey_step(self, *, limit: int = 100, after: str | None = None) -> RekeyStep:
        if self._cipher is None:
            raise rekeying.no_key()
        place = rekeying.place(after, postgres_rekeying.TABLES)
        if after is None:
            await postgres_rekeying.wait_for_writers(self._database)
        return await postgres_rekeying.step(self._database, self._cipher, place, limit)

    # --- the broker's own ----------------------------------------------------------------

    async def lifecycle(self, *, limit: int = 1000) -> LifecycleReport:
        row = await self._database.fetchrow(
            "select * from monarq.lifecycle($1, $2)", self._database.now(), limit
        )
        # Apart: it locks many partitions, and pushes wait for them.
        made = await self._database.fetchrow(
            "select * from monarq.make_more_cursors($1)", self._database.now()
        )
        assert row is not None
        assert made is not None
        times = [row["next_at"], made["next_at"]]
        return LifecycleReport(
            next_at=min((time for time in times if time is not None), default=None),
            expired=row["expired"],
            promoted=row["promoted"],
            buried=row["buried"],
            removed=row["removed"],
            made=made["made"],
            wake=sorted({*row["wake"], made["queue"]} - {None}),
        )


#: Modules whose import registers handlers.
HANDLER_MODULES = (dead_letters, groups, inspection, items, outputs, queues, traces)

check("the PostgreSQL store", queries.handles, handles, wanted=STORE_OPERATIONS)
