"""Pops, acks, transactions, and the calls beside the hot path."""

from __future__ import annotations

from monarq.errors import InvalidRequestError, TransactionFailedError
from monarq.ids import is_lease_id, parse_message_id
from monarq.model import (
    ERROR_KEY_LENGTH,
    MAX_BATCH,
    MAX_OUTPUT_BYTES,
    MAX_PARTITIONS,
    Ack,
    AckStatus,
    DeadLetterFilter,
    Pop,
    Push,
    Renew,
    StartFrom,
    Transaction,
)
from monarq.store.validation.fields import (
    MAX_LEASE_SECONDS,
    check_bool,
    check_bytes,
    check_common_name,
    check_int,
    check_kind,
    check_list,
    check_name,
    check_seconds,
    check_text,
    check_time,
)
from monarq.store.validation.pushes import check_push


def check_pop(request: Pop) -> None:
    check_kind(request, Pop)
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
    check_int(request.partitions, "partitions", 1, MAX_PARTITIONS)
    if request.lease_seconds is not None:
        check_seconds(request.lease_seconds, "leaseTime", low=0.001, high=MAX_LEASE_SECONDS)
    check_start(request.start)
    if request.consumer is not None:
        check_name(request.consumer, "consumer")
    check_bool(request.auto_ack, "autoAck")
    check_bool(request.commands, "commands")


def check_start(start: object) -> None:
    if not isinstance(start, StartFrom):
        check_time(start, "subscriptionFrom")


def check_ack(request: Ack) -> None:
    check_kind(request, Ack)
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
    if request.lease_id is not None and not is_lease_id(request.lease_id):
        check_name(request.lease_id, "leaseId")
    if request.error is not None:
        check_text(request.error, "error")
    if request.retry_at is not None:
        check_time(request.retry_at, "retryAt")
        if request.status not in (AckStatus.FAILED, AckStatus.RETRY):
            raise InvalidRequestError("retryAt goes with the status failed or retry only")
    if request.result is not None:
        check_bytes(request.result, "result")
    check_bool(request.commands, "commands")


def check_renew(request: Renew) -> None:
    check_kind(request, Renew)
    check_name(request.lease_id, "leaseId")
    check_seconds(request.seconds, "seconds", low=0.001, high=MAX_LEASE_SECONDS)
    check_bool(request.commands, "commands")


def check_transaction(request: Transaction) -> None:
    check_kind(request, Transaction)
    check_list(request.operations, "operations")
    check_list(request.required_leases, "requiredLeases")
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
            elif isinstance(operation, Ack):
                check_ack(operation)
            else:
                raise InvalidRequestError("an operation must be a Push or an Ack")
        except InvalidRequestError as error:
            raise TransactionFailedError(index, error) from None


def check_dead_letter_filter(which: DeadLetterFilter) -> None:
    for name, field in (
        (which.queue, "queue"),
        (which.group, "consumerGroup"),
        (which.partition, "partition"),
    ):
        if name is not None:
            check_name(name, field)
    for time, field in ((which.failed_from, "from"), (which.failed_to, "to")):
        if time is not None:
            check_time(time, field)
    if which.error is not None:
        check_text(which.error, "error", ERROR_KEY_LENGTH)
        if "\n" in which.error:
            raise InvalidRequestError("error must be the first line of an error")
    if which.ids is not None:
        check_list(which.ids, "ids")
        for number in which.ids:
            check_int(number, "ids", 1, 2**62)


def check_item_id(item_id: object) -> tuple[int, int]:
    parsed = parse_message_id(item_id) if isinstance(item_id, str) else None
    if parsed is None:
        raise InvalidRequestError(f"{str(item_id)[:64]!r} is not an item id")
    return parsed


def refuse_more_output(item_id: str, attempt: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"attempt {attempt} of item {item_id} has printed {MAX_OUTPUT_BYTES} bytes already"
    )
