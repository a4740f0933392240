"""What a pop brought: the rows of its procedures made into messages."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import structs

from monarq.crypto import Cipher, has_seal
from monarq.ids import lease_id
from monarq.model import DEFAULT_PARTITION, Message, Popped
from monarq.store import sealing, segments
from monarq.store.message_list import MessageList, MessageRun
from monarq.store.postgres.pushed_segments import segment_name


def popped(row: Any, token: str, messages: Sequence[Message]) -> Popped:
    """The answer to one request; `row` is any of its own."""
    if row["lease_no"] is None:
        return Popped(messages=messages, next_at=row["next_at"])
    return Popped(
        messages=messages,
        lease_id=lease_id(row["lease_no"], token),
        lease_until=row["lease_until"],
        next_at=row["next_at"],
    )


def messages_of(
    rows: Sequence[Any],
    queues: Sequence[str],
    cipher: Cipher | None,
    known: Mapping[str, bytes],
) -> Sequence[Message]:
    """The messages of some (cut) segments; made later, where they are delivered as they are.
    `known`: payloads that were not sent."""
    runs = [_run(row, queue, cipher, known) for row, queue in zip(rows, queues, strict=True)]
    if not any(row["marks"] for row in rows):
        return MessageList(runs)
    return [
        message
        for row, run in zip(rows, runs, strict=True)
        for message in _marked(run.messages(), row["marks"])
    ]


def _run(row: Any, queue: str, cipher: Cipher | None, known: Mapping[str, bytes]) -> MessageRun:
    (_, _, _, _, _, partition_id, partition, _, seq, count, created_at, data, offsets, ids, traces,
     producers, headers) = row  # fmt: skip
    if data is None:
        data = known[segment_name(partition_id, seq, created_at)]
    # JSON has no such byte anywhere, so this finds sealed payloads and nothing else.
    if has_seal(data):
        stored = segments.unpack(data, segments.from_bytes(offsets))
        opened = sealing.open_payloads(stored, cipher, queue, partition, ids, headers)
        data, offsets = segments.pack(opened)
    if headers is not None:
        headers = [one and sealing.open_headers(one.encode(), cipher) for one in headers]
    return MessageRun(
        queue, partition, partition_id, seq, count, created_at, data, offsets, ids, traces,
        producers, headers,
    )  # fmt: skip


def _marked(messages: Iterable[Message], marks: str | None) -> Iterable[Message]:
    """With the deliveries that each has had, without those that are not meant."""
    if marks is None:
        return messages
    known = json.loads(marks)
    attempts = dict(zip(known["seqs"], known["attempts"], strict=True))
    return [
        structs.replace(message, attempts=attempts[message.seq])
        for message in messages
        if message.seq in attempts
    ]


def item_of(row: Any, queue: str, cipher: Cipher | None) -> Message:
    (_, _, _, _, _, partition_id, seq, payload, transaction_id, trace_id, producer, headers,
     created_at, attempts, priority, max_attempts, is_command) = row  # fmt: skip
    return Message(
        queue=queue,
        partition=DEFAULT_PARTITION,
        partition_id=partition_id,
        seq=seq,
        transaction_id=transaction_id or f"{partition_id}-{seq}",
        payload=sealing.open_payload(
            payload, cipher, queue, DEFAULT_PARTITION, transaction_id, headers
        ),
        created_at=created_at,
        attempts=attempts,
        trace_id=trace_id,
        producer=producer,
        headers=headers and sealing.open_headers(headers.encode(), cipher),
        priority=priority,
        max_attempts=max_attempts,
        is_command=is_command,
    )
