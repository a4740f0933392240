"""How queues and workers fare, as `monarq top` shows them: two looks, and what changed between."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import msgspec

from monarq.clock import SystemClock
from monarq.model import DEFAULT_GROUP, Group, QueueInfo

if TYPE_CHECKING:
    from monarq.client.client import Client
    from monarq.jobs.processes import KnownWorker


class Look(msgspec.Struct, frozen=True):
    """What there was to see at a moment."""

    at: float
    """Of a clock that only runs forward."""
    queues: dict[str, QueueInfo]
    groups: list[Group]
    workers: list[KnownWorker]


def look(client: Client) -> Look:
    from monarq.cli.queues import all_groups, all_queues
    from monarq.jobs.processes import list_workers

    queues = {queue.name: queue for queue in all_queues(client)}
    groups = list(all_groups(client))
    workers = [
        known for known in list_workers(client, SystemClock().now()) if known.state != "stopped"
    ]
    return Look(time.monotonic(), queues, groups, workers)


def queue_figures(before: Look, now: Look) -> list[dict[str, Any]]:
    """The busiest first, then by what is pending."""
    seconds = max(now.at - before.at, 1e-9)
    rows = [_queue(queue, before, now, seconds) for queue in now.queues.values()]
    return sorted(
        rows,
        key=lambda row: (
            -(row["pushed_per_second"] + row["done_per_second"]),
            -row["pending"],
            row["queue"],
        ),
    )


def _queue(queue: QueueInfo, before: Look, now: Look, seconds: float) -> dict[str, Any]:
    counts, earlier = queue.counts, before.queues.get(queue.name, queue).counts
    groups = [group for group in now.groups if group.queue == queue.name]
    slowest = max(groups, key=lambda group: group.lag_seconds, default=None)
    return {
        "queue": queue.name,
        "kind": str(queue.kind),
        "pending": counts.pending,
        "pushed_per_second": _rate(counts.pushed - earlier.pushed, seconds),
        "done_per_second": _rate(counts.completed - earlier.completed, seconds),
        "failed_per_second": _rate(counts.failed - earlier.failed, seconds),
        "dead_letters": counts.dead_letters,
        "lag_seconds": 0.0 if slowest is None else round(slowest.lag_seconds, 1),
        "slowest_group": _group_name(slowest),
        "groups": len(groups),
    }


def _group_name(group: Group | None) -> str | None:
    if group is None or not group.lag or group.name == DEFAULT_GROUP:
        return None
    return group.name


def _rate(count: int, seconds: float) -> float:
    # A queue that was made anew under the same name counts from zero.
    return round(max(count, 0) / seconds, 1)


def worker_figures(now: Look) -> list[dict[str, Any]]:
    return [
        {
            "id": known.info.id,
            "state": known.state,
            "queues": known.info.queues,
            "running": [job.what for job in known.info.running],
            "completed": known.info.completed,
            "failed": known.info.failed,
            "heartbeat_at": known.info.heartbeat_at,
        }
        for known in now.workers
    ]
