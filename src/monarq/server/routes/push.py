"""Push: JSON in, messages to the broker, ids out. Payloads pass through as they are."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET, Raw, UnsetType

from monarq.errors import InvalidRequestError
from monarq.model import DEFAULT_PARTITION, Push, PushColumns, Pushed, PushItem, PushStatus
from monarq.operations.operation import Role
from monarq.server.decoding import body_decoder
from monarq.server.encoding import encode, pushed_items
from monarq.server.exchange import Handled, Pending, Request, Response
from monarq.server.outlines import PushOutline
from monarq.server.routing import Route
from monarq.server.service import Service
from monarq.store.validation import check_name
from monarq.times import micros_of
from monarq.wire.push import BareItemBody, PushBody, PushColumnsBody, PushedCounts, PushedItem

_BUFFER_MS = 100.0
_BUFFER_MAX = 100
_HEADERS_DEPTH = 32
_SENDERS = "sender/"
_MARK = re.compile(r"[\x21-\x7e]{1,48}")
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(?:-.{1,200})?")

_decode_headers = msgspec.json.Decoder(dict[str, Any]).decode


def push(service: Service, request: Request) -> Handled:
    body: PushBody = request.body
    answer = _counts_answer if body.answer == "counts" else push_answer
    _check_defaults(body)
    is_chained = body.mark is not None or body.after is not None
    if is_chained:
        _check_marks(body)
        if body.buffer_ms is not None or body.buffer_max is not None:
            raise InvalidRequestError(
                "a push with mark or after cannot be answered before it is stored"
            )
    if not body.items:
        return answer([])
    asked = push_request(body.items, request, body.queue, body.partition)
    if is_chained:
        return Pending(_submit_chained(service, asked, body, request.size), answer)
    if body.buffer_ms is None and body.buffer_max is None:
        return Pending(service.broker.submit_push(asked, size=request.size), answer)
    return answer(
        service.broker.push_later(
            asked,
            _BUFFER_MS if body.buffer_ms is None else body.buffer_ms,
            body.buffer_max or _BUFFER_MAX,
        )
    )


def push_columns(service: Service, request: Request) -> Handled:
    body: PushColumnsBody = request.body
    _check_columns(body)
    is_chained = body.mark is not None or body.after is not None
    if is_chained:
        _check_marks(body)
    if not body.payloads:
        return _counts_answer([])
    asked = _columns_request(body, request)
    if is_chained:
        return Pending(_submit_chained(service, asked, body, request.size), _counts_answer)
    return Pending(service.broker.submit_push(asked, size=request.size), _counts_answer)


def _check_columns(body: PushColumnsBody) -> None:
    """What the store does not see of a push without payloads."""
    check_name(body.queue, "queue")
    if body.partition is not None:
        check_name(body.partition, "partition")
    ids = body.transaction_ids
    if ids is not None and len(ids) != len(body.payloads):
        raise InvalidRequestError(
            f"transactionIds must be as many as payloads: {len(body.payloads)}, not {len(ids)}"
        )


def _columns_request(body: PushColumnsBody, request: Request) -> Push:
    partition, ids = body.partition or DEFAULT_PARTITION, body.transaction_ids or ()
    items: Sequence[PushItem] = PushColumns(body.queue, partition, body.payloads, ids)
    headers = trace_headers(request.headers)
    if headers is not None:
        items = [msgspec.structs.replace(item, headers=headers) for item in items]
    return Push(items, request.principal.subject)


def _check_marks(body: PushBody | PushColumnsBody) -> None:
    for name, mark in (("mark", body.mark), ("after", body.after)):
        if mark is not None and not _MARK.fullmatch(mark):
            raise InvalidRequestError(f"{name} must be text of 1 to 48 visible ASCII characters")


def _submit_chained(
    service: Service, asked: Push, body: PushBody | PushColumnsBody, size: int
) -> asyncio.Future[list[Pushed]]:
    # Those that the broker chooses are apart, so that nobody can pass for it.
    mark, after = (one and f"{_SENDERS}{one}" for one in (body.mark, body.after))
    return service.broker.submit_chained_push(asked, mark=mark, after=after, size=size)


def _check_defaults(body: PushBody) -> None:
    """The names that are said for all items, used or not."""
    if body.partition is not None:
        check_name(body.partition, "partition")
    if body.queue is not None:
        check_name(body.queue, "queue")


def push_request(
    items: Sequence[BareItemBody],
    request: Request,
    queue: str | None = None,
    partition: str | None = None,
) -> Push:
    """What the items ask of the broker; who pushes is said by the principal, never the body.
    `queue` and `partition` are of those items that name none."""
    headers = trace_headers(request.headers)
    return Push(
        [
            PushItem(
                item.queue or queue or _no_queue(items),
                bytes(item.payload),
                item.partition or partition or DEFAULT_PARTITION,
                item.transaction_id,
                item.trace_id,
                item.namespace,
                item.task,
                headers if item.headers is UNSET else _headers(item.headers, headers),
                item.priority,
                None if item.run_at is None else micros_of(item.run_at),
                item.delay_seconds,
                item.max_attempts,
                item.backoff_base,
            )
            for item in items
        ],
        request.principal.subject,
    )


def _no_queue(items: Sequence[BareItemBody]) -> NoReturn:
    """An item names none, and none is named for all."""
    index = [item.queue for item in items].index(None)
    raise InvalidRequestError(
        f"items[{index}].queue is missing: name it there, or for all beside items"
    )


def trace_headers(headers: dict[str, str]) -> bytes | None:
    """The message headers that carry the caller's trace on; a malformed one is passed over, as
    the standard demands."""
    parent = headers.get("traceparent")
    if parent is None or not _TRACEPARENT.fullmatch(parent):
        return None
    return encode({"traceparent": parent})


def _headers(given: Raw | UnsetType, traced: bytes | None) -> bytes | None:
    """A message's own headers, with the caller's trace unless they name one."""
    if isinstance(given, UnsetType):
        return traced
    text = bytes(given)
    if text == b"null":
        return traced
    try:
        own = _decode_headers(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidRequestError(f"headers must be a JSON object: {error}") from None
    if _is_deep(own):
        # They are read again at every pop, by whatever is there then.
        raise InvalidRequestError(f"headers must be nested at most {_HEADERS_DEPTH} deep")
    if traced is None or "traceparent" in own:
        return text
    return text[:-1] + (b"," if own else b"") + traced[1:]


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_HEADERS_DEPTH):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return bool(level)


def push_answer(pushed: list[Pushed]) -> Response:
    return Response(201, encode(pushed_items(pushed)))


def _counts_answer(pushed: list[Pushed]) -> Response:
    statuses = [answer.status for answer in pushed]
    counts = PushedCounts(
        statuses.count(PushStatus.QUEUED),
        statuses.count(PushStatus.DUPLICATE),
        statuses.count(PushStatus.BUFFERED),
    )
    return Response(201, encode(counts))


ROUTES = (
    Route(
        method="POST",
        path="/api/v1/push",
        handler=push,
        summary="Push messages or items: all of them, or none",
        tag="messages",
        role=Role.WRITE,
        body=PushBody,
        decode=body_decoder(PushBody, PushOutline),
        answer=list[PushedItem] | PushedCounts,
        status=201,
        errors=(409, 429),
    ),
    Route(
        method="POST",
        path="/api/v1/push/columns",
        handler=push_columns,
        summary="Push many messages to one partition: all of them, or none",
        tag="messages",
        role=Role.WRITE,
        body=PushColumnsBody,
        answer=PushedCounts,
        status=201,
        errors=(409, 429),
    ),
)
