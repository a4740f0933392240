"""Counters and places as those who watch read them, for very many queues at a time."""

from __future__ import annotations

from msgspec import Struct

from monarq.clock import SECOND
from monarq.model.queue_options import QueueKind


class QueueFlow(Struct, frozen=True, kw_only=True, gc=False):
    """A queue's counters, in a form that is cheap for very many queues."""

    queue_id: int
    queue: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    max_size: int
    runs_commands: bool
    dead_queue: str
    partitions: int
    pushed: int
    removed: int
    completed: int
    failed: int
    dead: int
    dead_letters: int
    scheduled: int
    ready: int
    leased: int
    done: int
    cancelled: int
    dead_items: int
    pending: int
    """As in `QueueStats`."""

    @property
    def stored(self) -> int:
        # PostgreSQL does not count items as removed that die without a dead letter.
        if self.kind is QueueKind.WORK:
            return sum(self.states.values())
        return self.pushed - self.removed

    @property
    def states(self) -> dict[str, int]:
        """Items by state; empty for ordered queues."""
        if self.kind is not QueueKind.WORK:
            return {}
        return {
            "scheduled": self.scheduled,
            "ready": self.ready,
            "leased": self.leased,
            "done": self.done,
            "dead": self.dead_items,
            "cancelled": self.cancelled,
        }


class GroupFlow(Struct, frozen=True, kw_only=True, gc=False):
    """The same of a group in a queue."""

    queue_id: int
    queue: str
    group_id: int
    group: str
    created_at: int
    lag: int
    oldest_at: int | None
    """When the oldest message before it was pushed; None if there is none."""
    completed: int
    failed: int
    dead: int

    def lag_seconds(self, now: int) -> float:
        """Return the age of the oldest message before the group; 0 if there is none."""
        if self.oldest_at is None or not self.lag:
            return 0.0
        return max(0, now - self.oldest_at) / SECOND


class Standing(Struct, frozen=True, kw_only=True, gc=False):
    """A partition as one group sees it: its cursor, its lease, and the message that is next."""

    partition_id: int
    partition: str
    first_seq: int
    last_seq: int
    last_at: int
    position: int
    available_at: int | None
    leased_at: int | None
    lease_until: int | None
    consumer: str | None
    oldest_at: int | None
    """When the next message was pushed; None if the partition is drained."""
    attempts: int
    """Deliveries of the next message that have failed or run out."""
    retry_at: int | None
    error: str | None = None
    """Of its last failure, as far as it is known."""

    @property
    def lag(self) -> int:
        return self.last_seq - self.position


class Latency(Struct, frozen=True, kw_only=True, gc=False):
    """How long messages that were answered together took, from the push to the answer."""

    at: int
    microseconds: int
    messages: int


class MetricPoint(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue's counters at a moment; rates are differences between two of them."""

    at: int
    queue: str
    pushed: int
    completed: int
    failed: int
    dead: int
    pending: int
