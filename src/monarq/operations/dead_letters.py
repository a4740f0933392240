"""Dead letters: messages and items that ran out of attempts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct, field

from monarq.errors import InvalidRequestError
from monarq.model import DeadLetter, DeadLetterFilter, Page
from monarq.model.limits import ERROR_KEY_LENGTH
from monarq.operations.codec import NumberArgument, TimeArgument
from monarq.operations.operation import Name, Operation, Role, Route
from monarq.wire.paging import After, Offset, PageAnswer

ErrorKey = Annotated[
    str,
    Meta(
        max_length=ERROR_KEY_LENGTH,
        pattern=r"^[^\x00\n]*\Z",
        description="the first line of the error, 200 characters at most",
    ),
]
Ids = Annotated[list[NumberArgument], Meta(min_length=1, max_length=1000)]


class _Choice(Struct, frozen=True, kw_only=True, rename="camel"):
    """Which dead letters: those that match all given fields."""

    queue: Name | None = None
    group: Name | None = field(name="consumerGroup", default=None)
    partition: Name | None = None
    failed_from: TimeArgument | None = field(name="from", default=None)
    """When the message died."""
    failed_to: TimeArgument | None = field(name="to", default=None)
    error: ErrorKey | None = None
    ids: Ids | None = None

    @property
    def which(self) -> DeadLetterFilter:
        return DeadLetterFilter(
            queue=self.queue,
            group=self.group,
            partition=self.partition,
            failed_from=self.failed_from,
            failed_to=self.failed_to,
            error=self.error,
            ids=None if self.ids is None else list(map(int, self.ids)),
        )


def _check_meant(which: DeadLetterFilter, everything: bool) -> None:
    """Refuse a forgotten filter, which would mean all dead letters of all queues."""
    if (which == DeadLetterFilter()) is not everything:
        raise InvalidRequestError(
            "say which dead letters: queue, consumerGroup, partition, from, to, error or ids; "
            "or all=true for all of them, without a filter"
        )


class DeadLetterPage(Page[DeadLetter], frozen=True):
    total: int = 0
    """All dead letters that match, on every page."""


class DeadLettersAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    messages: list[DeadLetter]
    total: int
    """All that match, on every page."""


class ListDeadLetters(_Choice, Operation[DeadLetterPage], frozen=True, kw_only=True):
    """List dead letters, newest first."""

    composed = True
    routes = (
        Route(
            "GET",
            "/api/v1/dlq",
            "List dead letters, newest first",
            answer=DeadLettersAnswer,
            result="messages",
        ),
    )

    limit: Annotated[
        int, Meta(ge=1, le=2**53, description="how many rows; more than 1000 count as 1000")
    ] = 100
    offset: Offset = 0
    after: After | None = None

    def answer(self, route: Route, result: DeadLetterPage) -> Any:
        return DeadLettersAnswer(
            limit=min(self.limit, 1000),
            offset=self.offset,
            next=result.next,
            messages=result.rows,
            total=result.total,
        )

    def read(self, route: Route, answer: DeadLettersAnswer) -> DeadLetterPage:
        return DeadLetterPage(answer.messages, answer.next, answer.total)


class Redriven(Struct, frozen=True, kw_only=True, rename="camel"):
    redriven: int
    """Fewer than `limit`: these were all that matched."""


class Redrive(_Choice, Operation[int], frozen=True, kw_only=True):
    """Put dead letters back into their queue, or into another; return how many.

    Without a filter, `all` must be true. The oldest are put back first. In its own queue a message
    goes to the end of its partition, for the group alone that failed on it, and an item starts
    over with its attempts forgotten. In another queue it is a new push.
    """

    routes = (
        Route(
            "POST",
            "/api/v1/dlq/redrive",
            "Put dead letters back into their queue, or into another",
            role=Role.WRITE,
            answer=Redriven,
            result="redriven",
            errors=(404, 409),
        ),
    )

    all: bool = False
    to_queue: Name | None = None
    """Without it each dead letter goes back to its own queue."""
    limit: Annotated[int, Meta(ge=1, le=100_000, description="how many at most")] = 1000

    def check(self) -> None:
        _check_meant(self.which, self.all)

    def wakes(self, result: int) -> Iterable[str | None]:
        return (self.to_queue or self.queue,)


class Purged(Struct, frozen=True, kw_only=True, rename="camel"):
    deleted: int


class PurgeDeadLetters(_Choice, Operation[int], frozen=True, kw_only=True):
    """Remove dead letters for good; return how many. Without a filter, `all` must be true."""

    routes = (
        Route(
            "DELETE",
            "/api/v1/dlq",
            "Remove dead letters for good",
            role=Role.ADMIN,
            answer=Purged,
            result="deleted",
        ),
    )

    all: bool = False

    def check(self) -> None:
        _check_meant(self.which, self.all)
