"""How much of what is there a batch of a stream takes: all, or up to a limit, shared fairly.

Pure arithmetic on positions.
"""

from __future__ import annotations

from collections.abc import Mapping

from monarq.spark.positions import Positions
from monarq.spark.ranges import Lane


def reachable(
    start: Positions, lanes: Mapping[str, list[Lane]], target: Positions | None = None
) -> Positions:
    """The end of every partition; never before `start`, and never behind `target`.

    What `start` says of others (of queues or partitions that the options name no more) stays.
    """
    end = {queue: dict(positions) for queue, positions in start.items()}
    for queue, of_queue in lanes.items():
        goal = None if target is None else target.get(queue, {})
        of_end = end.setdefault(queue, {})
        for lane in of_queue:
            last = max(lane.last_seq, lane.first_seq - 1)
            if goal is not None:
                last = min(last, goal.get(lane.partition_id, 0))
            of_end[lane.partition_id] = max(last, of_end.get(lane.partition_id, 0))
    return end


def without_gone(start: Positions, lanes: Mapping[str, list[Lane]]) -> Positions:
    """Without partitions that these queues no longer have: their ids are never used again.

    The lanes must be all of their queues.
    """
    kept = dict(start)
    for queue, of_queue in lanes.items():
        if queue in start:
            known = {lane.partition_id for lane in of_queue}
            kept[queue] = {one: last for one, last in start[queue].items() if one in known}
    return kept


def admitted(start: Positions, end: Positions, limit: int, turn: int) -> tuple[Positions, int]:
    """The way from `start` towards `end`, at most `limit` messages of it, and the next turn.

    Every partition gets its share before one gets more. Where there are fewer messages to give
    than partitions, the turn says with which partition to begin, so that none waits for ever.
    """
    waiting = [
        (last - start.get(queue, {}).get(partition_id, 0), queue, partition_id)
        for queue, positions in end.items()
        for partition_id, last in positions.items()
        if last > start.get(queue, {}).get(partition_id, 0)
    ]
    if sum(behind for behind, _, _ in waiting) <= limit:
        return end, 0
    first = turn % len(waiting)
    if limit < len(waiting):
        chosen = [(1, *waiting[(first + at) % len(waiting)][1:]) for at in range(limit)]
        return _moved(start, chosen), first + limit
    chosen = []
    left = limit
    for at, (behind, queue, partition_id) in enumerate(sorted(waiting)):
        share = min(behind, left // (len(waiting) - at))
        chosen.append((share, queue, partition_id))
        left -= share
    return _moved(start, chosen), first


def _moved(start: Positions, chosen: list[tuple[int, str, int]]) -> Positions:
    moved = {queue: dict(positions) for queue, positions in start.items()}
    for count, queue, partition_id in chosen:
        of_queue = moved.setdefault(queue, {})
        of_queue[partition_id] = of_queue.get(partition_id, 0) + count
    return moved
