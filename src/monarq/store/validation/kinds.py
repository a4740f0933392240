"""What a call says of a queue that is of the other kind."""

from __future__ import annotations

from monarq.errors import ConflictError
from monarq.model import Queue, QueueKind


def wrong_kind(queue: Queue) -> ConflictError:
    """The error of a call for the one kind about a queue of the other."""
    if queue.kind is QueueKind.WORK:
        return ConflictError(f"{queue.name!r} is a work queue: it has items, not messages")
    return ConflictError(f"{queue.name!r} is an ordered queue: it has messages, not items")


def check_partial_clear(queue: Queue, *, scheduled_only: bool, keep_leased: bool) -> None:
    if (scheduled_only or keep_leased) and queue.kind is not QueueKind.WORK:
        raise ConflictError(
            f"{queue.name!r} is an ordered queue, which is cleared as a whole: scheduledOnly and "
            "keepLeased are for work queues"
        )


def no_groups(queue: str) -> ConflictError:
    return ConflictError(f"{queue!r} is a work queue, which has no groups")
