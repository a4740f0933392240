"""What a push sends to one partition, and how the procedures of `push.sql` take it: as arrays."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, chain, count, repeat
from typing import Any

from monarq.clock import DAY, micros
from monarq.crypto import Cipher
from monarq.model import Push, PushColumns, PushItem, Queue
from monarq.store import sealing, segments
from monarq.store.postgres.pushed_segments import WORTH_KEEPING

_MANY = 16
"""Payloads from which on they are joined by target: fewer take longer to join than to pass on."""


class Target:
    """What goes to one partition in this call. There may be thousands with one message each, so
    what most of them do not have is not made."""

    __slots__ = (
        "by_id",
        "data",
        "items",
        "partition",
        "partition_id",
        "queue",
        "repeats",
        "runs",
    )

    def __init__(self, queue: Queue, partition: str, partition_id: int) -> None:
        self.queue = queue
        self.partition = partition
        self.partition_id = partition_id
        self.items: list[PushItem] | PushColumns = []
        self.runs: list[tuple[int, int, int]] = []
        """Whose these are, in their order: a request, the first of its items, and how many."""
        self.by_id: dict[str, int] | None = None
        self.repeats: list[tuple[int, int, int]] | None = None
        """Request and place of items whose transaction id an earlier item has, and which one."""
        self.data: bytes | None = None
        """The payloads as they are stored, if they are one segment of many."""

    def add(self, request: int, place: int, item: PushItem) -> None:
        if item.transaction_id is not None:
            if self.by_id is None:
                self.by_id = {}
            first = self.by_id.setdefault(item.transaction_id, len(self.items))
            if first < len(self.items):
                self.repeats = self.repeats or []
                self.repeats.append((request, place, first))
                return
        self._listed().append(item)
        self.runs.append((request, place, 1))

    def add_whole(self, request: int, items: Sequence[PushItem], ids: Sequence[str]) -> bool:
        """Add a request that goes nowhere else, and whose items all have transaction ids, or none.
        False, and nothing is added, if an id comes twice."""
        if ids:
            by_id = dict(zip(ids, count(len(self.items))))
            if len(by_id) < len(ids):
                return False
            if self.by_id is None:
                self.by_id = by_id
            elif self.by_id.keys().isdisjoint(by_id):
                self.by_id |= by_id
            else:
                return False
        if type(items) is PushColumns and not self.items:
            self.items = items
        else:
            self._listed().extend(items)
        self.runs.append((request, 0, len(items)))
        return True

    def _listed(self) -> list[PushItem]:
        """The items, to add others to them."""
        if type(self.items) is PushColumns:
            self.items = list(self.items)
        return self.items

    def requests(self) -> list[int]:
        """Of which request each item is."""
        return list(chain.from_iterable(repeat(request, count) for request, _, count in self.runs))

    def ids(self) -> list[str]:
        """The transaction ids of all items, empty where the caller gave none."""
        by_id = self.by_id or {}
        if len(by_id) == len(self.items):
            return list(by_id)
        return [item.transaction_id or "" for item in self.items]


def _target_arguments(targets: list[Target]) -> list[Any]:
    queues = {target.queue.id: target.queue for target in targets}
    places = {queue_id: place for place, queue_id in enumerate(queues, 1)}
    return [
        any(queue.options.max_size for queue in queues.values()),
        list(queues),
        [queue.version for queue in queues.values()],
        [_horizon(queue) for queue in queues.values()],
        None if len(queues) == 1 else [places[target.queue.id] for target in targets],
        numbers([target.partition_id for target in targets]),
        "\n".join([target.partition for target in targets]),
        numbers([len(target.items) for target in targets]),
    ]


def numbers(values: list[int]) -> str:
    """An array as PostgreSQL writes it. There may be thousands: asyncpg asks of each element of a
    list whether it is a list itself, which takes longer than to write and read this text."""
    return str(values).replace("[", "{").replace("]", "}")


def _horizon(queue: Queue) -> int:
    """How soon after a push the lifecycle may have something to do in its partition."""
    options = queue.options
    durations = [options.expire_timeout, options.max_wait_time_seconds]
    if options.retention_enabled:
        durations += [options.retention_seconds, options.completed_retention_seconds]
    return min((micros(seconds) for seconds in durations if seconds > 0), default=7 * DAY)


def _given_ids(targets: list[Target]) -> tuple[str | None, list[Any]]:
    """The transaction ids of all items, a line each: names have no line breaks, and one text is
    sent at a fraction of what an array costs. And which of them is the first of each target, and
    whether one may have the form of an id that its partition makes."""
    if not any(target.by_id for target in targets):
        return None, [None, False]
    texts = ["\n".join(target.ids()) for target in targets]
    own = any(
        text.startswith(f"{target.partition_id}-") or f"\n{target.partition_id}-" in text
        for target, text in zip(targets, texts, strict=True)
    )
    sizes = [len(target.items) for target in targets]
    return "\n".join(texts), [list(accumulate(sizes[:-1], initial=1)), own]


def _payloads(target: Target, cipher: Cipher | None) -> list[bytes]:
    """As they are stored: sealed, if the queue wants it (then there is a cipher)."""
    payloads = [item.payload for item in target.items]
    if target.queue.options.encryption_enabled and cipher is not None:
        queue, partition, seal = target.queue.name, target.partition, cipher.seal
        if not target.by_id:
            context = sealing.payload_context(queue, partition, None)
            return [seal(payload, context) for payload in payloads]
        return [
            seal(item.payload, sealing.payload_context(queue, partition, item.transaction_id))
            for item in target.items
        ]
    return payloads


def _pieces(target: Target, cipher: Cipher | None) -> Iterable[tuple[int, int, bytes, array[int]]]:
    """The payloads as segments, as `segments.packed` makes them."""
    items = target.items
    if type(items) is PushColumns and not target.queue.options.encryption_enabled:
        return segments.cut_up(items.data, items.sizes)
    return segments.packed(_payloads(target, cipher))


def _column(values: list[Any]) -> list[Any] | None:
    """None if there is nothing in it, which is what most columns have."""
    return None if values.count(None) == len(values) else values


def _rare_columns(targets: list[Target]) -> tuple[list[Any] | None, list[Any] | None]:
    """Trace ids and headers."""
    if len(targets) == 1 and type(targets[0].items) is PushColumns:
        return None, None
    items = list(chain.from_iterable(target.items for target in targets))
    headers = _column([item.headers for item in items])
    return (
        _column([item.trace_id for item in items]),
        None if headers is None else [one and one.decode() for one in headers],
    )


class _Segments:
    """What is pushed to all targets, cut into segments; each list of numbers has an entry a
    segment."""

    def __init__(self, targets: list[Target], cipher: Cipher | None) -> None:
        self.targets: list[int] = []
        self.skips: list[int] = []
        self.counts: list[int] = []
        self.sizes: list[int] = []
        self.data: list[bytes] = []
        """Of all segments, in any number of pieces."""
        self.bounds: list[int] = []
        """The offsets of all segments."""
        for number, target in enumerate(targets, 1):
            if len(target.items) < _MANY:
                payloads = _payloads(target, cipher)
                bounds = list(accumulate(map(len, payloads), initial=0))
                if bounds[-1] < WORTH_KEEPING:
                    self._add(number, 0, payloads, bounds)
                    continue
            for start, end, data, offsets in _pieces(target, cipher):
                self._add(number, start, (data,), offsets)
                target.data = data if end - start == len(target.items) else None

    def _add(
        self, target: int, skip: int, data: Iterable[bytes], bounds: list[int] | array[int]
    ) -> None:
        self.targets.append(target)
        self.skips.append(skip)
        self.counts.append(len(bounds) - 1)
        self.sizes.append(bounds[-1])
        self.data += data
        self.bounds += bounds


def _producers(targets: list[Target], requests: Sequence[Push]) -> list[str | None] | None:
    """Of each item, if any has one."""
    if all(request.producer is None for request in requests):
        return None
    return [requests[index].producer for target in targets for index in target.requests()]


def message_arguments(
    targets: list[Target], requests: Sequence[Push], cipher: Cipher | None
) -> list[Any]:
    cut = _Segments(targets, cipher)
    is_cut = len(cut.targets) > len(targets)
    ids, given = _given_ids(targets)
    trace_ids, headers = _rare_columns(targets)
    metadata = [ids, trace_ids, _producers(targets, requests), headers]
    return [
        *_target_arguments(targets),
        cut.targets if is_cut else None,
        cut.skips if is_cut else None,
        numbers(list(accumulate(cut.counts[:-1], initial=0))),
        cut.counts if is_cut else None,
        numbers(list(accumulate(cut.sizes[:-1], initial=0))),
        numbers(cut.sizes),
        b"".join(cut.data),
        segments.to_bytes(array("i", cut.bounds)),
        *metadata,
        *given,
    ]


def item_arguments(
    targets: list[Target], requests: Sequence[Push], cipher: Cipher | None
) -> list[Any]:
    counts = [len(target.items) for target in targets]
    pieces = [_piece(target, cipher) for target in targets]
    sizes = list(chain.from_iterable(sizes for _, sizes in pieces))
    trace_ids, headers = _rare_columns(targets)
    ids, (_, own) = _given_ids(targets)
    return [
        *_target_arguments(targets),
        list(accumulate(counts[:-1], initial=1)),
        _commands(targets, requests),
        b"".join([data for data, _ in pieces]),
        numbers(list(accumulate(sizes, initial=1))),
        ids,
        trace_ids,
        _producers(targets, requests),
        headers,
        *_work_columns(targets),
        own,
    ]


def _commands(targets: list[Target], requests: Sequence[Push]) -> list[bool] | None:
    """Whether the items of each target are commands, or None if none are. A queue takes either
    commands or other items, so the requests of a target agree."""
    if not any(target.queue.options.runs_commands for target in targets):
        return None
    return [all(requests[index].commands for index, _, _ in target.runs) for target in targets]


def _piece(target: Target, cipher: Cipher | None) -> tuple[bytes, list[int]]:
    """The payloads in one piece, and how long each is."""
    items = target.items
    if type(items) is PushColumns and not target.queue.options.encryption_enabled:
        return items.data, items.sizes
    payloads = _payloads(target, cipher)
    return b"".join(payloads), list(map(len, payloads))


def _work_columns(targets: list[Target]) -> list[list[Any] | None]:
    """Priorities, run times, delays, most attempts, backoffs and attempts made."""
    if len(targets) == 1 and type(targets[0].items) is PushColumns:
        return [None] * 6
    items = list(chain.from_iterable(target.items for target in targets))
    delays = _column([item.delay_seconds for item in items])
    return [
        _column([item.priority for item in items]),
        _column([item.run_at for item in items]),
        None if delays is None else [None if one is None else micros(one) for one in delays],
        _column([item.max_attempts for item in items]),
        _column([item.backoff_base for item in items]),
        _column([item.attempts for item in items]),
    ]
