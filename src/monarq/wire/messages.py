"""Messages as they are kept, in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

from monarq.ids import MessageIdText
from monarq.model import QueueOptions
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import (
    NameFilter,
    PartitionIdText,
    TimeFilter,
    TimeText,
)

MessageStatus = Literal[
    "pending", "processing", "completed", "dead_letter", "scheduled", "cancelled"
]

Payload = Annotated[Raw, Meta(description="the payload, as it was pushed")]
Headers = Annotated[Raw, Meta(description="its headers, an object, if it has any")]


class MessagesQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter
    partition: NameFilter | None = None
    first_seq: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    """Ordered queues: from this seq on."""
    status: MessageStatus | None = None
    consumer_group: NameFilter | None = None
    """Whose state `status` is; without it that of `__QUEUE_MODE__`, or of all groups."""
    from_: TimeFilter | None = field(default=None, name="from")
    to: TimeFilter | None = None


class QueueMessagesQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    partition: NameFilter | None = None
    status: MessageStatus | None = None
    consumer_group: NameFilter | None = None
    from_: TimeFilter | None = field(default=None, name="from")
    to: TimeFilter | None = None


class BusStatus(Struct, frozen=True, kw_only=True, rename="camel"):
    """Ordered queues: groups by what they did with a message, as Queen counts them."""

    consumed_by: int
    """Groups for which it is done or dead."""
    total_groups: int


class MessageRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: MessageIdText
    transaction_id: str
    partition_id: PartitionIdText
    queue: str
    partition: str
    seq: int
    status: MessageStatus
    groups: dict[str, str]
    """Ordered queues: `pending`, `leased`, `done` or `dead`, by group."""
    bus_status: BusStatus
    trace_id: str | None
    producer_sub: str | None
    created_at: TimeText
    data: Payload
    headers: Headers | UnsetType = UNSET


class MessagesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    messages: list[MessageRow]


class MessageDetail(MessageRow, frozen=True, kw_only=True, rename="camel"):
    queue_options: QueueOptions


class MessageDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    deleted: int
    partition_id: PartitionIdText
    transaction_id: str


class MessageRetried(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    redriven: int
    """Dead letters that went back to their queue, one a group that had failed on it."""
    partition_id: PartitionIdText
    transaction_id: str


class BuryQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    consumer_group: NameFilter | None = None
    """Whose lease it is under; `__QUEUE_MODE__` if it is left out."""


class MessageBuried(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    partition_id: PartitionIdText
    transaction_id: str
