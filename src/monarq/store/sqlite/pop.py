"""Pop from ordered queues, and the call as a whole.

Candidates come from the index of what is available; each is brought up to date before it is
looked into, and one that has nothing to deliver is put off, so that none is met twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from msgspec import structs

from monarq.clock import micros
from monarq.errors import MonarqError
from monarq.ids import lease_id, new_lease_token, placed_token
from monarq.model import Message, Pop, Popped, Queue, QueueKind
from monarq.store import segments
from monarq.store.contract import Outcome
from monarq.store.message_list import MessageList, MessageRun
from monarq.store.room import Room
from monarq.store.sqlite import groups, joining, making, segment_log, settling
from monarq.store.sqlite.cursors import Cursor, Mark
from monarq.store.sqlite.segment_log import Body, Head
from monarq.store.sqlite.session import Session
from monarq.store.sqlite.work_pop import pop_items

_NEXT = """
select partition_id, available_at from cursors
where group_id = ? and available_at is not null and available_at <= ?
order by available_at, partition_id limit 1
"""
_NEXT_AT = "select min(available_at) from cursors where group_id = ? and available_at is not null"
_OF_PARTITION = """
select p.id, c.available_at from partitions p
join cursors c on c.partition_id = p.id and c.group_id = ?
where p.queue_id = ? and p.name = ?
"""

Source = tuple[Queue, int]
"""A queue to pop from, and the group's id there."""

_Available = tuple[int, int | None]


def pop(
    session: Session,
    requests: Sequence[Pop],
    refused: Sequence[MonarqError | None],
    *,
    max_bytes: int,
) -> list[Outcome[Popped]]:
    """`refused`: the errors of requests that are malformed."""
    answers: list[Outcome[Popped] | None] = list(refused)
    for index, request in enumerate(requests):
        if answers[index] is not None:
            continue
        queue = session.find_queue(request.queue) if request.queue is not None else None
        if queue is not None and queue.kind is QueueKind.WORK:
            same = [
                other
                for other in range(index, len(requests))
                if requests[other].queue == request.queue and answers[other] is None
            ]
            shares = pop_items(session, queue, [requests[other] for other in same], max_bytes)
            for other, share in zip(same, shares, strict=True):
                answers[other] = share
            continue
        try:
            if _leaves_nothing(session, queue, request):
                answers[index] = _pop_ordered(session, queue, request, max_bytes)
            else:
                with session.savepoint():
                    answers[index] = _pop_ordered(session, queue, request, max_bytes)
        except MonarqError as error:
            answers[index] = error
    return [answer for answer in answers if answer is not None]


def _leaves_nothing(session: Session, queue: Queue | None, request: Pop) -> bool:
    """Whether the request, if it fails, does so before it has changed anything. Messages are
    read before they are leased, so that only a second partition or a new group can be undone."""
    return (
        queue is not None
        and request.partitions == 1
        and not queue.options.encryption_enabled
        and groups.find_group(session, queue.id, request.group) is not None
    )


def _pop_ordered(session: Session, queue: Queue | None, request: Pop, max_bytes: int) -> Popped:
    sources = _sources(session, queue, request)
    taking = _Taking(session, request, max_bytes)
    for _ in range(request.partitions + 1000):
        if taking.is_full:
            break
        candidate = _next_candidate(session, sources, request)
        if candidate is None or not taking.take(*candidate):
            break
        session.flush()
        if request.partition is not None:
            break
    if taking.has_any:
        return taking.answer()
    return Popped(messages=[], next_at=_next_at(session, sources, request))


def _sources(session: Session, queue: Queue | None, request: Pop) -> list[Source]:
    """What the request may take from; makes the group where it is new."""
    if request.queue is None:
        asked = (request.group, request.start, request.namespace, request.task)
        joined = joining.joined_labelled(session, *asked)
        if joined is None:
            _, joined = joining.join_labelled(session, *asked)
        return [source for source in joined if not source[0].paused]
    group_id = groups.find_group(session, queue.id, request.group) if queue else None
    if group_id is None:
        joining.join(session, request.group, request.start, request.queue)
        if queue is None:
            return []
        group_id = groups.find_group(session, queue.id, request.group)
    assert queue is not None
    assert group_id is not None
    return [] if queue.paused else [(queue, group_id)]


def _next_candidate(
    session: Session, sources: Sequence[Source], request: Pop
) -> tuple[int, int] | None:
    """The partition and group to look into next."""
    if request.partition is not None:
        for queue, group_id in sources:
            row = _of_partition(session, queue, group_id, request.partition)
            if row is not None and row[1] is not None and row[1] <= session.now:
                return row[0], group_id
        return None
    best: tuple[int, int, int, int] | None = None
    for queue, group_id in sources:
        if best is not None and -queue.options.priority > best[0]:
            break
        row = _first_available(session, group_id)
        if row is not None:
            found = (-queue.options.priority, row[1], row[0], group_id)
            best = found if best is None else min(best, found)
    return None if best is None else (best[2], best[3])


def _first_available(session: Session, group_id: int) -> tuple[int, int] | None:
    """Return the partition that waits longest for the group, and since when."""
    while True:
        row: tuple[int, int] | None = session.db.execute(_NEXT, (group_id, session.now)).fetchone()
        made_at = session.being_made.get(group_id)
        # What has no cursor yet was available when the group was made.
        if made_at is None or (row is not None and row[1] <= made_at):
            return row
        if not making.make_for_pop(session, group_id):
            return row


def _of_partition(session: Session, queue: Queue, group_id: int, name: str) -> _Available | None:
    """Return the id of the named partition, and since when it is available."""
    if group_id in session.being_made:
        making.make_in_partition_named(session, queue.id, name)
    key = (group_id, queue.id, name)
    row: _Available | None = session.db.execute(_OF_PARTITION, key).fetchone()
    return row


def _next_at(session: Session, sources: Sequence[Source], request: Pop) -> int | None:
    times: list[int | None] = []
    for queue, group_id in sources:
        if request.partition is not None:
            row = _of_partition(session, queue, group_id, request.partition)
            times.append(row[1] if row is not None else None)
        elif group_id in session.being_made:
            times.append(session.now)
        else:
            times.append(session.db.execute(_NEXT_AT, (group_id,)).fetchone()[0])
    return min((time for time in times if time is not None), default=None)


class _Taking:
    """What one request has taken so far."""

    def __init__(self, session: Session, request: Pop, max_bytes: int) -> None:
        self._session = session
        self._request = request
        self._room = Room(max_bytes)
        self._number = 0
        self._token = ""
        self._until: int | None = None
        self._count = 0
        self._taken: list[Sequence[Message]] = []
        self._first: tuple[int, int] | None = None
        self._has_suspects = False

    @property
    def is_full(self) -> bool:
        request = self._request
        return (
            len(self._taken) >= request.partitions
            or self._count >= request.batch
            or self._room.is_full
            or self._has_suspects
        )

    @property
    def has_any(self) -> bool:
        return bool(self._taken)

    @property
    def messages(self) -> Sequence[Message]:
        if len(self._taken) == 1:
            return self._taken[0]
        if all(isinstance(messages, MessageList) for messages in self._taken):
            lists = cast(list[MessageList], self._taken)
            return MessageList([run for messages in lists for run in messages.runs])
        return [message for messages in self._taken for message in messages]

    def answer(self) -> Popped:
        next_at = self._session.now if self._room.is_full else None
        if self._request.auto_ack:
            return Popped(messages=self.messages, next_at=next_at)
        return Popped(
            messages=self.messages,
            lease_id=lease_id(self._number, self._token),
            lease_until=self._until,
            next_at=next_at,
        )

    def take(self, partition_id: int, group_id: int) -> bool:
        """Take what the partition has. False: this is as far as this call goes."""
        session = self._session
        cursor = session.cursor(partition_id, group_id)
        if not settling.settle(session, cursor):
            return False
        if cursor.available_at is None or cursor.available_at > session.now:
            return True
        wanted = self._request.batch - self._count
        messages = deliverable(session, cursor, wanted, self._room)
        if messages:
            self._has_suspects = _any_suspect(session, cursor, messages)
            if self._has_suspects and self._taken:
                # They are leased by themselves: by the next pop.
                return False
            self._taken.append(messages)
            self._count += len(messages)
            if self._request.auto_ack:
                self._complete(cursor, messages)
            else:
                self._lease(cursor, _last_seq(messages))
        return True

    def _lease(self, cursor: Cursor, to: int) -> None:
        session, request = self._session, self._request
        if not self._number:
            self._number, self._token = session.new_lease_number(), new_lease_token()
            if request.partitions == 1:
                self._token = placed_token(self._token, cursor.partition_id, cursor.group_id)
        seconds = request.lease_seconds or cursor.queue.options.lease_time
        until = session.now + micros(seconds)
        of_one = self._first is None and self._count == 1
        cursor.start_lease(
            session, self._number, self._token, until, to, request.consumer, of_one=of_one
        )
        if self._first is None:
            self._first = (cursor.partition_id, cursor.group_id)
        else:
            session.cursor(*self._first).share_lease()
        self._until = until if self._until is None else min(until, self._until)

    def _complete(self, cursor: Cursor, messages: Sequence[Message]) -> None:
        session = self._session
        log = cursor.log(session, 0, session.now, session.now, self._request.consumer)
        cursor.complete(log, messages[0].seq, messages[-1].seq, len(messages))
        for message in messages:
            cursor.resolve(session, message.seq)
        cursor.make_available(session, session.now)


def deliverable(session: Session, cursor: Cursor, wanted: int, room: Room) -> Sequence[Message]:
    """What the group can have now of an available partition, as far as there is room; put off, if
    that is nothing."""
    options = cursor.queue.options
    delay = micros(options.delayed_processing)
    put_off = cursor.last_at + micros(options.window_buffer) if options.window_buffer else 0
    marks = cursor.marks(session) if cursor.has_unresolved else {}
    runs: list[MessageRun] = []
    marked: list[Message] = []
    taken = 0
    # A segment has at least one message, so that many are enough unless some are passed over.
    for head in segment_log.heads(session.db, cursor.partition_id, cursor.position + 1, wanted):
        start = max(head.first_seq, cursor.position + 1)
        if not taken:
            # The first one here is the first unresolved, as the position is behind it.
            mark = marks.get(start)
            grown_at = head.created_at + delay if delay else 0
            ripe_at = max(put_off, grown_at, (mark and mark.retry_at) or 0)
            if start == cursor.position + 1 and ripe_at > session.now:
                cursor.put_off(ripe_at)
                return ()
        if delay and head.created_at + delay > session.now:
            break
        body = session.caches.segments.body(session.db, head)
        if not marks:
            end = min(head.last_seq, start + wanted - taken - 1)
            first = start - head.first_seq
            fits = room.take(body.offsets, first, end - head.first_seq + 1) - first
            if fits:
                runs.append(_run(session, cursor, head, body, start, start + fits - 1))
                taken += fits
        else:
            wanted = _take_marked(session, cursor, head, body, marks, wanted, room, marked)
            taken = len(marked)
        if taken >= wanted or room.is_full:
            break
    return MessageList(runs) if runs else marked


def _any_suspect(session: Session, cursor: Cursor, messages: Sequence[Message]) -> bool:
    if not cursor.has_unresolved:
        return False
    marks = cursor.marks(session)
    return any(
        (mark := marks.get(message.seq)) is not None and mark.lease_limit is not None
        for message in messages
    )


def _last_seq(messages: Sequence[Message]) -> int:
    if isinstance(messages, MessageList):
        return messages.runs[-1].seqs()[-1]
    return messages[-1].seq


def _take_marked(
    session: Session,
    cursor: Cursor,
    head: Head,
    body: Body,
    marks: dict[int, Mark],
    most: int,
    room: Room,
    messages: list[Message],
) -> int:
    """Add what can be had of a segment of which something is remembered, up to `most` messages in
    all; the lowest limit so far. 0: the next message cannot be delivered now, or not with these."""
    for seq in range(max(head.first_seq, cursor.position + 1), head.last_seq + 1):
        mark = marks.get(seq)
        if mark is not None and mark.acked:
            continue
        if mark is not None and (mark.retry_at or 0) > session.now:
            return 0
        if mark is not None and mark.lease_limit is not None:
            most = min(most, mark.lease_limit)
        if len(messages) >= most:
            return 0
        at = seq - head.first_seq
        if room.take(body.offsets, at, at + 1) == at:
            break
        [message] = _run(session, cursor, head, body, seq, seq).messages()
        if mark is not None and mark.attempts:
            message = structs.replace(message, attempts=mark.attempts + 1)
        messages.append(message)
        if len(messages) == most:
            break
    return most


def _run(
    session: Session, cursor: Cursor, head: Head, body: Body, first: int, last: int
) -> MessageRun:
    start, end = first - head.first_seq, last - head.first_seq + 1
    offsets = body.offsets[start : end + 1]
    if body.has_sealed:
        data, offsets = segments.pack(
            body.payloads(start, end, session.cipher, cursor.queue.name, cursor.partition)
        )
    else:
        data = body.data[offsets[0] : offsets[-1]]
    return MessageRun(
        cursor.queue.name,
        cursor.partition,
        cursor.partition_id,
        first,
        end - start,
        head.created_at,
        data,
        offsets,
        segments.part(body.transaction_ids, start, end),
        segments.part(body.trace_ids, start, end),
        segments.part(body.producers, start, end),
        body.opened_headers(start, end, session.cipher),
    )
