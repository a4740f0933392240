"""Items to push, as the API takes them."""

from __future__ import annotations

import uuid
from typing import Any

import msgspec

from monarq.model import PushItem
from monarq.times import iso


def item_body(item: PushItem) -> dict[str, Any]:
    fields = {
        "queue": item.queue,
        "payload": msgspec.Raw(item.payload),
        "partition": item.partition,
        "transactionId": item.transaction_id or str(uuid.uuid4()),
        "traceId": item.trace_id,
        "namespace": item.namespace,
        "task": item.task,
        "headers": None if item.headers is None else msgspec.Raw(item.headers),
        "priority": item.priority,
        "runAt": None if item.run_at is None else iso(item.run_at),
        "delaySeconds": item.delay_seconds,
        "maxAttempts": item.max_attempts,
        "backoffBase": item.backoff_base,
        "attempts": item.attempts,
    }
    return {name: value for name, value in fields.items() if value is not None}
