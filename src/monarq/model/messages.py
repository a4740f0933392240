"""Messages as they are kept, and what is noted about them."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field, structs

from monarq.ids import MessageIdText, NumberText
from monarq.model.queue_options import QueueOptions
from monarq.times import Micros

MessageStatus = Literal[
    "pending", "processing", "completed", "dead_letter", "scheduled", "cancelled"
]


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Ordered queues: groups by what they did with a message, as Queen counts them."""

    consumed_by: int
    """Groups for which it is done or dead."""
    total_groups: int


class StoredMessage(Struct, frozen=True, rename="camel", kw_only=True):
    """A message or item that a queue keeps, with its state in each group."""

    id: MessageIdText
    transaction_id: str
    partition_id: NumberText
    queue: str
    partition: str
    seq: int
    status: MessageStatus
    groups: dict[str, str]
    """Ordered queues: `pending`, `leased`, `done` or `dead`, by group."""
    bus_status: BusStatus = BusStatus(consumed_by=0, total_groups=0)
    trace_id: str | None
    producer: str | None = field(name="producerSub")
    created_at: Micros
    raw: Annotated[Raw, Meta(description="the payload, as it was pushed")] = field(name="data")
    raw_headers: (
        Annotated[Raw, Meta(description="its headers, an object, if it has any")] | UnsetType
    ) = field(name="headers", default=UNSET)

    def __post_init__(self) -> None:
        consumed = sum(state in ("done", "dead") for state in self.groups.values())
        counted = BusStatus(consumed_by=consumed, total_groups=len(self.groups))
        structs.force_setattr(self, "bus_status", counted)

    @property
    def payload(self) -> bytes:
        return bytes(self.raw)

    @property
    def headers(self) -> bytes | None:
        return None if isinstance(self.raw_headers, UnsetType) else bytes(self.raw_headers)


class MessageDetail(StoredMessage, frozen=True, kw_only=True, rename="camel"):
    queue_options: QueueOptions


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
