"""Makes the answers that come by the thousand: of pushes and pops.

Payloads go through as they are stored, never parsed. One struct a message and one encode over
all of them: measured, that is as fast as joining strings by hand, and cannot get escaping wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from monarq.ids import message_ids
from monarq.model import Message, Popped, Pushed, PushStatus
from monarq.store.message_list import MessageList, MessageRun
from monarq.times import iso
from monarq.wire.ack import AckAnswer
from monarq.wire.pop import AckedPopAnswer, Autopilot, PopAnswer, PoppedMessage
from monarq.wire.push import PushedItem

encode = msgspec.json.Encoder().encode

# Looked up once: to find a member by its name was a quarter of what an item cost.
_BUFFERED = PushStatus.BUFFERED


def pushed_items(pushed: list[Pushed]) -> list[PushedItem]:
    if len(pushed) == 1:
        # As most answers have: a comprehension would cost as much as the item.
        return [_pushed_item(0, pushed[0])]
    return [_pushed_item(index, answer) for index, answer in enumerate(pushed)]


def _pushed_item(index: int, answer: Pushed) -> PushedItem:
    status = answer.status
    if status is _BUFFERED:
        # Its place is not known before it is in the store.
        own = answer.transaction_id or None
        return PushedItem(index, status, None, own, None, answer.trace_id, answer.queue, None)
    partition_id, seq = str(answer.partition_id), answer.seq
    return PushedItem(
        index,
        status,
        f"{partition_id}-{seq}",
        answer.transaction_id,
        partition_id,
        answer.trace_id,
        answer.queue,
        seq,
    )


def popped_answer(popped: Popped, group: str, autopilot: Autopilot | UnsetType = UNSET) -> bytes:
    rows = _rows(popped, group)
    first = rows[0]
    return encode(
        PopAnswer(
            True,
            first.queue,
            first.partition,
            first.partition_id,
            popped.lease_id,
            group,
            rows,
            autopilot,
        )
    )


def acked_pop_answer(
    acked: list[AckAnswer], popped: Popped, group: str, autopilot: Autopilot | UnsetType
) -> bytes:
    if not popped.messages:
        return encode(AckedPopAnswer(acked, True, None, None, None, None, group, [], autopilot))
    rows = _rows(popped, group)
    first = rows[0]
    return encode(
        AckedPopAnswer(
            acked,
            True,
            first.queue,
            first.partition,
            first.partition_id,
            popped.lease_id,
            group,
            rows,
            autopilot,
        )
    )


def _rows(popped: Popped, group: str) -> list[PoppedMessage]:
    messages = popped.messages
    lease = popped.lease_id
    if not isinstance(messages, MessageList):
        return [_message(message, lease, group) for message in messages]
    rows: list[PoppedMessage] = []
    for runs in _by_partition(messages.runs):
        rows += _partition_messages(runs, lease, group)
    return rows


def _by_partition(runs: Sequence[MessageRun]) -> Iterable[Sequence[MessageRun]]:
    if len(runs) == 1:
        return (runs,)
    return (list(together) for _, together in groupby(runs, attrgetter("partition_id")))


def _partition_messages(
    runs: Sequence[MessageRun], lease: str | None, group: str
) -> Iterable[PoppedMessage]:
    """Column by column over all runs of a partition, without a struct a message in between. What
    was pushed in small pieces has many runs, and to set up the columns takes as long as ten
    messages."""
    first = runs[0]
    partition_id = str(first.partition_id)
    if len(runs) == first.count == 1 and first.headers is None:
        return [_only_message(first, partition_id, lease, group)]
    if _is_any([run.headers for run in runs]):
        return [_message(each, lease, group) for run in runs for each in run.messages()]
    count = sum([run.count for run in runs])
    seqs: Sequence[int] = range(first.first_seq, first.first_seq + count)
    if runs[-1].seqs()[-1] == seqs[-1]:
        own = message_ids(first.partition_id, first.first_seq, count)
    else:
        seqs = list(chain.from_iterable([run.seqs() for run in runs]))
        own = [f"{partition_id}-{seq}" for seq in seqs]
    has_ids = _is_any([run.transaction_ids for run in runs])
    return map(
        PoppedMessage,
        own,
        chain.from_iterable([run.ids() for run in runs]) if has_ids else own,
        _column(runs, [run.trace_ids for run in runs]),
        map(Raw, chain.from_iterable([run.each_payload() for run in runs])),
        chain.from_iterable([repeat(iso(run.created_at), run.count) for run in runs]),
        repeat(first.queue),
        repeat(first.partition),
        repeat(partition_id),
        repeat(lease),
        repeat(group),
        seqs,
        repeat(1),
        repeat(0),
        _column(runs, [run.producers for run in runs]),
    )


def _is_any(columns: list[Sequence[Any] | None]) -> bool:
    return columns.count(None) < len(columns)


def _column(
    runs: Sequence[MessageRun], given: list[Sequence[str | None] | None]
) -> Iterable[str | None]:
    """What each message has of something that few have: None for a run without any."""
    if not _is_any(given):
        return repeat(None)
    return chain.from_iterable(
        [
            repeat(None, run.count) if values is None else values
            for run, values in zip(runs, given, strict=True)
        ]
    )


def _only_message(
    run: MessageRun, partition_id: str, lease: str | None, group: str
) -> PoppedMessage:
    """For one, columns are more to set up than to go through."""
    own = f"{partition_id}-{run.first_seq}"
    return PoppedMessage(
        own,
        own if run.transaction_ids is None else run.transaction_ids[0] or own,
        None if run.trace_ids is None else run.trace_ids[0],
        Raw(run.payloads()[0]),
        iso(run.created_at),
        run.queue,
        run.partition,
        partition_id,
        lease,
        group,
        run.first_seq,
        1,
        0,
        None if run.producers is None else run.producers[0],
    )


def _message(message: Message, lease: str | None, group: str) -> PoppedMessage:
    headers = message.headers
    return PoppedMessage(
        f"{message.partition_id}-{message.seq}",
        message.transaction_id,
        message.trace_id,
        Raw(message.payload),
        iso(message.created_at),
        message.queue,
        message.partition,
        str(message.partition_id),
        lease,
        group,
        message.seq,
        message.attempts,
        message.attempts - 1,
        message.producer,
        traceparent=UNSET if headers is None else _traceparent(headers),
        headers=UNSET if headers is None else Raw(headers),
        priority=UNSET if message.priority is None else message.priority,
        max_attempts=UNSET if message.max_attempts is None else message.max_attempts,
    )


class _Headers(Struct):
    traceparent: str | UnsetType = UNSET


_decode_headers = msgspec.json.Decoder(_Headers).decode


@lru_cache(maxsize=1024)
def _traceparent(headers: bytes) -> str | UnsetType:
    """The one that the headers name; they may be anybody's, and it anything."""
    try:
        return _decode_headers(headers).traceparent
    except (msgspec.DecodeError, RecursionError):
        return UNSET
