"""Ack and renew: answers under a live lease, for messages and for items."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import msgspec
from msgspec import structs

from monarq.clock import micros
from monarq.errors import (
    MonarqError,
    NotFoundError,
)
from monarq.ids import parse_message_id
from monarq.model import (
    DEFAULT_PARTITION,
    MAX_NAME_LENGTH,
    Ack,
    Acked,
    AckStatus,
    Queue,
    QueueKind,
    Renew,
    Renewed,
)
from monarq.store import sealing, segments, validation
from monarq.store.contract import Outcome
from monarq.store.refused_answers import refused
from monarq.store.sqlite import fencing, groups, items, segment_log
from monarq.store.sqlite.appending import KNOWN_IDS
from monarq.store.sqlite.calls import refusal
from monarq.store.sqlite.cursors import Cursor
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.session import Session

_COMPLETED = AckStatus.COMPLETED
_KIND = attrgetter("status", "partition_id", "lease_id", "group", "error", "retry_at", "result")


def ack(
    session: Session, requests: Sequence[Ack], refused: Sequence[MonarqError | None]
) -> list[Outcome[Acked]]:
    """`refused`: the errors of requests that are malformed."""
    acking = Acking(session)
    if len(requests) > 1 and not any(refused) and _are_alike(requests):
        run = acking.complete_run(requests)
        if run is not None:
            return run
    answers: list[Outcome[Acked]] = []
    for request, error in zip(requests, refused, strict=True):
        if error is not None:
            answers.append(error)
            continue
        try:
            answers.append(acking.carry_out(request))
        except MonarqError as mistake:
            answers.append(mistake)
    return answers


def renew(
    session: Session, requests: Sequence[Renew], refused: Sequence[MonarqError | None]
) -> list[Outcome[Renewed]]:
    answers: list[Outcome[Renewed]] = []
    for request, error in zip(requests, refused, strict=True):
        if error is not None:
            answers.append(error)
            continue
        try:
            answers.append(_renew(session, request))
        except MonarqError as mistake:
            answers.append(mistake)
    return answers


def _renew(session: Session, request: Renew) -> Renewed:
    covered = fencing.covered(session, request.lease_id)
    _check_may_work(session, covered, request.commands)
    until = session.now + micros(request.seconds)
    deadlines = []
    for cursor in covered.cursors:
        assert cursor.lease_until is not None
        cursor.extend_lease(max(cursor.lease_until, until))
        deadlines.append(cursor.lease_until)
    for item in covered.items:
        assert item.due_at is not None
        item.due_at = max(item.due_at, until)
        items.save(session, item, item.state)
        deadlines.append(item.due_at)
    return Renewed(request.lease_id, min(deadlines))


def _check_may_work(session: Session, covered: fencing.Covered, commands: bool) -> None:
    if not commands and covered.items:
        queue = session.queue_by_id(covered.items[0].queue_id)
        if queue.options.runs_commands:
            raise refused("forbidden")


def refusals(requests: Sequence[Ack]) -> list[MonarqError | None]:
    """The errors of malformed requests. Those of one batch are mostly alike but for the
    message, and then most of them need not be looked at one by one."""
    if len(requests) > 1 and _are_alike(requests) and _are_names(requests):
        return [refusal(requests[0], validation.check_ack)] * len(requests)
    return [refusal(request, validation.check_ack) for request in requests]


def _are_alike(requests: Sequence[Ack]) -> bool:
    try:
        return len(set(map(_KIND, requests))) == 1
    except TypeError:
        return False


def _are_names(requests: Sequence[Ack]) -> bool:
    """Whether all transaction ids are plainly good ones."""
    try:
        ids = [request.transaction_id for request in requests]
        together = "".join(ids)  # type: ignore[arg-type]
    except TypeError:
        return False
    lengths = set(map(len, ids))  # type: ignore[arg-type]
    is_short = min(lengths) >= 1 and max(lengths) <= MAX_NAME_LENGTH
    return is_short and together.isascii() and together.isprintable()


class _Target(NamedTuple):
    """What a partition id and a group name."""

    queue: Queue
    partition: str
    first_seq: int
    last_seq: int
    cursor: Cursor | None
    """None: a work queue, or the group is not there."""


class Acking:
    """The acks of one call or transaction, carried out one after the other."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._targets: dict[tuple[int, str], _Target] = {}
        self._known: dict[tuple[int, str | None], int] = {}

    def carry_out(self, request: Ack) -> Acked:
        if request.transaction_id is None:
            return self._whole_lease(request)
        assert request.partition_id is not None
        target = self._target(request.partition_id, request.group)
        request = self._stored(request, target.queue)
        if target.queue.kind is QueueKind.WORK:
            return self._item(request, target)
        return self._message(request, target)

    def _stored(self, request: Ack, queue: Queue) -> Ack:
        """The request with its error and result as they are stored."""
        if request.error is None and request.result is None:
            return request
        cipher = self._session.cipher
        if not queue.options.encryption_enabled:
            error = sealing.stored_error(request.error, cipher, None)
            return request if error == request.error else structs.replace(request, error=error)
        return structs.replace(
            request,
            error=sealing.stored_error(request.error, cipher, queue.name),
            result=sealing.stored_result(request.result, cipher, queue.name),
        )

    # --- messages --------------------------------------------------------------------------

    def complete_run(self, requests: Sequence[Ack]) -> list[Outcome[Acked]] | None:
        """Requests that are alike but for the message, if they complete the next messages of a
        lease in order. None: they are something else."""
        first = requests[0]
        if first.status is not _COMPLETED or first.partition_id is None or not first.lease_id:
            return None
        try:
            target = self._target(first.partition_id, first.group)
        except NotFoundError:
            return None
        cursor = target.cursor
        if cursor is None or cursor.has_unresolved or cursor.lease_id != first.lease_id:
            return None
        last = cursor.position + len(requests)
        if not cursor.is_leased(self._session.now) or last > cursor.lease_to:
            return None
        seqs = range(cursor.position + 1, last + 1)
        ids = [request.transaction_id for request in requests]
        prefix = cursor.id_prefix
        if ids != [f"{prefix}{seq}" for seq in seqs] and ids != self._ids_of(cursor, seqs):
            # They are answered one by one, but found together.
            self._look_up(first.partition_id, ids)
            return None
        cursor.open_lease(self._session)
        cursor.complete_run(self._session, last)
        ended = cursor.settle_answers(self._session)
        queue, partition = target.queue.name, target.partition
        answers: list[Outcome[Acked]] = [
            Acked(
                queue=queue, partition=partition, transaction_id=one, lease_released=False, dead=0
            )
            for one in ids
        ]
        if ended:
            answers[-1] = Acked(
                queue=queue,
                partition=partition,
                transaction_id=ids[-1],
                lease_released=True,
                dead=0,
            )
        return answers

    def _ids_of(self, cursor: Cursor, seqs: range) -> list[str | None]:
        """From the segments, which were just popped: to look up each id takes much longer."""
        session = self._session
        ids: list[str | None] = []
        for head in segment_log.heads(session.db, cursor.partition_id, seqs[0], len(seqs)):
            if head.first_seq > seqs[-1]:
                break
            first, last = max(head.first_seq, seqs[0]), min(head.last_seq, seqs[-1])
            given = session.caches.segments.body(session.db, head).transaction_ids
            part = segments.part(given, first - head.first_seq, last - head.first_seq + 1)
            own = (f"{cursor.id_prefix}{seq}" for seq in range(first, last + 1))
            ids += (
                own if part is None else [one or name for one, name in zip(part, own, strict=True)]
            )
        return ids

    def _message(self, request: Ack, target: _Target) -> Acked:
        session = self._session
        cursor = target.cursor
        assert request.partition_id is not None
        assert request.transaction_id is not None
        if request.lease_id is None:
            if cursor is None or not cursor.is_leased(session.now):
                raise refused("lease_expired")
        elif cursor is None:
            partition_id, group = request.partition_id, request.group
            latest = fencing.latest_of_deleted_group(session, partition_id, group)
            fencing.check(session, latest, request.lease_id)
        elif cursor.lease_id != request.lease_id or not cursor.is_leased(session.now):
            named = self._find_seq(request.partition_id, request.transaction_id, target)
            fencing.check_message(session, cursor, named, request.lease_id)
        assert cursor is not None
        seq = self._seq_of(request.partition_id, request.transaction_id, target)
        if seq > cursor.lease_to:
            if request.lease_id is None:
                raise refused("lease_expired")
            raise refused("not_in_lease")
        if cursor.is_answered(session, seq):
            raise refused("already_acked")
        cursor.open_lease(session)
        if (
            request.status is _COMPLETED
            and seq == cursor.position + 1
            and not cursor.has_unresolved
        ):
            cursor.complete_run(session, seq)
            dead = False
        else:
            dead = cursor.answer(session, seq, request)
        return Acked(
            queue=target.queue.name,
            partition=target.partition,
            transaction_id=request.transaction_id,
            lease_released=cursor.settle_answers(session),
            dead=int(dead),
        )

    def _seq_of(self, partition_id: int, transaction_id: str, target: _Target) -> int:
        seq = self._find_seq(partition_id, transaction_id, target)
        if seq is None:
            raise refused("not_found")
        return seq

    def _find_seq(self, partition_id: int, transaction_id: str, target: _Target) -> int | None:
        named = parse_message_id(transaction_id)
        if (
            named is not None
            and named[0] == partition_id
            and target.first_seq <= named[1] <= target.last_seq
        ):
            return named[1]
        seq = self._known.get((partition_id, transaction_id))
        if seq is None:
            seq = self._look_up(partition_id, [transaction_id]).get(transaction_id)
        return seq

    def _look_up(
        self, partition_id: int, transaction_ids: Sequence[str | None]
    ) -> dict[str | None, int]:
        """The seqs of transaction ids that callers gave; remembered for the requests to come."""
        found: dict[str | None, int] = dict(
            self._session.db.execute(
                KNOWN_IDS, (msgspec.json.encode(transaction_ids).decode(), partition_id)
            )
        )
        self._known.update({(partition_id, one): seq for one, seq in found.items()})
        return found

    # --- items -----------------------------------------------------------------------------

    def _item(self, request: Ack, target: _Target) -> Acked:
        session = self._session
        assert request.partition_id is not None
        assert request.transaction_id is not None
        queue = target.queue
        validation.check_may_work(queue.options.runs_commands, queue.name, request.commands)
        seq = self._seq_of(request.partition_id, request.transaction_id, target)
        item = items.find_item(session, request.partition_id, seq)
        if item is None:
            raise refused("not_found")
        latest = fencing.latest_of_item(item)
        if request.lease_id is not None:
            fencing.check(session, latest, request.lease_id)
        elif latest is None or latest.until is None or latest.until <= session.now:
            raise refused("lease_expired")
        dead = items.answer(session, target.queue, item, request)
        return Acked(
            queue=target.queue.name,
            partition=target.partition,
            transaction_id=request.transaction_id,
            lease_released=True,
            dead=int(dead),
        )

    # --- whole leases ------------------------------------------------------------------------

    def _whole_lease(self, request: Ack) -> Acked:
        assert request.lease_id is not None
        covered = fencing.covered(self._session, request.lease_id)
        _check_may_work(self._session, covered, request.commands)
        # An error that cannot be sealed is refused before anything has changed.
        cursors = [(cursor, self._stored(request, cursor.queue)) for cursor in covered.cursors]
        leased = [(item, self._stored(request, self._queue_of(item))) for item in covered.items]
        answered = [self._all_of_cursor(cursor, stored) for cursor, stored in cursors]
        answered += [self._one_item(item, stored) for item, stored in leased]
        first = answered[0]
        return Acked(
            queue=first.queue,
            partition=first.partition,
            transaction_id=None,
            lease_released=True,
            dead=sum(one.dead for one in answered),
            count=sum(one.count for one in answered),
        )

    def _all_of_cursor(self, cursor: Cursor, request: Ack) -> Acked:
        session = self._session
        cursor.open_lease(session)
        count, dead = cursor.unanswered, 0
        if request.status is _COMPLETED and not cursor.has_unresolved:
            cursor.complete_run(session, cursor.lease_to)
        else:
            for seq in cursor.unanswered_seqs(session):
                dead += cursor.answer(session, seq, request)
        cursor.settle_answers(session)
        return Acked(
            queue=cursor.queue.name,
            partition=cursor.partition,
            transaction_id=None,
            lease_released=True,
            dead=dead,
            count=count,
        )

    def _one_item(self, item: WorkItem, request: Ack) -> Acked:
        queue = self._queue_of(item)
        dead = items.answer(self._session, queue, item, request)
        return Acked(
            queue=queue.name,
            partition=DEFAULT_PARTITION,
            transaction_id=None,
            lease_released=True,
            dead=int(dead),
        )

    # --- finding -----------------------------------------------------------------------------

    def _queue_of(self, item: WorkItem) -> Queue:
        return self._session.queue_by_id(item.queue_id)

    def _target(self, partition_id: int, group: str) -> _Target:
        key = (partition_id, group)
        target = self._targets.get(key)
        if target is None:
            target = self._targets[key] = self._find_target(partition_id, group)
        return target

    def _find_target(self, partition_id: int, group: str) -> _Target:
        session = self._session
        row = session.db.execute(
            "select queue_id, name, first_seq, last_seq from partitions where id = ?",
            (partition_id,),
        ).fetchone()
        if row is None:
            raise NotFoundError(f"there is no partition {partition_id}")
        queue_id, partition, first_seq, last_seq = row
        queue = session.queue_by_id(queue_id)
        cursor = None
        if queue.kind is QueueKind.ORDERED:
            group_id = groups.find_group(session, queue_id, group)
            cursor = None if group_id is None else session.cursor(partition_id, group_id)
        else:
            # Items go one by one, so that every seq may name one that is still there.
            first_seq = 1
        return _Target(queue, partition, first_seq, last_seq, cursor)
