"""What a seek would do, as the dashboard shows it."""

from __future__ import annotations

from msgspec import Struct


class SeekPreviewAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a seek would do; messages that are not for the group count too."""

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
