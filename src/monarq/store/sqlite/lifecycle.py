"""The lifecycle: one bounded step of what time does to everything in the store."""

from __future__ import annotations

from monarq.clock import DAY, MILLISECOND, micros
from monarq.model import LifecycleReport, Queue
from monarq.store.sqlite import clock_set_back, items, logs, making, retention, settling
from monarq.store.sqlite.cursors import CHECK
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.session import Session

LOGS_KEPT = 7 * DAY
METRICS_KEPT = 30 * DAY
MARKS_KEPT = DAY
_FLUSH_EVERY = 100
_SOONEST = 100 * MILLISECOND

_BEING_MADE = """
select g.id, q.name from groups g join queues q on q.id = g.queue_id
where g.joined_to >= 0 order by g.joined_to limit 1
"""
_LEASES_TO_CHECK = """
select partition_id, group_id, lease_until from cursors
where check_at is not null and check_at <= ? order by check_at, partition_id, group_id limit ?
"""
_TO_CHECK = """
select id from partitions where check_at is not null and check_at <= ? order by check_at, id limit ?
"""
_WORK = """
select p.id, p.queue_id from queues q cross join partitions p on p.queue_id = q.id
where q.kind = 'work' order by p.id
"""
_FINISHED = f"""
{items.SELECT} where partition_id = ? and state in ('done', 'cancelled') and finished_at <= ?
order by finished_at, seq limit ?
"""
# Rows of logs go in the order in which they came, which is (almost) that of their times.
_OLD_LOGS = (
    """delete from deliveries where id in (select id from deliveries order by id limit :most)
    and ended_at <= :until""",
    """delete from attempts where id in (
        select id from attempts where orphaned = 1 and ended_at <= :until
        order by ended_at limit :most)""",
    """delete from trace_names where trace_id in (
        select id from traces where created_at <= :until order by created_at, id limit :most)""",
    """delete from traces where id in (
        select id from traces where created_at <= :until order by created_at, id limit :most)""",
    """delete from ended_leases where (partition_id, group_name) in (
        select partition_id, group_name from ended_leases where ended_at <= :until
        order by ended_at limit :most)""",
    """delete from outputs where rowid in (
        select rowid from outputs where written_at <= :until order by written_at limit :most)""",
)
_OLD_METRICS = """
delete from metrics where (queue_id, at) in (
    select queue_id, at from metrics where at <= :until order by at limit :most)
"""
_OLD_MARKS = """
delete from push_marks where mark in (
    select mark from push_marks where pushed_at <= :until order by pushed_at limit :most)
"""
_OLD_RECORDS = """
delete from records where (kind, key) in (
    select kind, key from records where expires_at <= :until order by expires_at limit :most)
"""


def lifecycle(session: Session, limit: int) -> LifecycleReport:
    step = _Step(session, limit)
    if clock_set_back.was_set_back(session):
        step.wake.update(clock_set_back.mend(session))
    step.expire_leases()
    step.make_cursors()
    step.look_after_items()
    step.look_after_partitions()
    step.trim_logs()
    session.flush()
    session.counters.flush()
    logs.add_metric_points(session, limit)
    return LifecycleReport(
        next_at=step.next_at(),
        expired=step.expired,
        promoted=step.promoted,
        buried=session.died,
        removed=step.removed,
        made=step.made,
        wake=sorted(step.wake),
    )


class _Step:
    def __init__(self, session: Session, limit: int) -> None:
        self._session = session
        self._limit = limit
        self._work: list[tuple[int, Queue]] = [
            (partition_id, session.queue_by_id(queue_id))
            for partition_id, queue_id in session.db.execute(_WORK).fetchall()
        ]
        self.expired = 0
        self.promoted = 0
        self.removed = 0
        self.made = 0
        self.wake: set[str] = set()

    def expire_leases(self) -> None:
        session = self._session
        rows = session.db.execute(_LEASES_TO_CHECK, (session.now, self._limit)).fetchall()
        lapsed, later = [], []
        for partition_id, group_id, until in rows:
            has_lapsed = until is not None and until <= session.now
            if has_lapsed:
                lapsed.append((partition_id, group_id))
            later.append((None if has_lapsed else until, partition_id, group_id))
        session.db.executemany(CHECK, later)
        for done, key in enumerate(lapsed, 1):
            cursor = session.cursor(*key)
            settling.expire_lease(session, cursor)
            self.expired += 1
            if cursor.available_at is not None:
                self.wake.add(cursor.queue.name)
            self._wake_dead_queue(cursor.queue)
            if done % _FLUSH_EVERY == 0:
                session.flush()
        session.flush()

    def make_cursors(self) -> None:
        """Go on with a group that is being made."""
        row = self._session.db.execute(_BEING_MADE).fetchone()
        if row is not None:
            group_id, queue = row
            self.made += making.make_next(self._session, group_id)
            self.wake.add(queue)

    def look_after_items(self) -> None:
        for partition_id, queue in self._work:
            died = self._session.died
            lapsed, promoted = items.settle_items(self._session, queue, partition_id, self._limit)
            self.expired += lapsed
            self.promoted += promoted
            if lapsed or promoted:
                self.wake.add(queue.name)
            if self._session.died > died:
                self._wake_dead_queue(queue)
            self._remove_finished(partition_id, queue)

    def _remove_finished(self, partition_id: int, queue: Queue) -> None:
        options = queue.options
        if not options.retention_enabled or not options.completed_retention_seconds:
            return
        session = self._session
        until = session.now - micros(options.completed_retention_seconds)
        rows = session.db.execute(_FINISHED, (partition_id, until, self._limit)).fetchall()
        for row in rows:
            item = WorkItem(row)
            items.remove(session, item, item.state)
        self.removed += len(rows)

    def look_after_partitions(self) -> None:
        session = self._session
        rows = session.db.execute(_TO_CHECK, (session.now, self._limit)).fetchall()
        left = self._limit
        for (partition_id,) in rows:
            [name] = session.db.execute(
                """select q.name from partitions p join queues q on q.id = p.queue_id
                where p.id = ?""",
                (partition_id,),
            ).fetchone()
            removed, died = retention.look_at(session, partition_id, max(left, 1))
            self.removed += removed
            left -= removed
            if died:
                self._wake_dead_queue(session.queue(name))
            if left <= 0:
                break

    def trim_logs(self) -> None:
        session = self._session
        values = {"until": session.now - LOGS_KEPT, "most": self._limit}
        for statement in _OLD_LOGS:
            self.removed += session.db.execute(statement, values).rowcount
        values["until"] = session.now - METRICS_KEPT
        self.removed += session.db.execute(_OLD_METRICS, values).rowcount
        values["until"] = session.now - MARKS_KEPT
        self.removed += session.db.execute(_OLD_MARKS, values).rowcount
        values["until"] = session.now
        self.removed += session.db.execute(_OLD_RECORDS, values).rowcount

    def _wake_dead_queue(self, queue: Queue) -> None:
        if queue.options.dead_queue:
            self.wake.add(queue.options.dead_queue)

    # --- the next step -----------------------------------------------------------------------

    def next_at(self) -> int | None:
        db = self._session.db
        times = [
            db.execute("select min(check_at) from cursors where check_at is not null"),
            db.execute("select min(check_at) from partitions where check_at is not null"),
        ]
        known = [row[0] for row in (found.fetchone() for found in times)]
        [oldest_mark] = db.execute("select min(pushed_at) from push_marks").fetchone()
        known.append(None if oldest_mark is None else oldest_mark + MARKS_KEPT)
        if db.execute(_BEING_MADE).fetchone() is not None:
            known.append(self._session.now)
        known += [self._session.now + wait for wait in self._shortest_waits()]
        for partition_id, queue in self._work:
            known += self._next_of_items(partition_id, queue)
        return min((time for time in known if time is not None), default=None)

    def _shortest_waits(self) -> list[int]:
        """How soon what is pushed from now on may be too old."""
        db = self._session.db
        found = [
            *db.execute(
                "select min(max_wait_time_seconds) from queues where max_wait_time_seconds > 0"
            ),
            *db.execute("select min(expire_timeout) from queues where expire_timeout > 0"),
        ]
        return [max(micros(seconds), _SOONEST) for (seconds,) in found if seconds is not None]

    def _next_of_items(self, partition_id: int, queue: Queue) -> list[int | None]:
        db = self._session.db
        [due] = db.execute(
            """select min(due_at) from items
            where partition_id = ? and state in ('scheduled', 'leased')""",
            (partition_id,),
        ).fetchone()
        [expires] = db.execute(
            """select min(expires_at) from items where partition_id = ?
            and state in ('scheduled', 'ready') and expires_at is not null""",
            (partition_id,),
        ).fetchone()
        times = [due, expires]
        keep = micros(queue.options.completed_retention_seconds)
        if keep and queue.options.retention_enabled:
            [finished] = db.execute(
                """select min(finished_at) from items
                where partition_id = ? and state in ('done', 'cancelled')""",
                (partition_id,),
            ).fetchone()
            times.append(None if finished is None else finished + keep)
        return times
