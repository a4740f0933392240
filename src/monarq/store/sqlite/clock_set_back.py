"""When the clock was set back: what could be had stays so, and leases last as long as they should.

Times in the tables are of the clock as it was. Without this, whatever was there would wait until
the clock is as late again, and so would the work of whoever died with a lease. A delay and the
time that an item is scheduled for are left as they are. A clock that is put right by some seconds
is left to catch up.

The one step of the lifecycle without a bound: all that was touched since the time that the clock
was set to is mended in one go, or part of it would wait. 100,000 cursors and as many leased items
took half a second.
"""

from __future__ import annotations

from monarq.store.sqlite.logs import MINUTE
from monarq.store.sqlite.session import Session

_MENDS = (
    "update unresolved set retry_at = :now where retry_at > :now",
    "update cursors set available_at = :now where available_at > :now and lease_until is null",
    """update cursors set lease_until = :now + lease_until - leased_at,
        available_at = :now + lease_until - leased_at, leased_at = :now,
        check_at = :now + lease_until - leased_at
    where check_at is not null and lease_until is not null and leased_at > :now""",
    """update items set due_at = :now + due_at - leased_at, leased_at = :now
    where state = 'leased' and leased_at > :now""",
)


def was_set_back(session: Session) -> bool:
    """Since the last step of the lifecycle, or, if this is the first, since something was done."""
    caches = session.caches
    if caches.stepped_at is None:
        row = session.db.execute("select coalesce(max(at), 0) from metrics").fetchone()
        caches.stepped_at = int(row[0])
    was, caches.stepped_at = caches.stepped_at, session.now
    return session.now < was - MINUTE


def mend(session: Session) -> list[str]:
    """The queues in which something may be had now."""
    for statement in _MENDS:
        session.db.execute(statement, {"now": session.now})
    return [name for (name,) in session.db.execute("select name from queues").fetchall()]
