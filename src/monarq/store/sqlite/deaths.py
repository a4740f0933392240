"""What becomes of the dead: a dead letter, a move to the dead queue, or nothing.

Messages are collected while cursors change in memory and buried together, in order, before
those are written. Counting the dead is up to who kills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from monarq.crypto import is_sealed
from monarq.ids import message_id, parse_message_id
from monarq.model import Ack, AckStatus, Queue
from monarq.store import sealing
from monarq.store.sqlite import segment_log
from monarq.store.sqlite.appending import Appender, Lane, NewItem, NewMessage
from monarq.store.sqlite.segment_log import Body, Head

if TYPE_CHECKING:
    from monarq.store.sqlite.session import Session

_LETTER = """
insert into dead_letters (queue_id, partition_id, partition_name, seq, group_name,
    transaction_id, error, attempts, created_at, failed_at, trace_id, producer, priority,
    headers, payload)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Death(NamedTuple):
    """Of a message, for one group."""

    queue: Queue
    partition_id: int
    partition: str
    seq: int
    group: str
    attempts: int
    error: str


class Remains(NamedTuple):
    """What is known of a dead message or item."""

    queue: Queue
    partition_id: int
    partition: str
    seq: int
    group: str
    attempts: int
    error: str
    transaction_id: str | None
    created_at: int
    trace_id: str | None
    producer: str | None
    headers: bytes | None
    payload: bytes
    """As it is kept."""
    priority: int | None = None
    is_command: bool = False


def last_words(request: Ack, said_before: str | None = None) -> str:
    """The error of what an ack kills: a dead letter says something, whatever its consumer said."""
    for said in (request.error, said_before):
        if said is not None:
            return said
    if request.status is AckStatus.DEAD:
        return "given up by its consumer"
    return "failed without an error"


def bury_all(session: Session) -> None:
    """Bury the messages that died in this session."""
    if not session.deaths:
        return
    deaths, session.deaths = session.deaths, []
    appender = Appender(session)
    # Those of one segment come one after the other, and its body is read once for all of them.
    segment: tuple[int, Body] | None = None
    for death in deaths:
        options = death.queue.options
        if options.dead_queue or options.dead_letter_queue:
            head = segment_log.head_at(session.db, death.partition_id, death.seq)
            assert head is not None
            if segment is None or segment[0] != head.id:
                segment = head.id, session.caches.segments.stored_body(session.db, head)
            _bury(session, appender, _remains(death, head, segment[1]))
    appender.flush()


def bury_item(session: Session, remains: Remains) -> bool:
    """Whether there is a dead letter of it now. Otherwise the item must go."""
    appender = Appender(session)
    is_letter = _bury(session, appender, remains)
    appender.flush()
    return is_letter


def _bury(session: Session, appender: Appender, remains: Remains) -> bool:
    options = remains.queue.options
    if options.dead_queue:
        _move(session, appender, remains)
        return False
    if not options.dead_letter_queue:
        return False
    session.db.execute(
        _LETTER,
        (remains.queue.id, remains.partition_id, remains.partition, remains.seq, remains.group,
         remains.transaction_id or message_id(remains.partition_id, remains.seq),
         remains.error, remains.attempts, remains.created_at, session.now, remains.trace_id,
         remains.producer, remains.priority, remains.headers, remains.payload),
    )  # fmt: skip
    session.counters.add(remains.queue.id, dead_letters=1)
    return True


def _move(session: Session, appender: Appender, remains: Remains) -> None:
    queue = session.queue(remains.queue.options.dead_queue)
    lane = appender.lane(queue, remains.partition)
    transaction_id: str | None = remains.transaction_id or message_id(
        remains.partition_id, remains.seq
    )
    named = parse_message_id(transaction_id or "")
    if named is not None and named[0] == lane.id:
        transaction_id = None  # it would name a message of this very partition
    elif transaction_id is not None and appender.seq_of(lane, transaction_id) is not None:
        return
    message = NewMessage(
        payload=_sealed_for(session, lane, remains.payload, transaction_id),
        transaction_id=transaction_id,
        trace_id=remains.trace_id,
        producer=remains.producer,
        headers=with_headers(
            remains.headers,
            monarqDeadFrom=remains.queue.name,
            monarqDeadGroup=remains.group,
            monarqDeadAttempts=remains.attempts,
            monarqDeadError=remains.error,
        ),
    )
    if remains.priority is None:
        appender.append(lane, message)
    else:
        new = NewItem(message, priority=remains.priority, is_command=remains.is_command)
        appender.append_item(lane, new)


def _sealed_for(session: Session, lane: Lane, payload: bytes, transaction_id: str | None) -> bytes:
    """Return a dead message's stored payload for its dead queue. A sealed one stays as it is, a
    plain one is sealed if the dead queue is encrypted and there is a key."""
    is_encrypted = lane.queue.options.encryption_enabled
    if not is_encrypted or session.cipher is None or is_sealed(payload):
        return payload
    context = sealing.payload_context(lane.queue.name, lane.name, transaction_id)
    return session.cipher.seal(payload, context)


def with_headers(headers: bytes | str | None, **more: str | int) -> bytes:
    known: dict[str, Any] = {}
    if headers is not None:
        known = msgspec.json.decode(headers, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**known, **more})


def _remains(death: Death, head: Head, body: Body) -> Remains:
    at = death.seq - head.first_seq
    [payload] = body.stored_payloads(at, at + 1)
    return Remains(
        *death,
        transaction_id=body.transaction_ids[at] if body.transaction_ids else None,
        created_at=head.created_at,
        trace_id=body.trace_ids[at] if body.trace_ids else None,
        producer=body.producers[at] if body.producers else None,
        headers=body.headers[at] if body.headers else None,
        payload=payload,
    )
