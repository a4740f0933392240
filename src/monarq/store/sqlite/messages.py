"""Looking at the messages of ordered queues, deleting one, and exporting many."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import structs

from monarq.errors import ConflictError, NotFoundError
from monarq.model import MessageDetail, Page, Queue, QueueKind, Segment, StoredMessage
from monarq.operations.messages import DeleteMessage, GetMessage, ListMessages
from monarq.store import kept_messages, paging, segments
from monarq.store.queries.items import find_item
from monarq.store.sqlite import dead_letters, item_calls, items, segment_log
from monarq.store.sqlite.cursors import Cursor
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.queries import SqliteQueries, finished
from monarq.store.sqlite.segment_log import Body, Head
from monarq.store.sqlite.session import Session
from monarq.store.validation import wrong_kind


class _Place(NamedTuple):
    queue: Queue
    partition: str
    partition_id: int


def ordered_queue(session: Session, name: str) -> Queue:
    queue = session.queue(name)
    if queue.kind is not QueueKind.ORDERED:
        raise wrong_kind(queue)
    return queue


# --- reading -------------------------------------------------------------------------------


@handles(ListMessages)
def list_messages(session: Session, request: ListMessages) -> Page[StoredMessage]:
    queue = session.queue(request.queue)
    if queue.kind is QueueKind.WORK:
        wanted = kept_messages.as_items(request)
        found = Page([]) if wanted is None else item_calls.find_items(session, wanted)
        return kept_messages.items_as_messages(found)
    if request.status == "dead_letter":
        letters = dead_letters.list_dead_letters(
            session, request.which_dead, request.limit, request.after
        )
        return kept_messages.letters_as_messages(letters)
    return _list_ordered(session, queue, request)


def _list_ordered(session: Session, queue: Queue, request: ListMessages) -> Page[StoredMessage]:
    last = paging.position(request.after, "messages", tuple[int, int]) or (0, 0)
    rows: list[StoredMessage] = []
    for number, name in _partitions_from(session, queue.id, last[0], request.partition):
        place = _Place(queue, name, number)
        cursors = _cursors(session, number)
        start = max(request.first_seq or 1, last[1] + 1 if number == last[0] else 1)
        for message in _kept(session, place, start, request.created_from):
            states = {cursor.group: _state(session, cursor, message.seq) for cursor in cursors}
            rows.append(kept_messages.with_states(message, states, request.group))
            if len(rows) > request.limit:
                return paging.page(
                    rows, request.limit, "messages", lambda m: (m.partition_id, m.seq)
                )
    return Page(rows)


def pass_messages(session: Session, request: ListMessages) -> ListMessages:
    queue = session.queue(request.queue)
    if queue.kind is QueueKind.WORK:
        return request
    last = paging.position(request.after, "messages", tuple[int, int]) or (0, 0)
    passed = paging.PassedOver(request.offset, request.after)
    for number, _ in _partitions_from(session, queue.id, last[0], request.partition):
        if passed.done:
            break
        first, end, deleted = session.db.execute(_EXTENT, (number,)).fetchone()
        start = max(first, request.first_seq or 1, last[1] + 1 if number == last[0] else 1)
        passed.partition(number, first, start, end, deleted)
    after, left = passed.result(at_end=not passed.done)
    return structs.replace(request, after=after, offset=left)


# The index of segments that are not for everybody finds the deleted messages.
_EXTENT = """
select first_seq, last_seq, (
    select coalesce(sum(s.deleted), 0) from segments s
    where s.partition_id = partitions.id and (s.deleted > 0 or s.for_group is not null))
from partitions where id = ?
"""


def _partitions_from(
    session: Session, queue_id: int, first: int, name: str | None
) -> Iterator[tuple[int, str]]:
    """By id, those with something kept."""
    while True:
        rows = session.db.execute(
            """select id, name from partitions where queue_id = ? and id >= ?
            and first_seq <= last_seq and (? is null or name = ?) order by id limit 100""",
            (queue_id, first, name, name),
        ).fetchall()
        yield from rows
        if len(rows) < 100:
            return
        first = rows[-1][0] + 1


def _kept(
    session: Session, place: _Place, start: int, created_from: int | None
) -> Iterator[StoredMessage]:
    for head in segment_log.heads(session.db, place.partition_id, start):
        if created_from is not None and head.created_at < created_from:
            continue
        body = session.caches.segments.body(session.db, head)
        for seq in range(max(head.first_seq, start), head.last_seq + 1):
            message = _to_message(session, place, head, body, seq)
            if message is not None:
                yield message


def _to_message(
    session: Session, place: _Place, head: Head, body: Body, seq: int
) -> StoredMessage | None:
    """Return None if the message was deleted."""
    at = seq - head.first_seq
    [payload] = body.payloads(at, at + 1, session.cipher, place.queue.name, place.partition)
    headers = body.opened_headers(at, at + 1, session.cipher)
    if not payload:
        return None
    return kept_messages.stored_message(
        queue=place.queue.name,
        partition=place.partition,
        partition_id=place.partition_id,
        seq=seq,
        transaction_id=body.transaction_ids[at] if body.transaction_ids else None,
        payload=payload,
        headers=headers[0] if headers else None,
        created_at=head.created_at,
        trace_id=body.trace_ids[at] if body.trace_ids else None,
        producer=body.producers[at] if body.producers else None,
    )


@handles(GetMessage)
def get_message(session: Session, request: GetMessage) -> MessageDetail:
    partition_id, transaction_id = request.partition_id, request.transaction_id
    queue = _place(session, partition_id).queue
    if queue.kind is QueueKind.WORK:
        item = finished(find_item(SqliteQueries(session), queue.name, partition_id, transaction_id))
        return kept_messages.detail_of(kept_messages.item_as_message(item), queue.options)
    message = ordered_message(session, partition_id, transaction_id)
    states = {
        cursor.group: _state(session, cursor, message.seq)
        for cursor in _cursors(session, partition_id)
    }
    return kept_messages.detail_of(kept_messages.with_states(message, states), queue.options)


def ordered_message(session: Session, partition_id: int, transaction_id: str) -> StoredMessage:
    """Return a message without its states; raise `NotFoundError`, or `ConflictError` of an item."""
    place, seq = _find(session, partition_id, transaction_id)
    if place.queue.kind is QueueKind.WORK:
        raise wrong_kind(place.queue)
    head = segment_log.head_at(session.db, partition_id, seq)
    message = None
    if head is not None:
        body = session.caches.segments.body(session.db, head)
        message = _to_message(session, place, head, body, seq)
    if message is None:
        raise _missing(partition_id, transaction_id)
    return message


def _state(session: Session, cursor: Cursor, seq: int) -> str:
    if seq <= cursor.position or (
        (mark := cursor.marks(session).get(seq)) is not None and mark.acked
    ):
        letter = session.db.execute(
            "select 1 from dead_letters where partition_id = ? and seq = ? and group_name = ?",
            (cursor.partition_id, seq, cursor.group),
        ).fetchone()
        return "done" if letter is None else "dead"
    is_leased = cursor.is_leased(session.now) and seq <= cursor.lease_to
    return "leased" if is_leased and not cursor.is_answered(session, seq) else "pending"


def _cursors(session: Session, partition_id: int) -> list[Cursor]:
    rows = session.db.execute(
        """select c.group_id from cursors c join groups g on g.id = c.group_id
        where c.partition_id = ? order by g.name""",
        (partition_id,),
    ).fetchall()
    return [session.cursor(partition_id, group_id) for (group_id,) in rows]


def _find(session: Session, partition_id: int, transaction_id: str) -> tuple[_Place, int]:
    place = _place(session, partition_id)
    seq = items.find_seq(session, partition_id, transaction_id)
    if seq is None:
        raise _missing(partition_id, transaction_id)
    return place, seq


def _place(session: Session, partition_id: int) -> _Place:
    row = session.db.execute(
        "select queue_id, name from partitions where id = ?", (partition_id,)
    ).fetchone()
    if row is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    return _Place(session.queue_by_id(row[0]), row[1], partition_id)


def _missing(partition_id: int, transaction_id: str) -> NotFoundError:
    return NotFoundError(f"partition {partition_id} has no message {transaction_id!r}")


# --- deleting ------------------------------------------------------------------------------


@handles(DeleteMessage)
def delete_message(session: Session, request: DeleteMessage) -> None:
    partition_id, transaction_id = request.partition_id, request.transaction_id
    place, seq = _find(session, partition_id, transaction_id)
    if place.queue.kind is QueueKind.WORK:
        item_calls.delete_item(session, partition_id, seq)
        return
    head = segment_log.head_at(session.db, partition_id, seq)
    if head is None:
        raise _missing(partition_id, transaction_id)
    body = session.caches.segments.stored_body(session.db, head)
    at = seq - head.first_seq
    if body.offsets[at] == body.offsets[at + 1]:
        raise _missing(partition_id, transaction_id)
    cursors = _cursors(session, partition_id)
    if any(_state(session, cursor, seq) == "leased" for cursor in cursors):
        raise ConflictError(f"message {transaction_id!r} is leased: ack it, or wait")
    segment_log.erase(session.db, head, body, at)
    for cursor in cursors:
        cursor.withhold(session, seq)


# --- exporting -----------------------------------------------------------------------------


def export_read(
    session: Session, partition_id: int, first_seq: int, last_seq: int, max_bytes: int
) -> list[Segment]:
    place = _place(session, partition_id)
    read: list[Segment] = []
    total = 0
    if first_seq > last_seq:
        return read
    for head in segment_log.heads(session.db, partition_id, first_seq):
        if head.first_seq > last_seq:
            break
        segment = _cut(
            session, place, head, max(first_seq, head.first_seq), min(last_seq, head.last_seq)
        )
        read.append(segment)
        total += len(segment.data)
        if total > max_bytes:
            break
    return read


def _cut(session: Session, place: _Place, head: Head, first: int, last: int) -> Segment:
    body = session.caches.segments.body(session.db, head)
    start, end = first - head.first_seq, last - head.first_seq + 1
    is_whole = start == 0 and last == head.last_seq
    if is_whole and not body.has_sealed:
        data, offsets = body.data, body.offsets
    else:
        data, offsets = segments.pack(
            body.payloads(start, end, session.cipher, place.queue.name, place.partition)
        )
    return Segment(
        partition_id=head.partition_id,
        first_seq=first,
        count=end - start,
        created_at=head.created_at,
        data=data,
        offsets=segment_log.encode_offsets(offsets),
        transaction_ids=body.transaction_ids[start:end] if body.transaction_ids else None,
        trace_ids=body.trace_ids[start:end] if body.trace_ids else None,
        producers=body.producers[start:end] if body.producers else None,
        headers=body.opened_headers(start, end, session.cipher),
    )
