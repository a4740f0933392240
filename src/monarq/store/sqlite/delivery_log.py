"""The delivery log: one row for what one call did under one lease, not one a message."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from monarq.store.sqlite.cursors import Cursor
    from monarq.store.sqlite.session import Session

_LOG = """
insert into deliveries (queue_id, partition_id, partition_name, group_name, consumer, lease_no,
    leased_at, ended_at, first_seq, last_seq, completed, failed, released, dead, expired, error)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


class DeliveryLog:
    """One row of the delivery log in the making: what one call did under one lease."""

    __slots__ = ("completed", "consumer", "dead", "ended_at", "error", "expired", "failed",
                 "first_seq", "last_seq", "lease_no", "leased_at", "released")  # fmt: skip

    def __init__(self, lease_no: int, leased_at: int, ended_at: int, consumer: str | None) -> None:
        self.lease_no = lease_no
        self.leased_at = leased_at
        self.ended_at = ended_at
        self.consumer = consumer
        self.first_seq = 0
        self.last_seq = 0
        self.completed = self.failed = self.released = self.dead = self.expired = 0
        self.error: str | None = None

    def covers(self, first_seq: int, last_seq: int) -> None:
        if not self.first_seq or first_seq < self.first_seq:
            self.first_seq = first_seq
        self.last_seq = max(self.last_seq, last_seq)


def write_log(session: Session, cursor: Cursor, log: DeliveryLog) -> None:
    session.db.execute(
        _LOG,
        (cursor.queue.id, cursor.partition_id, cursor.partition, cursor.group, log.consumer,
         log.lease_no, log.leased_at, log.ended_at, log.first_seq, log.last_seq,
         log.completed, log.failed, log.released, log.dead, log.expired, log.error),
    )  # fmt: skip
