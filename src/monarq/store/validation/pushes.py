"""Pushes, and their items once it is known what kind of queue they go to."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from monarq.crypto import SEALS, has_seal
from monarq.errors import ConflictError, InvalidRequestError
from monarq.model import (
    DEFAULT_PARTITION,
    MAX_BATCH,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    Push,
    PushColumns,
    PushItem,
)
from monarq.store.validation.fields import (
    check_bool,
    check_bytes,
    check_headers,
    check_int,
    check_kind,
    check_kinds,
    check_label,
    check_name,
    check_names,
    check_seconds,
    check_sequence,
    check_time,
)

_ITEMS = {PushItem}


class PushShape(Struct, frozen=True):
    """What is worth knowing of a push before each of its items is looked at."""

    names: frozenset[tuple[str, str]]
    """The queues and partitions it goes to."""
    queues: frozenset[str]
    place: tuple[str, str] | None = None
    """The one of them, if there is but one."""
    ids: Sequence[str] = ()
    """The transaction ids of those items that have one of their own."""
    has_work_fields: bool = False
    """Whether an item has what only items of work queues may have."""


def check_push(request: Push) -> PushShape:
    check_kind(request, Push)
    items = request.items
    # By type first: of an abstract class `isinstance` takes as long as the rest of a small push.
    if type(items) is not list:
        check_sequence(items, "items")
    if not items:
        raise InvalidRequestError("items must not be empty")
    if len(items) > MAX_BATCH:
        raise InvalidRequestError(f"items must be at most {MAX_BATCH} in one push")
    if request.producer is not None:
        check_name(request.producer, "producer")
    check_bool(request.commands, "commands")
    ids: Sequence[str] = ()
    try:
        if type(items) is PushColumns:
            return _checked_columns(items)
        if len(items) == 1:
            check_kind(items[0], PushItem)
            shape = _shape_of_one(items[0].queue, items[0].partition)
        else:
            if set(map(type, items)) != _ITEMS:
                check_kinds(items, PushItem)
            shape = _shape_of_many(items)
    except TypeError:
        raise InvalidRequestError("queue and partition must be text") from None
    if len(items) > 1 or items[0].transaction_id is not None:
        ids = [item.transaction_id for item in items if item.transaction_id is not None]
    if ids:
        check_names(ids, "transactionId")
    has_work_fields = False
    for item in items:
        payload = item.payload
        if type(payload) is not bytes or not 0 < len(payload) <= MAX_PAYLOAD_BYTES:
            check_bytes(payload, "payload")
        if payload[0] in SEALS:
            check_bytes(payload, "payload")
        if (
            item.trace_id is not None
            or item.namespace is not None
            or item.task is not None
            or item.headers is not None
        ):
            _check_rare_fields(item)
        if (
            item.priority is not None
            or item.run_at is not None
            or item.delay_seconds is not None
            or item.max_attempts is not None
            or item.backoff_base is not None
            or item.attempts is not None
        ):
            _check_work_fields(item)
            has_work_fields = True
    if ids or has_work_fields:
        return PushShape(shape.names, shape.queues, shape.place, ids, has_work_fields)
    return shape


def _checked_columns(items: PushColumns) -> PushShape:
    """Looks at all of them together, and at each only if something seems wrong."""
    shape = _shape_of_one(items.queue, items.partition)
    if min(items.sizes) == 0 or max(items.sizes) > MAX_PAYLOAD_BYTES or has_seal(items.data):
        for item in items:
            check_bytes(item.payload, "payload")
    ids = items.transaction_ids
    if not ids:
        return shape
    if len(ids) != len(items):
        raise InvalidRequestError("transactionIds must be as many as payloads")
    check_names(ids, "transactionId")
    return PushShape(shape.names, shape.queues, shape.place, ids)


@lru_cache(maxsize=4096)
def _shape_of_one(queue: str, partition: str) -> PushShape:
    """Of a push to one place, which is checked once: the same ones come again and again."""
    check_name(queue, "queue")
    check_name(partition, "partition")
    place = (queue, partition)
    return PushShape(frozenset({place}), frozenset({queue}), place)


def _shape_of_many(items: Sequence[PushItem]) -> PushShape:
    """A push has many items of few queues and partitions, so each name is checked once."""
    names = frozenset({(item.queue, item.partition) for item in items})
    if len(names) == 1:
        [(queue, partition)] = names
        return _shape_of_one(queue, partition)
    queues = frozenset({queue for queue, _ in names})
    check_names(queues, "queue")
    check_names([partition for _, partition in names], "partition")
    return PushShape(names, queues)


def _check_rare_fields(item: PushItem) -> None:
    if item.trace_id is not None:
        check_name(item.trace_id, "traceId")
    if item.namespace is not None:
        check_label(item.namespace, "namespace")
    if item.task is not None:
        check_label(item.task, "task")
    if item.headers is not None:
        check_headers(item.headers)


def _check_work_fields(item: PushItem) -> None:
    if item.priority is not None:
        check_int(item.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY)
    if item.run_at is not None:
        check_time(item.run_at, "runAt")
    if item.delay_seconds is not None:
        check_seconds(item.delay_seconds, "delaySeconds", low=0, high=10 * 365 * 86_400)
        if item.run_at is not None:
            raise InvalidRequestError("give runAt or delaySeconds, not both")
    if item.max_attempts is not None:
        check_int(item.max_attempts, "maxAttempts", 1, 1_000_000)
    if item.backoff_base is not None:
        check_seconds(item.backoff_base, "backoffBase", low=0, high=1000)
    if item.attempts is not None:
        check_int(item.attempts, "attempts", 0, 1_000_000)


def comes_too_early() -> ConflictError:
    """What a call meets whose predecessor is not there."""
    return ConflictError("the push after which this one comes is not stored")


_WORK_FIELDS = (
    *("priority", "run_at", "delay_seconds", "max_attempts", "backoff_base", "attempts"),
)


def check_ordered_item(item: PushItem) -> None:
    """Once the queue is known to be ordered."""
    for field in _WORK_FIELDS:
        if getattr(item, field) is not None:
            raise InvalidRequestError(
                f"{field} is for work queues, and {item.queue!r} is an ordered queue"
            )


def check_work_item(item: PushItem) -> None:
    """Once the queue is known to be a work queue."""
    check_work_place(item.queue, item.partition)


def check_work_place(queue: str, partition: str) -> None:
    """The same, of all items that go to one place."""
    if partition != DEFAULT_PARTITION:
        raise InvalidRequestError(
            f"{queue!r} is a work queue, which has no partitions: "
            f"leave partition out instead of {partition!r}"
        )
