"""Every error that Monarq raises on purpose.

Each carries a `code`, a stable word that programs may test for, and a message
that says what is wrong and, where there is one, the way out. Store calls that
take many requests return these errors in place of the answer they belong to,
so that one caller's mistake never spoils another caller's request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar


def drop_frames(error: BaseException) -> None:
    """Drop the tracebacks of an error that nobody will raise again, and of its causes.

    Their frames hold the request, and often the error itself. Such a cycle keeps a request's body
    until the next garbage collection, and a serving process collects garbage rarely.
    """
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        one = left.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            one.__traceback__ = None
            left += (one.__cause__, one.__context__)
            if isinstance(one, TransactionFailedError):
                left.append(one.cause)


class MonarqError(Exception):
    """The root: everything below can be caught by this name."""

    code: ClassVar[str] = "error"


class InvalidRequestError(MonarqError):
    """The request is malformed or out of range; nothing was touched."""

    code = "invalid_request"


class NotFoundError(MonarqError):
    """The queue, partition, message, item, group or dead letter does not exist."""

    code = "not_found"


class ConflictError(MonarqError):
    """The request contradicts what is stored, such as a queue of another kind."""

    code = "conflict"


class CommandsRefusedError(MonarqError):
    """Shell commands go to queues that run commands, and nothing else does."""

    code = "commands_refused"


class QueueFullError(MonarqError):
    """The push would take the queue past its `maxSize`."""

    code = "queue_full"


class AlreadyPushedError(MonarqError):
    """A push with this mark was stored before; nothing was stored now."""

    code = "already_pushed"

    def __init__(self, message: str, refused: Iterable[int] = ()) -> None:
        super().__init__(message)
        self.refused = list(refused)
        """Which requests of that call, by their index, were refused then for what they met in
        the store. (Those that are malformed were not stored either.)"""


class LeaseError(MonarqError):
    """The lease does not entitle its bearer to this; nothing was changed."""

    code = "lease_invalid"
    repeated = False
    """Whether a client asked more than once, and an earlier time may have got through."""


class LeaseExpiredError(LeaseError):
    """The lease ran past its deadline, or none is held on the message."""

    code = "lease_expired"


class LeaseTakenOverError(LeaseError):
    """The lease ended and the partition or item has been leased again since."""

    code = "lease_taken_over"


class LeaseForeignError(LeaseError):
    """The lease is live, but for another partition, group or item."""

    code = "lease_foreign"


class LeaseUnknownError(LeaseError):
    """No lease with this id is known: it was never given, or ended long ago."""

    code = "lease_unknown"


class NotInLeaseError(LeaseError):
    """The message exists, but was not delivered under this lease."""

    code = "not_in_lease"


class AlreadyAckedError(LeaseError):
    """The message was answered before, or its lease ended with all answered."""

    code = "already_acked"


class TransactionFailedError(MonarqError):
    """One operation of a transaction failed, so none was carried out."""

    code = "transaction_failed"

    def __init__(self, operation: int | None, cause: MonarqError) -> None:
        where = "a required lease" if operation is None else f"operation {operation}"
        super().__init__(f"{where} failed, nothing was carried out: {cause}")
        self.operation = operation
        self.cause = cause


class EncryptionKeyError(MonarqError):
    """A payload needs a key that this store was not given, or the key is wrong."""

    code = "encryption_key"


class StoreUnavailableError(MonarqError):
    """The store cannot be reached or did not answer in time."""

    code = "store_unavailable"


class InternalError(MonarqError):
    """The store failed in a way that Monarq does not know, so nothing is said to have changed.
    The log has the database's own error, as has `__cause__` in the process of the store."""

    code = "internal"


class ClientClosedError(StoreUnavailableError):
    """The client is not connected, or was closed while it was called."""

    code = "client_closed"


class SchemaVersionError(MonarqError):
    """The store is of a newer Monarq, of one that is too old, or of another program."""

    code = "schema_version"


class OverloadedError(MonarqError):
    """Too many calls are waiting already; try again in a moment."""

    code = "overloaded"


class DrainingError(MonarqError):
    """The broker is shutting down and takes no new work; try another one."""

    code = "draining"


class BufferWriteError(MonarqError):
    """The store is down and the buffer file cannot be written, so the push was refused."""

    code = "buffer_failed"


class UnauthorizedError(MonarqError):
    """No credentials were given, or they are not valid."""

    code = "unauthorized"


class ForbiddenError(MonarqError):
    """The caller's role does not allow this."""

    code = "forbidden"


class SettingsError(MonarqError):
    """A setting is unknown, malformed, or contradicts another; one line for each mistake."""

    code = "invalid_settings"


class PayloadError(MonarqError):
    """A payload does not fit the type that it is read as."""

    code = "payload"


class DataLossError(MonarqError):
    """Messages that a pipeline had still to read are gone."""

    code = "data_loss"
