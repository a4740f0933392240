"""What may go to a queue that runs commands, and which queue may be one."""

from __future__ import annotations

from monarq.errors import (
    CommandsRefusedError,
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
)
from monarq.model import Queue, QueueKind, QueueOptions


def check_commands(queue: Queue | None, commands: bool) -> None:
    """Whether a push of commands (or of anything else) may go to this queue; None: a new one."""
    marked = queue is not None and queue.options.runs_commands
    if marked and not commands:
        assert queue is not None
        raise CommandsRefusedError(
            f"queue {queue.name!r} runs commands: only jobs can be enqueued, by those who may"
        )
    if commands and not marked:
        name = "a new queue" if queue is None else f"queue {queue.name!r}"
        raise CommandsRefusedError(
            f"{name} is not marked as one that runs commands: configure one with runsCommands"
        )


def check_may_work(runs_commands: bool, queue: str, commands: bool) -> None:
    """Raise `ForbiddenError` if the queue runs commands and the caller may not work on commands.

    Whether a queue runs commands never changes, and neither does the queue of a partition or item.
    """
    if runs_commands and not commands:
        raise forbidden(f"queue {queue!r} runs commands")


def forbidden(why: str) -> ForbiddenError:
    return ForbiddenError(
        f"{why}: this needs the role jobs or admin, or without authentication the header "
        "X-Monarq-Local with the token of the user who runs the broker"
    )


def check_mark_of_commands(
    name: str, kind: QueueKind, old: QueueOptions | None, new: QueueOptions
) -> None:
    """Whether a queue may be configured so."""
    if new.runs_commands and kind is not QueueKind.WORK:
        raise InvalidRequestError(f"runsCommands is for work queues, and {name!r} is ordered")
    if old is not None and old.runs_commands != new.runs_commands:
        raise ConflictError(
            f"runsCommands of queue {name!r} was chosen when it was made: delete it first, or "
            "use another one"
        )


def check_dead_queue_of_commands(
    name: str, marked: bool, dead_queue: str, dead_marked: bool
) -> None:
    """What is no command may not become one by dying."""
    if dead_marked and not marked:
        raise InvalidRequestError(
            f"deadQueue {dead_queue!r} runs commands, so queue {name!r} must too"
        )


def check_redrive_of_commands(to: Queue, source: Queue | None) -> None:
    """What is no command may not become one by being redriven."""
    if to.options.runs_commands and (source is None or not source.options.runs_commands):
        raise CommandsRefusedError(
            f"queue {to.name!r} runs commands: name a queue that does too, to redrive from"
        )
