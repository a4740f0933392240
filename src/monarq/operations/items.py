"""Items of work queues: listing, describing, cancelling and retrying them; what attempts print."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field, structs

from monarq.errors import InvalidRequestError
from monarq.ids import MessageIdText
from monarq.model import MAX_OUTPUT_BYTES, Item, ItemDetail, ItemState, OutputPart
from monarq.operations.operation import Body, Name, Operation, Paged, Role, Route
from monarq.wire.paging import After, Limit, Offset, PageAnswer

_ITEMS = "/api/v1/items"
_ITEM = f"{_ITEMS}/{{id}}"

_OUTPUT = f"{_ITEM}/output"

Order = Literal["pushed", "next"]
AttemptNumber = Annotated[int, Meta(ge=1, le=2**31 - 1, description="counted from 1")]


class ItemsQuery(Body, frozen=True, kw_only=True, rename="camel"):
    queue: Name
    state: ItemState | None = None
    transaction_id: Name | None = None
    order: Order = "pushed"
    """`next`: ready items in the order in which they will be leased; one page."""
    limit: Limit = 100
    offset: Offset = 0
    after: After | None = None
    pivot: After | None = None
    """Another name for `after`."""

    def fields(self) -> dict[str, Any]:
        fields = structs.asdict(self)
        pivot = fields.pop("pivot")
        if pivot is not None:
            if self.after is not None:
                raise InvalidRequestError("give after or pivot, not both: they are the same")
            fields["after"] = pivot
        return fields


class ItemsAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    items: list[Item]


class ListItems(Paged[Item], frozen=True, kw_only=True):
    """List the items of a work queue, in the order in which they were pushed."""

    routes = (
        Route(
            "GET",
            _ITEMS,
            "List the items of a work queue",
            body=ItemsQuery,
            answer=ItemsAnswer,
            result="items",
            errors=(404, 409),
        ),
    )

    queue: Name
    state: ItemState | None = None
    transaction_id: Name | None = None
    """Only the item with this transaction id."""
    order: Order = "pushed"
    """`next`: ready items in the order in which they will be leased; one page."""

    @property
    def bounded(self) -> bool:
        # A handler bounds the page of the next items itself, since no token leads on from it.
        return self.order != "next"

    def check(self) -> None:
        if self.transaction_id is not None or self.order != "next":
            return
        if self.state not in (None, ItemState.READY) or self.after is not None:
            raise InvalidRequestError("order=next lists one page of ready items")

    def row_bytes(self, row: Item) -> int:
        return len(row.payload) + 600


class GetItem(Operation[ItemDetail], frozen=True, kw_only=True):
    """Return an item with its finished attempts; raise `NotFoundError` if there is none."""

    routes = (Route("GET", _ITEM, "One item, with its finished attempts", errors=(404, 409)),)

    item_id: MessageIdText = field(name="id")


class CancelItem(Operation[ItemDetail], frozen=True, kw_only=True):
    """Take an item out of its queue; a lease on it ends. `ConflictError` if it is finished."""

    routes = (
        Route(
            "POST",
            f"{_ITEM}/cancel",
            "Take an item out of its queue; a lease on it ends",
            role=Role.WRITE,
            errors=(404, 409),
        ),
    )

    item_id: MessageIdText = field(name="id")

    def wakes(self, result: ItemDetail) -> Iterable[str | None]:
        return (result.queue,)


class RetryItem(Operation[ItemDetail], frozen=True, kw_only=True):
    """Make an item ready at the tail, with its attempts forgotten. `ConflictError` if leased."""

    routes = (
        Route(
            "POST",
            f"{_ITEM}/retry",
            "Make an item ready again, with its attempts forgotten",
            role=Role.WRITE,
            errors=(404, 409),
        ),
    )

    item_id: MessageIdText = field(name="id")

    def wakes(self, result: ItemDetail) -> Iterable[str | None]:
        return (result.queue,)


# --- output ----------------------------------------------------------------------------------


class OutputAppended(Struct, frozen=True, kw_only=True, rename="camel"):
    id: MessageIdText
    attempt: int
    size: int
    """Bytes that the attempt has printed by now."""


class AppendOutput(Operation[int], frozen=True, kw_only=True):
    """Note what a running attempt printed; return how many bytes it has printed by now.

    This is for those who watch it run: what is to stay belongs in the ack's `result`. More than
    `MAX_OUTPUT_BYTES` are refused. Output is removed after 7 days.
    """

    routes = (
        Route(
            "POST",
            _OUTPUT,
            "Note what a running attempt printed",
            role=Role.WRITE,
            answer=OutputAppended,
            result="size",
            errors=(404,),
        ),
    )

    item_id: MessageIdText = field(name="id")
    attempt: AttemptNumber
    data: Annotated[bytes, Meta(max_length=MAX_OUTPUT_BYTES, description="base64")]

    def answer(self, route: Route, result: int) -> OutputAppended:
        return OutputAppended(id=self.item_id, attempt=self.attempt, size=result)


class ReadOutput(Operation[OutputPart], frozen=True, kw_only=True):
    """Return what an attempt has printed so far, from a byte on; nothing if there is no more."""

    routes = (Route("GET", _OUTPUT, "What an attempt has printed so far"),)

    item_id: MessageIdText = field(name="id")
    attempt: AttemptNumber
    start: Annotated[int, Meta(ge=0, le=MAX_OUTPUT_BYTES, description="the byte to begin at")] = 0
    max_bytes: Annotated[int, Meta(ge=1, le=MAX_OUTPUT_BYTES)] = 1 << 20
