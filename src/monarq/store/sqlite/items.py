"""The items of work queues: their rows, and every way from one state to another.

Rank and turn are the order of delivery (see `docs/model.md`); an item that is not ready keeps
in `waited` what it had waited. Who may do what is decided elsewhere.
"""

from __future__ import annotations

import random
from typing import Any

from monarq.ids import lease_id, message_id, parse_message_id
from monarq.model import DEFAULT_PARTITION, Ack, AckStatus, AttemptOutcome, ItemState, Queue
from monarq.model.retries import retry_delay
from monarq.store import sealing
from monarq.store.sqlite.cursors import ANSWERED, EXPIRED
from monarq.store.sqlite.deaths import Remains, bury_item, last_words
from monarq.store.sqlite.session import Session

LEASE_RAN_OUT = "the lease expired without an answer"
TOO_OLD = "expired before it was done"

_COLUMNS = (
    "id", "partition_id", "seq", "queue_id", "state", "priority", "rank", "turn", "waited",
    "due_at", "expires_at", "attempts", "max_attempts", "backoff_base", "backoff_cap",
    "backoff_jitter", "lease_no", "lease_token", "leased_at", "consumer", "ended_by",
    "created_at", "finished_at", "transaction_id", "trace_id", "producer", "error", "headers",
    "is_command", "payload",
)  # fmt: skip
SELECT = f"select {', '.join(_COLUMNS)} from items"
_SAVE = """
update items set state = ?, rank = ?, turn = ?, waited = ?, due_at = ?, expires_at = ?,
    attempts = ?, lease_no = ?, lease_token = ?, leased_at = ?, consumer = ?, ended_by = ?,
    finished_at = ?, error = ?
where id = ?
"""
_DUE = "partition_id = :partition and state in ('scheduled', 'leased') and due_at <= :now"
_PROMOTE = f"""
update items set state = 'ready', rank = :last_seq - waited - priority, due_at = null
where {_DUE} and state = 'scheduled'
"""
_PROMOTE_SOME = f"""{_PROMOTE} and id in (
    select id from items where {_DUE} and state = 'scheduled' order by due_at, seq limit :most
)"""
_EXPIRED = """
partition_id = :partition and state in ('scheduled', 'ready') and expires_at is not null
    and expires_at <= :now
"""
_ATTEMPT = """
insert into attempts (queue_id, partition_id, seq, attempt, started_at, ended_at, outcome,
    consumer, error, result)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class WorkItem:
    """A row; `save` writes it back."""

    __slots__ = _COLUMNS

    id: int
    partition_id: int
    seq: int
    queue_id: int
    state: str
    priority: int
    rank: int
    turn: int
    waited: int
    due_at: int | None
    expires_at: int | None
    attempts: int
    max_attempts: int
    backoff_base: float
    backoff_cap: float
    backoff_jitter: float
    lease_no: int | None
    lease_token: str | None
    leased_at: int | None
    consumer: str | None
    ended_by: str | None
    created_at: int
    finished_at: int | None
    transaction_id: str | None
    trace_id: str | None
    producer: str | None
    error: str | None
    headers: bytes | None
    is_command: int
    payload: bytes

    def __init__(self, row: tuple[Any, ...]) -> None:
        for name, value in zip(_COLUMNS, row, strict=True):
            setattr(self, name, value)

    @property
    def lease_id(self) -> str | None:
        """Of its latest lease."""
        if self.lease_no is None or self.lease_token is None:
            return None
        return lease_id(self.lease_no, self.lease_token)

    @property
    def public_id(self) -> str:
        return self.transaction_id or message_id(self.partition_id, self.seq)


# --- finding -------------------------------------------------------------------------------


def find_item(session: Session, partition_id: int, seq: int) -> WorkItem | None:
    row = session.db.execute(
        f"{SELECT} where partition_id = ? and seq = ?", (partition_id, seq)
    ).fetchone()
    return None if row is None else WorkItem(row)


def open_payload(session: Session, queue: Queue, item: WorkItem) -> bytes:
    return sealing.open_payload(
        item.payload,
        session.cipher,
        queue.name,
        DEFAULT_PARTITION,
        item.transaction_id,
        item.headers,
    )


def find_seq(session: Session, partition_id: int, transaction_id: str) -> int | None:
    """What an id or a transaction id names; it need not be kept."""
    named = parse_message_id(transaction_id)
    if named is not None and named[0] == partition_id:
        return named[1]
    row = session.db.execute(
        "select seq from transaction_ids where partition_id = ? and transaction_id = ?",
        (partition_id, transaction_id),
    ).fetchone()
    return None if row is None else int(row[0])


def work_partition(session: Session, queue: Queue) -> tuple[int, int] | None:
    """The id and last seq of a work queue's one partition; None before the first push."""
    row: tuple[int, int] | None = session.db.execute(
        "select id, last_seq from partitions where queue_id = ? and name = ?",
        (queue.id, DEFAULT_PARTITION),
    ).fetchone()
    return row


def last_seq(session: Session, partition_id: int) -> int:
    [last] = session.db.execute(
        "select last_seq from partitions where id = ?", (partition_id,)
    ).fetchone()
    return int(last)


# --- from state to state ---------------------------------------------------------------------


def save(session: Session, item: WorkItem, was: str) -> None:
    session.db.execute(
        _SAVE,
        (item.state, item.rank, item.turn, item.waited, item.due_at, item.expires_at,
         item.attempts, item.lease_no, item.lease_token, item.leased_at, item.consumer,
         item.ended_by, item.finished_at, item.error, item.id),
    )  # fmt: skip
    if item.state != was:
        session.counters.move(item.queue_id, was, item.state)


def leave_ready(item: WorkItem, last: int) -> None:
    """It stops aging, and keeps what it has waited."""
    if item.state == ItemState.READY:
        item.waited = last - item.rank - item.priority


def make_ready(item: WorkItem, last: int) -> None:
    item.state = ItemState.READY
    item.rank = last - item.waited - item.priority
    item.due_at = None
    item.finished_at = None
    item.consumer = None


def schedule(session: Session, item: WorkItem, at: int) -> None:
    if at > session.now:
        item.state = ItemState.SCHEDULED
        item.due_at = at
        item.consumer = None
    else:
        make_ready(item, last_seq(session, item.partition_id))


def go_to_tail(session: Session, item: WorkItem) -> None:
    """Nothing waited, and behind all that have its rank."""
    session.db.execute("update partitions set turns = turns + 1 where id = ?", (item.partition_id,))
    [item.turn] = session.db.execute(
        "select turns from partitions where id = ?", (item.partition_id,)
    ).fetchone()
    item.waited = 0


def finish(item: WorkItem, state: ItemState, now: int) -> None:
    item.state = state
    item.finished_at = now
    item.due_at = None


def kill(session: Session, queue: Queue, item: WorkItem, was: str, error: str) -> None:
    """The item is dead: a dead letter and a row in that state, or gone."""
    session.died += 1
    session.counters.add(queue.id, dead=1)
    remains = Remains(
        queue=queue,
        partition_id=item.partition_id,
        partition=DEFAULT_PARTITION,
        seq=item.seq,
        group="",
        attempts=item.attempts,
        error=error,
        transaction_id=item.transaction_id,
        created_at=item.created_at,
        trace_id=item.trace_id,
        producer=item.producer,
        headers=item.headers,
        payload=item.payload,
        priority=item.priority,
        is_command=bool(item.is_command),
    )
    if bury_item(session, remains):
        finish(item, ItemState.DEAD, session.now)
        item.error = error
        save(session, item, was)
    else:
        remove(session, item, was)


def remove(session: Session, item: WorkItem, was: str) -> None:
    key = (item.partition_id, item.seq)
    session.db.execute("delete from items where id = ?", (item.id,))
    session.db.execute("update attempts set orphaned = 1 where partition_id = ? and seq = ?", key)
    if item.transaction_id is not None:
        session.db.execute(
            "delete from transaction_ids where partition_id = ? and transaction_id = ?",
            (item.partition_id, item.transaction_id),
        )
    session.counters.move(item.queue_id, was, None)
    session.counters.add(item.queue_id, removed=1)


def end_attempt(
    session: Session,
    item: WorkItem,
    outcome: AttemptOutcome,
    ended_at: int,
    error: str | None = None,
    result: bytes | None = None,
) -> None:
    session.db.execute(
        _ATTEMPT,
        (item.queue_id, item.partition_id, item.seq, item.attempts, item.leased_at, ended_at,
         outcome, item.consumer, error, result),
    )  # fmt: skip


# --- answers ---------------------------------------------------------------------------------


def answer(session: Session, queue: Queue, item: WorkItem, request: Ack) -> bool:
    """Carry out an ack of an item under a live lease; whether it is dead now."""
    now = session.now
    was = item.state
    item.ended_by = ANSWERED
    item.due_at = None
    error = request.error
    status = request.status
    if status is AckStatus.RELEASE:
        item.attempts -= 1
        make_ready(item, last_seq(session, item.partition_id))
        save(session, item, was)
        return False
    end_attempt(session, item, AttemptOutcome(status), now, error, request.result)
    if error is not None:
        item.error = error
    if status is AckStatus.COMPLETED:
        session.counters.add(queue.id, completed=1)
        finish(item, ItemState.DONE, now)
        item.error = None
        save(session, item, was)
        return False
    if status is not AckStatus.DEAD:
        session.counters.add(queue.id, failed=1)
    if status is AckStatus.DEAD or item.attempts >= item.max_attempts:
        kill(session, queue, item, was, last_words(request, item.error))
        return True
    if status is AckStatus.RETRY:
        go_to_tail(session, item)
    run_at = request.retry_at
    if run_at is None:
        run_at = now + _backoff(item) if status is AckStatus.FAILED else now
    schedule(session, item, run_at)
    save(session, item, was)
    return False


def _backoff(item: WorkItem) -> int:
    jitter = item.backoff_jitter * random.random()
    return retry_delay(item.attempts, base=item.backoff_base, cap=item.backoff_cap, jitter=jitter)


# --- what time does --------------------------------------------------------------------------


def settle_items(
    session: Session, queue: Queue, partition_id: int, most: int = -1
) -> tuple[int, int]:
    """Return what is due and bury what is expired, at most so many of each; how many leases
    ran out, and how many scheduled items are ready now."""
    last = last_seq(session, partition_id)
    values = {"partition": partition_id, "now": session.now, "last_seq": last, "most": most}
    promoting = _PROMOTE if most < 0 else _PROMOTE_SOME
    promoted = session.db.execute(promoting, values).rowcount
    session.counters.move(queue.id, "scheduled", None, promoted)
    session.counters.move(queue.id, None, "ready", promoted)
    lapsed = session.db.execute(
        f"{SELECT} where {_DUE} and state = 'leased' order by due_at, seq limit :most", values
    ).fetchall()
    for item in _in_push_order(lapsed):
        _expire_lease(session, queue, item, last)
    expired = session.db.execute(
        f"{SELECT} where {_EXPIRED} order by expires_at, seq limit :most", values
    ).fetchall()
    for item in _in_push_order(expired):
        leave_ready(item, last)
        kill(session, queue, item, item.state, TOO_OLD)
    return len(lapsed), promoted


def _in_push_order(rows: list[tuple[Any, ...]]) -> list[WorkItem]:
    return sorted(map(WorkItem, rows), key=lambda item: item.seq)


def _expire_lease(session: Session, queue: Queue, item: WorkItem, last: int) -> None:
    assert item.due_at is not None
    end_attempt(session, item, AttemptOutcome.EXPIRED, item.due_at, LEASE_RAN_OUT)
    session.counters.add(queue.id, failed=1)
    item.ended_by = EXPIRED
    item.error = LEASE_RAN_OUT
    was = item.state
    if item.attempts >= item.max_attempts:
        kill(session, queue, item, was, LEASE_RAN_OUT)
    else:
        make_ready(item, last)
        save(session, item, was)
