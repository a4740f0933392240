"""Groups, their cursors, and moving them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from monarq.model.pops import StartFrom


class Group(Struct, frozen=True, rename="camel", kw_only=True):
    name: str
    queue: str
    start_at: int
    """Messages older than this were not for the group; 0 if it began at the beginning."""
    created_at: int
    lag: int
    """Messages not yet consumed."""
    lag_seconds: float
    """Age of the oldest of them; 0 if there is none."""
    completed: int
    failed: int
    dead: int


class Cursor(Struct, frozen=True, rename="camel", kw_only=True):
    """How far a group has come in one partition."""

    group: str
    queue: str
    partition: str
    partition_id: int
    position: int
    last_seq: int
    lag: int
    available_at: int | None
    lease_until: int | None


class SeekTo(StrEnum):
    START = "start"
    END = "end"


class Seek(Struct, frozen=True, kw_only=True):
    """Exactly one of `to`, `time` and `seq` (the next message to be delivered)."""

    group: str
    queue: str
    partition: str | None = None
    to: SeekTo | None = None
    time: int | None = None
    seq: int | None = None

    def start(self, now: int) -> StartFrom | int:
        """Return where a group begins that the seek makes."""
        if self.partition is not None:
            return StartFrom.ALL
        if self.time is not None and self.time <= now:
            return self.time
        is_end = self.to is SeekTo.END or self.time is not None
        return StartFrom.NEW if is_end else StartFrom.ALL


class SeekPreview(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a seek would do. Messages that are not for the group count too."""

    lag: int
    """Messages that would be before the group."""
    replayed: int
    """Messages that would be delivered again."""
    skipped: int
    """Messages that would never be delivered."""
    partitions: int
    """In which it would move."""
    leases: int
    """That would end."""
