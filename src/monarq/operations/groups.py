"""Consumer groups: how far they have come, moving and deleting them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from monarq.errors import InvalidRequestError
from monarq.model import Cursor, Group, SeekTo, StartFrom
from monarq.operations.codec import TimeArgument
from monarq.operations.operation import Body, Name, Operation, Paged, Role, Route
from monarq.times import Micros
from monarq.wire.paging import After, Limit, Next, Offset, PageAnswer

_GROUPS = "/api/v1/consumer-groups"
_GROUP = f"{_GROUPS}/{{group}}"
_IN_QUEUE = f"{_GROUP}/queues/{{queue}}"

Seq = Annotated[int, Meta(ge=1, le=2**53)]


# --- lists -----------------------------------------------------------------------------------


class GroupsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    consumer_groups: list[Group]


class ListGroups(Paged[Group], frozen=True, kw_only=True):
    """List groups by queue and name, a row for each group in each queue."""

    routes = (
        Route(
            "GET",
            _GROUPS,
            "List groups by queue and name, with their lag in messages and in seconds",
            answer=GroupsAnswer,
            result="consumer_groups",
        ),
    )

    queue: Name | None = None
    group: Name | None = None
    """Only the group with exactly this name."""
    search: Name | None = None
    """Part of the group's name, in any case."""

    def keep(self, row: Group) -> bool:
        return self.search is None or self.search.casefold() in row.name.casefold()


class ListLaggingGroups(Paged[Group], frozen=True, kw_only=True):
    """List the groups whose oldest message has waited for a time."""

    composed = True
    routes = (
        Route(
            "GET",
            f"{_GROUPS}/lagging",
            "List the groups that are behind for a time",
            answer=GroupsAnswer,
            result="consumer_groups",
        ),
    )

    min_lag_seconds: Annotated[float, Meta(ge=0, le=10 * 365 * 86_400)] = 60.0
    queue: Name | None = None


class CursorsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    cursors: list[Cursor]


class ListCursors(Paged[Cursor], frozen=True, kw_only=True):
    """List a group's position in each partition of a queue, by partition id."""

    routes = (
        Route(
            "GET",
            f"{_IN_QUEUE}/cursors",
            "List a group's position in each partition of a queue",
            answer=CursorsAnswer,
            result="cursors",
            errors=(404,),
        ),
    )

    queue: Name
    group: Name


class GroupInQueue(Group, frozen=True, kw_only=True, rename="camel"):
    partitions: list[Cursor]
    partitions_next: Next | None
    """Where its partitions go on: as `after`, with `queue`."""


class GroupAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    name: str
    queues: list[GroupInQueue]


class GetGroup(Operation[GroupAnswer], frozen=True, kw_only=True):
    """Return a group in each of its queues, with its cursors.

    `limit` counts the queues, and also the cursors of all queues together.
    """

    composed = True
    routes = (
        Route("GET", _GROUP, "A group in each of its queues, with its cursors", errors=(404,)),
    )

    group: Name
    queue: Name | None = None
    """Only this queue, with all of its partitions, page by page."""
    limit: Limit = 100
    offset: Offset = 0
    after: After | None = None


# --- deleting --------------------------------------------------------------------------------


class GroupDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    deleted: bool
    """False if there was no such group."""
    consumer_group: str
    queue_name: str | None
    queues: int
    """Number of queues from which the group was deleted."""
    metadata_deleted: bool


class DeleteGroup(Operation[int], frozen=True, kw_only=True):
    """Delete a group from one queue or from all; return the number of queues it was in."""

    routes = (
        Route(
            "DELETE",
            _GROUP,
            "Delete a group everywhere",
            role=Role.ADMIN,
            answer=GroupDeleted,
            result="queues",
        ),
        Route(
            "DELETE",
            _IN_QUEUE,
            "Delete a group from one queue",
            role=Role.ADMIN,
            answer=GroupDeleted,
            result="queues",
            errors=(404,),
            name="deleteGroupOfQueue",
        ),
    )

    group: Name
    queue: Name | None = None
    forget_start: bool = field(name="deleteMetadata", default=True)
    """Forget where the group began; otherwise its next pop begins there again."""

    def wakes(self, result: int) -> Iterable[str | None]:
        return (self.queue,)

    def answer(self, route: Route, result: int) -> GroupDeleted:
        return GroupDeleted(
            success=True,
            deleted=result > 0,
            consumer_group=self.group,
            queue_name=self.queue,
            queues=result,
            metadata_deleted=self.forget_start,
        )


# --- moving ----------------------------------------------------------------------------------


class SeekBody(Body, frozen=True, kw_only=True, rename="camel"):
    """Exactly one of them."""

    to: SeekTo | None = None
    timestamp: Micros | None = None
    """The next message is the first one that is not older."""
    seq: Seq | None = None
    """The next message is this one, as far as it is kept."""
    to_end: bool | None = None
    """`true`: as `to: end`, as Queen's clients send it."""
    position: Literal["earliest", "latest"] | None = None
    """As `to`, as some of Queen's clients name it."""

    def fields(self) -> dict[str, Any]:
        targets: list[dict[str, Any]] = []
        if self.to is not None:
            targets.append({"to": self.to})
        if self.timestamp is not None:
            targets.append({"time": self.timestamp})
        if self.seq is not None:
            targets.append({"seq": self.seq})
        if self.to_end:
            targets.append({"to": SeekTo.END})
        if self.position is not None:
            targets.append({"to": SeekTo.START if self.position == "earliest" else SeekTo.END})
        if len(targets) != 1:
            raise InvalidRequestError(
                "say where to with one of to (start or end), timestamp, seq, toEnd and position"
            )
        return targets[0]


class SeekPartitionBody(SeekBody, frozen=True, kw_only=True, rename="camel"):
    """At most one of them; the end if the body is empty, the only place of Queen's route."""

    def fields(self) -> dict[str, Any]:
        return {"to": SeekTo.END} if self == SeekPartitionBody() else super().fields()


class Sought(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    consumer_group: str
    queue_name: str
    partition: str | None
    lag: int
    """Messages that are before the group now, in the partitions that it moved in."""


class Seek(Operation[int], frozen=True, kw_only=True):
    """Move a group's cursors; return the number of messages before it in the moved partitions.

    Give exactly one of `to`, `time` and `seq` (the next message to be delivered). The group's
    leases in these partitions end, and what was acked after the new position is forgotten. A
    group that does not exist in the queue is created.
    """

    routes = (
        Route(
            "POST",
            f"{_IN_QUEUE}/seek",
            "Move a group's cursors in a queue; its leases there end",
            role=Role.WRITE,
            body=SeekBody,
            answer=Sought,
            result="lag",
            errors=(404, 409),
        ),
        Route(
            "POST",
            f"{_IN_QUEUE}/partitions/{{partition}}/seek",
            "Move a group's cursor in one partition; to the end if the body is empty",
            role=Role.WRITE,
            body=SeekPartitionBody,
            needs_body=False,
            answer=Sought,
            result="lag",
            errors=(404, 409),
            name="seekPartition",
        ),
    )

    group: Name
    queue: Name
    partition: Name | None = None
    to: SeekTo | None = None
    time: TimeArgument | None = field(name="timestamp", default=None)
    """The next message is the first one that is not older."""
    seq: Seq | None = None
    """The next message is this one, as far as it is kept."""

    def check(self) -> None:
        if sum(target is not None for target in (self.to, self.time, self.seq)) != 1:
            raise InvalidRequestError("seek to exactly one of start or end, a time, or a seq")

    def start(self, now: int) -> StartFrom | int:
        """Return where a group begins that the seek creates."""
        if self.partition is not None:
            return StartFrom.ALL
        if self.time is not None and self.time <= now:
            return self.time
        is_end = self.to is SeekTo.END or self.time is not None
        return StartFrom.NEW if is_end else StartFrom.ALL

    def wakes(self, result: int) -> Iterable[str | None]:
        return (self.queue,)

    def answer(self, route: Route, result: int) -> Sought:
        return Sought(
            success=True,
            consumer_group=self.group,
            queue_name=self.queue,
            partition=self.partition,
            lag=result,
        )


# --- subscribing -----------------------------------------------------------------------------


class Subscribed(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    consumer_group: str
    subscription_timestamp: Micros | None
    """Start position; null is the beginning."""
    queues: list[str]
    """Queues in which the group was moved; empty for a new group, which its first pop creates."""


class Subscribe(Operation[Subscribed], frozen=True, kw_only=True):
    """Set where a group begins, and move the group there in the queues in which it exists.

    Give exactly one of `start` and `time`. Without a queue, a namespace and a task, the group is
    moved in all its queues.
    """

    composed = True
    routes = (
        Route(
            "POST",
            f"{_GROUP}/subscription",
            "Say where a group begins, or move it there",
            role=Role.WRITE,
            errors=(404, 409),
        ),
    )

    group: Name
    start: StartFrom | None = None
    time: TimeArgument | None = field(name="subscriptionTimestamp", default=None)
    """The first message of the group is the first one that is not older."""
    queue: Name | None = None
    """Without it, in every queue that the group has."""
    namespace: Name | None = None
    task: Name | None = None

    def check(self) -> None:
        if (self.time is None) is (self.start is None):
            raise InvalidRequestError("say where it begins with subscriptionTimestamp or start")
        if self.queue is not None and (self.namespace is not None or self.task is not None):
            raise InvalidRequestError("give a queue, or namespace and task, not both")

    def wakes(self, result: Subscribed) -> Iterable[str | None]:
        return result.queues
