"""The contract's figures: of queues, partitions, messages and the file itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from monarq.errors import NotFoundError
from monarq.model import MetricPoint, Page, PartitionStats, QueueKind
from monarq.store import paging
from monarq.store.sqlite import messages
from monarq.store.sqlite.calls import Calls
from monarq.store.sqlite.session import Session

_PARTITION = """
select q.name, q.kind, p.id, p.name, p.first_seq, p.last_seq, p.last_at,
    (select min(c.position) from cursors c where c.partition_id = p.id)
from partitions p cross join queues q on q.id = p.queue_id
"""
_PARTITIONS = f"{_PARTITION} where p.queue_id = ? and p.id > ? order by p.id limit ?"
_POINTS_BEFORE = """
select q.id, m.at, q.name, m.pushed, m.completed, m.failed, m.dead, m.pending
from queues q join metrics m on m.queue_id = q.id
    and m.at = (select max(at) from metrics where queue_id = q.id and at < ?)
where q.id > ? and (? is null or q.name = ?) order by q.id limit ?
"""
_PRAGMAS = {
    "page_count": "pages",
    "freelist_count": "freePages",
    "page_size": "pageBytes",
    "journal_mode": "journalMode",
}


class FigureCalls(Calls):
    async def list_partitions(
        self, queue: str, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        return await self._read(lambda session: _list_partitions(session, queue, limit, after))

    async def get_partition(self, partition_id: int) -> PartitionStats:
        return await self._read(lambda session: _get_partition(session, partition_id))

    async def group_states(self, places: Sequence[tuple[int, int]]) -> list[dict[str, str]]:
        return await self._read(
            lambda session: [messages.group_states(session, *place) for place in places]
        )

    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        return await self._read(lambda session: _metrics_before(session, at, queue, limit, after))

    async def health_figures(self) -> dict[str, Any]:
        return await self._read(_health_figures)


def _list_partitions(
    session: Session, queue: str, limit: int, after: str | None
) -> Page[PartitionStats]:
    last = paging.position(after, "partitions", int) or 0
    rows = session.db.execute(_PARTITIONS, (session.queue(queue).id, last, limit + 1))
    partitions = [_to_partition(*row) for row in rows]
    return paging.page(partitions, limit, "partitions", lambda partition: partition.partition_id)


def _get_partition(session: Session, partition_id: int) -> PartitionStats:
    row = session.db.execute(f"{_PARTITION} where p.id = ?", (partition_id,)).fetchone()
    if row is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    return _to_partition(*row)


def _to_partition(
    queue: str,
    kind: str,
    partition_id: int,
    name: str,
    first_seq: int,
    last_seq: int,
    last_at: int,
    slowest: int | None,
) -> PartitionStats:
    resolved = first_seq - 1 if slowest is None else slowest
    return PartitionStats(
        queue=queue,
        partition_id=partition_id,
        partition=name,
        first_seq=first_seq,
        last_seq=last_seq,
        pending=0 if kind == QueueKind.WORK else last_seq - resolved,
        last_at=last_at,
    )


def _metrics_before(
    session: Session, at: int, queue: str | None, limit: int, after: str | None
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics before", int) or 0
    rows = session.db.execute(_POINTS_BEFORE, (at, last, queue, queue, limit + 1)).fetchall()
    page = paging.page(rows, limit, "metrics before", lambda row: row[0])
    return Page([_to_point(*row[1:]) for row in page.rows], page.next)


def _to_point(
    at: int, queue: str, pushed: int, completed: int, failed: int, dead: int, pending: int
) -> MetricPoint:
    return MetricPoint(
        at=at,
        queue=queue,
        pushed=pushed,
        completed=completed,
        failed=failed,
        dead=dead,
        pending=pending,
    )


def _health_figures(session: Session) -> dict[str, Any]:
    figures: dict[str, Any] = {"store": "sqlite"}
    for pragma, name in _PRAGMAS.items():
        [figures[name]] = session.db.execute(f"pragma {pragma}").fetchone()
    [figures["version"]] = session.db.execute("select sqlite_version()").fetchone()
    figures["databaseBytes"] = figures["pages"] * figures["pageBytes"]
    return figures
