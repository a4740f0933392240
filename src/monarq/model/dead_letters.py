"""What ran out of attempts."""

from __future__ import annotations

from msgspec import Struct


class DeadLetter(Struct, frozen=True, rename="camel", kw_only=True):
    """A copy of its own: it outlives the message."""

    id: int
    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    group: str
    payload: bytes
    error: str
    attempts: int
    created_at: int
    failed_at: int
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None


class DeadLetterFilter(Struct, frozen=True, kw_only=True):
    """All that are given must match; `ids` alone picks single ones."""

    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    failed_from: int | None = None
    failed_to: int | None = None
    error: str | None = None
    """The first line of the error, its first `ERROR_KEY_LENGTH` characters."""
    ids: list[int] | None = None


class DeadLetterError(Struct, frozen=True, kw_only=True):
    """Dead letters of a queue and group that died of the same."""

    queue: str
    group: str
    error: str
    """As in `DeadLetterFilter`."""
    count: int
    oldest_at: int
    newest_at: int
    newest_id: int
