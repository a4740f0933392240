"""How a task is enqueued, checked when it is said."""

from __future__ import annotations

import msgspec

from monarq.job import DEFAULT_TASK_QUEUE, LONGEST_TIMEOUT_SECONDS
from monarq.model import MAX_PRIORITY
from monarq.store.validation import check_int, check_name, check_seconds, check_time

_LONGEST_SECONDS = 10 * 365 * 86_400
_SHORTEST_SECONDS = 0.001


class TaskOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a task is enqueued; a call may say otherwise."""

    queue: str = DEFAULT_TASK_QUEUE
    retries: int | None = None
    backoff: float | None = None
    timeout: float | None = None
    priority: int | None = None
    unique_for: float | None = None
    """Seconds: enqueued with the same arguments, it is stored once in each such span of time. The
    queue must keep what is finished as long (`completed_retention_seconds`), or it is refused."""
    run_at: int | None = None
    delay_seconds: float | None = None

    def __post_init__(self) -> None:
        check_name(self.queue, "queue")
        if self.retries is not None:
            check_int(self.retries, "retries", 0, 999_999)
        if self.backoff is not None:
            check_seconds(self.backoff, "backoff", low=0, high=1000)
        if self.timeout is not None:
            check_seconds(
                self.timeout, "timeout", low=_SHORTEST_SECONDS, high=LONGEST_TIMEOUT_SECONDS
            )
        if self.priority is not None:
            check_int(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
        if self.unique_for is not None:
            check_seconds(
                self.unique_for, "unique_for", low=_SHORTEST_SECONDS, high=_LONGEST_SECONDS
            )
        if self.run_at is not None:
            check_time(self.run_at, "at")
        if self.delay_seconds is not None:
            check_seconds(self.delay_seconds, "after", low=0, high=_LONGEST_SECONDS)
