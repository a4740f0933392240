"""Who may answer: whether a lease id entitles its bearer, and if not, why.

The order of the errors is that of `docs/model.md`. Changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from monarq.errors import (
    LeaseTakenOverError,
)
from monarq.ids import lease_id, parse_lease_id, place_of
from monarq.store.refused_answers import refused
from monarq.store.sqlite.cursors import ANSWERED, Cursor
from monarq.store.sqlite.items import SELECT, WorkItem
from monarq.store.sqlite.session import Session

_SPREAD = """
select partition_id, group_id from cursors
where lease_no = ? and lease_spread = 1 and lease_until is not null
order by partition_id, group_id
"""


class LatestLease(NamedTuple):
    """Of a partition and group, or of an item."""

    id: str
    number: int
    until: int | None
    """None: it has ended."""
    ended_by: str | None


class Covered(NamedTuple):
    """What is still under a lease, live."""

    cursors: list[Cursor]
    items: list[WorkItem]


def latest_of_cursor(cursor: Cursor) -> LatestLease | None:
    if cursor.lease_id is None:
        return None
    return LatestLease(cursor.lease_id, cursor.lease_no, cursor.lease_until, cursor.ended_by)


def latest_of_deleted_group(session: Session, partition_id: int, group: str) -> LatestLease | None:
    row = session.db.execute(
        """select lease_no, lease_token, ended_by from ended_leases
        where partition_id = ? and group_name = ?""",
        (partition_id, group),
    ).fetchone()
    return None if row is None else LatestLease(lease_id(row[0], row[1]), row[0], None, row[2])


def latest_of_item(item: WorkItem) -> LatestLease | None:
    known = item.lease_id
    if known is None or item.lease_no is None:
        return None
    until = item.due_at if item.state == "leased" else None
    return LatestLease(known, item.lease_no, until, item.ended_by)


def check(session: Session, latest: LatestLease | None, given: str) -> None:
    """Raise unless `given` is the latest lease of what is acked, and live."""
    if latest is not None and latest.id == given:
        if latest.until is None and latest.ended_by == ANSWERED:
            raise refused("already_acked")
        if latest.until is None or latest.until <= session.now:
            raise refused("lease_expired")
        return
    number, token = parse_lease_id(given)
    if _is_live(session, number, token):
        raise refused("lease_foreign")
    if latest is not None and number < latest.number:
        raise refused("lease_taken_over")
    raise refused("lease_unknown")


def check_message(session: Session, cursor: Cursor, seq: int | None, given: str) -> None:
    """The same, of a message (None: there is none) whose cursor may have been leased since."""
    try:
        check(session, latest_of_cursor(cursor), given)
    except LeaseTakenOverError:
        number, _ = parse_lease_id(given)
        if seq is None or not _was_answered(session, cursor, seq, number):
            raise
        raise refused("already_acked") from None


def _was_answered(session: Session, cursor: Cursor, seq: int, number: int) -> bool:
    """Under a lease before the latest one, as far as is known."""
    mark = cursor.marks(session).get(seq) if cursor.has_unresolved else None
    if seq <= cursor.position or (mark is not None and mark.acked):
        before, last = cursor.lost_before_no, cursor.lost_lease_no
        return bool(number > last or (before is not None and before < number < last))
    return mark is not None and mark.answered == number


def covered(session: Session, given: str) -> Covered:
    """What a lease id alone covers. Raises if that is nothing, or past its deadline."""
    number, token = parse_lease_id(given)
    cursors = _cursors_under(session, number, token)
    # A lease is on partitions or on items, never on both.
    items = [] if cursors else _items_under(session, number, token)
    if not cursors and not items:
        raise refused("lease_unknown")
    live = Covered(
        [cursor for cursor in cursors if cursor.is_leased(session.now)],
        [item for item in items if item.due_at is not None and item.due_at > session.now],
    )
    if not live.cursors and not live.items:
        raise refused("lease_expired")
    return live


def _cursors_under(session: Session, number: int, token: str) -> list[Cursor]:
    place = place_of(token)
    places = [place] if place is not None else session.db.execute(_SPREAD, (number,)).fetchall()
    # Taken from the session, where an earlier request of the call may have ended the lease.
    cursors = [session.find_cursor(*place) for place in places]
    return [
        cursor
        for cursor in cursors
        if cursor is not None
        and cursor.lease_until is not None
        and cursor.lease_no == number
        and cursor.lease_token == token
    ]


def _items_under(session: Session, number: int, token: str) -> list[WorkItem]:
    rows = session.db.execute(
        f"{SELECT} where lease_no = ? and state = 'leased' order by partition_id, seq", (number,)
    ).fetchall()
    return [item for item in map(WorkItem, rows) if item.lease_token == token]


def _is_live(session: Session, number: int, token: str) -> bool:
    return any(
        cursor.is_leased(session.now) for cursor in _cursors_under(session, number, token)
    ) or any(
        item.due_at is not None and item.due_at > session.now
        for item in _items_under(session, number, token)
    )
