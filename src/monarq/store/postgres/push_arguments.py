"""What a push sends to one partition, and how the procedures of `push.sql` take it: as arrays."""

from __future__ import annotations

from itertools import accumulate, repeat
from typing import Any

from monarq.clock import DAY, micros
from monarq.crypto import Cipher
from monarq.model import PushItem, Queue
from monarq.store import segments

Slot = tuple[int, int]
"""Which request, and which of its items."""


class Target:
    """What goes to one partition in this call."""

    __slots__ = (
        "by_id",
        "items",
        "partition",
        "partition_id",
        "producers",
        "queue",
        "repeats",
        "slots",
        "wholes",
    )

    def __init__(self, queue: Queue, partition: str, partition_id: int) -> None:
        self.queue = queue
        self.partition = partition
        self.partition_id = partition_id
        self.items: list[PushItem] = []
        self.producers: list[str | None] = []
        self.slots: list[Slot] = []
        self.by_id: dict[str, int] = {}
        self.repeats: list[tuple[Slot, int]] = []
        """Slots whose transaction id an earlier item of this call has, and which one."""
        self.wholes: list[tuple[int, int]] = []
        """Requests of which everything is here, in one piece, and where it begins."""

    def add(self, slot: Slot, item: PushItem, producer: str | None) -> None:
        if item.transaction_id is not None:
            first = self.by_id.setdefault(item.transaction_id, len(self.items))
            if first < len(self.items):
                self.repeats.append((slot, first))
                return
        self.items.append(item)
        self.producers.append(producer)
        self.slots.append(slot)

    def add_whole(self, index: int, items: list[PushItem], producer: str | None) -> None:
        """Add a request that has no transaction ids and goes nowhere else."""
        self.wholes.append((index, len(self.items)))
        self.items += items
        self.producers += repeat(producer, len(items))
        self.slots += zip(repeat(index), range(len(items)))


def _target_arguments(targets: list[Target]) -> list[Any]:
    return [
        any(target.queue.options.max_size for target in targets),
        [target.queue.id for target in targets],
        [target.queue.version for target in targets],
        [target.partition_id for target in targets],
        [len(target.items) for target in targets],
        [_horizon(target.queue) for target in targets],
    ]


def _horizon(queue: Queue) -> int:
    """How soon after a push the lifecycle may have something to do in its partition."""
    options = queue.options
    durations = [options.expire_timeout, options.max_wait_time_seconds]
    if options.retention_enabled:
        durations += [options.retention_seconds, options.completed_retention_seconds]
    return min((micros(seconds) for seconds in durations if seconds > 0), default=7 * DAY)


def _given_ids(targets: list[Target]) -> list[Any]:
    """The items with a transaction id of their own: target, place in it, id."""
    given = [
        (number, place, transaction_id)
        for number, target in enumerate(targets, 1)
        for transaction_id, place in target.by_id.items()
    ]
    return [list(column) for column in zip(*given, strict=True)] if given else [None] * 3


def _payloads(target: Target, cipher: Cipher | None) -> list[bytes]:
    """As they are stored: sealed, if the queue wants it (then there is a cipher)."""
    payloads = [item.payload for item in target.items]
    if target.queue.options.encryption_enabled and cipher is not None:
        return [cipher.seal(payload) for payload in payloads]
    return payloads


def _column(values: list[Any]) -> list[Any] | None:
    """None if there is nothing in it, which is what most columns have."""
    return values if any(value is not None for value in values) else None


def message_arguments(targets: list[Target], cipher: Cipher | None) -> list[Any]:
    numbers, skips, starts, counts = [], [], [], []
    data, offsets = [], []
    begins = accumulate((len(target.items) for target in targets), initial=0)
    for number, (target, begin) in enumerate(zip(targets, begins, strict=False), 1):
        payloads = _payloads(target, cipher)
        for start, end in segments.cuts([len(payload) for payload in payloads]):
            packed, bounds = segments.pack(payloads[start:end])
            numbers.append(number)
            skips.append(start)
            starts.append(begin + start)
            counts.append(end - start)
            data.append(packed)
            offsets.append(segments.to_bytes(bounds))
    items = [item for target in targets for item in target.items]
    return [
        *_target_arguments(targets),
        numbers,
        skips,
        starts,
        counts,
        data,
        offsets,
        [item.transaction_id for item in items] if any(t.by_id for t in targets) else None,
        _column([item.trace_id for item in items]),
        _column([producer for target in targets for producer in target.producers]),
        _column([item.headers.decode() if item.headers else None for item in items]),
        *_given_ids(targets),
    ]


def item_arguments(targets: list[Target], cipher: Cipher | None) -> list[Any]:
    rows = [
        (
            number,
            place,
            payload,
            item.transaction_id,
            item.trace_id,
            producer,
            item.headers.decode() if item.headers else None,
            item.priority,
            item.run_at,
            None if item.delay_seconds is None else micros(item.delay_seconds),
            item.max_attempts,
            item.backoff_base,
        )
        for number, target in enumerate(targets, 1)
        for place, (item, producer, payload) in enumerate(
            zip(target.items, target.producers, _payloads(target, cipher), strict=True)
        )
    ]
    return [
        *_target_arguments(targets),
        *(list(column) for column in zip(*rows, strict=True)),
        *_given_ids(targets),
    ]
