"""The contract's calls that export: they read on a connection of their own."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from monarq.model import PartitionRange, Segment
from monarq.store import positions
from monarq.store.exported import ExportedMessages, ExportedRows, Span
from monarq.store.sqlite import archiving, exporting, messages
from monarq.store.sqlite.calls import Calls


class ExportCalls(Calls):
    async def export_plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> list[PartitionRange]:
        queue_id = (await self._read(lambda session: messages.ordered_queue(session, queue))).id
        return await self._reader.run(
            lambda db: exporting.export_plan(db, queue_id, created_from, created_to)
        )

    async def export_read(
        self, partition_id: int, first_seq: int, last_seq: int, *, max_bytes: int = 32 << 20
    ) -> list[Segment]:
        return await self._read(
            lambda session: messages.export_read(
                session, partition_id, first_seq, last_seq, max_bytes
            )
        )

    async def kept_spans(self, spans: Sequence[Span]) -> list[Span]:
        return await self._reader.run(lambda db: exporting.kept_spans(db, spans))

    async def export_messages(
        self, spans: Sequence[Span], columns: Collection[str], *, max_bytes: int = 16 << 20
    ) -> ExportedMessages:
        return await self._reader.run(
            lambda db: exporting.export_messages(db, self._cipher, spans, columns, max_bytes)
        )

    async def export_rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        after: str | None = None,
        until: str | None = None,
        queues: Sequence[str] | None = None,
        limit: int = 10_000,
    ) -> ExportedRows:
        start = positions.place(table, after, "after")
        end = None if until is None else positions.place(table, until, "until")
        return await self._reader.run(
            lambda db: exporting.export_rows(
                db, self._cipher, table, columns, start, end, queues, limit
            )
        )

    async def log_end(self, table: str) -> str:
        return await self._reader.run(lambda db: exporting.log_end(db, table, self._clock.now()))

    async def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        await self._write(lambda session: archiving.set_archived(session, queue, positions))

    async def archived(self, queue: str) -> dict[int, int]:
        return await self._read(lambda session: archiving.archived(session, queue))
