"""How answers and errors become responses: the status of each error and the body that all share.

Knows nothing of routes; the protocol uses it for its own refusals too.
"""

from __future__ import annotations

import logging
from typing import Any

from monarq.errors import InternalError, MonarqError, TransactionFailedError, drop_frames
from monarq.operations.codec import encode
from monarq.server.exchange import Response
from monarq.wire.errors import TransactionRefused

logger = logging.getLogger("monarq.server")

Headers = tuple[tuple[bytes, bytes], ...]


_RETRY_AFTER: Headers = ((b"Retry-After", b"1"),)

STATUSES = {
    "invalid_request": 400,
    "unauthorized": 401,
    "forbidden": 403,
    "commands_refused": 403,
    "not_found": 404,
    "conflict": 409,
    "lease_invalid": 409,
    "lease_expired": 409,
    "lease_taken_over": 409,
    "lease_foreign": 409,
    "lease_unknown": 409,
    "not_in_lease": 409,
    "already_acked": 409,
    "already_pushed": 409,
    "transaction_failed": 409,
    "encryption_key": 409,
    "queue_full": 429,
    "store_unavailable": 503,
    "overloaded": 503,
    "draining": 503,
    "buffer_failed": 503,
    "internal": 500,
}
"""By the error's code; any other is a fault of ours, 500."""

_CAUSES = (
    "invalid_request",
    "forbidden",
    "commands_refused",
    "queue_full",
    "store_unavailable",
)
"""What a transaction can fail of that is no conflict, and has its own status all the same."""

# Queen's consumers end on a 5xx whose text does not speak of the connection.
_HINTS = {
    "store_unavailable": "the connection to the store is down, try again in a moment",
    "overloaded": "keep the connection and try again in a moment",
    "draining": "try again on another connection",
}


class HttpError(Exception):
    """A refusal that is about HTTP itself: no such route, a wrong method or content type."""

    def __init__(self, status: int, code: str, message: str, headers: Headers = ()) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers


def json_answer(value: Any, status: int = 200) -> Response:
    return Response(status, encode(value))


def refusal(status: int, code: str, message: str, headers: Headers = ()) -> Response:
    """The body of every error: what is wrong, for people, and a stable word for programs."""
    return Response(status, encode({"error": message, "code": code}), headers=headers)


def error_text(error: MonarqError) -> str:
    """What a caller is told; where trying again helps, it says so."""
    text = str(error) or error.code
    hint = _HINTS.get(error.code)
    return f"{text} ({hint})" if hint and "connection" not in text.lower() else text


def error_status(error: MonarqError) -> int:
    if isinstance(error, TransactionFailedError) and error.cause.code in _CAUSES:
        return STATUSES[error.cause.code]
    return STATUSES.get(error.code, 500)


def error_headers(error: MonarqError) -> Headers:
    status = error_status(error)
    if status in (429, 503):
        return _RETRY_AFTER
    return ((b"WWW-Authenticate", b"Bearer"),) if status == 401 else ()


def error_answer(error: BaseException) -> Response:
    """Return the answer to a request that failed, and drop the error's frames.

    An error that nobody foresaw is logged, and its text is told to nobody.
    """
    if isinstance(error, MonarqError):
        status = error_status(error)
        if status == 500 and not isinstance(error, InternalError):  # the store has logged it
            logger.error("a request failed", exc_info=error)
        answer = _refusal_of(error, status)
    elif isinstance(error, HttpError):
        answer = refusal(error.status, error.code, str(error), error.headers)
    else:
        logger.error("a request failed unexpectedly", exc_info=error)
        answer = refusal(500, "internal", "the broker failed at this request; its log says why")
    drop_frames(error)
    return answer


def _refusal_of(error: MonarqError, status: int) -> Response:
    if not isinstance(error, TransactionFailedError):
        return refusal(status, error.code, error_text(error), error_headers(error))
    refused = TransactionRefused(
        success=False,
        error=error_text(error),
        code=error.code,
        operation=error.operation,
        cause=error.cause.code,
    )
    return Response(status, encode(refused), headers=error_headers(error))
