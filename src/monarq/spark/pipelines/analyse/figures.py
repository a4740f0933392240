"""What an analysis found, as plain values: everything the report, the JSON and the Parquet show.

Nothing here computes or reads anything. Times are microseconds since the epoch, durations are
seconds. Every list is bounded by whoever fills it.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

#: The group of what has no groups: the attempts at the items of a work queue.
WORKERS = ""


class Window(Struct, frozen=True, rename="camel", kw_only=True):
    """The time that is looked at, in `buckets` pieces of equal length."""

    start: int
    end: int
    """The end of the last bucket."""
    bucket: int
    """Microseconds."""
    first: int
    last: int
    """When the first and the last thing happened."""

    @property
    def buckets(self) -> int:
        return (self.end - self.start) // self.bucket

    @property
    def bucket_seconds(self) -> float:
        return self.bucket / 1e6

    def seconds_in(self, index: int) -> float:
        """How much of a bucket was there to be seen; of the first and last, not all was. Never so
        little that a rate over it means nothing."""
        begin, end = max(self.at(index), self.first), min(self.at(index + 1), self.last)
        return max(end - begin, self.bucket / 4) / 1e6

    def at(self, index: int) -> int:
        """When a bucket begins."""
        return self.start + index * self.bucket


class Spread(Struct, frozen=True, rename="camel", kw_only=True):
    """How long something took, over `count` messages; seconds."""

    count: int
    p50: float
    p95: float
    p99: float
    most: float


class Answers(Struct, frozen=True, rename="camel", kw_only=True):
    """What became of deliveries: of messages to groups, and of items to workers."""

    completed: int = 0
    failed: int = 0
    """Will be tried again."""
    dead: int = 0
    expired: int = 0
    """The lease ran out without an answer."""
    released: int = 0
    """Given back unharmed; counts neither as a failure nor as an answer."""

    @property
    def answered(self) -> int:
        return self.completed + self.unsuccessful

    @property
    def unsuccessful(self) -> int:
        return self.failed + self.dead + self.expired

    @property
    def failure_rate(self) -> float:
        return self.unsuccessful / self.answered if self.answered else 0.0


class QueueFigures(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    kind: str
    """`ordered` or `work`."""
    messages: int
    """Pushed in the window; of a work queue, the items that were attempted."""
    payload_bytes: int
    partitions: int
    per_second: float
    answers: Answers
    dead_letters: int
    waiting: Spread | None
    """From the push to the first delivery, over messages and groups."""
    processing: Spread | None
    """From the lease to the answer."""
    first_at: int | None
    last_at: int | None


class GroupFigures(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    group: str
    answers: Answers
    waiting: Spread | None
    processing: Spread | None
    consumers: int
    dead_letters: int
    backlog: int = 0
    """Messages that it has not been given yet."""
    backlog_partitions: int = 0
    oldest_at: int | None = None
    """When the oldest of them was pushed."""


class PushSeries(Struct, frozen=True, rename="camel", kw_only=True):
    """Per bucket of the window."""

    queue: str
    pushed: list[int]
    payload_bytes: list[int]


class AnswerSeries(Struct, frozen=True, rename="camel", kw_only=True):
    """Per bucket of the window; None where there was nothing to measure."""

    queue: str
    group: str
    completed: list[int]
    failed: list[int]
    dead: list[int]
    expired: list[int]
    waiting_p50: list[float | None]
    waiting_p95: list[float | None]
    waiting_p99: list[float | None]
    processing_p50: list[float | None]
    processing_p95: list[float | None]
    processing_p99: list[float | None]
    backlog: list[int]
    """At the bucket's end: pushed in the window and not yet delivered. Of a work queue: empty."""


class ErrorSource(StrEnum):
    DEAD_LETTER = "dead letter"
    DELIVERY = "delivery"
    ATTEMPT = "attempt"


class ErrorFigures(Struct, frozen=True, rename="camel", kw_only=True):
    """A kind of error; of one lease's messages, the log keeps the last error."""

    queue: str
    source: ErrorSource
    error: str
    """With ids and numbers replaced."""
    kind: str
    """The error's type, if it names one; else as `error`."""
    count: int
    share: float
    """Of all that went wrong in this queue and source."""
    example: str
    first_at: int
    last_at: int


class PartitionFigures(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    partition: str
    messages: int
    payload_bytes: int
    share: float
    """Of the queue's messages."""
    backlog: int
    """Of the group that is furthest behind in it."""
    backlog_share: float
    """Of that group's backlog in the queue."""
    backlog_group: str | None


class ConsumerFigures(Struct, frozen=True, rename="camel", kw_only=True):
    queue: str
    group: str
    consumer: str
    answers: Answers
    processing: Spread | None


class JobFigures(Struct, frozen=True, rename="camel", kw_only=True):
    """What the attempts at a work queue's items cost."""

    queue: str
    items: int
    attempts: int
    completed: int
    seconds: float
    """That workers spent on it."""
    wasted_seconds: float
    """Of these, on attempts that did not complete."""
    duration: Spread | None


class Change(Struct, frozen=True, rename="camel", kw_only=True):
    """One figure now and in the last analysis."""

    queue: str
    measure: str
    unit: str
    """`s`, `share`, `per second`, `messages`."""
    before: float | None
    now: float | None


class Severity(StrEnum):
    SERIOUS = "serious"
    NOTABLE = "notable"
    MINOR = "minor"


class Finding(Struct, frozen=True, rename="camel", kw_only=True):
    """A sentence about a queue, for people. Names in it are between backquotes."""

    severity: Severity
    kind: str
    queue: str
    group: str | None
    text: str
    at: int | None = None
    """When it began, if that is known."""
    weight: float = 0.0
    """Ranks findings of the same severity: about how many messages it concerns."""


class Totals(Struct, frozen=True, rename="camel", kw_only=True):
    queues: int = 0
    messages: int = 0
    payload_bytes: int = 0
    answers: Answers = Answers()
    dead_letters: int = 0
    attempts: int = 0
    backlog: int = 0
    """Of each queue's group that is furthest behind."""
    waiting: Spread | None = None
    processing: Spread | None = None


class Analysis(Struct, frozen=True, rename="camel", kw_only=True):
    id: str
    lake: str
    scope: list[str] = []
    """The queues that were asked for, if not all."""
    generated_at: int
    window: Window | None
    """None if there is nothing to look at."""
    percentiles: str
    """How they were computed, in words."""
    totals: Totals = Totals()
    queues: list[QueueFigures] = []
    groups: list[GroupFigures] = []
    pushes: list[PushSeries] = []
    deliveries: list[AnswerSeries] = []
    errors: list[ErrorFigures] = []
    partitions: list[PartitionFigures] = []
    consumers: list[ConsumerFigures] = []
    jobs: list[JobFigures] = []
    previous: str | None = None
    """The id of the analysis that this one is compared with."""
    previous_at: int | None = None
    changes: list[Change] = []
    findings: list[Finding] = []
