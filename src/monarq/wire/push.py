"""Push, in and out. The answer is snake_case, as Queen's clients read it."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from monarq.job import CommandJob
from monarq.model import MAX_BATCH, MAX_PRIORITY, PushStatus
from monarq.times import Time
from monarq.wire.fields import Label, Name

Mark = Annotated[
    str,
    Meta(
        extra_json_schema={"pattern": r"^[\x21-\x7e]{1,48}$"},
        description="1 to 48 visible ASCII characters",
    ),
]


class BareItemBody(Struct, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False):
    """An item whose queue and partition may be said for all items at once."""

    queue: Name | None = None
    payload: Annotated[Raw, Meta(description="any JSON value, kept as it is sent; 16 MiB at most")]
    partition: Name | None = None
    """`Default` if it is left out."""
    transaction_id: Name | None = None
    trace_id: Name | None = None
    namespace: Label | None = None
    task: Label | None = None
    headers: Annotated[Raw, Meta(description="an object, delivered with the message")] | (
        UnsetType
    ) = UNSET

    # Work queues only.
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    run_at: Time | None = None
    delay_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    backoff_base: Annotated[float, Meta(ge=0, le=1_000)] | None = None


class PushItemBody(
    BareItemBody, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False
):
    queue: Name


class PushBody(Struct, rename="camel", forbid_unknown_fields=True):
    items: Annotated[list[BareItemBody], Meta(max_length=MAX_BATCH)]
    queue: Name | None = None
    """Of the items that name none."""
    partition: Name | None = None
    """Of the items that name none; `Default` if it is left out too."""
    buffer_ms: Annotated[float, Meta(ge=0, le=60_000)] | None = None
    """Answer `buffered` before it is durable, and store it after this time at the latest."""
    buffer_max: Annotated[int, Meta(ge=1, le=MAX_BATCH)] | None = None
    """Likewise, and store it as soon as so many messages wait."""
    answer: Literal["each", "counts"] = "each"
    """What became of each item, or only how many were queued, duplicate and buffered."""
    mark: Mark | None = None
    """A name for this push, of the sender's choice. One with a mark that was stored within a day
    is refused, and none with a mark is buffered."""
    after: Mark | None = None
    """The mark of another push: unless that one is stored, this one is not. If it is under way to
    a partition of this one it is waited for."""


class PushColumnsBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Many messages for one partition."""

    queue: Name
    payloads: Annotated[
        list[Raw], Meta(max_length=MAX_BATCH, description="any JSON values, kept as they are sent")
    ]
    transaction_ids: Annotated[list[Name], Meta(max_length=MAX_BATCH)] | None = None
    """One for each payload."""
    partition: Name | None = None
    """`Default` if it is left out."""
    mark: Mark | None = None
    after: Mark | None = None
    """As in a push of items."""


class ImportItemBody(
    PushItemBody, kw_only=True, rename="camel", forbid_unknown_fields=True, gc=False
):
    attempts: Annotated[int, Meta(ge=0, le=1_000_000)] | None = None
    """Work queues: the attempts that the item has used up elsewhere."""


class ImportBody(Struct, rename="camel", forbid_unknown_fields=True):
    """Messages or items of one producer, as an export wrote them."""

    items: Annotated[list[ImportItemBody], Meta(max_length=MAX_BATCH)]
    producer: Name | None = None
    """Who pushed them at first."""
    commands: bool = False
    """Whether the items are shell commands."""


class JobItemBody(Struct, rename="camel", forbid_unknown_fields=True):
    """A shell command for a queue that runs commands."""

    queue: Name
    payload: CommandJob
    transaction_id: Name | None = None
    """The job's own id."""
    partition: Literal["Default"] | None = None
    trace_id: Name | None = None
    priority: Annotated[int, Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)] | None = None
    run_at: Time | None = None
    delay_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=1_000_000)] | None = None
    backoff_base: Annotated[float, Meta(ge=0, le=1_000)] | None = None


class JobsBody(Struct, rename="camel", forbid_unknown_fields=True):
    items: Annotated[list[JobItemBody], Meta(max_length=MAX_BATCH)]


class PushedItem(Struct, gc=False):
    index: int
    status: PushStatus
    message_id: str | None
    """None while it is only buffered, as are `partition_id` and `seq`."""
    transaction_id: str | None
    partition_id: str | None
    trace_id: str | None
    queueName: str  # noqa: N815 - the one name that Queen writes so
    seq: int | None
    error: str | UnsetType = UNSET


class PushedCounts(Struct):
    """What became of a push whose sender asked for no more."""

    queued: int
    duplicate: int
    buffered: int
