"""Queues with their counters, and their partitions."""

from __future__ import annotations

from msgspec import Struct, field

from monarq.ids import LongNumberText, NumberText
from monarq.model.queue_options import QueueKind, QueueOptions
from monarq.times import Micros


class ConfiguredQueue(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue with the settings that `configure` changes."""

    id: int
    name: str
    kind: QueueKind
    namespace: str
    task: str
    options: QueueOptions


class Queue(ConfiguredQueue, frozen=True, rename="camel", kw_only=True):
    """A queue without its counters, as stores and brokers keep it in memory."""

    paused: bool
    version: int
    """Counts the changes to this queue's settings; caches are checked against it."""
    created_at: int

    def with_counts(self, partitions: int, counts: QueueCounts) -> QueueInfo:
        """Return the queue with its counters."""
        return QueueInfo(
            id=LongNumberText(self.id),
            name=self.name,
            kind=self.kind,
            namespace=self.namespace,
            task=self.task,
            paused=self.paused,
            created_at=Micros(self.created_at),
            partitions=partitions,
            counts=counts,
            options=self.options,
        )

    def configured(self) -> ConfiguredQueue:
        """Return the settings alone."""
        names = ConfiguredQueue.__struct_fields__
        return ConfiguredQueue(**{name: getattr(self, name) for name in names})


class QueueCounts(Struct, frozen=True, rename="camel", kw_only=True):
    """From counters kept as messages flow, never from counting messages."""

    stored: int = field(name="total")
    """Messages or items now kept."""
    pending: int
    """Ordered: what the slowest group still has before it (all that is stored, if there
    is no group). Work: scheduled, ready and leased."""
    pushed: int
    completed: int
    failed: int
    dead: int
    dead_letters: int
    states: dict[str, int]
    """Work queues: items by state."""


class QueueInfo(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue with its counters and options."""

    id: LongNumberText
    name: str
    kind: QueueKind
    namespace: str
    task: str
    paused: bool
    created_at: Micros
    partitions: int
    counts: QueueCounts = field(name="messages")
    options: QueueOptions


class PartitionRange(Struct, frozen=True, rename="camel", kw_only=True):
    partition_id: int
    partition: str
    first_seq: int
    last_seq: int
    """Less than `first_seq` if nothing is kept."""


class PartitionStats(Struct, frozen=True, rename="camel", kw_only=True):
    """A partition with what is kept of it."""

    partition_id: NumberText = field(name="id")
    partition: str = field(name="name")
    queue: str
    first_seq: int
    last_seq: int
    """Less than `firstSeq` if nothing is kept."""
    pending: int
    """What the slowest group still has before it (all that is kept, if there is no group).
    Work queues: 0, see the queue's own."""
    last_at: Micros = field(name="lastPushedAt")
    """When something was last pushed to it."""
