"""Traces: notes that consumers leave about a message."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec
from msgspec import Raw

from monarq.errors import ConflictError, NotFoundError
from monarq.ids import NumberText, parse_message_id
from monarq.model import Page, Trace
from monarq.operations.traces import AddTrace, ListTraces
from monarq.store import paging, sealing
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.messages import ordered_message
from monarq.store.sqlite.session import Session
from monarq.times import Micros


@handles(AddTrace)
def add_trace(session: Session, request: AddTrace) -> int:
    place = (request.partition_id, request.transaction_id)
    data = request.data
    if _is_of_encrypted_queue(session, request.partition_id):
        data = sealing.stored_trace(data, session.cipher, *place)
    made = session.db.execute(
        """insert into traces (partition_id, transaction_id, event_type, names, created_at, data)
        values (?, ?, ?, ?, ?, ?)""",
        (*place, request.event_type, msgspec.msgpack.encode(request.names), session.now, data),
    )
    assert made.lastrowid is not None
    session.db.executemany(
        "insert or ignore into trace_names (name, trace_id) values (?, ?)",
        [(name, made.lastrowid) for name in request.names],
    )
    return made.lastrowid


def _is_of_encrypted_queue(session: Session, partition_id: int) -> bool:
    row = session.db.execute(
        "select queue_id from partitions where id = ?", (partition_id,)
    ).fetchone()
    return row is not None and session.queue_by_id(row[0]).options.encryption_enabled


@handles(ListTraces)
def list_traces(session: Session, request: ListTraces) -> Page[Trace]:
    last = paging.position(request.after, "traces", int) or 0
    source, key = "traces t", "t.id"
    terms: dict[str, Any]
    if request.partition_id is not None and request.transaction_id is not None:
        terms = {
            "t.id > ?": last,
            "t.partition_id = ?": request.partition_id,
            "t.transaction_id = ?": _transaction_id(
                session, request.partition_id, request.transaction_id
            ),
        }
    else:
        source, key = "trace_names n cross join traces t on t.id = n.trace_id", "n.trace_id"
        terms = {"n.name = ?": request.name, "n.trace_id > ?": last}
    rows = session.db.execute(
        f"""select t.id, t.partition_id, t.transaction_id, t.event_type, t.names, t.created_at,
            t.data
        from {source} where {" and ".join(terms)} order by {key} limit ?""",
        (*terms.values(), request.limit + 1),
    )
    traces = [_to_trace(session, row) for row in rows]
    return paging.page(traces, request.limit, "traces", lambda trace: trace.id)


def _transaction_id(session: Session, partition_id: int, given: str) -> str:
    """Return a message's transaction id, where its own id may be given."""
    if (parse_message_id(given) or (0,))[0] == partition_id:
        with contextlib.suppress(NotFoundError, ConflictError):
            return ordered_message(session, partition_id, given).transaction_id
    return given


def _to_trace(session: Session, row: tuple[Any, ...]) -> Trace:
    number, partition_id, transaction_id, event_type, names, created_at, data = row
    return Trace(
        id=NumberText(number),
        transaction_id=transaction_id,
        partition_id=NumberText(partition_id),
        event_type=event_type,
        names=msgspec.msgpack.decode(names, type=list[str]),
        created_at=Micros(created_at),
        raw=Raw(sealing.open_trace(data, session.cipher, partition_id, transaction_id)),
    )
