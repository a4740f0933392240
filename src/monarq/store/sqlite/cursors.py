"""A group's cursor in one partition, in memory, and what answers do to it.

Here are the rules of position, lease and remembered messages; who may answer is decided in
`fencing`, and what time does to a cursor in `settling`. `position` is always as far as
everything is resolved: the message behind it, if there is one, is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from monarq.ids import lease_id, place_of
from monarq.model import Ack, AckStatus
from monarq.model.retries import retry_delay
from monarq.store.sqlite.deaths import Death, last_words
from monarq.store.sqlite.delivery_log import DeliveryLog, write_log

if TYPE_CHECKING:
    from monarq.store.sqlite.session import Session

ANSWERED = "answered"
EXPIRED = "expired"
MOVED = "moved"
"""How leases end; the last by a seek, a clear, a removal or a cancel."""

_LOAD = """
select p.queue_id, p.name, p.first_seq, p.last_seq, p.last_at, p.held, g.name,
    c.position, c.available_at, c.lease_no, c.lease_token, c.lease_until, c.leased_at, c.lease_to,
    c.consumer, c.ended_by, c.has_unresolved, c.lease_spread, c.lost_lease_no,
    c.lost_before_no, c.lease_of_one, c.check_at
from cursors c join partitions p on p.id = c.partition_id join groups g on g.id = c.group_id
where c.partition_id = ? and c.group_id = ?
"""
_SAVE = """
update cursors set position = ?, available_at = ?, lease_no = ?, lease_token = ?,
    lease_until = ?, leased_at = ?, lease_to = ?, consumer = ?, ended_by = ?, has_unresolved = ?,
    lease_spread = ?, lost_lease_no = ?, lost_before_no = ?, lease_of_one = ?
where partition_id = ? and group_id = ?
"""
# Not with the rest: SQLite writes the page of an index anew for whatever is set, the same or not.
CHECK = "update cursors set check_at = ? where partition_id = ? and group_id = ?"
_LOAD_MARKS = """
select seq, attempts, acked, answered_lease_no, retry_at, error, lease_limit from unresolved
where partition_id = ? and group_id = ?
"""
_SAVE_MARK = """
insert or replace into unresolved (partition_id, group_id, seq, attempts, acked,
    answered_lease_no, retry_at, error, lease_limit) values (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class Mark:
    """What is remembered of a message that is not simply undelivered."""

    __slots__ = ("acked", "answered", "attempts", "error", "lease_limit", "retry_at")

    def __init__(
        self,
        attempts: int = 0,
        acked: bool = False,
        answered: int | None = None,
        retry_at: int | None = None,
        error: str | None = None,
        lease_limit: int | None = None,
    ) -> None:
        self.attempts = attempts
        self.acked = acked
        self.answered = answered
        self.retry_at = retry_at
        self.error = error
        self.lease_limit = lease_limit
        """Of a suspect: how many messages a lease with this one may cover."""


class Cursor:
    """Made of its row by `find_cursor`; changes are written by `write`."""

    __slots__ = ("_completed", "_dead", "_dirty", "_failed", "_loaded_position", "_log",
                 "_marks", "_touched", "available_at", "check_at", "consumer", "ended_by",
                 "first_seq", "group", "group_id", "has_unresolved", "held", "id_prefix", "last_at",
                 "last_seq", "lease_id", "lease_no", "lease_of_one", "lease_spread", "lease_to",
                 "lease_token", "lease_until", "leased_at", "lost_before_no", "lost_lease_no",
                 "partition", "partition_id", "position", "queue", "unanswered")  # fmt: skip

    def __init__(self, session: Session, key: tuple[int, int], row: tuple[Any, ...]) -> None:
        self.partition_id, self.group_id = key
        (queue_id, self.partition, self.first_seq, self.last_seq, self.last_at, self.held,
         self.group, self.position, self.available_at, self.lease_no, self.lease_token,
         self.lease_until, self.leased_at, self.lease_to, self.consumer, self.ended_by,
         self.has_unresolved, self.lease_spread, self.lost_lease_no,
         self.lost_before_no, self.lease_of_one, self.check_at) = row  # fmt: skip
        self.queue = session.queue_by_id(queue_id)
        self.id_prefix = f"{self.partition_id}-"
        self.lease_id = lease_id(self.lease_no, self.lease_token) if self.lease_no else None
        self._loaded_position = self.position
        self._marks: dict[int, Mark] | None = None if self.has_unresolved else {}
        self._dirty: set[int] = set()
        self._touched = False
        self._log: DeliveryLog | None = None
        self._completed = self._failed = self._dead = 0
        self.unanswered = 0
        """How many messages under the lease have no answer yet; set by `open_lease`."""

    # --- looking -------------------------------------------------------------------------

    def is_leased(self, now: int) -> bool:
        """Whether there is a live lease."""
        return self.lease_until is not None and self.lease_until > now

    @property
    def is_drained(self) -> bool:
        return bool(self.position >= self.last_seq)

    def marks(self, session: Session) -> dict[int, Mark]:
        if self._marks is None:
            rows = session.db.execute(_LOAD_MARKS, (self.partition_id, self.group_id))
            self._marks = {
                seq: Mark(attempts, bool(acked), answered, retry_at, error, limit)
                for seq, attempts, acked, answered, retry_at, error, limit in rows
            }
        return self._marks

    def is_answered(self, session: Session, seq: int) -> bool:
        """Whether a message has its answer under the lease, or was resolved before."""
        if seq <= self.position:
            return True
        mark = self.marks(session).get(seq) if self.has_unresolved else None
        return mark is not None and (mark.acked or mark.answered == self.lease_no)

    def unanswered_seqs(self, session: Session) -> list[int]:
        """Under the lease, live or not."""
        seqs = range(self.position + 1, self.lease_to + 1)
        if not self.has_unresolved:
            return list(seqs)
        return [seq for seq in seqs if not self.is_answered(session, seq)]

    # --- leases ----------------------------------------------------------------------------

    def open_lease(self, session: Session) -> None:
        """Before answers are taken under the lease."""
        if not self.unanswered:
            self.unanswered = (
                len(self.unanswered_seqs(session))
                if self.has_unresolved
                else self.lease_to - self.position
            )

    def start_lease(
        self,
        session: Session,
        number: int,
        token: str,
        until: int,
        to: int,
        consumer: str | None,
        *,
        of_one: bool,
    ) -> None:
        """A token that does not name this cursor is of a lease that may be on others too."""
        self._touched = True
        self.lease_spread = int(place_of(token) is None)
        self.lease_no, self.lease_token, self.lease_until = number, token, until
        self.lease_id = lease_id(number, token)
        self.leased_at, self.lease_to, self.consumer = session.now, to, consumer
        self.lease_of_one = int(of_one)
        self.ended_by = None
        self.available_at = until
        if self.check_at is None or self.check_at > until:
            self.check_at = until
            session.db.execute(CHECK, (until, self.partition_id, self.group_id))

    def share_lease(self) -> None:
        """Note that the lease covers messages of another partition, too."""
        if self.lease_of_one:
            self._touched = True
            self.lease_of_one = 0

    def extend_lease(self, until: int) -> None:
        self._touched = True
        self.lease_until = self.available_at = until

    def end_lease(self, session: Session, by: str, since: int) -> None:
        """`since` is the earliest time at which it may be popped again."""
        self._touched = True
        self.lease_until, self.ended_by, self.unanswered = None, by, 0
        if by != ANSWERED:
            self.lost_before_no, self.lost_lease_no = self.lost_lease_no, self.lease_no
        self.make_available(session, since)
        if self.available_at is not None and self.queue.options.max_wait_time_seconds:
            # The lifecycle has left what is leased alone.
            session.db.execute(
                "update partitions set check_at = ? where id = ?", (session.now, self.partition_id)
            )

    def make_available(self, session: Session, since: int) -> None:
        self._touched = True
        if self.has_unresolved:
            self._advance(self.marks(session))
        if self.is_drained:
            self.available_at = None
            return
        mark = self.marks(session).get(self.position + 1) if self.has_unresolved else None
        self.available_at = max(since, mark.retry_at or 0) if mark else since

    def put_off(self, until: int | None) -> None:
        if until != self.available_at:
            self._touched = True
            self.available_at = until

    # --- messages --------------------------------------------------------------------------

    def resolve(self, session: Session, seq: int) -> None:
        """The message will not be delivered to this group again."""
        self._touched = True
        if seq == self.position + 1:
            self.position = seq
        elif seq > self.position:
            self.mark(session, seq).acked = True
        if self.has_unresolved:
            self._advance(self.marks(session))

    def resolve_up_to(self, seq: int) -> None:
        """A run of messages from the position on of which nothing is remembered."""
        self._touched = True
        self.position = seq

    def withhold(self, session: Session, seq: int) -> None:
        """A message is not, or no longer, for this group."""
        if seq <= self.position:
            return
        if self.is_leased(session.now):
            # The position moves with the lease's own answers.
            self.mark(session, seq).acked = True
            return
        was = self.position
        self.resolve(session, seq)
        if self.is_drained:
            self.put_off(None)
        elif self.position > was and self.lease_until is None:
            # The next message need not wait for the one that is gone.
            self.make_available(session, min(self.available_at or session.now, session.now))

    def move_past(self, session: Session, seq: int) -> None:
        """Messages up to this one are gone; a lease on nothing but these ends."""
        if seq <= self.position:
            return
        self._touched = True
        self.position = seq
        if self.has_unresolved:
            self._advance(self.marks(session))
        if self.lease_until is None:
            self.make_available(session, min(self.available_at or session.now, session.now))
        elif self.lease_to <= self.position:
            self.end_lease(session, MOVED, session.now)

    def _advance(self, marks: dict[int, Mark]) -> None:
        while (mark := marks.get(self.position + 1)) is not None and mark.acked:
            self.position += 1

    def mark(self, session: Session, seq: int) -> Mark:
        """What is remembered of the message, to be changed."""
        marks = self.marks(session)
        mark = marks.get(seq)
        if mark is None:
            mark = marks[seq] = Mark()
        self.has_unresolved = 1
        self._touched = True
        self._dirty.add(seq)
        return mark

    def attempts(self, session: Session, seq: int) -> int:
        """How many deliveries have counted."""
        mark = self.marks(session).get(seq) if self.has_unresolved else None
        return mark.attempts if mark else 0

    def die(self, session: Session, seq: int, attempts: int, error: str) -> None:
        session.deaths.append(
            Death(self.queue, self.partition_id, self.partition, seq, self.group, attempts, error)
        )
        session.died += 1
        self._dead += 1
        self.resolve(session, seq)

    def count_failure(self, session: Session, seq: int, error: str) -> bool:
        """A delivery that failed; whether the message is dead now."""
        self._failed += 1
        mark = self.mark(session, seq)
        mark.attempts += 1
        mark.retry_at = None
        options = self.queue.options
        if mark.attempts > options.retry_limit and options.dlq_after_max_retries:
            self.die(session, seq, mark.attempts, error)
            return True
        return False

    # --- answers ---------------------------------------------------------------------------

    def answer(self, session: Session, seq: int, request: Ack) -> bool:
        """Carry out the ack's status for a message that has no answer yet; whether it is dead.

        The lease is live and open; `settle_answers` comes after the last answer."""
        log = self.log(session, self.lease_no, self.leased_at, session.now, self.consumer)
        log.covers(seq, seq)
        self.unanswered -= 1
        if request.status is AckStatus.COMPLETED:
            log.completed += 1
            self.resolve(session, seq)
            self._completed += 1
            return False
        mark = self.mark(session, seq)
        if request.error is not None:
            log.error = mark.error = request.error
        if request.status is AckStatus.DEAD:
            log.dead += 1
            self.die(session, seq, mark.attempts + 1, last_words(request, mark.error))
            return True
        if request.status is AckStatus.RELEASE:
            log.released += 1
            mark.answered, mark.retry_at = self.lease_no, None
            return False
        if self.count_failure(session, seq, last_words(request, mark.error)):
            log.dead += 1
            return True
        log.failed += 1
        mark.answered = self.lease_no
        mark.retry_at = request.retry_at
        if mark.retry_at is None:
            delay = self.queue.options.retry_delay
            mark.retry_at = session.now + retry_delay(mark.attempts, delay=delay)
        return False

    def complete_run(self, session: Session, to: int) -> None:
        """Complete all messages from the position to `to`, of which nothing is remembered."""
        log = self.log(session, self.lease_no, self.leased_at, session.now, self.consumer)
        self.unanswered -= to - self.position
        self.complete(log, self.position + 1, to, to - self.position)
        self.resolve_up_to(to)

    def complete(self, log: DeliveryLog, first_seq: int, last_seq: int, count: int) -> None:
        """Note and count completed messages; resolving them is up to the caller."""
        log.covers(first_seq, last_seq)
        log.completed += count
        self._completed += count

    def settle_answers(self, session: Session) -> bool:
        """After answers: end the lease if all are there; whether it ended."""
        if self.unanswered > 0:
            return False
        self.end_lease(session, ANSWERED, session.now)
        return True

    def log(
        self, session: Session, lease_no: int, leased_at: int, ended_at: int, consumer: str | None
    ) -> DeliveryLog:
        """The row of the delivery log for this call and lease."""
        if self._log is not None and self._log.lease_no != lease_no:
            write_log(session, self, self._log)
            self._log = None
        if self._log is None:
            self._touched = True
            self._log = DeliveryLog(lease_no, leased_at, ended_at, consumer)
        return self._log

    # --- writing ---------------------------------------------------------------------------

    def write(self, session: Session) -> None:
        if not self._touched:
            return
        if self.has_unresolved:
            self._write_marks(session)
        session.db.execute(
            _SAVE,
            (self.position, self.available_at, self.lease_no, self.lease_token, self.lease_until,
             self.leased_at, self.lease_to, self.consumer, self.ended_by, self.has_unresolved,
             self.lease_spread, self.lost_lease_no, self.lost_before_no, self.lease_of_one,
             self.partition_id, self.group_id),
        )  # fmt: skip
        moved = self.position - self._loaded_position
        if moved:
            session.counters.add(self.queue.id, self.group_id, position=moved)
            if self.held:
                # The lifecycle waits for exactly this.
                session.db.execute(
                    "update partitions set held = 0, check_at = ? where id = ?",
                    (session.now, self.partition_id),
                )
        if self._completed or self._failed or self._dead:
            session.counters.add_for_group(
                self.queue.id,
                self.group_id,
                completed=self._completed,
                failed=self._failed,
                dead=self._dead,
            )
            self._completed = self._failed = self._dead = 0
        if self._log is not None:
            write_log(session, self, self._log)
        self._log = None
        self._touched = False
        self._loaded_position = self.position

    def _write_marks(self, session: Session) -> None:
        marks = self.marks(session)
        if self.position > self._loaded_position:
            session.db.execute(
                "delete from unresolved where partition_id = ? and group_id = ? and seq <= ?",
                (self.partition_id, self.group_id, self.position),
            )
            for seq in [seq for seq in marks if seq <= self.position]:
                del marks[seq]
        rows = [
            (self.partition_id, self.group_id, seq, mark.attempts, mark.acked, mark.answered,
             mark.retry_at, mark.error, mark.lease_limit)
            for seq, mark in ((seq, marks[seq]) for seq in sorted(self._dirty) if seq in marks)
        ]  # fmt: skip
        if rows:
            session.db.executemany(_SAVE_MARK, rows)
        self._dirty.clear()
        self.has_unresolved = int(bool(marks))


def find_cursor(session: Session, partition_id: int, group_id: int) -> Cursor | None:
    key = (partition_id, group_id)
    row = session.db.execute(_LOAD, key).fetchone()
    return None if row is None else Cursor(session, key, row)
