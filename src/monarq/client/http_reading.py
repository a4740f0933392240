"""Reads the API's answers back into the model's structs."""

from __future__ import annotations

from msgspec import Raw, UnsetType

from monarq.model import (
    Message,
    Pushed,
)
from monarq.times import parse_time
from monarq.wire.pop import PoppedMessage
from monarq.wire.push import PushedItem


def micros(text: str) -> int:
    return parse_time(text, "the broker's time")


def pushed_of(answer: PushedItem) -> Pushed:
    return Pushed(
        status=answer.status,
        queue=answer.queueName,
        partition_id=int(answer.partition_id or 0),
        seq=answer.seq or 0,
        transaction_id=answer.transaction_id or "",
        trace_id=answer.trace_id,
    )


def message_of(answer: PoppedMessage) -> Message:
    return Message(
        queue=answer.queue,
        partition=answer.partition,
        partition_id=int(answer.partition_id),
        seq=answer.seq,
        transaction_id=answer.transaction_id,
        payload=bytes(answer.data),
        created_at=micros(answer.created_at),
        attempts=answer.attempts,
        trace_id=answer.trace_id,
        producer=answer.producer_sub,
        headers=_bytes(answer.headers),
        priority=None if isinstance(answer.priority, UnsetType) else answer.priority,
        max_attempts=None if isinstance(answer.max_attempts, UnsetType) else answer.max_attempts,
        is_command=answer.is_command is True,
    )


def _bytes(raw: Raw | UnsetType) -> bytes | None:
    return None if isinstance(raw, UnsetType) else bytes(raw)
