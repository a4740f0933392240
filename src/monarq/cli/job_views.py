"""Jobs as the command line shows them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from monarq.cli.formats import moment, payload_value
from monarq.cli.looking import Looker
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.job import CommandJob, job_state, read_job, read_result
from monarq.model import Attempt, Item, ItemDetail, ItemState, QueueInfo, QueueKind
from monarq.model.pages import all_rows

#: Beyond so many, jobs that failed are counted as scheduled.
_MOST_COUNTED = 1000


def job_row(item: Item) -> dict[str, Any]:
    """For lists; the same keys in JSON and in tables."""
    return {
        "id": item.transaction_id,
        "queue": item.queue,
        "state": str(job_state(item)),
        "priority": item.priority,
        "effective": item.effective_priority,
        "attempts": item.attempts,
        "max_retries": item.max_attempts - 1,
        "created_at": moment(item.created_at),
        "run_at": moment(item.run_at),
        "command": what(item.payload),
    }


def job_detail(item: ItemDetail) -> dict[str, Any]:
    return {
        **job_row(item),
        "item_id": item.id,
        "worker": item.consumer,
        "lease_until": moment(item.lease_until),
        "finished_at": moment(item.finished_at),
        "error": item.error,
        "payload": payload_value(item.payload),
        "history": [attempt_row(attempt) for attempt in item.history],
    }


def attempt_row(attempt: Attempt) -> dict[str, Any]:
    result = read_result(attempt.result)
    # A worker whose store is away for a while answers late; the job ended when it says.
    leased_seconds = (attempt.ended_at - attempt.started_at) / 1_000_000
    return {
        "attempt": attempt.attempt,
        "outcome": str(attempt.outcome),
        "started_at": moment(attempt.started_at),
        "seconds": round(leased_seconds if result is None else result.seconds, 3),
        "worker": attempt.consumer,
        "exit_code": None if result is None else result.exit_code,
        "error": attempt.error,
        "stdout": "" if result is None else result.stdout,
        "stderr": "" if result is None else result.stderr,
        "value": None if result is None else result.value,
        "traceback": None if result is None else result.traceback,
    }


def what(payload: bytes) -> str:
    """The command, or the task with its arguments."""
    try:
        job = read_job(payload)
    except InvalidRequestError:
        return payload.decode("utf-8", "replace")
    if isinstance(job, CommandJob):
        return job.command
    arguments = [repr(value) for value in job.args]
    arguments += [f"{name}={value!r}" for name, value in job.kwargs.items()]
    return f"{job.task}({', '.join(arguments)})"


def find_job(client: Looker, job_id: str, queue: str | None) -> Item:
    """By the id it was given or the one that the store made, in one queue or in any."""
    queues = [queue] if queue is not None else work_queues(client)
    for name in queues:
        try:
            found: list[Item] = client.admin.list_items(name, transaction_id=job_id).rows
        except NotFoundError:
            continue
        if found:
            return found[0]
    where = f"in queue {queue!r}" if queue is not None else "in any queue"
    raise NotFoundError(f"there is no job {job_id!r} {where}; `monarq list` shows what there is")


def work_queues(client: Looker) -> list[str]:
    queues: Iterator[QueueInfo] = all_rows(
        lambda limit, after: client.admin.list_queues(limit=limit, after=after)
    )
    return [queue.name for queue in queues if queue.kind is QueueKind.WORK]


def job_counts(client: Looker, queue: str) -> dict[str, int]:
    """How many jobs of a queue there are in each state."""
    states = client.admin.get_queue(queue).counts.states
    waiting = states.get("scheduled", 0)
    failed = _failed(client, queue) if 0 < waiting <= _MOST_COUNTED else 0
    return {
        "pending": states.get("ready", 0),
        "scheduled": waiting - failed,
        "processing": states.get("leased", 0),
        "failed": failed,
        "completed": states.get("done", 0),
        "dead": states.get("dead", 0),
        "cancelled": states.get("cancelled", 0),
    }


def _failed(client: Looker, queue: str) -> int:
    """Of those that are scheduled, how many have failed: the store's counters do not tell."""
    page = client.admin.list_items(queue, state=ItemState.SCHEDULED, limit=_MOST_COUNTED)
    return sum(item.attempts > 0 for item in page.rows)
