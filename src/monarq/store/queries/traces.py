"""The names of traces, on both engines."""

from __future__ import annotations

from monarq.model import Page
from monarq.operations.traces import ListTraceNames
from monarq.store import paging
from monarq.store.queries.database import Queries, handles

# One probe of the index a name, however many traces it has.
_NAMES = """
with recursive names (name, place) as (
    select (select name from monarq.trace_names where name > $1 order by name limit 1), 1
    union all
    select (select t.name from monarq.trace_names t where t.name > n.name order by t.name limit 1),
        n.place + 1
    from names n where n.name is not null and n.place < $2
)
select name from names where name is not null
"""


@handles(ListTraceNames)
async def list_trace_names(db: Queries, request: ListTraceNames) -> Page[str]:
    last = paging.position(request.after, "trace names", str) or ""
    rows = await db.fetch(_NAMES, last, request.limit + 1)
    return paging.page([row[0] for row in rows], request.limit, "trace names", str)
