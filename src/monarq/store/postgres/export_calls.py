"""The contract's calls for figures, and for those who read in bulk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from monarq.model import MetricPoint, Page, PartitionRange, Segment
from monarq.store.contract.exporting import Exporting
from monarq.store.contract.figures import Figures
from monarq.store.exported import ExportedMessages, ExportedRows, Span
from monarq.store.postgres import archiving, exporting, figures, inspection
from monarq.store.postgres.calls import Calls


class ExportCalls(Calls, Figures, Exporting):
    # --- figures -------------------------------------------------------------------------

    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        return await figures.metrics_before(self._database, at, queue, limit, after)

    async def health_figures(self) -> dict[str, Any]:
        return await figures.health_figures(self._database)

    # --- export --------------------------------------------------------------------------

    async def export_plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> list[PartitionRange]:
        return await exporting.export_plan(self._database, queue, created_from, created_to)

    async def export_read(
        self, partition_id: int, first_seq: int, last_seq: int, *, max_bytes: int = 32 << 20
    ) -> list[Segment]:
        return await inspection.export_read(
            self._database,
            self._catalog,
            self._cipher,
            partition_id,
            first_seq,
            last_seq,
            max_bytes,
        )

    async def kept_spans(self, spans: Sequence[Span]) -> list[Span]:
        return await exporting.kept_spans(self._database, spans)

    async def export_messages(
        self, spans: Sequence[Span], columns: Collection[str], *, max_bytes: int = 16 << 20
    ) -> ExportedMessages:
        return await exporting.export_messages(
            self._database, self._cipher, spans, columns, max_bytes
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
        return await exporting.export_rows(
            self._database, self._cipher, table, columns, after, until, queues, limit
        )

    async def log_end(self, table: str) -> str:
        return await exporting.log_end(self._database, table)

    async def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        await archiving.set_archived(self._database, queue, positions)

    async def archived(self, queue: str) -> dict[int, int]:
        return await archiving.archived(self._database, queue)
