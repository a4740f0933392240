"""Queues, their options and counters, and their partitions."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from monarq.model.limits import MAX_NAME_LENGTH, MAX_PRIORITY

Seconds = Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class QueueKind(StrEnum):
    ORDERED = "ordered"
    WORK = "work"


class QueueOptions(Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """All options of a queue with their defaults; a duration of 0 switches the thing off."""

    lease_time: Annotated[float, Meta(gt=0, le=7 * 86_400)] = 300.0
    retention_enabled: bool = True
    retention_seconds: Seconds = 30 * 86_400.0
    completed_retention_seconds: Seconds = 86_400.0
    max_size: Count = 0
    encryption_enabled: bool = False
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 0
    dead_queue: Annotated[str, Meta(max_length=MAX_NAME_LENGTH)] = ""

    # Ordered queues.
    retry_limit: Annotated[int, Meta(ge=0, le=1_000_000)] = 3
    retry_delay: Annotated[int, Meta(ge=0, le=7 * 86_400_000)] = 1_000
    """Milliseconds, as Queen's clients send it."""
    delayed_processing: Seconds = 0.0
    window_buffer: Seconds = 0.0
    max_wait_time_seconds: Seconds = 0.0
    dead_letter_queue: bool = True
    """Whether the dead are kept as dead letters; if not, they are dropped (and counted)."""
    dlq_after_max_retries: bool = True
    """Whether used-up retries make a message dead; if not, it is retried for ever."""
    retain_until_archived: bool = False
    """Whether retention leaves alone what is not in the archive yet."""

    # Work queues.
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] = 3
    backoff_base: Annotated[float, Meta(ge=0, le=1_000)] = 2.0
    backoff_cap: Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)] = 3_600.0
    backoff_jitter: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """The largest part of a backoff that may be added to it at random."""
    expire_timeout: Seconds = 0.0
    default_priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] = 5
    runs_commands: bool = False
    """Whether its items are shell commands, for workers to run; chosen when it is made."""


#: Options that mean something for one kind of queue alone.
KIND_OF_OPTION = {
    **dict.fromkeys(
        (
            "retry_limit",
            "retry_delay",
            "delayed_processing",
            "window_buffer",
            "max_wait_time_seconds",
            "dlq_after_max_retries",
            "retain_until_archived",
        ),
        QueueKind.ORDERED,
    ),
    **dict.fromkeys(
        (
            "max_attempts",
            "backoff_base",
            "backoff_cap",
            "backoff_jitter",
            "expire_timeout",
            "default_priority",
            "runs_commands",
        ),
        QueueKind.WORK,
    ),
}


class Queue(Struct, frozen=True, rename="camel", kw_only=True):
    id: int
    name: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    version: int
    """Counts the changes to this queue's settings; caches are checked against it."""
    created_at: int
    options: QueueOptions


class QueueStats(Struct, frozen=True, rename="camel", kw_only=True):
    """From counters kept as messages flow, never from counting messages."""

    queue: str
    kind: QueueKind
    partitions: int
    pushed: int
    stored: int
    """Messages or items now kept."""
    pending: int
    """Ordered: what the slowest group still has before it (all that is stored, if there
    is no group). Work: scheduled, ready and leased."""
    completed: int
    failed: int
    dead: int
    dead_letters: int
    states: dict[str, int]
    """Work queues: items by state."""


class PartitionRange(Struct, frozen=True, rename="camel", kw_only=True):
    partition_id: int
    partition: str
    first_seq: int
    last_seq: int
    """Less than `first_seq` if nothing is kept."""


class PartitionStats(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    partition_id: int
    partition: str
    first_seq: int
    last_seq: int
    """Less than `first_seq` if nothing is kept."""
    pending: int
    """What the slowest group still has before it (all that is kept, if there is no group).
    Work queues: 0, see the queue's own."""
    last_at: int
    """When something was last pushed to it."""
