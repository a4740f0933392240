"""Looking at the items of work queues, cancelling and retrying them."""

from __future__ import annotations

from monarq.errors import ConflictError
from monarq.ids import message_id
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
from monarq.store import validation
from monarq.store.queries import items as shared
from monarq.store.sqlite import dead_letters, items
from monarq.store.sqlite.cursors import MOVED
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.queries import SqliteQueries, finished
from monarq.store.sqlite.session import Session


def work_queue(session: Session, name: str) -> Queue:
    queue = session.queue(name)
    if queue.kind is not QueueKind.WORK:
        raise validation.wrong_kind(queue)
    return queue


# --- looking -------------------------------------------------------------------------------


@handles(ListItems)
def list_items(session: Session, request: ListItems) -> Page[Item]:
    return find_items(session, request)


def find_items(session: Session, request: ListItems) -> Page[Item]:
    queue_id = work_queue(session, request.queue).id
    select = items_by_seq(request.state)
    return finished(shared.find_items(SqliteQueries(session), queue_id, request, select))


def items_by_seq(state: ItemState | None, *, newest_first: bool = False) -> str:
    """SQL for the first $2 items of queue $1 behind seq $3."""
    order, behind = ("i.seq desc", "i.seq < $3") if newest_first else ("i.seq", "i.seq > $3")
    condition = behind if state is None else f"{behind} and i.state = '{ItemState(state).value}'"
    return shared.items_of(shared.first_items(condition, order), order)


@handles(GetItem)
def get_item(session: Session, request: GetItem) -> ItemDetail:
    return finished(shared.get_item(SqliteQueries(session), request.item_id))


def _find(session: Session, item_id: str, *, commands: bool = True) -> WorkItem:
    """Return the item, or raise `NotFoundError`, or `ForbiddenError` for want of `commands`."""
    item = items.find_item(session, *validation.check_item_id(item_id))
    if item is None:
        raise shared.no_item(item_id)
    if not commands:
        queue = session.queue_by_id(item.queue_id)
        validation.check_may_work(queue.options.runs_commands, queue.name, commands)
    return item


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
    return finished(shared.get_item(SqliteQueries(session), request.item_id))


@handles(RetryItem)
def retry_item(session: Session, request: RetryItem) -> ItemDetail:
    item = _find(session, request.item_id, commands=session.commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {request.item_id} is leased: cancel it first, or wait")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    dead_letters.start_over(session, session.queue_by_id(item.queue_id), item)
    return finished(shared.get_item(SqliteQueries(session), request.item_id))


def delete_item(session: Session, partition_id: int, seq: int) -> None:
    item = _find(session, message_id(partition_id, seq), commands=session.commands)
    if item.state == ItemState.LEASED:
        raise ConflictError(f"item {message_id(partition_id, seq)} is leased: cancel it first")
    if item.state == ItemState.DEAD:
        dead_letters.forget_letter_of(session, item)
    items.remove(session, item, item.state)
