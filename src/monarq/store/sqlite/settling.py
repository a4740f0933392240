"""What time does to a cursor: leases run out, messages grow too old.

Both the pop that meets such a cursor and the lifecycle call these, and nothing else does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from monarq.clock import micros
from monarq.store.sqlite import segment_log
from monarq.store.sqlite.cursors import EXPIRED, Cursor

if TYPE_CHECKING:
    from monarq.store.sqlite.session import Session

LEASE_RAN_OUT = "the lease expired without an answer"
WAITED_TOO_LONG = "waited longer than maxWaitTimeSeconds"
MOST_EVICTED = 10_000
"""At once: a backlog that grew too old is buried in bounded steps."""


def expire_lease(session: Session, cursor: Cursor) -> int:
    """End a lease that is past its deadline; how many messages had no answer.

    They become suspects. The delivery counts only if the lease was over a single message."""
    deadline = cursor.lease_until
    seqs = cursor.unanswered_seqs(session)
    if seqs:
        log = cursor.log(session, cursor.lease_no, cursor.leased_at, deadline, cursor.consumer)
        log.covers(seqs[0], seqs[-1])
        log.error = LEASE_RAN_OUT
        lease_limit = max(1, len(seqs) // 2)
        for seq in seqs:
            mark = cursor.mark(session, seq)
            mark.error, mark.retry_at, mark.lease_limit = LEASE_RAN_OUT, None, lease_limit
            if cursor.lease_of_one and cursor.count_failure(session, seq, LEASE_RAN_OUT):
                log.dead += 1
            else:
                log.expired += 1
    cursor.end_lease(session, EXPIRED, deadline)
    return len(seqs)


def evict(session: Session, cursor: Cursor, most: int = MOST_EVICTED) -> int:
    """Bury what is older than the queue lets it wait; not while it is leased."""
    seconds = cursor.queue.options.max_wait_time_seconds
    if not seconds:
        return 0
    oldest = session.now - micros(seconds)
    buried = 0
    position = cursor.position
    for head in segment_log.heads(session.db, cursor.partition_id, position + 1):
        if head.created_at > oldest:
            break
        for seq in range(max(head.first_seq, position + 1), head.last_seq + 1):
            if buried == most:
                return buried
            mark = cursor.marks(session).get(seq)
            if mark is None or not mark.acked:
                attempts = mark.attempts if mark else 0
                cursor.die(session, seq, attempts, WAITED_TOO_LONG)
                buried += 1
    if buried and cursor.is_drained:
        cursor.put_off(None)
    return buried


def settle(session: Session, cursor: Cursor) -> bool:
    """Bring an available cursor up to date. False if there is still more to bury."""
    if cursor.lease_until is not None:
        expire_lease(session, cursor)
    buried = evict(session, cursor)
    if cursor.is_drained:
        cursor.put_off(None)
    return buried < MOST_EVICTED
