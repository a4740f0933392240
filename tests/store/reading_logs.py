"""Logs as an export gives them, and deliveries to fill one with."""

from collections.abc import Sequence
from typing import Any

from monarq.store import Store
from monarq.store.arrow import row_batch
from monarq.store.batches import rows_of
from monarq.tables import TABLES, arrow_schema
from tests.store.calls import ack_all, pop, push


async def read(
    store: Store,
    table: str,
    after: str | None = None,
    until: str | None = None,
    queues: Sequence[str] | None = None,
) -> list[dict[str, Any]]:
    columns = TABLES[table].column_names
    found: list[dict[str, Any]] = []
    async for rows in rows_of(store, table, columns, after=after, until=until, queues=queues):
        batch = row_batch(table, columns, rows)
        batch.validate(full=True)
        assert batch.schema == arrow_schema(table)
        found += batch.to_pylist()
    return found


async def deliver(store: Store, queue: str = "q", times: int = 1) -> None:
    """Each leaves a row in the delivery log."""
    for _ in range(times):
        await push(store, queue)
        await ack_all(store, await pop(store, queue))
