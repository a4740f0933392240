"""Push: what callers send, checked against the queues it is for, all or none of a request."""

from __future__ import annotations

import json
from collections.abc import Sequence
from operator import attrgetter

from monarq.clock import micros
from monarq.crypto import Cipher
from monarq.errors import AlreadyPushedError, MonarqError, QueueFullError
from monarq.model import (
    Push,
    Pushed,
    PushItem,
    PushStatus,
    Queue,
    QueueKind,
    QueueOptions,
)
from monarq.store import sealing, validation
from monarq.store.contract import Outcome
from monarq.store.sqlite import queues
from monarq.store.sqlite.appending import Appender, Lane, Mark, NewItem, NewMessage
from monarq.store.sqlite.counters import Deltas
from monarq.store.sqlite.session import Session

# What makes items alike: their place, and all that a plain message has not.
_KIND = attrgetter(
    "queue", "partition", "transaction_id", "trace_id", "headers", "priority", "run_at",
    "delay_seconds", "max_attempts", "backoff_base", "attempts",
)  # fmt: skip
_KEEP_MARK = "insert into push_marks (mark, pushed_at) values (?, ?) on conflict do nothing"
_NOTE_REFUSED = "update push_marks set refused = ? where mark = ?"
_REFUSED = "select refused from push_marks where mark = ?"
_PLAIN = (None,) * 9
_QUEUED = PushStatus.QUEUED
_DUPLICATE = PushStatus.DUPLICATE


def push(
    session: Session,
    requests: Sequence[Push],
    refused: Sequence[MonarqError | None],
    mark: str | None = None,
    after: str | None = None,
) -> list[Outcome[list[Pushed]]]:
    """`refused`: the errors of requests that are malformed."""
    if after is not None and None in refused:
        _check_after(session, after)
    if mark is not None:
        _keep_mark(session, mark)
    appender = Appender(session)
    answers: list[Outcome[list[Pushed]]] = []
    for request, error in zip(requests, refused, strict=True):
        if error is not None:
            answers.append(error)
            continue
        try:
            answers.append(push_one(session, appender, request))
        except MonarqError as mistake:
            answers.append(mistake)
    appender.flush()
    if mark is not None:
        _finish_mark(session, mark, answers, refused)
    return answers


def _keep_mark(session: Session, mark: str) -> None:
    kept = session.db.execute(_KEEP_MARK, (mark, session.now))
    if not kept.rowcount:
        [(refused,)] = session.db.execute(_REFUSED, (mark,)).fetchall()
        raise AlreadyPushedError(
            "a push with this mark was stored before", json.loads(refused or "[]")
        )


def _check_after(session: Session, after: str) -> None:
    if not session.db.execute(_REFUSED, (after,)).fetchall():
        raise validation.comes_too_early()


def _finish_mark(
    session: Session,
    mark: str,
    answers: Sequence[Outcome[list[Pushed]]],
    malformed: Sequence[MonarqError | None],
) -> None:
    """Nothing stored, no mark; else it says which requests were refused by the store."""
    if all(isinstance(answer, MonarqError) for answer in answers):
        session.db.execute("delete from push_marks where mark = ?", (mark,))
        return
    refused = [
        index
        for index, answer in enumerate(answers)
        if isinstance(answer, MonarqError) and malformed[index] is None
    ]
    if refused:
        session.db.execute(_NOTE_REFUSED, (json.dumps(refused), mark))


def push_one(session: Session, appender: Appender, request: Push) -> list[Pushed]:
    """Append a request's items, or raise and leave the appender as it was."""
    pushing = _Pushing(session, appender)
    try:
        answers = pushing.carry_out(request)
        pushing.check_sizes()
    except BaseException:
        pushing.undo()
        raise
    pushing.keep()
    return answers


class _Target:
    """A partition of this request."""

    __slots__ = ("cipher", "id_prefix", "is_work", "known", "lane")

    def __init__(self, lane: Lane, cipher: Cipher | None, known: dict[str, int]) -> None:
        self.lane = lane
        self.cipher = cipher
        self.known = known
        self.is_work = lane.is_work
        self.id_prefix = f"{lane.id}-"


class _Pushing:
    """One request on its way, which can be undone until it is kept."""

    def __init__(self, session: Session, appender: Appender) -> None:
        self._session = session
        self._appender = appender
        self._marks: list[tuple[Lane, Mark]] = []
        self._made: list[Lane] = []
        self._counters: Deltas | None = None

    def carry_out(self, request: Push) -> list[Pushed]:
        kinds = set(map(_KIND, request.items))
        if len(kinds) == 1 and kinds.pop()[2:] == _PLAIN:
            target = self._target(request.items[0], [], request.commands)
            if not target.is_work:
                return self._append_plain(request, target)
        return self._append_all(request)

    def _append_plain(self, request: Push, target: _Target) -> list[Pushed]:
        """Messages of one partition that have nothing but a payload: most pushes are so."""
        payloads = [item.payload for item in request.items]
        if target.cipher is not None:
            lane, seal = target.lane, target.cipher.seal
            context = sealing.payload_context(lane.queue.name, lane.name, None)
            payloads = [seal(payload, context) for payload in payloads]
        seqs = self._appender.extend(target.lane, payloads, request.producer)
        queue, number, prefix = request.items[0].queue, target.lane.id, target.id_prefix
        return [Pushed(_QUEUED, queue, number, seq, f"{prefix}{seq}") for seq in seqs]

    def _append_all(self, request: Push) -> list[Pushed]:
        targets: dict[tuple[str, str], _Target] = {}
        ids: dict[tuple[str, str], list[str]] = {}
        for item in request.items:
            if item.transaction_id is not None:
                ids.setdefault((item.queue, item.partition), []).append(item.transaction_id)
        answers: list[Pushed] = []
        append = self._appender.append
        for item in request.items:
            key = (item.queue, item.partition)
            target = targets.get(key)
            if target is None:
                target = targets[key] = self._target(item, ids.get(key, []), request.commands)
            lane = target.lane
            if target.is_work:
                validation.check_work_item(item)
            elif (
                item.priority is not None
                or item.run_at is not None
                or item.delay_seconds is not None
                or item.max_attempts is not None
                or item.backoff_base is not None
                or item.attempts is not None
            ):
                validation.check_ordered_item(item)
            given = item.transaction_id
            if given is not None:
                first = self._appender.seq_of(lane, given, target.known)
                if first is not None:
                    answers.append(
                        Pushed(_DUPLICATE, item.queue, lane.id, first, given, item.trace_id)
                    )
                    continue
            payload = item.payload
            if target.cipher is not None:
                context = sealing.payload_context(lane.queue.name, lane.name, given)
                payload = target.cipher.seal(payload, context)
            message = NewMessage(payload, given, item.trace_id, request.producer, item.headers)
            if target.is_work:
                seq = self._append_item(lane, item, message, request.commands)
            else:
                seq = append(lane, message)
            own = given if given is not None else f"{target.id_prefix}{seq}"
            answers.append(Pushed(_QUEUED, item.queue, lane.id, seq, own, item.trace_id))
        return answers

    def check_sizes(self) -> None:
        grown = {
            lane.queue.id: lane.queue
            for lane, mark in self._marks
            if lane.queue.options.max_size and lane.last_seq > mark.last_seq
        }
        for queue in grown.values():
            pending = self._session.counters.pending(queue) + self._appender.added(queue.id)
            if pending > queue.options.max_size:
                raise QueueFullError(
                    f"queue {queue.name!r} is full: its maxSize is {queue.options.max_size}, "
                    f"and this push would make it {pending}"
                )

    def undo(self) -> None:
        for lane, mark in self._marks:
            self._appender.undo(lane, mark)
        for lane in self._made:
            self._appender.drop_lane(lane)
        if self._counters is None:
            return
        self._session.counters.restore(self._counters)
        self._session.group_ids.clear()
        self._session.forget_queues()
        self._session.caches.clear()
        if self._session.db.in_transaction:
            self._session.db.execute("rollback to making")
            self._session.db.execute("release making")

    def keep(self) -> None:
        if self._counters is not None:
            self._session.db.execute("release making")

    def _append_item(
        self, lane: Lane, item: PushItem, message: NewMessage, is_command: bool
    ) -> int:
        run_at = item.run_at
        if item.delay_seconds is not None:
            run_at = self._session.now + micros(item.delay_seconds)
        new = NewItem(
            message,
            item.priority,
            run_at,
            item.max_attempts,
            item.backoff_base,
            is_command,
            item.attempts or 0,
        )
        return self._appender.append_item(lane, new)

    def _target(self, item: PushItem, ids: list[str], commands: bool) -> _Target:
        """Where the item goes, and which of these transaction ids are there already."""
        queue = self._session.find_queue(item.queue)
        validation.check_commands(queue, commands)
        if queue is None:
            validation.check_ordered_item(item)
            queue = self._make_queue(item)
        elif queue.kind is QueueKind.WORK:
            validation.check_work_item(item)
        cipher = self._session.cipher if queue.options.encryption_enabled else None
        if queue.options.encryption_enabled and cipher is None:
            raise sealing.no_key(queue.name)
        lane = self._appender.find_lane(queue, item.partition)
        if lane is None:
            self._before_making()
            lane = self._appender.make_lane(queue, item.partition)
            self._made.append(lane)
        self._marks.append((lane, self._appender.mark(lane)))
        return _Target(lane, cipher, self._appender.known_ids(lane, ids))

    def _make_queue(self, item: PushItem) -> Queue:
        self._before_making()
        return queues.make_queue(
            self._session,
            item.queue,
            QueueKind.ORDERED,
            item.namespace or "",
            item.task or "",
            QueueOptions(),
        )

    def _before_making(self) -> None:
        if self._counters is None:
            self._counters = self._session.counters.snapshot()
            self._session.db.execute("savepoint making")
