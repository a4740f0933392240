"""Refuses what is malformed, by name of the field, before a store is touched.

Both stores call these and only these, so that they refuse the same things.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from monarq.crypto import SEALED
from monarq.errors import (
    CommandsRefusedError,
    ConflictError,
    InvalidRequestError,
    TransactionFailedError,
)
from monarq.ids import parse_message_id
from monarq.model import (
    DEFAULT_PARTITION,
    ERROR_KEY_LENGTH,
    MAX_BATCH,
    MAX_NAME_LENGTH,
    MAX_OUTPUT_BYTES,
    MAX_PAYLOAD_BYTES,
    MAX_PRIORITY,
    MAX_RECORD_BYTES,
    Ack,
    AckStatus,
    DeadLetterFilter,
    Pop,
    Push,
    PushItem,
    Queue,
    QueueKind,
    QueueOptions,
    Renew,
    Seek,
    SeekTo,
    StartFrom,
    Trace,
    Transaction,
)

# Surrogates cannot be stored as UTF-8, control characters cannot be shown or typed.
_BAD_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# PostgreSQL's text cannot hold NUL; errors and headers may well have line breaks.
_BAD_TEXT = re.compile(r"[\x00\ud800-\udfff]")
_MARK = re.compile(r"[\x20-\x7e]{1,64}")
_OPTION_NAMES = {
    name: info.name
    for info in msgspec.structs.fields(QueueOptions)
    for name in (info.name, info.encode_name)
}
MAX_ERROR_LENGTH = 65_536
MAX_LEASE_SECONDS = 7 * 86_400
MAX_TIME = 253_402_300_799_000_000
"""The end of the year 9999."""


def check_name(value: object, field: str) -> None:
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_LENGTH:
        raise InvalidRequestError(f"{field} must be text of 1 to {MAX_NAME_LENGTH} characters")
    if _BAD_NAME.search(value):
        raise InvalidRequestError(f"{field} must not contain control characters")


def check_names(values: Collection[str], field: str) -> None:
    """Many at once: most are plainly good, and that can be seen of all together."""
    if not _are_plainly_good(values):
        for value in values:
            check_name(value, field)


def _are_plainly_good(values: Collection[str]) -> bool:
    try:
        together = "".join(values)
    except TypeError:
        return False
    lengths = set(map(len, values))
    is_short = min(lengths) >= 1 and max(lengths) <= MAX_NAME_LENGTH
    return is_short and together.isascii() and together.isprintable()


@lru_cache(maxsize=4096)
def _check_seen_name(value: str, field: str) -> None:
    check_name(value, field)


def check_common_name(value: object, field: str) -> None:
    """For names that come again and again: those of groups and leases."""
    if isinstance(value, str):
        _check_seen_name(value, field)
    else:
        check_name(value, field)


def check_label(value: object, field: str) -> None:
    """A name that may be left empty."""
    if value != "":
        check_name(value, field)


def check_int(value: object, field: str, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise InvalidRequestError(f"{field} must be a whole number from {low} to {high}")


def check_seconds(value: object, field: str, *, low: float, high: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or not low <= value <= high:  # type: ignore[arg-type, operator]
        raise InvalidRequestError(f"{field} must be a number from {low:g} to {high:g}")


def check_time(value: object, field: str) -> None:
    if type(value) is not int or not 0 <= value <= MAX_TIME:
        raise InvalidRequestError(f"{field} must be a time in microseconds since 1970")


def check_text(value: object, field: str, limit: int = MAX_ERROR_LENGTH) -> None:
    if not isinstance(value, str) or _BAD_TEXT.search(value):
        raise InvalidRequestError(f"{field} must be text without NUL characters")
    if len(value) > limit:
        raise InvalidRequestError(f"{field} must have at most {limit} characters")


def check_bytes(value: object, field: str, limit: int = MAX_PAYLOAD_BYTES) -> None:
    if type(value) is not bytes or not value or value[0] == SEALED:
        raise InvalidRequestError(f"{field} must be JSON, given as bytes")
    if len(value) > limit:
        raise InvalidRequestError(f"{field} has {len(value)} bytes, more than {limit}")


def check_headers(value: bytes) -> None:
    check_bytes(value, "headers", 65_536)
    try:
        msgspec.json.decode(value, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InvalidRequestError(f"headers must be a JSON object: {error}") from None


def check_mark(value: object) -> None:
    """Of a call, so it is refused as a whole."""
    if not isinstance(value, str) or not _MARK.fullmatch(value):
        raise InvalidRequestError("mark must be text of 1 to 64 printable ASCII characters")


def check_limit(value: object, most: int = 1000) -> None:
    check_int(value, "limit", 1, most)


def check_max_bytes(value: object) -> None:
    check_int(value, "max_bytes", 1, 2**40)


class PushShape(Struct, frozen=True):
    """What is worth knowing of a push before each of its items is looked at."""

    names: Set[tuple[str, str]]
    """The queues and partitions it goes to."""
    place: tuple[str, str] | None = None
    """The one of them, if there is but one."""
    ids: Sequence[str] = ()
    """The transaction ids of those items that have one of their own."""
    has_work_fields: bool = False
    """Whether an item has what only items of work queues may have."""


def check_push(request: Push) -> PushShape:
    items = request.items
    if not items:
        raise InvalidRequestError("items must not be empty")
    if len(items) > MAX_BATCH:
        raise InvalidRequestError(f"items must be at most {MAX_BATCH} in one push")
    if request.producer is not None:
        check_name(request.producer, "producer")
    try:
        if len(items) == 1:
            shape = _shape_of_one(items[0].queue, items[0].partition)
        else:
            shape = _shape_of_many(items)
    except TypeError:
        raise InvalidRequestError("queue and partition must be text") from None
    ids = [item.transaction_id for item in items if item.transaction_id is not None]
    if ids:
        check_names(ids, "transactionId")
    has_work_fields = False
    for item in items:
        payload = item.payload
        if type(payload) is not bytes or not 0 < len(payload) <= MAX_PAYLOAD_BYTES:
            check_bytes(payload, "payload")
        if payload[0] == SEALED:
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
        ):
            _check_work_fields(item)
            has_work_fields = True
    if ids or has_work_fields:
        return PushShape(shape.names, shape.place, ids, has_work_fields)
    return shape


@lru_cache(maxsize=4096)
def _shape_of_one(queue: str, partition: str) -> PushShape:
    """Of a push to one place, which is checked once: the same ones come again and again."""
    check_name(queue, "queue")
    check_name(partition, "partition")
    place = (queue, partition)
    return PushShape(frozenset({place}), place)


def _shape_of_many(items: Sequence[PushItem]) -> PushShape:
    """A push has many items of few queues and partitions, so each name is checked once."""
    names = {(item.queue, item.partition) for item in items}
    if len(names) == 1:
        [(queue, partition)] = names
        return _shape_of_one(queue, partition)
    check_names({queue for queue, _ in names}, "queue")
    check_names([partition for _, partition in names], "partition")
    return PushShape(names)


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


def check_commands(queue: Queue | None, commands: bool) -> None:
    """Whether a push of commands (or of anything else) may go to this queue; None: a new one."""
    marked = queue is not None and queue.options.runs_commands
    if marked and not commands:
        assert queue is not None
        raise CommandsRefusedError(
            f"queue {queue.name!r} runs commands: only jobs can be enqueued, by those who may"
        )
    if commands and not marked:
        name = "a new queue" if queue is None else f"queue {queue.name!r}"
        raise CommandsRefusedError(
            f"{name} is not marked as one that runs commands: configure one with runsCommands"
        )


def check_mark_of_commands(
    name: str, kind: QueueKind, old: QueueOptions | None, new: QueueOptions
) -> None:
    """Whether a queue may be configured so."""
    if new.runs_commands and kind is not QueueKind.WORK:
        raise InvalidRequestError(f"runsCommands is for work queues, and {name!r} is ordered")
    if old is not None and old.runs_commands != new.runs_commands:
        raise ConflictError(
            f"runsCommands of queue {name!r} was chosen when it was made: delete it first, or "
            "use another one"
        )


def check_dead_queue_of_commands(
    name: str, marked: bool, dead_queue: str, dead_marked: bool
) -> None:
    """What is no command may not become one by dying."""
    if dead_marked and not marked:
        raise InvalidRequestError(
            f"deadQueue {dead_queue!r} runs commands, so queue {name!r} must too"
        )


def check_redrive_of_commands(to: Queue, source: Queue | None) -> None:
    """What is no command may not become one by being redriven."""
    if to.options.runs_commands and (source is None or not source.options.runs_commands):
        raise CommandsRefusedError(
            f"queue {to.name!r} runs commands: name a queue that does too, to redrive from"
        )


def check_ordered_item(item: PushItem) -> None:
    """Once the queue is known to be ordered."""
    for field in ("priority", "run_at", "delay_seconds", "max_attempts", "backoff_base"):
        if getattr(item, field) is not None:
            raise InvalidRequestError(
                f"{field} is for work queues, and {item.queue!r} is an ordered queue"
            )


def check_work_item(item: PushItem) -> None:
    """Once the queue is known to be a work queue."""
    if item.partition != DEFAULT_PARTITION:
        raise InvalidRequestError(
            f"{item.queue!r} is a work queue, which has no partitions: "
            f"leave partition out instead of {item.partition!r}"
        )


def check_pop(request: Pop) -> None:
    if request.queue is not None:
        check_name(request.queue, "queue")
        if request.namespace is not None or request.task is not None:
            raise InvalidRequestError("pop from a queue, or by namespace and task, not both")
    elif request.namespace is None and request.task is None:
        raise InvalidRequestError("a pop needs a queue, a namespace or a task")
    if request.namespace is not None:
        check_name(request.namespace, "namespace")
    if request.task is not None:
        check_name(request.task, "task")
    if request.partition is not None:
        check_name(request.partition, "partition")
        if request.queue is None:
            raise InvalidRequestError("a pop of a partition needs its queue")
    check_name(request.group, "consumerGroup")
    check_int(request.batch, "batch", 1, MAX_BATCH)
    check_int(request.partitions, "partitions", 1, 1000)
    if request.lease_seconds is not None:
        check_seconds(request.lease_seconds, "leaseTime", low=0.001, high=MAX_LEASE_SECONDS)
    check_start(request.start)
    if request.consumer is not None:
        check_name(request.consumer, "consumer")


def check_start(start: object) -> None:
    if not isinstance(start, StartFrom):
        check_time(start, "subscriptionFrom")


def check_ack(request: Ack) -> None:
    if not isinstance(request.status, AckStatus):
        raise InvalidRequestError(f"status must be one of {', '.join(AckStatus)}")
    check_common_name(request.group, "consumerGroup")
    if (request.transaction_id is None) != (request.partition_id is None):
        raise InvalidRequestError("transactionId and partitionId belong together")
    if request.transaction_id is None and request.lease_id is None:
        raise InvalidRequestError("an ack needs a transactionId and partitionId, or a leaseId")
    if request.transaction_id is not None:
        check_name(request.transaction_id, "transactionId")
        check_int(request.partition_id, "partitionId", 1, 2**62)
    if request.lease_id is not None:
        check_common_name(request.lease_id, "leaseId")
    if request.error is not None:
        check_text(request.error, "error")
    if request.retry_at is not None:
        check_time(request.retry_at, "retryAt")
        if request.status not in (AckStatus.FAILED, AckStatus.RETRY):
            raise InvalidRequestError("retryAt goes with the status failed or retry only")
    if request.result is not None:
        check_bytes(request.result, "result")


def check_renew(request: Renew) -> None:
    check_name(request.lease_id, "leaseId")
    check_seconds(request.seconds, "seconds", low=0.001, high=MAX_LEASE_SECONDS)


def check_transaction(request: Transaction) -> None:
    if not request.operations:
        raise InvalidRequestError("operations must not be empty")
    try:
        for lease in request.required_leases:
            check_name(lease, "requiredLeases")
    except InvalidRequestError as error:
        raise TransactionFailedError(None, error) from None
    for index, operation in enumerate(request.operations):
        try:
            if isinstance(operation, Push):
                check_push(operation)
            else:
                check_ack(operation)
        except InvalidRequestError as error:
            raise TransactionFailedError(index, error) from None


def check_seek(request: Seek) -> None:
    check_name(request.group, "consumerGroup")
    check_name(request.queue, "queue")
    if request.partition is not None:
        check_name(request.partition, "partition")
    targets = (request.to, request.time, request.seq)
    if sum(target is not None for target in targets) != 1:
        raise InvalidRequestError("seek to exactly one of start or end, a time, or a seq")
    if request.to is not None and not isinstance(request.to, SeekTo):
        raise InvalidRequestError(f"seek to one of {', '.join(SeekTo)}")
    if request.time is not None:
        check_time(request.time, "time")
    if request.seq is not None:
        check_int(request.seq, "seq", 1, 2**62)


def check_dead_letter_filter(which: DeadLetterFilter) -> None:
    for name, field in (
        (which.queue, "queue"),
        (which.group, "consumerGroup"),
        (which.partition, "partition"),
    ):
        if name is not None:
            check_label(name, field)
    for time, field in ((which.failed_from, "from"), (which.failed_to, "to")):
        if time is not None:
            check_time(time, field)
    if which.error is not None:
        check_text(which.error, "error", ERROR_KEY_LENGTH)
    for number in which.ids or ():
        check_int(number, "ids", 1, 2**62)


def check_trace(trace: Trace) -> None:
    check_int(trace.partition_id, "partitionId", 1, 2**62)
    check_name(trace.transaction_id, "transactionId")
    check_name(trace.event_type, "eventType")
    check_bytes(trace.data, "data", 1 << 20)
    for name in trace.names:
        check_name(name, "traceNames")


def check_item_id(item_id: object) -> tuple[int, int]:
    parsed = parse_message_id(item_id) if isinstance(item_id, str) else None
    if parsed is None:
        raise InvalidRequestError(f"{str(item_id)[:64]!r} is not an item id")
    return parsed


def option_changes(options: Mapping[str, Any]) -> dict[str, Any]:
    """Checked changes of queue options, by their Python names."""
    changes: dict[str, Any] = {}
    for name, value in options.items():
        field = _OPTION_NAMES.get(name)
        if field is None:
            known = ", ".join(sorted({n for n in _OPTION_NAMES if "_" not in n}))
            raise InvalidRequestError(f"there is no option {name!r}; there are {known}")
        changes[field] = value
    by_camel_name = msgspec.to_builtins(QueueOptions())
    for info in msgspec.structs.fields(QueueOptions):
        if info.name in changes:
            by_camel_name[info.encode_name] = changes[info.name]
    try:
        checked = msgspec.convert(by_camel_name, QueueOptions)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"option out of range: {error}") from None
    if checked.dead_queue:
        check_name(checked.dead_queue, "deadQueue")
    return {field: getattr(checked, field) for field in changes}


def check_record(kind: object, key: object, value: object, keep_seconds: object) -> None:
    check_name(kind, "kind")
    check_name(key, "key")
    check_bytes(value, "value", MAX_RECORD_BYTES)
    if keep_seconds is not None:
        check_seconds(keep_seconds, "keepSeconds", low=0, high=10 * 365 * 86_400)


def check_output(attempt: object, data: object) -> None:
    check_int(attempt, "attempt", 1, 2**31)
    if not isinstance(data, bytes) or len(data) > MAX_OUTPUT_BYTES:
        raise InvalidRequestError(f"output must be at most {MAX_OUTPUT_BYTES} bytes")


def refuse_more_output(item_id: str, attempt: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"attempt {attempt} of item {item_id} has printed {MAX_OUTPUT_BYTES} bytes already"
    )
