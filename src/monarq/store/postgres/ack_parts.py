"""What acks of messages, of items and of whole leases have in common: what each is about, and what
is said where it is refused."""

from __future__ import annotations

from monarq.errors import (
    AlreadyAckedError,
    ForbiddenError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    LeaseUnknownError,
    MonarqError,
    NotFoundError,
    NotInLeaseError,
)
from monarq.ids import parse_lease_id, parse_message_id
from monarq.model import Ack, AckStatus
from monarq.store.postgres.catalog import PartitionFacts
from monarq.store.validation import forbidden

STATUS = {status: number for number, status in enumerate(AckStatus)}
"""As the procedures know them."""
Part = tuple[int, Ack, PartitionFacts]
"""An ack of one message, or of what a lease covers in one partition, for request n."""


class AnsweredEarlierError(AlreadyAckedError):
    """Under a lease that was not the latest any more."""


_FAULTS: dict[str, tuple[type[MonarqError], str]] = {
    "not_found": (NotFoundError, "there is no such message here"),
    "lease_expired": (LeaseExpiredError, "the lease has expired: pop the message again"),
    "already_acked": (AlreadyAckedError, "this was answered before"),
    "answered_earlier": (AnsweredEarlierError, "this was answered before, under this lease"),
    "lease_foreign": (LeaseForeignError, "the lease is for another partition, group or item"),
    "lease_taken_over": (LeaseTakenOverError, "the lease ended and another has been given since"),
    "lease_unknown": (LeaseUnknownError, "there is no such lease: it never was, or it has ended"),
    "not_in_lease": (NotInLeaseError, "the message was not delivered under this lease"),
    "forbidden": (ForbiddenError, str(forbidden("the lease is on shell commands"))),
}
_NEVER_GIVEN = (2**62, "")


def fault(word: str) -> MonarqError:
    kind, message = _FAULTS[word]
    return kind(message)


def lease_of(request: Ack) -> tuple[int | None, str | None]:
    """Number and token of the lease. What is no lease id at all is one that was never given:
    whether there is such a message has to be asked first."""
    if request.lease_id is None:
        return None, None
    try:
        return parse_lease_id(request.lease_id)
    except LeaseUnknownError:
        return _NEVER_GIVEN


def named(request: Ack) -> tuple[int | None, str | None]:
    """The message's seq, if its id is one that Monarq made for this partition; else its id."""
    if request.transaction_id is None:
        return None, None
    prefix = f"{request.partition_id}-"
    if request.transaction_id.startswith(prefix):
        own = parse_message_id(request.transaction_id)
        if own is not None:
            return own[1], None
    return None, request.transaction_id
