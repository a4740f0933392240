"""Rows of dead letters, on both engines.

Each engine has its own SQL for filters: one takes lists as arrays and the other as JSON.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import UNSET, Raw

from monarq.crypto import Cipher
from monarq.ids import NumberText, message_id
from monarq.model import DeadLetter
from monarq.store import sealing
from monarq.times import Micros

COLUMNS = """
d.id, q.name, d.partition_name, d.partition_id, d.seq, d.transaction_id, d.group_name, d.payload,
d.error, d.attempts, d.created_at, d.failed_at, d.trace_id, d.producer, d.headers
"""
"""The fields of `StoredLetter`, of the tables `dead_letters d` and `queues q`."""


class StoredLetter(NamedTuple):
    """A dead letter as it is stored, sealed if its queue was encrypted."""

    id: int
    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    group: str
    payload: bytes
    error: str
    attempts: int
    created_at: int
    failed_at: int
    trace_id: str | None
    producer: str | None
    headers: bytes | str | None
    """Text on PostgreSQL."""

    def plain_payload(self, cipher: Cipher | None) -> bytes:
        """Return the payload as it was pushed."""
        is_own_id = self.transaction_id == message_id(self.partition_id, self.seq)
        return sealing.open_payload(
            self.payload,
            cipher,
            self.queue,
            self.partition,
            None if is_own_id else self.transaction_id,
            self.headers,
        )

    def opened(self, cipher: Cipher | None) -> DeadLetter:
        stored = self.headers.encode() if isinstance(self.headers, str) else self.headers
        headers = sealing.open_headers(stored, cipher)
        return DeadLetter(
            id=NumberText(self.id),
            message_id=message_id(self.partition_id, self.seq),
            transaction_id=self.transaction_id,
            partition_id=NumberText(self.partition_id),
            queue=self.queue,
            partition=self.partition,
            group=self.group,
            error=sealing.open_error(self.error, cipher, self.queue),
            attempts=self.attempts,
            raw=Raw(self.plain_payload(cipher)),
            trace_id=self.trace_id,
            producer=self.producer,
            created_at=Micros(self.created_at),
            failed_at=Micros(self.failed_at),
            raw_headers=UNSET if headers is None else Raw(headers),
        )
