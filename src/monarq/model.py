"""The nouns: queues, messages, items, leases, and the requests and answers about them.

Plain typed structs that every layer may import; nothing here does anything. Times are
microseconds since the epoch, UTC (see `clock`). JSON names are camelCase. Those that come by the
thousand and hold nothing but plain values are no concern of the garbage collector (`gc=False`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Generic, TypeVar

from msgspec import Meta, Struct

from monarq.ids import message_id

DEFAULT_PARTITION = "Default"
DEFAULT_GROUP = "__QUEUE_MODE__"
MAX_NAME_LENGTH = 255
MAX_PAYLOAD_BYTES = 16 * 1024 * 1024
MAX_BATCH = 10_000
POP_MAX_BYTES = 16 * 1024 * 1024
"""Of payloads in the answer to one pop, unless somebody says otherwise."""
MAX_PRIORITY = 1_000
MAX_RECORD_BYTES = 1024 * 1024
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
ERROR_KEY_LENGTH = 200
"""Of an error's first line: what dead letters are grouped by."""

T = TypeVar("T")

Seconds = Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)]
Count = Annotated[int, Meta(ge=0, le=2**53)]


class QueueKind(StrEnum):
    ORDERED = "ordered"
    WORK = "work"


class PushStatus(StrEnum):
    QUEUED = "queued"
    DUPLICATE = "duplicate"
    BUFFERED = "buffered"


class AckStatus(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    RELEASE = "release"
    DEAD = "dead"


class ItemState(StrEnum):
    SCHEDULED = "scheduled"
    READY = "ready"
    LEASED = "leased"
    DONE = "done"
    DEAD = "dead"
    CANCELLED = "cancelled"


class AttemptOutcome(StrEnum):
    """How one lease of an item ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DEAD = "dead"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


# --- queues ------------------------------------------------------------------------


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


# --- push ----------------------------------------------------------------------------


class PushItem(Struct, frozen=True, rename="camel", gc=False):
    """One message or item to store. `payload` and `headers` are JSON, kept as they come."""

    queue: str
    payload: bytes
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    namespace: str | None = None
    """With `task`: labels a queue that this push creates; ignored if it exists."""
    task: str | None = None
    headers: bytes | None = None

    # Work queues only.
    priority: int | None = None
    run_at: int | None = None
    delay_seconds: float | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None


class Push(Struct, frozen=True):
    """All of it or nothing."""

    items: list[PushItem]
    producer: str | None = None
    commands: bool = False
    """Whether the items are shell commands: only queues that run commands take them, and those
    take nothing else. Whoever sets it has made sure that the caller may."""


class Pushed(Struct, frozen=True, gc=False):
    status: PushStatus
    queue: str
    partition_id: int
    seq: int
    transaction_id: str
    trace_id: str | None = None

    @property
    def message_id(self) -> str:
        return message_id(self.partition_id, self.seq)


# --- pop -----------------------------------------------------------------------------


class StartFrom(StrEnum):
    ALL = "all"
    NEW = "new"


class Pop(Struct, frozen=True, kw_only=True, gc=False):
    """Wants messages of one queue, or of the ordered queues of a namespace and/or task."""

    queue: str | None = None
    partition: str | None = None
    namespace: str | None = None
    task: str | None = None
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    lease_seconds: float | None = None
    auto_ack: bool = False
    start: StartFrom | int = StartFrom.ALL
    """Where a group that is new begins; an int is a point in time. A group that exists
    goes on from its cursor whatever this says."""
    consumer: str | None = None


class Message(Struct, frozen=True, gc=False):
    """A delivered message or item."""

    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    attempts: int
    """Which delivery to this group this is, counted from 1."""
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None
    priority: int | None = None
    max_attempts: int | None = None

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


class Popped(Struct, frozen=True, kw_only=True):
    messages: Sequence[Message]
    """Read it as one may a list; the store may make messages only when they are looked at."""
    lease_id: str | None = None
    """None where nothing was found, or nothing needs an ack."""
    lease_until: int | None = None
    next_at: int | None = None
    """Where nothing was found: when, by what is known now, something will be there. With messages:
    more was there, and had no room in the answer."""


# --- ack, renew, transaction -----------------------------------------------------------


class Ack(Struct, frozen=True, kw_only=True, gc=False):
    """Answers one message (`partition_id` and `transaction_id`), or, with only a
    `lease_id`, everything of that lease that has no answer yet."""

    status: AckStatus = AckStatus.COMPLETED
    transaction_id: str | None = None
    partition_id: int | None = None
    lease_id: str | None = None
    group: str = DEFAULT_GROUP
    error: str | None = None
    retry_at: int | None = None
    result: bytes | None = None
    """Work queues: what the attempt produced, as JSON; kept with the attempt."""


class Acked(Struct, frozen=True, kw_only=True, gc=False):
    queue: str
    partition: str
    transaction_id: str | None
    lease_released: bool
    """Whether the lease on this partition, or on this item, has ended with it."""
    dead: int
    """How many messages this ack made dead."""
    count: int = 1
    """How many messages this ack answered."""


class Renew(Struct, frozen=True):
    lease_id: str
    seconds: float


class Renewed(Struct, frozen=True):
    lease_id: str
    expires_at: int


class Transaction(Struct, frozen=True):
    operations: list[Push | Ack]
    required_leases: list[str] = []


class TransactionDone(Struct, frozen=True):
    results: list[list[Pushed] | Acked]
    """One for each operation, in order."""


# --- groups ----------------------------------------------------------------------------


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


# --- looking at things -----------------------------------------------------------------


class Page(Struct, Generic[T], frozen=True):
    rows: list[T]
    next: str | None = None
    """Pass as `after` to go on; None at the end. Rows that come or go meanwhile are never
    repeated, and none that stayed is skipped."""


class StoredMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message as it is kept, whoever consumed it."""

    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None
    groups: dict[str, str] = {}
    """Per group: `pending`, `leased` or `done`. Filled by `get_message` only."""

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


class Attempt(Struct, frozen=True, rename="camel", kw_only=True):
    """One lease of an item, from its pop to its end."""

    item_id: str
    queue: str
    attempt: int
    started_at: int
    ended_at: int
    outcome: AttemptOutcome
    consumer: str | None = None
    error: str | None = None
    result: bytes | None = None


class Item(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    state: ItemState
    priority: int
    effective_priority: int
    attempts: int
    max_attempts: int
    created_at: int
    run_at: int | None = None
    """When a scheduled item becomes ready."""
    lease_until: int | None = None
    finished_at: int | None = None
    consumer: str | None = None
    error: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


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


class Delivery(Struct, frozen=True, rename="camel", kw_only=True):
    """A row of the delivery log: one answer to (part of) a lease of an ordered partition."""

    id: int
    queue: str
    partition: str
    partition_id: int
    group: str
    consumer: str | None
    lease_number: int
    leased_at: int
    ended_at: int
    first_seq: int
    last_seq: int
    completed: int
    failed: int
    released: int
    dead: int
    expired: int
    error: str | None = None


class Trace(Struct, frozen=True, rename="camel", kw_only=True):
    partition_id: int
    transaction_id: str
    event_type: str
    data: bytes
    names: list[str] = []
    created_at: int = 0
    id: int = 0


class Record(Struct, frozen=True, rename="camel", kw_only=True):
    """Something that is known by a name and kept beside the queues: a worker, a schedule, a run.
    `value` is JSON."""

    kind: str
    key: str
    value: bytes
    updated_at: int
    expires_at: int | None = None


class OutputPart(Struct, frozen=True, kw_only=True):
    """Part of what an attempt has printed so far."""

    data: bytes
    next: int
    """Where to go on: the number of bytes before it."""


class MetricPoint(Struct, frozen=True, rename="camel", kw_only=True):
    """A queue's counters at a moment; rates are differences between two of them."""

    at: int
    queue: str
    pushed: int
    completed: int
    failed: int
    dead: int
    pending: int


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


# --- watching ------------------------------------------------------------------------------


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

    @property
    def stored(self) -> int:
        return self.pushed - self.removed


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


class Latency(Struct, frozen=True, kw_only=True, gc=False):
    """How long messages that were answered together took, from the push to the answer."""

    at: int
    microseconds: int
    messages: int


class Segment(Struct, frozen=True, kw_only=True):
    """Messages of one partition with consecutive seqs, as they were pushed together.

    Payload i is `data[offsets[i]:offsets[i + 1]]`, the layout of an Arrow binary array;
    `offsets` are little-endian int32 and start at 0. A payload of length 0 was deleted.
    Lists are None where no message has such a value; a transaction id of None means that
    the message's id is its transaction id.
    """

    partition_id: int
    first_seq: int
    count: int
    created_at: int
    data: bytes
    offsets: bytes
    transaction_ids: list[str | None] | None = None
    trace_ids: list[str | None] | None = None
    producers: list[str | None] | None = None
    headers: list[bytes | None] | None = None


class LifecycleReport(Struct, frozen=True, kw_only=True):
    """What one bounded step of the lifecycle did."""

    next_at: int | None
    """When there will be something to do, as far as is known now; it may be past, if the
    step reached its bound before the work was done."""
    expired: int = 0
    promoted: int = 0
    buried: int = 0
    removed: int = 0
    wake: list[str] = []
    """Queues in which something became available."""
