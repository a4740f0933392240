"""Looking at the items of work queues, cancelling and retrying them."""

from __future__ import annotations

from msgspec import UNSET, Raw, structs

from monarq.errors import ConflictError, NotFoundError
from monarq.ids import NumberText, message_id
from monarq.model import (
    AttemptOutcome,
    Item,
    ItemDetail,
    ItemState,
    Page,
    Queue,
    QueueKind,
)
from monarq.operations.items import CancelItem, GetItem, ListItems, RetryItem
from monarq.store import kept_messages, paging, sealing, validation
from monarq.store.collecting import MAX_BYTES
from monarq.store.queries.items import history
from monarq.store.sqlite import dead_letters, items
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.queries import SqliteQueries, finished
from monarq.store.sqlite.session import Session
from monarq.times import Micros, micros_or_none


def work_queue(session: Session, name: str) -> Queue:
    queue = session.queue(name)
    if queue.kind is not QueueKind.WORK:
        raise validation.wrong_kind(queue)
    return queue


def to_item(session: Session, item: WorkItem, last: int) -> Item:
    waited = last - item.rank - item.priority if item.state == ItemState.READY else item.waited
    is_leased = item.state == ItemState.LEASED
    queue = session.queue_by_id(item.queue_id)
    headers = sealing.open_headers(item.headers, session.cipher)
    return Item(
        id=message_id(item.partition_id, item.seq),
        queue=queue.name,
        partition_id=NumberText(item.partition_id),
        seq=item.seq,
        transaction_id=item.public_id,
        state=ItemState(item.state),
        priority=item.priority,
        effective_priority=item.priority + waited,
        attempts=item.attempts,
        max_attempts=item.max_attempts,
        backoff_base=item.backoff_base,
        created_at=Micros(item.created_at),
        run_at=micros_or_none(item.due_at if item.state == ItemState.SCHEDULED else None),
        lease_until=micros_or_none(item.due_at if is_leased else None),
        finished_at=micros_or_none(item.finished_at),
        consumer=item.consumer,
        error=sealing.open_error(item.error, session.cipher, queue.name),
        trace_id=item.trace_id,
        producer=item.producer,
        raw=Raw(items.open_payload(session, queue, item)),
        raw_headers=UNSET if headers is None else Raw(headers),
    )


# --- looking -------------------------------------------------------------------------------


@handles(ListItems)
def list_items(session: Session, request: ListItems) -> Page[Item]:
    return find_items(session, request)


def find_items(session: Session, request: ListItems) -> Page[Item]:
    if request.transaction_id is not None:
        return _with_transaction_id(session, request, request.transaction_id)
    last_seq = paging.position(request.after, "items", int) or 0
    partition = items.work_partition(session, work_queue(session, request.queue))
    if partition is None:
        return Page([])
    if request.order == "next":
        return _next_items(session, request, partition)
    condition = "" if request.state is None else f"and state = '{request.state.value}'"
    rows = session.db.execute(
        f"{items.SELECT} where partition_id = ? and seq > ? {condition} order by seq limit ?",
        (partition[0], last_seq, request.limit + 1),
    )
    found = [to_item(session, WorkItem(row), partition[1]) for row in rows]
    return paging.page(found, request.limit, "items", lambda item: item.seq)


def _with_transaction_id(session: Session, request: ListItems, transaction_id: str) -> Page[Item]:
    partition = items.work_partition(session, work_queue(session, request.queue))
    if partition is None:
        return Page([])
    seq = items.find_seq(session, partition[0], transaction_id)
    item = None if seq is None else items.find_item(session, partition[0], seq)
    if item is None or request.state not in (None, item.state):
        return Page([])
    return Page([to_item(session, item, partition[1])])


def _next_items(session: Session, request: ListItems, partition: tuple[int, int]) -> Page[Item]:
    rows = session.db.execute(
        f"{items.SELECT} where partition_id = ? and state = 'ready' order by rank, turn limit ?",
        (partition[0], request.limit),
    )
    found: list[Item] = []
    held = 0
    for row in rows:
        found.append(to_item(session, WorkItem(row), partition[1]))
        held += request.row_bytes(found[-1])
        if held >= MAX_BYTES:
            break
    rows.close()  # A statement that is not read to its end would keep its view of the file.
    return Page(found)


@handles(GetItem)
def get_item(session: Session, request: GetItem) -> ItemDetail:
    item = _find(session, request.item_id)
    return _detail(session, item, items.last_seq(session, item.partition_id))


def _detail(session: Session, item: WorkItem, last: int) -> ItemDetail:
    attempts = finished(history(SqliteQueries(session), item.partition_id, item.seq))
    return ItemDetail(**structs.asdict(to_item(session, item, last)), history=attempts)


def _find(session: Session, item_id: str, *, commands: bool = True) -> WorkItem:
    """Return the item, or raise `NotFoundError`, or `ForbiddenError` for want of `commands`."""
    item = items.find_item(session, *validation.check_item_id(item_id))
    if item is None:
        raise NotFoundError(f"there is no item {item_id}")
    if not commands:
        queue = session.queue_by_id(item.queue_id)
        validation.check_may_work(queue.options.runs_commands, queue.name, commands)
    return item


def find_item(session: Session, queue: str, partition_id: int, transaction_id: str) -> Item:
    """Return an item by its transaction id or its id; raise `NotFoundError`."""
    seq = items.find_seq(session, partition_id, transaction_id)
    item = None if seq is None else items.find_item(session, partition_id, seq)
    if item is None:
        raise kept_messages.no_item(queue, partition_id, transaction_id)
    return to_item(session, item, items.last_seq(session, partition_id))


# --- changing ------------------------------------------------------------------------------


@handles(CancelItem)
def cancel_item(session: Session, request: CancelItem) -> ItemDetail:
    item = _find(session, request.item_id, commands=session.commands)
    was = item.state
    if was in (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED):
        raise ConflictError(f"item {request.item_id} is {was}: there is nothing to cancel")
    last = items.last_seq(session, item.partition_id)
    if was == ItemState.LEASED:
        items.end_attempt(session, item, AttemptOutcome.CANCELLED, session.now)
        item.ended_by = MOVED
    items.leave_ready(item, last)
    items.finish(item, ItemState.CANCELLED, session.now)
    items.save(session, item, was)
    return _detail(session, item, last)


@handles(RetryItem)
def retry_item(session: Session, request: RetryItem) -> ItemDetail:
    item = _find(session, request.item_id, commands=session.commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {request.item_id} is leased: cancel it first, or wait")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    dead_letters.start_over(session, session.queue_by_id(item.queue_id), item)
    return _detail(session, item, items.last_seq(session, item.partition_id))


def delete_item(session: Session, partition_id: int, seq: int) -> None:
    item = _find(session, message_id(partition_id, seq), commands=session.commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {message_id(partition_id, seq)} is leased: cancel it first")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    items.remove(session, item, item.state)
