"""Why an ack or a renewal is refused, in the words of all stores."""

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
from monarq.ids import NO_SUCH_LEASE
from monarq.store.validation import forbidden

_REASONS: dict[str, tuple[type[MonarqError], str]] = {
    "not_found": (NotFoundError, "there is no such message here"),
    "lease_expired": (LeaseExpiredError, "the lease has expired: pop the message again"),
    "already_acked": (AlreadyAckedError, "this was answered before"),
    "lease_foreign": (LeaseForeignError, "the lease is for another partition, group or item"),
    "lease_taken_over": (LeaseTakenOverError, "the lease ended and another has been given since"),
    "lease_unknown": (LeaseUnknownError, NO_SUCH_LEASE),
    "not_in_lease": (NotInLeaseError, "the message was not delivered under this lease"),
    "forbidden": (ForbiddenError, str(forbidden("the lease is on shell commands"))),
}


def refused(reason: str) -> MonarqError:
    kind, text = _REASONS[reason]
    return kind(text)
