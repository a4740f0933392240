"""Reading straight from a store, by a loop in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import wait
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from monarq.client.portal import Portal
from monarq.errors import StoreUnavailableError
from monarq.spark.access.contract import QueueInfo, SeqRange
from monarq.spark.access.requests import archived_parts, check_kind
from monarq.store import Store, open_store
from monarq.store.arrow import message_batch, plan_batch, row_batch
from monarq.store.batches import rows_of, segments_of
from monarq.store.positions import check_columns
from monarq.tables import TableKind

T = TypeVar("T")
_BYTES_AT_ONCE = 16 << 20
_CONNECTIONS = 4
_TIMEOUT_SECONDS = 300.0
_SQLITE = "sqlite:///"


class StoreAccess:
    """See `contract.Access`."""

    def __init__(self, url: str, keys: Sequence[bytes], schema: str = "monarq") -> None:
        # To look at a store that is not there must not make it.
        if url.startswith(_SQLITE) and not Path(url.removeprefix(_SQLITE)).is_file():
            raise StoreUnavailableError(f"there is no store {url.removeprefix(_SQLITE)!r}")
        self._portal = Portal()
        try:
            self._store: Store = self._portal.run(
                open_store(
                    url,
                    keys=keys,
                    schema=schema,
                    connections=_CONNECTIONS,
                    timeout_seconds=_TIMEOUT_SECONDS,
                )
            )
        except BaseException:
            self._portal.close()
            raise
        self._closing = threading.Lock()

    @property
    def is_closed(self) -> bool:
        return not self._portal.is_open

    def close(self) -> None:
        with self._closing:
            if self._portal.is_open:
                self._portal.run(self._store.close())
                self._portal.close()

    def queues(self) -> list[QueueInfo]:
        async def listed() -> list[QueueInfo]:
            found: list[QueueInfo] = []
            after = None
            while True:
                page = await self._store.list_queues(limit=1000, after=after)
                found += [
                    QueueInfo(queue.name, queue.kind.value, queue.options.encryption_enabled)
                    for queue in page.rows
                ]
                if page.next is None:
                    return found
                after = page.next

        return self._portal.run(listed())

    def plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> pa.Table:
        ranges = self._portal.run(
            self._store.export_plan(queue, created_from=created_from, created_to=created_to)
        )
        return pa.Table.from_batches([plan_batch(ranges)])

    def messages(
        self, ranges: Sequence[SeqRange], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        check_columns("messages", columns)
        spans = [(part.partition_id, part.first_seq, part.last_seq) for part in ranges]
        pieces = segments_of(self._store, spans, columns, max_bytes=_BYTES_AT_ONCE)
        return self._ahead(pieces, lambda segments: message_batch(segments, columns))

    def log_end(self, table: str) -> str:
        return self._portal.run(self._store.log_end(table))

    def log_rows(
        self,
        table: str,
        after: str | None,
        until: str | None,
        columns: Sequence[str],
        *,
        queues: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        check_kind(table, TableKind.LOG)
        pieces = rows_of(self._store, table, columns, after=after, until=until, queues=queues)
        return self._ahead(pieces, lambda rows: row_batch(table, columns, rows))

    def rows(
        self, table: str, columns: Sequence[str], *, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        check_kind(table, TableKind.STATE)
        pieces = rows_of(self._store, table, columns, queues=queues)
        return self._ahead(pieces, lambda rows: row_batch(table, columns, rows))

    def archived(self, queue: str) -> dict[int, int]:
        return self._portal.run(self._store.archived(queue))

    def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        for part in archived_parts(positions):
            self._portal.run(self._store.set_archived(queue, part))

    def _ahead(
        self, pieces: AsyncGenerator[T], batch: Callable[[T], pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """While a batch is made and used, the next piece is read."""
        coming = self._portal.start(_next(pieces))
        try:
            while (piece := coming.result()) is not None:
                coming = self._portal.start(_next(pieces))
                made = batch(piece)
                if made.num_rows:
                    yield made
        finally:
            # A generator cannot be closed while it runs; a read takes no time to speak of.
            wait([coming], _TIMEOUT_SECONDS)
            if self._portal.is_open:
                self._portal.run(_close(pieces))


async def _next(pieces: AsyncGenerator[T]) -> T | None:
    return await anext(pieces, None)


async def _close(pieces: AsyncGenerator[Any]) -> None:
    await pieces.aclose()
