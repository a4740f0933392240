"""Makes the answers that come by the thousand: of pushes and pops.

Payloads go through as they are stored, never parsed. Every name and word is written by the
encoder, so that escaping cannot go wrong: where messages have most of it alike, once for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain, groupby, repeat
from operator import attrgetter
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from monarq.model import Message, Popped, Pushed, PushStatus
from monarq.store.message_list import MessageList, MessageRun
from monarq.times import iso
from monarq.wire.ack import AckAnswer
from monarq.wire.pop import AckedPopAnswer, Autopilot, PopAnswer, PoppedMessage
from monarq.wire.push import PushedItem

encode = msgspec.json.Encoder().encode

_GAP = b"\0"
"""Stands for what is put in later: JSON has no such byte anywhere."""
_HOLE: Any = Raw(_GAP)
_HOLE_FOR_TIME: Any = Raw(b'"%b"' % _GAP)

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
    place = _first_place(popped)
    return _with_messages(
        PopAnswer(True, *place, popped.lease_id, group, [], autopilot), popped, group
    )


def acked_pop_answer(
    acked: list[AckAnswer], popped: Popped, group: str, autopilot: Autopilot | UnsetType
) -> bytes:
    if not popped.messages:
        return encode(AckedPopAnswer(acked, True, None, None, None, None, group, [], autopilot))
    place = _first_place(popped)
    return _with_messages(
        AckedPopAnswer(acked, True, *place, popped.lease_id, group, [], autopilot), popped, group
    )


def _first_place(popped: Popped) -> tuple[str, str, str]:
    messages = popped.messages
    first = messages.runs[0] if isinstance(messages, MessageList) else messages[0]
    return first.queue, first.partition, str(first.partition_id)


def _with_messages(answer: PopAnswer | AckedPopAnswer, popped: Popped, group: str) -> bytes:
    messages, lease = popped.messages, popped.lease_id
    if not isinstance(messages, MessageList):
        answer.messages = [_message(message, lease, group) for message in messages]
        return encode(answer)
    runs = messages.runs
    if len(runs) == runs[0].count == 1 and runs[0].headers is None:
        answer.messages = [_only_message(runs[0], lease, group)]
        return encode(answer)
    answer.messages = [_HOLE]
    start, end = encode(answer).split(_GAP)
    pieces = [start]
    for _, together in groupby(runs, attrgetter("partition_id")):
        pieces += _partition_messages(list(together), lease, group)
    # In place of the last comma.
    pieces[-1] = pieces[-1][:-1] + end
    return b"".join(pieces)


def _partition_messages(
    runs: Sequence[MessageRun], lease: str | None, group: str
) -> Iterable[bytes]:
    """The messages of a partition in pieces, with a comma behind each. What all of them have alike
    is encoded once, and what differs put in between."""
    if _is_any([run.headers for run in runs]):
        rows = [_message(each, lease, group) for run in runs for each in run.messages()]
        return [encode(row) + b"," for row in rows]
    first = runs[0]
    own: Any = Raw(b'"%d-%b"' % (first.partition_id, _GAP))
    seqs = encode([seq for run in runs for seq in run.seqs()])[1:-1].split(b",")
    times = [repeat(iso(run.created_at).encode(), run.count) for run in runs]
    has_names = _is_any([run.transaction_ids for run in runs])
    names = map(encode, chain.from_iterable([run.ids() for run in runs])) if has_names else seqs
    traces = _column(runs, [run.trace_ids for run in runs])
    producers = _column(runs, [run.producers for run in runs])
    alike = PoppedMessage(
        own,
        _HOLE if has_names else own,
        None if traces is None else _HOLE,
        _HOLE,
        _HOLE_FOR_TIME,
        first.queue,
        first.partition,
        str(first.partition_id),
        lease,
        group,
        _HOLE,
        1,
        0,
        None if producers is None else _HOLE,
    )
    differing = (
        seqs,
        names,
        traces,
        chain.from_iterable([run.each_payload() for run in runs]),
        chain.from_iterable(times),
        seqs,
        producers,
    )
    *between, end = encode(alike).split(_GAP)
    columns = [column for column in differing if column is not None]
    pieces = chain.from_iterable(zip(map(repeat, between), columns, strict=True))
    return chain.from_iterable(zip(*pieces, repeat(end + b",")))


def _is_any(columns: list[Sequence[Any] | None]) -> bool:
    return columns.count(None) < len(columns)


def _column(
    runs: Sequence[MessageRun], given: list[Sequence[str | None] | None]
) -> Iterable[bytes] | None:
    """What each message has of something that few have; None if none has any."""
    if not _is_any(given):
        return None
    values = [each or repeat(None, run.count) for run, each in zip(runs, given, strict=True)]
    return map(encode, chain.from_iterable(values))


def _only_message(run: MessageRun, lease: str | None, group: str) -> PoppedMessage:
    """For one, there is more to set up than to put in between."""
    partition_id = str(run.partition_id)
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
        is_command=message.is_command or UNSET,
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
