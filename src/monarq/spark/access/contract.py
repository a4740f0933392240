"""What every way to read promises."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    import pyarrow as pa


class QueueInfo(NamedTuple):
    name: str
    kind: str
    """`ordered` or `work`."""
    encrypted: bool = False
    """Whether its payloads are sealed where they are stored."""


class SeqRange(NamedTuple):
    """Messages of one partition; both ends are included."""

    queue: str
    partition_id: int
    partition: str
    first_seq: int
    last_seq: int


class Access(Protocol):
    """Every call may be made from any thread. Errors are `monarq.errors`."""

    @property
    def is_closed(self) -> bool: ...

    def queues(self) -> list[QueueInfo]:
        """All of them, by name."""

    def plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> pa.Table:
        """What an ordered queue keeps: `partition_id`, `partition`, `first_seq` and `last_seq`
        (less than `first_seq` if nothing is kept), by partition id. With bounds in time
        (microseconds), only what was pushed from `created_from` on and before `created_to`."""

    def messages(
        self, ranges: Sequence[SeqRange], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """These messages, in the order of the ranges and of seq, with these columns and no others
        read. What was deleted or removed is absent."""

    def log_end(self, table: str) -> str:
        """A position that everything before can be read up to, now and later alike; positions
        sort as texts."""

    def log_rows(
        self,
        table: str,
        after: str | None,
        until: str | None,
        columns: Sequence[str],
        *,
        queues: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `deliveries`, `dead_letters`, `attempts` or `metrics` behind the position
        `after` (None: from the beginning) up to `until` (None: as far as there are any, which is
        no safe place to go on from)."""

    def rows(
        self, table: str, columns: Sequence[str], *, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """`items`, `queues` or `groups` as they are now."""

    def archived(self, queue: str) -> dict[int, int]:
        """Up to which seq each partition of an ordered queue, by its id, is archived; those for
        which nothing was said are left out."""

    def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        """Say so. Never moves back."""

    def close(self) -> None: ...
