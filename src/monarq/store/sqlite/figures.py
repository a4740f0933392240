"""The contract's figures: of queues, partitions, messages and the file itself."""

from __future__ import annotations

from typing import Any

from monarq.model import MetricPoint, Page
from monarq.store import paging
from monarq.store.queries.logs import metric_point
from monarq.store.sqlite.calls import Calls
from monarq.store.sqlite.session import Session

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
    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        return await self._read(lambda session: _metrics_before(session, at, queue, limit, after))

    async def health_figures(self) -> dict[str, Any]:
        return await self._read(_health_figures)


def _metrics_before(
    session: Session, at: int, queue: str | None, limit: int, after: str | None
) -> Page[MetricPoint]:
    last = paging.position(after, "metrics before", int) or 0
    rows = session.db.execute(_POINTS_BEFORE, (at, last, queue, queue, limit + 1)).fetchall()
    page = paging.page(rows, limit, "metrics before", lambda row: row[0])
    return Page([metric_point(row[1:]) for row in page.rows], page.next)


def _health_figures(session: Session) -> dict[str, Any]:
    figures: dict[str, Any] = {"store": "sqlite"}
    for pragma, name in _PRAGMAS.items():
        [figures[name]] = session.db.execute(f"pragma {pragma}").fetchone()
    [figures["version"]] = session.db.execute("select sqlite_version()").fetchone()
    figures["databaseBytes"] = figures["pages"] * figures["pageBytes"]
    return figures
