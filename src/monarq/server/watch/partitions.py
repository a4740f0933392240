"""Partitions as a group sees them: lines of a table, and cells of a heat map for very many."""

from __future__ import annotations

from collections.abc import Callable

from monarq.clock import SECOND
from monarq.errors import ConflictError
from monarq.model import QueueKind, Standing
from monarq.server.watch.views import View
from monarq.store.contract import Store
from monarq.times import iso, iso_or_none
from monarq.wire.watching import (
    HeatMeasure,
    PartitionLine,
    PartitionSort,
    PartitionState,
)

MOST = 100_000
"""Partitions that are looked at."""
_PAGE = 1000
_LETTERS: dict[PartitionState, str] = {
    "drained": "d",
    "available": "a",
    "leased": "l",
    "delayed": "w",
    "retrying": "r",
}
"""The worst last."""
_RANKS = {letter: rank for rank, letter in enumerate(_LETTERS.values())}


async def check_ordered(store: Store, queue: str) -> None:
    if (await store.queue_settings(queue)).kind is not QueueKind.ORDERED:
        raise ConflictError(f"{queue!r} is a work queue: it has items, and no partitions to see")


def furthest_behind(view: View, queue: str) -> str | None:
    """The group that has most before it."""
    groups = view.now.groups.get(queue, {})
    if not groups:
        return None
    return max(groups.values(), key=lambda group: (group.lag, -group.group_id)).group


async def read_standings(
    store: Store, queue: str, group: str | None, *, most: int = MOST
) -> tuple[list[Standing], bool]:
    """Return up to `most` partitions as a group sees them, and whether there are more."""
    rows: list[Standing] = []
    after = None
    while True:
        page = await store.list_standings(queue, group, limit=_PAGE, after=after)
        rows += page.rows
        after = page.next
        if after is None:
            return rows, False
        if len(rows) >= most:
            return rows, True


def state_of(standing: Standing, now: int) -> PartitionState:
    if standing.lag <= 0:
        return "drained"
    if standing.lease_until is not None and standing.lease_until > now:
        return "leased"
    if standing.attempts:
        return "retrying"
    if standing.available_at is not None and standing.available_at > now:
        return "delayed"
    return "available"


def line_of(standing: Standing, now: int) -> PartitionLine:
    is_behind = standing.lag > 0
    return PartitionLine(
        partition_id=str(standing.partition_id),
        partition=standing.partition,
        first_seq=standing.first_seq,
        last_seq=standing.last_seq,
        stored=standing.last_seq - standing.first_seq + 1,
        lag=standing.lag,
        position=standing.position,
        age_seconds=_age(standing, now) if is_behind else None,
        last_pushed_at=iso(standing.last_at),
        state=state_of(standing, now),
        consumer=standing.consumer,
        leased_at=iso_or_none(standing.leased_at),
        lease_until=iso_or_none(standing.lease_until),
        head_seq=standing.position + 1 if is_behind else None,
        attempts=standing.attempts,
        retry_at=iso_or_none(standing.retry_at),
    )


def sort_key(sort: PartitionSort, now: int) -> Callable[[Standing], float]:
    if sort == "id":
        return lambda standing: standing.partition_id
    return _measure(sort, now)


def _measure(by: HeatMeasure, now: int) -> Callable[[Standing], float]:
    match by:
        case "lag":
            return lambda standing: standing.lag
        case "age":
            return lambda standing: _age(standing, now) if standing.lag > 0 else 0.0
        case "stored":
            return lambda standing: standing.last_seq - standing.first_seq + 1
        case "attempts":
            return lambda standing: standing.attempts


def _age(standing: Standing, now: int) -> float:
    if standing.oldest_at is None:
        return 0.0
    return round(max(0, now - standing.oldest_at) / SECOND, 1)


class Heat:
    """Cells of so many partitions each, in the order of their ids."""

    def __init__(self, standings: list[Standing], by: HeatMeasure, cells: int, now: int) -> None:
        self.per_cell = max(1, -(-len(standings) // cells))
        measure = _measure(by, now)
        self.values: list[float] = []
        self.first_ids: list[str] = []
        self.names: list[str] = []
        states: list[str] = []
        for start in range(0, len(standings), self.per_cell):
            some = standings[start : start + self.per_cell]
            self.values.append(max(map(measure, some)))
            letters = (_LETTERS[state_of(one, now)] for one in some)
            states.append(max(letters, key=_RANKS.__getitem__))
            self.first_ids.append(str(some[0].partition_id))
            self.names.append(some[0].partition)
        self.states = "".join(states)
        self.max = max(self.values, default=0.0)
