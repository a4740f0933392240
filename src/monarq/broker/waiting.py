"""Pops that found nothing and may wait: parked here, at no cost to the store, until there is a
reason to look again.

A place is what pops wait for: a queue (or one of its partitions) and a group, or labels and a
group. Arrival gives a ticket, kept for as long as the pop waits, and whoever has the lowest is
woken first. A signal says that something may be there; it wakes as many as it can serve. What
keeps a signal from being lost:

- it is given after the commit it tells of, so whoever looks later sees it;
- who was looking at that time, found nothing and noted an older signal count, looks again;
- who was woken and leaves (or fails) before it has looked hands the signal on.

While somebody is parked at a place there is nothing there, as far as this broker knows. So
whoever comes then parks behind, without a look of its own: 10,000 pops of one queue cost one.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from monarq.broker.alarms import Alarm, Alarms
from monarq.broker.batching import Call
from monarq.broker.facts import Facts
from monarq.broker.measures import Measures
from monarq.broker.timeouts import Timeouts
from monarq.model import Pop, Popped, QueueKind

QUEUED, LOOKING, IDLE = range(3)
"""Waits for a connection; is in the store; waits for a message."""

_RETRY = (10_000, 1_000_000)
"""Microseconds: how soon to look again when the store says that something is due and has
nothing, at first and at last."""
_CHAIN = 2


class PopCall(Call):
    """One pop. If it may wait it has a place; one that was cancelled is gone from it at once."""

    __slots__ = ("cause", "chained", "deadline", "place", "seen", "slice", "state", "ticket")
    request: Pop
    ticket: int
    place: Place | None
    deadline: int
    state: int
    seen: int
    """The place's signals when it went to the store."""
    cause: str
    """Why it looks; empty if it came by itself."""
    chained: bool
    """Whether nobody knows how much is there, so that who finds something wakes others."""
    slice: int

    def cancel(self, msg: Any = None) -> bool:
        cancelled = super().cancel(msg)
        place = self.place
        if cancelled and place is not None:
            place.owner.left(self)
        return cancelled


class Place:
    __slots__ = (
        "alarm", "credit", "group", "heap", "idle", "key", "labels", "live", "looking", "owner",
        "partition", "queue", "retry", "signals",
    )  # fmt: skip

    def __init__(self, owner: Waiting, key: Key, request: Pop) -> None:
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
        self.live = 0
        self.signals = 0
        self.credit = 0
        """How many of those who are looking may look again, should they find nothing."""
        self.alarm: Alarm | None = None
        self.retry = 0

    def first(self) -> int | None:
        """The lowest ticket of those who are parked."""
        heap = self.heap
        while heap and heap[0][1].state != IDLE:
            heappop(heap)
        return heap[0][0] if heap else None

    def matches(self, namespace: str, task: str) -> bool:
        wanted_namespace, wanted_task = self.labels
        return wanted_namespace in ("", namespace) and wanted_task in ("", task)


Key = tuple[str | None, str | None, str, str, str]


class _GroupPlaces:
    """The places of one queue for one group."""

    __slots__ = ("any", "named")

    def __init__(self) -> None:
        self.any: Place | None = None
        self.named: dict[str, Place] = {}


class Looks(Protocol):
    """Where pops go to look."""

    def look_again(self, calls: Sequence[PopCall]) -> None: ...


class Waiting:
    """All places, and who is woken by what."""

    def __init__(
        self, alarms: Alarms, clock: Callable[[], int], facts: Facts, measures: Measures
    ) -> None:
        self._alarms = alarms
        self._clock = clock
        self._facts = facts
        self._measures = measures
        self._loop = asyncio.get_running_loop()
        self._timeouts: Timeouts[PopCall] = Timeouts(alarms, self._timed_out)
        self._places: OrderedDict[Key, Place] = OrderedDict()
        """Those that looked around longest ago first."""
        self._queues: dict[str, dict[str, _GroupPlaces]] = {}
        self._labels: dict[str, dict[Key, Place]] = {}
        self._closed = False
        self._held = False
        self.looks: Looks
        self.on_parked: Callable[[], None] = lambda: None
        self.on_found: Callable[[], None] = lambda: None
        self.parked = 0
        self.total = 0
        """All who have a place, parked or looking."""

    # --- coming and going ------------------------------------------------------------------

    def enter(self, call: PopCall, wait: int) -> bool:
        """Give it a place. True: it is to look now; False: it is parked."""
        request = call.request
        key: Key = (
            request.queue,
            request.partition,
            request.group,
            request.namespace or "",
            request.task or "",
        )
        place = self._places.get(key)
        if place is None:
            place = self._open(key, request)
        call.place = place
        call.deadline = self._alarms.now() + wait
        place.live += 1
        self.total += 1
        if place.idle or self._held:
            self._park(call, place)
            return False
        place.looking += 1
        return True

    def looking(self, call: PopCall) -> None:
        """It goes to the store now."""
        call.state = LOOKING
        if call.place is not None:
            call.seen = call.place.signals

    def found(self, call: PopCall, popped: Popped) -> None:
        """It has its answer."""
        place = call.place
        if place is None:
            return
        self._leave(call, place)
        if call.cause == "poll":
            self.on_found()
        request = call.request
        # An auto-ack leaves the partition free, with what was more than the batch.
        more = request.auto_ack and len(popped.messages) >= request.batch
        if call.chained or more:
            self._wake(place, _CHAIN, "chain", chained=True)

    def found_nothing(self, call: PopCall, popped: Popped) -> None:
        place = call.place
        if place is None:
            return
        again = place.signals != call.seen and place.credit > 0
        if self._closed or call.deadline <= self._alarms.now():
            self._leave(call, place)
            self._answer_empty(call)
            return
        if again and not self._held:
            place.credit -= 1
            self._send([call], "again", chained=call.chained)
            return
        self._stop_looking(place)
        self._park(call, place)
        if popped.next_at is not None:
            self._expect(place, popped.next_at)

    def failed(self, call: PopCall) -> None:
        """It was answered with an error."""
        place = call.place
        if place is not None:
            self._leave(call, place)
            self._hand_on(call, place)

    def left(self, call: PopCall) -> None:
        """Its caller went away."""
        place = call.place
        if place is None:
            return
        self._measures.pop_steps["cancelled"] += 1
        was = call.state
        self._leave(call, place)
        if was == QUEUED:
            self._hand_on(call, place)

    def _hand_on(self, call: PopCall, place: Place) -> None:
        if call.cause:
            self._wake(place, 1, "again", chained=call.chained)

    def _leave(self, call: PopCall, place: Place) -> None:
        call.place = None
        if call.slice:
            self._timeouts.remove(call, call.slice)
        self.total -= 1
        place.live -= 1
        if call.state == IDLE:
            call.state = QUEUED
            self.parked -= 1
            place.idle -= 1
            if len(place.heap) > 2 * place.idle + 16:
                place.heap = [entry for entry in place.heap if entry[1].state == IDLE]
                heapify(place.heap)
        else:
            self._stop_looking(place)
        if not place.live:
            self._shut(place)

    def _stop_looking(self, place: Place) -> None:
        place.looking -= 1
        if not place.looking:
            place.credit = 0

    def _park(self, call: PopCall, place: Place) -> None:
        call.state = IDLE
        heappush(place.heap, (call.ticket, call))
        place.idle += 1
        self.parked += 1
        if not call.slice:
            call.slice = self._timeouts.add(call, call.deadline)
        if self.parked == 1:
            self.on_parked()

    def _timed_out(self, call: PopCall) -> None:
        call.slice = 0
        place = call.place
        # Who is looking gets what is found, or is answered when that is nothing.
        if place is not None and call.state == IDLE:
            self._leave(call, place)
            self._answer_empty(call)

    def _answer_empty(self, call: PopCall) -> None:
        if not call.done():
            self._measures.pop_steps["timed_out"] += 1
            call.set_result(Popped(messages=[]))

    # --- places ------------------------------------------------------------------------------

    def _open(self, key: Key, request: Pop) -> Place:
        place = self._places[key] = Place(self, key, request)
        if place.queue is None:
            self._labels.setdefault(place.group, {})[key] = place
            return place
        places = self._queues.setdefault(place.queue, {}).setdefault(place.group, _GroupPlaces())
        if place.partition is None:
            places.any = place
        else:
            places.named[place.partition] = place
        self._facts.get(place.queue)
        return place

    def _shut(self, place: Place) -> None:
        del self._places[place.key]
        self._alarms.cancel(place.alarm)
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

    # --- signals ---------------------------------------------------------------------------

    def concerns(self, queue: str) -> bool:
        """Whether anybody waits for something that this queue may bring."""
        return queue in self._queues or bool(self._labels)

    def pushed(self, queue: str, partitions: Mapping[str, int], cause: str = "push") -> None:
        """So many messages or items came to these partitions, or became free to be leased."""
        if self._held or not self.concerns(queue):
            return
        facts = self._facts.get(queue)
        if facts is not None and facts.kind is QueueKind.WORK:
            self._serve(self._places_of(queue), sum(partitions.values()), cause, chained=False)
            return
        chained = facts is None
        for group in self._groups_at(queue):
            self._partitions_free(queue, group, partitions, cause, chained)

    def freed(self, queue: str, partition: str, group: str | None, cause: str = "free") -> None:
        """A lease ended, and there may be more in the partition; for one group, or nobody
        knows for which."""
        if self._held or not self.concerns(queue):
            return
        groups = self._groups_at(queue) if group is None else [group]
        for name in groups:
            self._partitions_free(queue, name, {partition: 1}, cause, chained=False)

    def stirred(self, queue: str, cause: str) -> None:
        """Something may have become available in the queue; nobody knows how much."""
        if self._held or not self.concerns(queue):
            return
        for place in [*self._places_of(queue), *self._labelled(queue, None)]:
            self._serve([place], 1, cause, chained=True)

    def stir_all(self, cause: str) -> None:
        """Something may have become available anywhere."""
        for place in list(self._places.values()):
            self._serve([place], 1, cause, chained=True)

    def look_around(self, most: int, cause: str) -> int:
        """Let the first at each of so many places look, those that did longest ago first."""
        woken = 0
        for _ in range(len(self._places)):
            if woken >= most:
                break
            key = next(iter(self._places))
            self._places.move_to_end(key)
            woken += self._serve([self._places[key]], 1, cause, chained=True)
        return woken

    def _places_of(self, queue: str) -> list[Place]:
        found: list[Place] = []
        for places in self._queues.get(queue, {}).values():
            if places.any is not None:
                found.append(places.any)
            found += places.named.values()
        return found

    def _groups_at(self, queue: str) -> list[str]:
        groups = list(self._queues.get(queue, ()))
        if self._labels:
            groups += [group for group in self._labels if group not in groups]
        return groups

    def _labelled(self, queue: str, group: str | None) -> list[Place]:
        """Places that this queue's labels may serve."""
        if not self._labels:
            return []
        facts = self._facts.get(queue)
        groups = [self._labels.get(group, {})] if group is not None else self._labels.values()
        return [
            place
            for places in groups
            for place in places.values()
            if facts is None or place.matches(facts.namespace, facts.task)
        ]

    def _partitions_free(
        self, queue: str, group: str, partitions: Iterable[str], cause: str, chained: bool
    ) -> None:
        """Each partition can serve one pop of the group."""
        places = self._queues.get(queue, {}).get(group)
        wide = self._labelled(queue, group)
        if places is not None and places.any is not None:
            wide.append(places.any)
        named = places.named if places is not None else {}
        spare = 0
        for partition in partitions:
            place = named.get(partition)
            candidates = wide if place is None else [*wide, place]
            if spare > 0:
                # Somebody who takes several partitions was woken before.
                spare -= 1
                continue
            call = self._serve_one(candidates, cause, chained)
            if call is not None:
                spare = min(call.request.partitions, call.request.batch) - 1

    def _serve_one(self, places: Sequence[Place], cause: str, chained: bool) -> PopCall | None:
        best: Place | None = None
        lowest = 0
        for place in places:
            place.signals += 1
            ticket = place.first()
            if ticket is not None and (best is None or ticket < lowest):
                best, lowest = place, ticket
        if best is None:
            for place in places:
                place.credit = min(place.credit + 1, place.looking)
            return None
        call = best.heap[0][1]
        self._wake(best, 1, cause, chained=chained)
        return call

    def _serve(self, places: Sequence[Place], count: int, cause: str, *, chained: bool) -> int:
        """Wake up to `count` of those who wait at these places; how many."""
        if len(places) == 1:
            [place] = places
            place.signals += 1
            woken = self._wake(place, count, cause, chained=chained)
            place.credit = min(place.credit + count - woken, place.looking)
            return woken
        woken = 0
        while woken < count and self._serve_one(places, cause, chained) is not None:
            woken += 1
        for place in places:
            place.credit = min(place.credit + count - woken, place.looking)
        return woken

    def _wake(self, place: Place, count: int, cause: str, *, chained: bool) -> int:
        if self._held:
            return 0
        calls: list[PopCall] = []
        while len(calls) < count and place.first() is not None:
            calls.append(heappop(place.heap)[1])
        if calls:
            woken = len(calls)
            place.idle -= woken
            place.looking += woken
            self.parked -= woken
            self._send(calls, cause, chained=chained)
        return len(calls)

    def _send(self, calls: list[PopCall], cause: str, *, chained: bool) -> None:
        self._measures.wakes[cause] += len(calls)
        for call in calls:
            call.state = QUEUED
            call.cause = cause
            call.chained = chained
        self.looks.look_again(calls)

    # --- time ------------------------------------------------------------------------------

    def _expect(self, place: Place, moment: int) -> None:
        """Look again when, by what the store says, something will be there."""
        now = self._clock()
        if moment > now:
            place.retry = 0
            when = self._alarms.at(moment)
        else:
            # The store's clock is behind ours, or somebody else is faster each time.
            first, last = _RETRY
            place.retry = min(max(first, 2 * place.retry), last)
            when = self._alarms.now() + place.retry
        if place.alarm is None or when < place.alarm.when:
            self._alarms.cancel(place.alarm)
            place.alarm = self._alarms.set(when, lambda: self._due(place))

    def _due(self, place: Place) -> None:
        place.alarm = None
        self._serve([place], 1, "due", chained=True)

    # --- all at once -------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        """While held nobody is woken: pops stay parked until their time is up."""
        released = self._held and not held
        self._held = held
        if released:
            self.stir_all("admin")

    def close(self) -> None:
        """Answer all who are parked with nothing; who is looking gets what it finds."""
        self._closed = True
        for place in list(self._places.values()):
            for _, call in list(place.heap):
                if call.state == IDLE and call.place is not None:
                    self._leave(call, place)
                    self._answer_empty(call)
