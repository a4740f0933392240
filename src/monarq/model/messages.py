"""Messages as they are kept, and what is noted about them."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from monarq.ids import NumberText, message_id
from monarq.times import Micros


class StoredMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message as it is kept, whoever consumed it."""

    queue: str
    partition: str
    partition_id: int
    seq: int
    transaction_id: str
    payload: bytes
    created_at: int
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None
    groups: dict[str, str] = {}
    """Per group: `pending`, `leased`, `done`, or `dead`, which is done with a dead letter kept.
    Filled by `get_message` only."""

    @property
    def id(self) -> str:
        return message_id(self.partition_id, self.seq)


class Segment(Struct, frozen=True, kw_only=True):
    """Messages of one partition with consecutive seqs, as they were pushed together.

    Payload i is `data[offsets[i]:offsets[i + 1]]`, the layout of an Arrow binary array;
    `offsets` are little-endian int32 and start at 0. A payload of length 0 was deleted.
    Lists are None where no message has such a value; a transaction id of None means that
    the message's id is its transaction id.
    """

    partition_id: int
    first_seq: int
    count: int
    created_at: int
    data: bytes
    offsets: bytes
    transaction_ids: list[str | None] | None = None
    trace_ids: list[str | None] | None = None
    producers: list[str | None] | None = None
    headers: list[bytes | None] | None = None


class Delivery(Struct, frozen=True, rename="camel", kw_only=True):
    """A row of the delivery log: one answer to (part of) a lease of an ordered partition."""

    id: int
    queue: str
    partition: str
    partition_id: int
    group: str
    consumer: str | None
    lease_number: int
    leased_at: int
    ended_at: int
    first_seq: int
    last_seq: int
    completed: int
    failed: int
    released: int
    dead: int
    expired: int
    error: str | None = None


class Trace(Struct, frozen=True, rename="camel", kw_only=True):
    """A note that a consumer left about a message."""

    id: NumberText
    transaction_id: str
    partition_id: NumberText
    event_type: str
    names: list[str] = field(name="traceNames")
    created_at: Micros
    raw: Annotated[Raw, Meta(description="as it was sent")] = field(name="data")

    @property
    def data(self) -> bytes:
        return bytes(self.raw)
