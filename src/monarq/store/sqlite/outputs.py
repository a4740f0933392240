"""What running attempts print."""

from __future__ import annotations

from monarq.crypto import OVERHEAD
from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, OutputPart
from monarq.operations.items import AppendOutput, ReadOutput
from monarq.store import sealing, validation
from monarq.store.sqlite import items
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.session import Session

# What an attempt prints may begin with any byte, so that a column says whether it is sealed.
_SIZE = f"length(data) - iif(sealed, {OVERHEAD}, 0)"


@handles(AppendOutput)
def append_output(session: Session, request: AppendOutput) -> int:
    item_id, attempt, data = request.item_id, request.attempt, request.data
    place = (*validation.check_item_id(item_id), attempt)
    item = items.find_item(session, *place[:2])
    if item is None:
        raise NotFoundError(f"there is no item {item_id}")
    queue = session.queue_by_id(item.queue_id)
    is_sealed = queue.options.encryption_enabled
    validation.check_may_work(queue.options.runs_commands, queue.name, session.commands)
    [size] = session.db.execute(
        f"select coalesce(max(start + {_SIZE}), 0) from outputs "
        "where (partition_id, seq, attempt) = (?, ?, ?)",
        place,
    ).fetchone()
    if size + len(data) > MAX_OUTPUT_BYTES:
        raise validation.refuse_more_output(item_id, attempt)
    if data:
        stored = sealing.stored_output(data, session.cipher, place) if is_sealed else data
        session.db.execute(
            "insert into outputs (partition_id, seq, attempt, start, data, written_at, sealed) "
            "values (?, ?, ?, ?, ?, ?, ?)",
            (*place, size, stored, session.now, is_sealed),
        )
    return int(size + len(data))


@handles(ReadOutput)
def read_output(session: Session, request: ReadOutput) -> OutputPart:
    start, end = request.start, request.start + request.max_bytes
    place = (*validation.check_item_id(request.item_id), request.attempt)
    rows = session.db.execute(
        "select start, data, sealed from outputs where (partition_id, seq, attempt) = (?, ?, ?) "
        f"and start + {_SIZE} > ? and start < ? order by start",
        (*place, start, end),
    )
    parts = [
        (first, sealing.open_output(part, session.cipher, place) if is_sealed else part)
        for first, part, is_sealed in rows
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[: request.max_bytes]
    return OutputPart(
        id=request.item_id, attempt=request.attempt, data=data, next=start + len(data)
    )
