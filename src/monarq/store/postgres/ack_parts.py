"""What acks of messages, of items and of whole leases have in common: what each is about, and what
is said where it is refused."""

from __future__ import annotations

from monarq.errors import (
    AlreadyAckedError,
    LeaseUnknownError,
    MonarqError,
)
from monarq.ids import parse_lease_id, parse_message_id
from monarq.model import Ack, AckStatus
from monarq.store.postgres.catalog import PartitionFacts
from monarq.store.refused_answers import refused

STATUS = {status: number for number, status in enumerate(AckStatus)}
"""As the procedures know them."""
Part = tuple[int, Ack, PartitionFacts]
"""An ack of one message, or of what a lease covers in one partition, for request n."""


class AnsweredEarlierError(AlreadyAckedError):
    """Under a lease that was not the latest any more."""


_NEVER_GIVEN = (2**62, "")


def fault(word: str) -> MonarqError:
    if word == "answered_earlier":
        return AnsweredEarlierError(str(refused("already_acked")))
    return refused(word)


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
