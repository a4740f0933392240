"""Makes rows of what a queue keeps, messages or items alike, with the status that callers ask for.

A status is one group's view. Where none is named it is that of `__QUEUE_MODE__`, if it is a
group of the queue, and otherwise that of all groups together.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, Raw, structs

from monarq.errors import NotFoundError
from monarq.ids import NumberText, message_id, parse_message_id
from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    DeadLetter,
    Item,
    ItemState,
    MessageDetail,
    MessageStatus,
    Page,
    QueueOptions,
    StoredMessage,
)
from monarq.operations.items import ListItems
from monarq.operations.messages import ListMessages
from monarq.times import Micros

_OF_GROUP: Mapping[str, MessageStatus] = {
    "pending": "pending",
    "leased": "processing",
    "done": "completed",
    "dead": "dead_letter",
}
_OF_ITEM: Mapping[ItemState, MessageStatus] = {
    ItemState.SCHEDULED: "scheduled",
    ItemState.READY: "pending",
    ItemState.LEASED: "processing",
    ItemState.DONE: "completed",
    ItemState.DEAD: "dead_letter",
    ItemState.CANCELLED: "cancelled",
}
_STATE_OF = {status: state for state, status in _OF_ITEM.items()}


def stored_message(
    *,
    queue: str,
    partition: str,
    partition_id: int,
    seq: int,
    transaction_id: str | None,
    payload: bytes,
    headers: bytes | None,
    created_at: int,
    trace_id: str | None,
    producer: str | None,
) -> StoredMessage:
    """Return a message of an ordered queue that no group has seen."""
    own_id = message_id(partition_id, seq)
    return StoredMessage(
        id=own_id,
        transaction_id=transaction_id or own_id,
        partition_id=NumberText(partition_id),
        queue=queue,
        partition=partition,
        seq=seq,
        status="pending",
        groups={},
        trace_id=trace_id,
        producer=producer,
        created_at=Micros(created_at),
        raw=Raw(payload),
        raw_headers=UNSET if headers is None else Raw(headers),
    )


def with_states(
    message: StoredMessage, groups: dict[str, str], group: str | None = None
) -> StoredMessage:
    """Return the message with its state in each group, and its status for one group."""
    return structs.replace(message, groups=groups, status=status_of(groups, group))


def status_of(groups: Mapping[str, str], group: str | None = None) -> MessageStatus:
    group = group or DEFAULT_GROUP
    if group in groups or group != DEFAULT_GROUP:
        return _OF_GROUP[groups.get(group, "pending")]
    states = set(groups.values())
    if "leased" in states:
        return "processing"
    return "completed" if states and states <= {"done", "dead"} else "pending"


def detail_of(message: StoredMessage, options: QueueOptions) -> MessageDetail:
    return MessageDetail(**structs.asdict(message), queue_options=options)


# --- items and dead letters as messages ------------------------------------------------------


def as_items(request: ListMessages) -> ListItems | None:
    """Return the list of items for a list of messages of a work queue; None if it is empty."""
    if request.partition not in (None, DEFAULT_PARTITION):
        return None
    return ListItems(
        queue=request.queue,
        state=None if request.status is None else _STATE_OF[request.status],
        limit=request.limit,
        after=request.after,
    )


def no_item(queue: str, partition_id: int, transaction_id: str) -> NotFoundError:
    own = parse_message_id(transaction_id)
    if own is not None and own[0] == partition_id:
        return NotFoundError(f"there is no item {transaction_id}")
    return NotFoundError(f"queue {queue!r} has no item {transaction_id!r}")


def items_as_messages(page: Page[Item]) -> Page[StoredMessage]:
    return Page([item_as_message(item) for item in page.rows], page.next)


def item_as_message(item: Item) -> StoredMessage:
    return StoredMessage(
        id=item.id,
        transaction_id=item.transaction_id,
        partition_id=item.partition_id,
        queue=item.queue,
        partition=DEFAULT_PARTITION,
        seq=item.seq,
        status=_OF_ITEM[item.state],
        groups={},
        trace_id=item.trace_id,
        producer=item.producer,
        created_at=item.created_at,
        raw=item.raw,
        raw_headers=item.raw_headers,
    )


def letters_as_messages(page: Page[DeadLetter]) -> Page[StoredMessage]:
    return Page([_letter_as_message(letter) for letter in page.rows], page.next)


def _letter_as_message(letter: DeadLetter) -> StoredMessage:
    return StoredMessage(
        id=message_id(letter.partition_id, letter.seq),
        transaction_id=letter.transaction_id,
        partition_id=letter.partition_id,
        queue=letter.queue,
        partition=letter.partition,
        seq=letter.seq,
        status="dead_letter",
        groups={letter.group: "dead"},
        trace_id=letter.trace_id,
        producer=letter.producer,
        created_at=letter.created_at,
        raw=letter.raw,
        raw_headers=letter.raw_headers,
    )
