"""Pop from work queues: items by rank, dealt out to the requests of a call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from monarq.clock import micros
from monarq.errors import InvalidRequestError, MonarqError
from monarq.ids import lease_id, new_lease_token
from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    AttemptOutcome,
    ItemState,
    Message,
    Pop,
    Popped,
    Queue,
)
from monarq.store import sealing, validation
from monarq.store.contract import Outcome
from monarq.store.room import Room
from monarq.store.sqlite import items
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.session import Session

_READY = f"{items.SELECT} where partition_id = ? and state = 'ready' order by rank, turn limit ?"


def pop_items(
    session: Session, queue: Queue, requests: Sequence[Pop], max_bytes: int
) -> list[Outcome[Popped]]:
    """All requests of a call for one work queue."""
    refused = [_refused(queue, request) for request in requests]
    partition = items.work_partition(session, queue)
    if queue.paused or partition is None:
        return [error or Popped(messages=[]) for error in refused]
    partition_id, last = partition
    items.settle_items(session, queue, partition_id)
    served = [request for request, error in zip(requests, refused, strict=True) if not error]
    wanted = [request.batch for request in served]
    # Read one by one: all that is wanted may be much more than there is room for.
    with closing(session.db.execute(_READY, (partition_id, sum(wanted)))) as rows:
        hands = iter(deal(map(WorkItem, rows), wanted, max_bytes))
    answers: list[Outcome[Popped]] = []
    for request, error in zip(requests, refused, strict=True):
        if error is not None:
            answers.append(error)
            continue
        try:
            answers.append(_lease(session, queue, next(hands), request, last))
        except MonarqError as mistake:
            answers.append(mistake)
    return [_empty(session, partition_id) if _is_empty(answer) else answer for answer in answers]


def deal(things: Iterable[WorkItem], wanted: Sequence[int], max_bytes: int) -> list[list[WorkItem]]:
    """One at a time to each in turn who still wants one and has room for it."""
    hands: list[list[WorkItem]] = [[] for _ in wanted]
    rooms = [Room(max_bytes) for _ in wanted]
    turns = _turns(wanted, rooms)
    for thing in things:
        for index in turns:
            if rooms[index].has(len(thing.payload)):
                hands[index].append(thing)
                break
        else:
            break
    return hands


def _turns(wanted: Sequence[int], rooms: Sequence[Room]) -> Iterator[int]:
    """Whose turn it is, again and again, until nobody wants more."""
    for turn in range(max(wanted, default=0)):
        for index, count in enumerate(wanted):
            if count > turn and not rooms[index].is_full:
                yield index


def _refused(queue: Queue, request: Pop) -> MonarqError | None:
    if queue.options.runs_commands and not request.commands:
        return validation.forbidden(f"queue {queue.name!r} runs commands")
    if request.group != DEFAULT_GROUP:
        return InvalidRequestError(f"{queue.name!r} is a work queue, which has no groups")
    if request.partition not in (None, DEFAULT_PARTITION):
        return InvalidRequestError(f"{queue.name!r} is a work queue, which has no partitions")
    return None


def _lease(session: Session, queue: Queue, hand: list[WorkItem], request: Pop, last: int) -> Popped:
    # Opened first: what cannot be read is not leased.
    payloads = [items.open_payload(session, queue, item) for item in hand]
    if not hand:
        return Popped(messages=[])
    number = None if request.auto_ack else session.new_lease_number()
    token = new_lease_token()
    until = session.now + micros(request.lease_seconds or queue.options.lease_time)
    for item in hand:
        items.leave_ready(item, last)
        item.attempts += 1
        item.leased_at, item.consumer = session.now, request.consumer
        if number is None:
            items.end_attempt(session, item, AttemptOutcome.COMPLETED, session.now)
            items.finish(item, ItemState.DONE, session.now)
            item.error = None
        else:
            item.state, item.due_at, item.ended_by = ItemState.LEASED, until, None
            item.lease_no, item.lease_token = number, token
        items.save(session, item, ItemState.READY)
    messages = [
        _to_message(session, queue, item, payload)
        for item, payload in zip(hand, payloads, strict=True)
    ]
    if number is None:
        session.counters.add(queue.id, completed=len(hand))
        return Popped(messages=messages)
    return Popped(messages=messages, lease_id=lease_id(number, token), lease_until=until)


def _to_message(session: Session, queue: Queue, item: WorkItem, payload: bytes) -> Message:
    return Message(
        queue=queue.name,
        partition=DEFAULT_PARTITION,
        partition_id=item.partition_id,
        seq=item.seq,
        transaction_id=item.public_id,
        payload=payload,
        created_at=item.created_at,
        attempts=item.attempts,
        trace_id=item.trace_id,
        producer=item.producer,
        headers=sealing.open_headers(item.headers, session.cipher),
        priority=item.priority,
        max_attempts=item.max_attempts,
        is_command=bool(item.is_command),
    )


def _is_empty(answer: Outcome[Popped]) -> bool:
    return isinstance(answer, Popped) and not answer.messages


def _empty(session: Session, partition_id: int) -> Popped:
    """Nothing, and when to look again."""
    [next_at] = session.db.execute(
        """select min(due_at) from items
        where partition_id = ? and state in ('scheduled', 'leased')""",
        (partition_id,),
    ).fetchone()
    return Popped(messages=[], next_at=next_at)
