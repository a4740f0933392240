"""Reading what is stored in bulk, and noting what is archived."""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence

from monarq.model import PartitionRange, Segment
from monarq.store.exported import ExportedMessages, ExportedRows, Span


class Exporting(abc.ABC):
    @abc.abstractmethod
    async def export_plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> list[PartitionRange]:
        """All partitions of an ordered queue with what is kept of each, by id; with bounds, of
        what was pushed from the one time on and before the other."""

    @abc.abstractmethod
    async def export_read(
        self, partition_id: int, first_seq: int, last_seq: int, *, max_bytes: int = 32 << 20
    ) -> list[Segment]:
        """The kept messages with these seqs, both ends included, as (cut) segments.

        Stops after the segment that passes `max_bytes`; go on behind its last seq. Payloads
        are as they were pushed, never encrypted.
        """

    @abc.abstractmethod
    async def kept_spans(self, spans: Sequence[Span]) -> list[Span]:
        """These spans cut to the seqs that are kept now, in their order; empty ones, such as those
        of partitions that do not exist or of work queues, are left out. At most `MOST_SPANS`
        spans."""

    @abc.abstractmethod
    async def export_messages(
        self, spans: Sequence[Span], columns: Collection[str], *, max_bytes: int = 16 << 20
    ) -> ExportedMessages:
        """The kept messages of these spans of ordered queues, span by span, as stored segments.

        Reads what `columns` (of the table `messages`) need and nothing else: payloads only where
        they are asked for. Spans of partitions that do not exist are empty. A deleted message has
        an empty payload; a segment with one always has its `offsets`. Stops after the segment
        that passes `max_bytes`. Payloads are never encrypted. At most `MOST_SPANS` spans.
        """

    @abc.abstractmethod
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
        """Rows of one of the `STORED_TABLES`, of all queues or of these.

        Of a log: those behind the position `after` up to the position `until` (see `log_end`),
        in the order of positions. Of `items`: as they are now, by partition and seq; `after` is
        what the last call gave as `next`, and `until` is not for them.
        """

    @abc.abstractmethod
    async def log_end(self, table: str) -> str:
        """A position of this log: text that sorts as positions do.

        Every row that is ever seen at or before it can be seen now: whoever reads up to it and
        later on from it misses none and gets none twice, whatever transactions were under way.
        """

    @abc.abstractmethod
    async def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        """Say up to which seq partitions of an ordered queue, by their ids, are archived.

        Never moves back. Partitions that have gone are passed over; `InvalidRequestError` if one
        has no such seq yet, and then nothing is noted. At most `MOST_SPANS` partitions.
        """

    @abc.abstractmethod
    async def archived(self, queue: str) -> dict[int, int]:
        """What was said, of the partitions for which something was."""
