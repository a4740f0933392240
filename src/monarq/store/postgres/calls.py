"""What the parts of the store share: each says only what runs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from monarq.crypto import Cipher
from monarq.operations import Operation
from monarq.store import queries
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles

T = TypeVar("T")


class Calls(queries.SharedCalls):
    def __init__(self, database: Database, cipher: Cipher | None) -> None:
        self._database = database
        self._cipher = cipher
        self._catalog = Catalog(database)
        self._tools = Tools(database, self._catalog, cipher)

    async def carry_out(self, request: Operation[Any], *, commands: bool) -> Any:
        own = handles.table.get(type(request))
        if own is not None:
            return await own(self._tools._replace(commands=commands), request)
        return await queries.handles.table[type(request)](self._tools, request)

    async def _query(
        self, work: Callable[[queries.Queries], Awaitable[T]], *, writes: bool = False
    ) -> T:
        return await work(self._tools)
