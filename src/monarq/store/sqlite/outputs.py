"""What running attempts print."""

from __future__ import annotations

from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES
from monarq.operations.items import AppendOutput
from monarq.store import sealing, validation
from monarq.store.queries.outputs import PLAIN_SIZE
from monarq.store.sqlite import items
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.session import Session


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
        f"select coalesce(max(start + {PLAIN_SIZE}), 0) from outputs "
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
