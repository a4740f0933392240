"""Makes rows of what a queue keeps, messages or items alike, with the status that people ask for.

A status is one group's view. Where none is named it is that of `__QUEUE_MODE__`, if it is a
group of the queue, and otherwise that of all groups together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import UNSET, Raw, UnsetType, structs

from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    DeadLetter,
    DeadLetterFilter,
    Item,
    ItemState,
    Page,
    QueueKind,
    StoredMessage,
)
from monarq.server.parameters import time_or_none
from monarq.store.collecting import collect
from monarq.store.contract import Store
from monarq.times import iso
from monarq.wire.messages import (
    BusStatus,
    MessageRow,
    MessagesQuery,
    MessageStatus,
    QueueMessagesQuery,
)

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


async def message_rows(
    store: Store, queue: str, query: MessagesQuery | QueueMessagesQuery
) -> Page[MessageRow]:
    """What is kept in a queue, as the query asks."""
    found = await store.queue_settings(queue)
    since, until = time_or_none(query.from_, "from"), time_or_none(query.to, "to")
    if found.kind is QueueKind.WORK:
        return await _item_rows(store, queue, query, since, until)
    if query.status == "dead_letter":
        return await _dead_rows(store, queue, query, since, until)
    return await _ordered_rows(store, queue, query, since, until)


async def _ordered_rows(
    store: Store,
    queue: str,
    query: MessagesQuery | QueueMessagesQuery,
    since: int | None,
    until: int | None,
) -> Page[MessageRow]:
    first_seq = query.first_seq if isinstance(query, MessagesQuery) else None
    if query.offset and query.status is None and since is None and until is None:
        after, left = await store.pass_messages(
            queue, query.offset, partition=query.partition, first_seq=first_seq, after=query.after
        )
        query = structs.replace(query, after=after, offset=left)

    async def fetch(limit: int, after: str | None) -> Page[MessageRow]:
        page = await store.list_messages(
            queue,
            partition=query.partition,
            first_seq=first_seq,
            created_from=since,
            limit=limit,
            after=after,
        )
        states = await store.group_states([(one.partition_id, one.seq) for one in page.rows])
        rows = [
            message_row(one, groups, query.consumer_group)
            for one, groups in zip(page.rows, states, strict=True)
        ]
        return Page(rows, page.next)

    return await collect(fetch, query, keep=_filter(query.status, since, until), size=_size)


async def _item_rows(
    store: Store,
    queue: str,
    query: MessagesQuery | QueueMessagesQuery,
    since: int | None,
    until: int | None,
) -> Page[MessageRow]:
    state = None if query.status is None else _STATE_OF[query.status]

    async def fetch(limit: int, after: str | None) -> Page[MessageRow]:
        page = await store.list_items(queue, state=state, limit=limit, after=after)
        return Page([item_as_message(one) for one in page.rows], page.next)

    if query.partition not in (None, DEFAULT_PARTITION):
        return Page([])
    return await collect(fetch, query, keep=_filter(query.status, since, until), size=_size)


async def _dead_rows(
    store: Store,
    queue: str,
    query: MessagesQuery | QueueMessagesQuery,
    since: int | None,
    until: int | None,
) -> Page[MessageRow]:
    which = DeadLetterFilter(
        queue=queue,
        partition=query.partition,
        group=query.consumer_group,
        failed_from=since,
        failed_to=until,
    )

    async def fetch(limit: int, after: str | None) -> Page[MessageRow]:
        page = await store.list_dead_letters(which, limit=limit, after=after)
        return Page([_dead_row(one) for one in page.rows], page.next)

    return await collect(fetch, query, size=_size)


def message_row(
    message: StoredMessage, groups: Mapping[str, str], group: str | None = None
) -> MessageRow:
    return MessageRow(
        id=message.id,
        transaction_id=message.transaction_id,
        partition_id=str(message.partition_id),
        queue=message.queue,
        partition=message.partition,
        seq=message.seq,
        status=status_of(groups, group),
        groups=dict(groups),
        bus_status=_bus_status(groups),
        trace_id=message.trace_id,
        producer_sub=message.producer,
        created_at=iso(message.created_at),
        data=Raw(message.payload),
        headers=raw_or_unset(message.headers),
    )


def _bus_status(groups: Mapping[str, str]) -> BusStatus:
    consumed = sum(state in ("done", "dead") for state in groups.values())
    return BusStatus(consumed_by=consumed, total_groups=len(groups))


def raw_or_unset(value: bytes | None) -> Raw | UnsetType:
    return UNSET if value is None else Raw(value)


def status_of(groups: Mapping[str, str], group: str | None = None) -> MessageStatus:
    group = group or DEFAULT_GROUP
    if group in groups or group != DEFAULT_GROUP:
        return _OF_GROUP[groups.get(group, "pending")]
    states = set(groups.values())
    if "leased" in states:
        return "processing"
    return "completed" if states and states <= {"done", "dead"} else "pending"


def item_as_message(item: Item) -> MessageRow:
    return MessageRow(
        id=item.id,
        transaction_id=item.transaction_id,
        partition_id=str(item.partition_id),
        queue=item.queue,
        partition=DEFAULT_PARTITION,
        seq=item.seq,
        status=_OF_ITEM[item.state],
        groups={},
        bus_status=_bus_status({}),
        trace_id=item.trace_id,
        producer_sub=item.producer,
        created_at=iso(item.created_at),
        data=Raw(item.payload),
        headers=raw_or_unset(item.headers),
    )


def _dead_row(letter: DeadLetter) -> MessageRow:
    return MessageRow(
        id=f"{letter.partition_id}-{letter.seq}",
        transaction_id=letter.transaction_id,
        partition_id=str(letter.partition_id),
        queue=letter.queue,
        partition=letter.partition,
        seq=letter.seq,
        status="dead_letter",
        groups={letter.group: "dead"},
        bus_status=_bus_status({letter.group: "dead"}),
        trace_id=letter.trace_id,
        producer_sub=letter.producer,
        created_at=iso(letter.created_at),
        data=Raw(letter.payload),
        headers=raw_or_unset(letter.headers),
    )


def _filter(
    status: MessageStatus | None, since: int | None, until: int | None
) -> Callable[[MessageRow], bool]:
    # Times as the API writes them sort as text.
    first = "" if since is None else iso(since)
    last = "~" if until is None else iso(until)
    return lambda row: status in (None, row.status) and first <= row.created_at <= last


def _size(row: MessageRow) -> int:
    return len(bytes(row.data)) + 400
