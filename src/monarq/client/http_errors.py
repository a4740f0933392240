"""Turns refusals of a broker back into the errors that they were there."""

from __future__ import annotations

import re
from functools import cache
from http.client import responses
from typing import TYPE_CHECKING, Any

import msgspec

from monarq.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    MonarqError,
    NotFoundError,
    StoreUnavailableError,
    TransactionFailedError,
    UnauthorizedError,
)

if TYPE_CHECKING:
    import httpx

#: For answers without a code that we know, as from a proxy.
_BY_STATUS: dict[int, type[MonarqError]] = {
    400: InvalidRequestError,
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    413: InvalidRequestError,
    415: InvalidRequestError,
}
_OPERATION = re.compile(r"operation (\d+) failed")


def error_of(response: httpx.Response) -> MonarqError | None:
    """The error that a response means; None if it is a good one."""
    if response.is_success:
        return None
    return refusal_of(response.status_code, response.content, str(response.url))


def refusal_of(status: int, content: bytes, url: str) -> MonarqError:
    """The error that an answer with this status and body means."""
    code, text = None, ""
    try:
        body: Any = msgspec.json.decode(content)
        code, text = body.get("code"), body.get("error")
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, AttributeError):
        pass
    text = str(text or "") or f"HTTP {status} {responses.get(status, '')} from {url}"
    if isinstance(code, str) and code in _classes():
        return from_code(code, text)
    if status >= 500:
        return StoreUnavailableError(text)
    return _BY_STATUS.get(status, MonarqError)(text)


def from_code(code: str, text: str) -> MonarqError:
    kind = _classes().get(code, MonarqError)
    if kind is TransactionFailedError:
        return _failed_transaction(text)
    return kind(text)


def _failed_transaction(text: str) -> TransactionFailedError:
    found = _OPERATION.search(text)
    cause = text.partition("nothing was carried out: ")[2] or text
    return TransactionFailedError(int(found[1]) if found else None, MonarqError(cause))


@cache
def _classes() -> dict[str, type[MonarqError]]:
    """All classes of errors by their code."""
    classes: dict[str, type[MonarqError]] = {}
    waiting = [MonarqError]
    while waiting:
        kind = waiting.pop()
        classes.setdefault(kind.code, kind)
        waiting += kind.__subclasses__()
    return classes
