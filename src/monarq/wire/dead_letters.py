"""Dead letters, in and out."""

from __future__ import annotations

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType, field

from monarq.model import ERROR_KEY_LENGTH
from monarq.times import Time
from monarq.wire.messages import Headers, Payload
from monarq.wire.paging import PageAnswer, PageQuery
from monarq.wire.shown import (
    MessageIdText,
    NameFilter,
    PartitionIdText,
    TimeFilter,
    TimeText,
)

DeadLetterId = Annotated[
    str, Meta(pattern="^[1-9][0-9]{0,17}$", description="a dead letter's `id`")
]
ErrorKey = Annotated[
    str,
    Meta(
        max_length=ERROR_KEY_LENGTH,
        pattern=r"^[^\x00\n]*$",
        description="the first line of the error, 200 characters at most",
    ),
]
Ids = Annotated[list[DeadLetterId], Meta(min_length=1, max_length=1000)]


class DeadLettersQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    limit: Annotated[
        int, Meta(ge=1, le=2**53, description="how many rows; more than 1000 count as 1000")
    ] = 100
    queue: NameFilter | None = None
    consumer_group: NameFilter | None = None
    partition: NameFilter | None = None
    from_: TimeFilter | None = field(default=None, name="from")
    """When it died."""
    to: TimeFilter | None = None
    error: ErrorKey | None = None
    ids: Ids | None = None


class DeadLetterRow(Struct, frozen=True, kw_only=True, rename="camel"):
    id: DeadLetterId
    message_id: MessageIdText
    transaction_id: str
    partition_id: PartitionIdText
    queue: str
    partition: str
    consumer_group: str
    error_message: str
    retry_count: int
    attempts: int
    data: Payload
    trace_id: str | None
    producer_sub: str | None
    created_at: TimeText
    failed_at: TimeText
    headers: Headers | UnsetType = UNSET


class DeadLettersAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    messages: list[DeadLetterRow]
    total: int
    """All that match, on every page."""


class RedriveBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All that are given must match. Without any of them, `all` must be true."""

    queue: NameFilter | None = None
    consumer_group: NameFilter | None = None
    partition: NameFilter | None = None
    from_: Time | None = field(default=None, name="from")
    to: Time | None = None
    error: ErrorKey | None = None
    ids: Ids | None = None
    all: bool = False
    to_queue: NameFilter | None = None
    """Where to; without it each goes back to its own queue."""
    limit: Annotated[int, Meta(ge=1, le=100_000, description="how many at most")] = 1000


class Redriven(Struct, frozen=True, kw_only=True, rename="camel"):
    redriven: int
    """Fewer than `limit`: these were all that matched."""


class PurgeQuery(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All that are given must match. Without any of them, `all` must be true."""

    queue: NameFilter | None = None
    consumer_group: NameFilter | None = None
    partition: NameFilter | None = None
    from_: TimeFilter | None = field(default=None, name="from")
    to: TimeFilter | None = None
    error: ErrorKey | None = None
    ids: Ids | None = None
    all: bool = False


class Purged(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: int
