"""Traces: notes that consumers leave about a message."""

from __future__ import annotations

import contextlib
from typing import Any

from msgspec import Raw

from monarq.crypto import Cipher
from monarq.errors import ConflictError, NotFoundError
from monarq.ids import NumberText, parse_message_id
from monarq.model import Page, Trace
from monarq.operations.traces import AddTrace, ListTraces
from monarq.store import paging, sealing
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.postgres.inspection import ordered_message
from monarq.times import Micros

_IS_ENCRYPTED = """
    select q.encryption_enabled from monarq.partitions p
    join monarq.queues q on q.id = p.queue_id where p.id = $1
"""
_ADD = """
    with added as (
        insert into monarq.traces
            (partition_id, transaction_id, event_type, data, names, created_at)
        values ($1, $2, $3, $4, $5, monarq.time($6)) returning id
    ), named as (
        insert into monarq.trace_names (name, trace_id)
        select n, added.id from added cross join unnest($5) n
    )
    select id from added
"""
_BY_NAME = """
    select t.* from monarq.trace_names n join monarq.traces t on t.id = n.trace_id
    where n.name = $1 and n.trace_id > $2 order by n.trace_id limit $3
"""
_OF_MESSAGE = """
    select * from monarq.traces
    where partition_id = $1 and transaction_id = $2 and id > $3 order by id limit $4
"""


@handles(AddTrace)
async def add_trace(tools: Tools, request: AddTrace) -> int:
    place = (request.partition_id, request.transaction_id)
    data = request.data
    if await tools.database.fetchval(_IS_ENCRYPTED, request.partition_id):
        data = sealing.stored_trace(data, tools.cipher, *place)
    names = list(dict.fromkeys(request.names))
    number: int = await tools.database.fetchval(
        _ADD, *place, request.event_type, data, names, tools.database.now()
    )
    return number


@handles(ListTraces)
async def list_traces(tools: Tools, request: ListTraces) -> Page[Trace]:
    database, limit = tools.database, request.limit
    last = paging.position(request.after, "traces", int) or 0
    if request.partition_id is not None and request.transaction_id is not None:
        transaction_id = await _transaction_id(tools, request.partition_id, request.transaction_id)
        rows = await database.fetch(
            _OF_MESSAGE, request.partition_id, transaction_id, last, limit + 1
        )
    else:
        rows = await database.fetch(_BY_NAME, request.name, last, limit + 1)
    traces = [_trace_from(row, tools.cipher) for row in rows]
    return paging.page(traces, limit, "traces", lambda trace: trace.id)


async def _transaction_id(tools: Tools, partition_id: int, given: str) -> str:
    """Return a message's transaction id, where its own id may be given."""
    if (parse_message_id(given) or (0,))[0] == partition_id:
        with contextlib.suppress(NotFoundError, ConflictError):
            return (await ordered_message(tools, partition_id, given)).transaction_id
    return given


def _trace_from(row: Any, cipher: Cipher | None) -> Trace:
    partition_id, transaction_id = row["partition_id"], row["transaction_id"]
    return Trace(
        id=NumberText(row["id"]),
        transaction_id=transaction_id,
        partition_id=NumberText(partition_id),
        event_type=row["event_type"],
        names=row["names"],
        created_at=Micros(row["created_at"]),
        raw=Raw(sealing.open_trace(row["data"], cipher, partition_id, transaction_id)),
    )
