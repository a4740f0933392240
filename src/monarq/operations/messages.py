"""Messages as a queue keeps them, and items as messages: listing, describing, deleting them."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from monarq.ids import NumberText
from monarq.model import DeadLetterFilter, MessageDetail, MessageStatus, StoredMessage
from monarq.operations.codec import NumberArgument, TimeArgument
from monarq.operations.groups import Seq
from monarq.operations.operation import Name, Operation, Paged, Role, Route
from monarq.wire.paging import PageAnswer

_MESSAGES = "/api/v1/messages"
_MESSAGE = f"{_MESSAGES}/{{partitionId}}/{{transactionId}}"


class MessagesAnswer(PageAnswer, frozen=True, kw_only=True, rename="camel"):
    messages: list[StoredMessage]


class ListMessages(Paged[StoredMessage], frozen=True, kw_only=True):
    """List what a queue keeps, by partition id and seq.

    Of an ordered queue, `status="dead_letter"` lists the dead letters, newest first.
    """

    bounded = True
    routes = (
        Route(
            "GET",
            _MESSAGES,
            "List what a queue keeps, by partition and seq",
            answer=MessagesAnswer,
            result="messages",
            errors=(404, 409),
        ),
        Route(
            "GET",
            "/api/v1/status/queues/{queue}/messages",
            "What a queue keeps, by partition and seq",
            answer=MessagesAnswer,
            result="messages",
            errors=(404, 409),
            name="listMessagesOfQueue",
        ),
    )

    queue: Name
    partition: Name | None = None
    first_seq: Seq | None = None
    """Ordered queues: from this seq on."""
    status: MessageStatus | None = None
    group: Name | None = field(name="consumerGroup", default=None)
    """Whose state `status` is; without it that of `__QUEUE_MODE__`, or of all groups."""
    created_from: TimeArgument | None = field(name="from", default=None)
    """Only messages that are not older; of dead letters, the time when the message died."""
    created_to: TimeArgument | None = field(name="to", default=None)
    """Only messages that are not newer."""

    @property
    def has_filter(self) -> bool:
        """Return whether `keep` may refuse a row of an ordered queue."""
        given = (self.status, self.created_from, self.created_to)
        return any(value is not None for value in given)

    @property
    def which_dead(self) -> DeadLetterFilter:
        """Return the filter of the dead letters to list."""
        return DeadLetterFilter(
            queue=self.queue,
            partition=self.partition,
            group=self.group,
            failed_from=self.created_from,
            failed_to=self.created_to,
        )

    def keep(self, row: StoredMessage) -> bool:
        if self.status == "dead_letter" and row.groups:
            return True  # A dead letter, which `which_dead` has chosen.
        return (
            self.status in (None, row.status)
            and (self.created_from is None or row.created_at >= self.created_from)
            and (self.created_to is None or row.created_at <= self.created_to)
        )

    def row_bytes(self, row: StoredMessage) -> int:
        return len(row.payload) + 400


class GetMessage(Operation[MessageDetail], frozen=True, kw_only=True):
    """Return a message or item, with its state in each group; `NotFoundError` if there is none.

    Its id may be given in place of its transaction id.
    """

    routes = (
        Route(
            "GET", _MESSAGE, "One message or item, with its state in each group", errors=(404, 409)
        ),
    )

    partition_id: NumberArgument
    transaction_id: Name


class MessageDeleted(Struct, frozen=True, kw_only=True, rename="camel"):
    success: bool
    deleted: int
    partition_id: NumberText
    transaction_id: str


class DeleteMessage(Operation[None], frozen=True, kw_only=True):
    """Remove a message's payload and keep it from every group; or remove an item.

    The seq and the transaction id of a message stay taken. `ConflictError` if it is leased.
    """

    routes = (
        Route(
            "DELETE",
            _MESSAGE,
            "Remove a message's payload and keep it from every group; or remove an item",
            role=Role.ADMIN,
            answer=MessageDeleted,
            errors=(404, 409),
        ),
    )

    partition_id: NumberArgument
    transaction_id: Name

    def wakes(self, result: None) -> Iterable[str | None]:
        return (None,)

    def answer(self, route: Route, result: None) -> MessageDeleted:
        return MessageDeleted(
            success=True,
            deleted=1,
            partition_id=NumberText(self.partition_id),
            transaction_id=self.transaction_id,
        )

    def read(self, route: Route, answer: MessageDeleted) -> None:
        return None
