"""Registers the handlers that are written for PostgreSQL alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from monarq.crypto import Cipher
from monarq.operations.handlers import Handlers
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database


class Tools(NamedTuple):
    """What a handler gets, and what the queries of both engines run on."""

    database: Database
    catalog: Catalog
    cipher: Cipher | None
    commands: bool = True
    """Whether the caller may work on shell commands."""

    def now(self) -> int | None:
        return self.database.now()

    async def fetch(self, sql: str, *args: Any) -> Sequence[Any]:
        return await self.database.fetch(sql, *args)

    def pushed_at(self, partition: str, seq: str) -> str:
        return (
            f"(select s.created_at from monarq.segments s where s.partition_id = {partition} "
            f"and s.first_seq <= {seq} order by s.first_seq desc limit 1)"
        )


handles: Handlers[Tools] = Handlers()
