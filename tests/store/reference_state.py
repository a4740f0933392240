"""What the reference model remembers: plain records, without any behaviour worth the name.

Nothing here is clever: no ranks, no tickets, no segments. Lists are looped over.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monarq.model import (
    AttemptOutcome,
    DeadLetter,
    ItemState,
    QueueKind,
    QueueOptions,
)


@dataclass
class KeptMessage:
    """A message of an ordered queue."""

    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    pushed_in: int
    """Which call stored it: what was pushed together goes together."""
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None
    deleted: bool = False
    only_for: str | None = None
    """The one group that it was redriven for."""


@dataclass
class Room:
    """For payloads in one answer: the first always has some, and once one had none, or took more
    than there is, none has."""

    max_bytes: int
    sizes: list[int] = field(default_factory=list)
    is_full: bool = False

    def has(self, payload: bytes) -> bool:
        if self.is_full:
            return False
        self.is_full = sum(self.sizes) + len(payload) > self.max_bytes
        if self.is_full and self.sizes:
            return False
        self.sizes.append(len(payload))
        return True


@dataclass
class Lease:
    """The latest lease of a cursor or an item, live or not."""

    id: str
    until: int
    started_at: int
    consumer: str | None = None
    ended: str | None = None
    """Why it ended: `answered`, `expired` or `ended` (by a seek, clear or cancel)."""

    # Ordered queues only.
    delivered: list[int] = field(default_factory=list)
    size: int = 0
    """How many messages the pop delivered, in all its partitions."""
    answered: set[int] = field(default_factory=set)

    @property
    def number(self) -> int:
        return int(self.id.partition("-")[0])

    def is_live(self, now: int) -> bool:
        return self.ended is None and now < self.until

    @property
    def was_lost(self) -> bool:
        return self.ended not in (None, "answered")

    def has_run_out(self, now: int) -> bool:
        return self.ended is None and now >= self.until


@dataclass
class CursorState:
    """A group's place in one partition."""

    group: str
    position: int
    available_at: int | None
    resolved: set[int] = field(default_factory=set)
    deliveries: dict[int, int] = field(default_factory=dict)
    """Deliveries that counted, by seq."""
    retry_at: dict[int, int] = field(default_factory=dict)
    lease_limits: dict[int, int] = field(default_factory=dict)
    """Suspects: how many messages may be leased together with each, by seq."""
    errors: dict[int, str] = field(default_factory=dict)
    lease: Lease | None = None
    former: list[Lease] = field(default_factory=list)
    """The leases before that."""
    answered_under: dict[int, str] = field(default_factory=dict)
    """The lease of each message's last answer, by seq."""
    since: int = 0
    """How many leases were given before there was this cursor."""


@dataclass
class Partition:
    id: int
    name: str
    number: int
    """What decides between partitions that wait equally long: the id, or that of a store that
    numbered them in another order."""
    last_seq: int = 0
    last_push_at: int = 0
    archived_seq: int = 0
    messages: list[KeptMessage] = field(default_factory=list)
    cursors: dict[str, CursorState] = field(default_factory=dict)

    @property
    def first_kept(self) -> int:
        return self.messages[0].seq if self.messages else self.last_seq + 1


@dataclass
class Counters:
    completed: int = 0
    failed: int = 0
    dead: int = 0


@dataclass
class GroupState:
    start_at: int
    created_at: int
    counters: Counters = field(default_factory=Counters)


@dataclass
class AttemptState:
    seq: int
    attempt: int
    started_at: int
    ended_at: int
    outcome: AttemptOutcome
    consumer: str | None
    error: str | None
    result: bytes | None


@dataclass
class WorkItem:
    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    state: ItemState
    priority: int
    turn: int
    max_attempts: int
    backoff_base: float
    backoff_cap: float
    expires_at: int | None
    waited: int = 0
    """How many items were pushed while this one was ready."""
    attempts: int = 0
    run_at: int | None = None
    finished_at: int | None = None
    error: str | None = None
    lease: Lease | None = None
    consumer: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None

    @property
    def effective_priority(self) -> int:
        return self.priority + self.waited

    @property
    def is_finished(self) -> bool:
        return self.state in (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED)


@dataclass
class QueueState:
    name: str
    kind: QueueKind
    namespace: str
    task: str
    created_at: int
    options: QueueOptions
    paused: bool = False
    pushed: int = 0
    turns: int = 0
    counters: Counters = field(default_factory=Counters)
    partitions: dict[str, Partition] = field(default_factory=dict)
    groups: dict[str, GroupState] = field(default_factory=dict)
    items: list[WorkItem] = field(default_factory=list)
    attempts: list[AttemptState] = field(default_factory=list)

    @property
    def is_work(self) -> bool:
        return self.kind is QueueKind.WORK


@dataclass(frozen=True)
class Scope:
    """What a group asks for: one queue, or all with a label."""

    queue: str | None = None
    namespace: str | None = None
    task: str | None = None

    def covers(self, queue: QueueState) -> bool:
        if self.queue is not None:
            return queue.name == self.queue
        return self.namespace in (None, queue.namespace) and self.task in (None, queue.task)


@dataclass
class World:
    """Everything; copied before each request, so that a failed one can be undone."""

    queues: dict[str, QueueState] = field(default_factory=dict)
    letters: list[DeadLetter] = field(default_factory=list)
    subscriptions: dict[tuple[str, Scope], int] = field(default_factory=dict)
    ended_leases: dict[tuple[int, str], Lease] = field(default_factory=dict)
    """The last leases of groups that were deleted, by partition and group."""
    partitions: int = 0
    calls: int = 0
    leases: int = 0
    dead: int = 0
