"""Handlers whose SQL runs on both engines, unchanged.

The SQL is PostgreSQL's: parameters are `$1`, tables `monarq.records`, and the time of the call is
`monarq.time($2)` with `db.now()` as the parameter. SQLite takes `$1` as the name of a parameter;
its adapter (`store/sqlite/queries.py`) removes the schema's name and the time function.
`db.pushed_at` is SQL for the time of a message, since each engine has its own index of segments.
Joins whose order matters to SQLite are `cross join` with the condition in `where`, which
PostgreSQL takes in any order. On SQLite a handler is one transaction, on PostgreSQL each statement
is one.
"""

from __future__ import annotations

from monarq.store.queries import groups, outputs, partitions, records, traces
from monarq.store.queries.calls import SharedCalls
from monarq.store.queries.database import Queries, handles

__all__ = [
    "Queries",
    "SharedCalls",
    "groups",
    "handles",
    "outputs",
    "partitions",
    "records",
    "traces",
]
