"""Groups, in and out."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from monarq.model import SeekTo, StartFrom
from monarq.wire.paging import Next, PageAnswer, PageQuery
from monarq.wire.shown import NameFilter, PartitionIdText, TimeFilter, TimeText

LagSeconds = Annotated[float, Meta(description="age of the oldest message before the group")]


class GroupsQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter | None = None
    search: NameFilter | None = None
    """Part of the group's name, in any case."""


class LaggingQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    min_lag_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] = 60.0
    queue: NameFilter | None = None


class GroupRow(Struct, frozen=True, kw_only=True, rename="camel"):
    """A group in one queue."""

    name: str
    queue_name: str
    lag: int
    """Messages that are before it."""
    lag_seconds: LagSeconds
    total_lag: int
    """The same as `lag`, as Queen names it."""
    max_time_lag: LagSeconds
    """The same as `lagSeconds`, as Queen names it."""
    state: Literal["Stable", "Lagging"]
    """Lagging: for more than five minutes."""
    subscription_timestamp: TimeText | None
    """Older messages were not for the group; null if it began at the beginning."""
    created_at: TimeText
    completed: int
    failed: int
    dead: int


class GroupsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    consumer_groups: list[GroupRow]


class GroupQuery(PageQuery, frozen=True, kw_only=True, rename="camel"):
    queue: NameFilter | None = None
    """Of this queue alone, all of its partitions, page by page."""


class CursorRow(Struct, frozen=True, kw_only=True, rename="camel"):
    partition: str
    partition_id: PartitionIdText
    position: int
    last_seq: int
    lag: int
    available_at: TimeText | None
    """When it can be popped; null if it is drained."""
    lease_until: TimeText | None
    lease_active: bool


class GroupInQueue(GroupRow, frozen=True, kw_only=True, rename="camel"):
    partitions: list[CursorRow]
    partitions_next: Next | None
    """Where its partitions go on: as `after`, with `queue`."""


class GroupAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    name: str
    queues: list[GroupInQueue]


class DeleteGroupQuery(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    delete_metadata: bool = True
    """Also forget where it began; otherwise it begins there again."""


class GroupDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    deleted: bool
    """False: there was none."""
    consumer_group: str
    queue_name: str | None
    queues: int
    """From how many queues it went."""
    metadata_deleted: bool


class SeekBody(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Exactly one of them."""

    to: SeekTo | None = None
    timestamp: TimeFilter | None = None
    """The next message is the first one that is not older."""
    seq: Annotated[int, Meta(ge=1, le=2**53)] | None = None
    """The next message is this one, as far as it is kept."""
    to_end: bool | None = None
    """`true`: as `to: end`, as Queen's clients send it."""
    position: Literal["earliest", "latest"] | None = None
    """As `to`, as some of Queen's clients name it."""


class Sought(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    consumer_group: str
    queue_name: str
    partition: str | None
    lag: int
    """Messages that are before the group now, in the partitions that it moved in."""


class SubscriptionBody(
    Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True
):
    """Where a group begins: one of `subscriptionTimestamp` and `start`."""

    subscription_timestamp: TimeFilter | None = None
    start: StartFrom | None = None
    queue: NameFilter | None = None
    """Without it, in every queue that the group has."""
    namespace: NameFilter | None = None
    task: NameFilter | None = None


class Subscribed(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    consumer_group: str
    subscription_timestamp: TimeText | None
    """Null: from the beginning."""
    queues: list[str]
    """In which it was moved. For a group that is new, empty: it is made by its first pop."""


class SeekPreviewAnswer(Struct, frozen=True, kw_only=True, rename="camel"):
    """What a seek would do; messages that are not for the group count too."""

    lag: int
    """Messages that would be before the group."""
    replayed: int
    """Messages that would be delivered again."""
    skipped: int
    """Messages that would never be delivered."""
    partitions: int
    """In which it would move."""
    leases: int
    """That would end."""
