"""What pops wait for, and who waits there.

A place is a queue (or one of its partitions) and a group, or labels and a group. Only keeps
count; who is woken, and why, is decided in `waiting` and `waking`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from monarq.broker.alarms import Alarm
from monarq.broker.batching import Call, fail
from monarq.errors import MonarqError
from monarq.model import Ack, Acked, Pop, Popped
from monarq.store.contract import Outcome

QUEUED, LOOKING, IDLE = range(3)
"""Waits for a connection; is in the store; waits for a message."""

Key = tuple[str | None, str | None, str, str, str]


class Owner(Protocol):
    def left(self, call: PopCall) -> None:
        """A call was cancelled."""


class PopCall(Call):
    """One pop. If it may wait it has a place; one that was cancelled is gone from it at once."""

    __slots__ = ("cause", "deadline", "place", "seen", "slice", "state", "ticket")
    request: Pop
    ticket: int
    """Counts the pops as they come."""
    place: Place | None
    deadline: int
    state: int
    seen: int
    """The place's signals when it went to the store."""
    cause: str
    """Why it looks; empty if it came by itself."""
    slice: int
    """Of the time-outs; 0 if it is in none."""

    def answer(self, popped: Popped) -> None:
        self.set_result(popped)

    def refuse(self, error: MonarqError) -> None:
        """The store has refused this pop."""
        fail(self, error)

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        place = self.place
        if cancelled and place is not None:
            place.owner.left(self)
        return cancelled


class AckAndPopCall(PopCall):
    """Acks, and a pop after them that never waits."""

    __slots__ = ("acked", "acks", "is_behind")
    acks: Sequence[Ack]
    acked: Sequence[Outcome[Acked]]
    """The answers to them."""
    is_behind: bool
    """Others waited for what it would take when it went to the store: its pop finds nothing."""

    def answer(self, popped: Outcome[Popped]) -> None:
        self.set_result((self.acked, popped))

    def refuse(self, error: MonarqError) -> None:
        # The acks have their answers all the same.
        if not self.done():
            self.answer(error)


class Place:
    __slots__ = (
        "alarm", "credit", "group", "heap", "hunting", "idle", "key", "labels", "live", "looking",
        "owner", "partition", "queue", "retry", "signals",
    )  # fmt: skip

    def __init__(self, owner: Owner, key: Key, request: Pop) -> None:
        self.owner = owner
        self.key = key
        self.queue = request.queue
        self.partition = request.partition
        self.labels = (request.namespace or "", request.task or "")
        self.group = request.group
        self.heap: list[tuple[int, PopCall]] = []
        """Those who are parked, by ticket, and some who were."""
        self.idle = 0
        self.looking = 0
        """How many are queued or in the store."""
        self.live = 0
        self.signals = 0
        self.credit = 0
        """How many of those who are looking may look again, should they find nothing."""
        self.hunting = False
        """Something may be there and nobody knows how much: who finds something wakes others,
        until one finds nothing."""
        self.alarm: Alarm | None = None
        self.retry = 0

    def first(self) -> int | None:
        """The lowest ticket of those who are parked."""
        heap = self.heap
        while heap and heap[0][1].state != IDLE:
            heappop(heap)
        return heap[0][0] if heap else None

    def park(self, call: PopCall) -> None:
        call.state = IDLE
        heappush(self.heap, (call.ticket, call))
        self.idle += 1

    def take(self, count: int) -> list[PopCall]:
        """Up to so many of those who are parked, by ticket; they are looking now."""
        calls: list[PopCall] = []
        while len(calls) < count and self.first() is not None:
            calls.append(heappop(self.heap)[1])
        self.idle -= len(calls)
        self.looking += len(calls)
        return calls

    def unpark(self, call: PopCall) -> None:
        call.state = QUEUED
        self.idle -= 1
        if len(self.heap) > 2 * self.idle + 16:
            self.heap = [entry for entry in self.heap if entry[1].state == IDLE]
            heapify(self.heap)

    def matches(self, namespace: str, task: str) -> bool:
        wanted_namespace, wanted_task = self.labels
        return wanted_namespace in ("", namespace) and wanted_task in ("", task)


class GroupPlaces:
    """The places of one queue for one group."""

    __slots__ = ("any", "named")

    def __init__(self) -> None:
        self.any: Place | None = None
        self.named: dict[str, Place] = {}

    def __iter__(self) -> Iterator[Place]:
        if self.any is not None:
            yield self.any
        yield from self.named.values()


class Places:
    """All that somebody waits at."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._all: OrderedDict[Key, Place] = OrderedDict()
        """Those that were looked at longest ago first."""
        self._queues: dict[str, dict[str, GroupPlaces]] = {}
        self._labels: dict[str, dict[Key, Place]] = {}

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Place]:
        return iter(list(self._all.values()))

    def of(self, request: Pop) -> Place:
        """The place that the pop waits at; made if there is none."""
        key: Key = (
            request.queue,
            request.partition,
            request.group,
            request.namespace or "",
            request.task or "",
        )
        return self._all.get(key) or self._open(key, request)

    def next(self) -> Place:
        """One after the other, round and round."""
        key = next(iter(self._all))
        self._all.move_to_end(key)
        return self._all[key]

    def concerned(self, queue: str) -> bool:
        """Whether anybody waits for something that this queue may bring."""
        return queue in self._queues or bool(self._labels)

    def of_queue(self, queue: str) -> list[Place]:
        return [place for places in self._queues.get(queue, {}).values() for place in places]

    def of_group(self, queue: str, group: str) -> GroupPlaces | None:
        return self._queues.get(queue, {}).get(group)

    def groups(self, queue: str) -> list[str]:
        """Of those who wait for this queue, or for labels that it may have."""
        groups = list(self._queues.get(queue, ()))
        if self._labels:
            groups += [group for group in self._labels if group not in groups]
        return groups

    def beside(self, request: Pop) -> Iterator[Place]:
        """Those at which somebody may wait for what this pop would take."""
        if request.queue is None:
            yield from (place for place in self._all.values() if place.group == request.group)
            return
        yield from self._labels.get(request.group, {}).values()
        places = self.of_group(request.queue, request.group)
        if places is None:
            return
        if request.partition is None:
            yield from places
            return
        for place in (places.any, places.named.get(request.partition)):
            if place is not None:
                yield place

    def labelled(self, group: str | None) -> list[Place]:
        """Places of labels, of one group or of all."""
        if group is not None:
            return list(self._labels.get(group, {}).values())
        return [place for places in self._labels.values() for place in places.values()]

    def _open(self, key: Key, request: Pop) -> Place:
        place = self._all[key] = Place(self._owner, key, request)
        if place.queue is None:
            self._labels.setdefault(place.group, {})[key] = place
            return place
        places = self._queues.setdefault(place.queue, {}).setdefault(place.group, GroupPlaces())
        if place.partition is None:
            places.any = place
        else:
            places.named[place.partition] = place
        return place

    def shut(self, place: Place) -> None:
        """Nobody is left there."""
        del self._all[place.key]
        if place.queue is None:
            labels = self._labels[place.group]
            del labels[place.key]
            if not labels:
                del self._labels[place.group]
            return
        groups = self._queues[place.queue]
        places = groups[place.group]
        if place.partition is None:
            places.any = None
        else:
            del places.named[place.partition]
        if places.any is None and not places.named:
            del groups[place.group]
            if not groups:
                del self._queues[place.queue]
