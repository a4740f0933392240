"""Looking at the items of work queues, cancelling and retrying them."""

from __future__ import annotations

from typing import Any

from monarq.errors import ConflictError, NotFoundError
from monarq.ids import message_id
from monarq.model import (
    Attempt,
    AttemptOutcome,
    Item,
    ItemState,
    Page,
    Queue,
    QueueKind,
)
from monarq.store import paging, sealing, validation
from monarq.store.sqlite import dead_letters, items
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.session import Session

_ATTEMPTS = """
select a.id, a.partition_id, a.seq, q.name, a.attempt, a.started_at, a.ended_at, a.outcome,
    a.consumer, a.error, a.result
from attempts a cross join queues q on q.id = a.queue_id
"""


def work_queue(session: Session, name: str) -> Queue:
    queue = session.queue(name)
    if queue.kind is not QueueKind.WORK:
        raise validation.wrong_kind(queue)
    return queue


def to_item(session: Session, item: WorkItem, last: int) -> Item:
    waited = last - item.rank - item.priority if item.state == ItemState.READY else item.waited
    is_leased = item.state == ItemState.LEASED
    queue = session.queue_by_id(item.queue_id)
    return Item(
        queue=queue.name,
        partition_id=item.partition_id,
        seq=item.seq,
        transaction_id=item.public_id,
        payload=items.open_payload(session, queue, item),
        state=ItemState(item.state),
        priority=item.priority,
        effective_priority=item.priority + waited,
        attempts=item.attempts,
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
        created_at=item.created_at,
        run_at=item.due_at if item.state == ItemState.SCHEDULED else None,
        lease_until=item.due_at if is_leased else None,
        finished_at=item.finished_at,
        consumer=item.consumer,
        error=sealing.open_error(item.error, session.cipher, queue.name),
        trace_id=item.trace_id,
        producer=item.producer,
        headers=sealing.open_headers(item.headers, session.cipher),
    )


# --- looking -------------------------------------------------------------------------------


def list_items(
    session: Session, queue: str, state: ItemState | None, limit: int, after: str | None
) -> Page[Item]:
    seq = paging.position(after, "items", int) or 0
    partition = items.work_partition(session, work_queue(session, queue))
    if partition is None:
        return Page([])
    condition = "" if state is None else f"and state = '{ItemState(state).value}'"
    rows = session.db.execute(
        f"{items.SELECT} where partition_id = ? and seq > ? {condition} order by seq limit ?",
        (partition[0], seq, limit + 1),
    )
    found = [to_item(session, WorkItem(row), partition[1]) for row in rows]
    return paging.page(found, limit, "items", lambda item: item.seq)


def next_items(session: Session, queue: str, limit: int) -> list[Item]:
    partition = items.work_partition(session, work_queue(session, queue))
    if partition is None:
        return []
    rows = session.db.execute(
        f"{items.SELECT} where partition_id = ? and state = 'ready' order by rank, turn limit ?",
        (partition[0], limit),
    )
    return [to_item(session, WorkItem(row), partition[1]) for row in rows]


def get_item(session: Session, item_id: str) -> Item:
    item = _find(session, item_id)
    return to_item(session, item, items.last_seq(session, item.partition_id))


def find_item(session: Session, queue: str, transaction_id: str) -> Item:
    partition = items.work_partition(session, work_queue(session, queue))
    seq = item = None
    if partition is not None:
        seq = items.find_seq(session, partition[0], transaction_id)
    if partition is not None and seq is not None:
        item = items.find_item(session, partition[0], seq)
    if partition is None or item is None:
        raise NotFoundError(f"queue {queue!r} has no item {transaction_id!r}")
    return to_item(session, item, partition[1])


def _find(session: Session, item_id: str, *, commands: bool = True) -> WorkItem:
    """Return the item, or raise `NotFoundError`, or `ForbiddenError` for want of `commands`."""
    item = items.find_item(session, *validation.check_item_id(item_id))
    if item is None:
        raise NotFoundError(f"there is no item {item_id}")
    if not commands:
        queue = session.queue_by_id(item.queue_id)
        validation.check_may_work(queue.options.runs_commands, queue.name, commands)
    return item


# --- attempts ------------------------------------------------------------------------------


def item_attempts(session: Session, item_id: str) -> list[Attempt]:
    key = validation.check_item_id(item_id)
    rows = session.db.execute(
        f"{_ATTEMPTS} where a.partition_id = ? and a.seq = ? order by a.id", key
    ).fetchall()
    if not rows:
        _find(session, item_id)
    return [_to_attempt(session, row) for row in rows]


def list_attempts(
    session: Session, queue: str | None, limit: int, after: str | None
) -> Page[Attempt]:
    last = paging.position(after, "attempts", int) or 0
    queue_id = None if queue is None else session.queue(queue).id
    condition = "" if queue_id is None else f"a.queue_id = {queue_id} and"
    rows = session.db.execute(
        f"{_ATTEMPTS} where {condition} a.id > ? order by a.id limit ?", (last, limit + 1)
    ).fetchall()
    found = paging.page(rows, limit, "attempts", lambda row: row[0])
    return Page([_to_attempt(session, row) for row in found.rows], found.next)


def _to_attempt(session: Session, row: tuple[Any, ...]) -> Attempt:
    _, partition_id, seq, queue, attempt, started, ended, outcome, consumer, error, result = row
    return Attempt(
        item_id=message_id(partition_id, seq),
        queue=queue,
        attempt=attempt,
        started_at=started,
        ended_at=ended,
        outcome=AttemptOutcome(outcome),
        consumer=consumer,
        error=sealing.open_error(error, session.cipher, queue),
        result=sealing.open_result(result, session.cipher, queue),
    )


# --- changing ------------------------------------------------------------------------------


def cancel_item(session: Session, item_id: str, *, commands: bool) -> Item:
    item = _find(session, item_id, commands=commands)
    was = item.state
    if was in (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED):
        raise ConflictError(f"item {item_id} is {was}: there is nothing to cancel")
    last = items.last_seq(session, item.partition_id)
    if was == ItemState.LEASED:
        items.end_attempt(session, item, AttemptOutcome.CANCELLED, session.now)
        item.ended_by = MOVED
    items.leave_ready(item, last)
    items.finish(item, ItemState.CANCELLED, session.now)
    items.save(session, item, was)
    return to_item(session, item, last)


def retry_item(session: Session, item_id: str, *, commands: bool) -> Item:
    item = _find(session, item_id, commands=commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {item_id} is leased: cancel it first, or wait")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    dead_letters.start_over(session, session.queue_by_id(item.queue_id), item)
    return to_item(session, item, items.last_seq(session, item.partition_id))


def delete_item(session: Session, partition_id: int, seq: int, *, commands: bool) -> None:
    item = _find(session, message_id(partition_id, seq), commands=commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {message_id(partition_id, seq)} is leased: cancel it first")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    items.remove(session, item, item.state)
