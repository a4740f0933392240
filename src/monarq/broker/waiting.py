"""Pops that found nothing and may wait: parked here, at no cost to the store, until there is a
reason to look again.

Arrival gives a ticket, kept for as long as the pop waits, and whoever has the lowest is woken
first. A signal says that something may be there. What keeps one from being lost:

- it is given after the commit it tells of, so whoever looks later sees that;
- who was looking at that time, found nothing and noted an older signal count, looks again;
- who was woken and leaves (or fails) before it has looked hands the signal on.

While somebody is parked at a place there is nothing there, as far as this broker knows. So
whoever comes then parks behind, without a look of its own: 10,000 pops of one queue cost one.

Which places a signal is for is said by `waking`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from monarq.broker.alarms import Alarms
from monarq.broker.measures import Measures
from monarq.broker.places import IDLE, LOOKING, QUEUED, Place, Places, PopCall
from monarq.broker.timeouts import Timeouts
from monarq.model import Pop, Popped

_RETRY = (10_000, 1_000_000)
"""Microseconds: how soon to look again when the store says that something is due and has
nothing, at first and at last."""
_CHAIN = 2
"""How many are woken by one who found something in a hunt."""


class Looks(Protocol):
    """Where pops go to look."""

    def look_again(self, calls: Sequence[PopCall]) -> None: ...


class Waiting:
    def __init__(self, alarms: Alarms, clock: Callable[[], int], measures: Measures) -> None:
        self._alarms = alarms
        self._clock = clock
        self._measures = measures
        self._timeouts: Timeouts[PopCall] = Timeouts(alarms, self._timed_out)
        self._closed = False
        self._held = False
        self.places = Places(self)
        self.looks: Looks
        self.on_parked: Callable[[], None] = lambda: None
        """Told when somebody is parked and nobody was."""
        self.on_found: Callable[[], None] = lambda: None
        """Told when somebody found what nobody had told of."""
        self.on_wanted: Callable[[str], None] = lambda queue: None
        """Told when somebody is the first to be parked for a queue."""
        self.parked = 0
        self.total = 0
        """All who have a place, parked or looking."""

    # --- coming and going ------------------------------------------------------------------

    def enter(self, call: PopCall, wait: int) -> bool:
        """Give it a place for so many microseconds. True: it is to look now; False: it is
        parked."""
        place = self.places.of(call.request)
        call.place = place
        call.deadline = self._alarms.now() + wait
        place.live += 1
        self.total += 1
        if place.idle or self._held:
            self._park(call, place)
            return False
        place.looking += 1
        return True

    def would_overtake(self, request: Pop) -> bool:
        """Whether somebody is parked for what this pop would take, or nobody may take anything."""
        if self._held or not self.parked:
            return self._held
        return any(place.idle for place in self.places.beside(request))

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
        request = call.request
        # An auto-ack leaves the partition free, with what was more than the batch; so does an
        # answer that had room for no more, with other partitions.
        is_full = len(popped.messages) >= request.batch
        if (request.auto_ack and is_full) or popped.next_at is not None:
            place.hunting = True
        if call.cause == "poll":
            self.on_found()
        if place.hunting:
            self.wake(place, _CHAIN, "chain")
        self._leave(call, place)

    def found_nothing(self, call: PopCall, popped: Popped) -> None:
        place = call.place
        if place is None:
            return
        is_late = place.signals == call.seen
        if is_late:
            place.hunting = False
        if self._closed or call.deadline <= self._alarms.now():
            self._leave(call, place)
            self._answer_empty(call)
        elif not is_late and place.credit > 0 and not self._held:
            place.credit -= 1
            self._send([call], "again")
        else:
            self._park(call, place)
            self._stop_looking(place)
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
            self.wake(place, 1, "again")

    def _leave(self, call: PopCall, place: Place) -> None:
        call.place = None
        if call.slice:
            self._timeouts.remove(call, call.slice)
        self.total -= 1
        place.live -= 1
        if call.state == IDLE:
            self.parked -= 1
            place.unpark(call)
        else:
            self._stop_looking(place)
        if not place.live:
            self._alarms.cancel(place.alarm)
            self.places.shut(place)

    def _stop_looking(self, place: Place) -> None:
        place.looking -= 1
        if not place.looking:
            place.credit = 0
            if place.hunting:
                # The one who would have gone on with the hunt is gone.
                self.wake(place, 1, "again")

    def _park(self, call: PopCall, place: Place) -> None:
        place.park(call)
        self.parked += 1
        if place.idle == 1 and place.queue is not None:
            self.on_wanted(place.queue)
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

    # --- signals ---------------------------------------------------------------------------

    def serve(self, place: Place, count: int, cause: str) -> int:
        """So much came that so many can be served at this place; how many were woken."""
        self._signal(place, count)
        return self.wake(place, count, cause)

    def serve_one(self, places: Sequence[Place], cause: str) -> PopCall | None:
        """One can be served, at any of these places: the one who came first."""
        best: Place | None = None
        lowest = 0
        for place in places:
            self._signal(place, 1)
            ticket = place.first()
            if ticket is not None and (best is None or ticket < lowest):
                best, lowest = place, ticket
        if best is None:
            return None
        call = best.heap[0][1]
        return call if self.wake(best, 1, cause) else None

    def hunt(self, place: Place, cause: str) -> int:
        """Something may be there, and nobody knows how much: one looks, and wakes others if
        that was worth it. If somebody is looking already, it goes on with this."""
        self._signal(place, 1)
        place.hunting = True
        if place.looking:
            return 0
        return self.wake(place, 1, cause)

    def _signal(self, place: Place, count: int) -> None:
        """Also for those who are looking and may come back with nothing. Most came before those
        who are woken now, and must not be overtaken by them."""
        place.signals += 1
        place.credit = min(place.credit + count, place.looking)

    def hunt_everywhere(self, cause: str) -> None:
        for place in self.places:
            self.hunt(place, cause)

    def look_around(self, most: int, cause: str) -> int:
        """Let the first at each of so many places look, those that did longest ago first."""
        woken = 0
        for _ in range(len(self.places)):
            if woken >= most:
                break
            woken += self.hunt(self.places.next(), cause)
        return woken

    def wake(self, place: Place, count: int, cause: str) -> int:
        """Wake up to so many of those who are parked there; how many."""
        if self._held:
            return 0
        calls = place.take(count)
        if calls:
            self.parked -= len(calls)
            self._send(calls, cause)
        return len(calls)

    def _send(self, calls: list[PopCall], cause: str) -> None:
        self._measures.wakes[cause] += len(calls)
        for call in calls:
            call.state = QUEUED
            call.cause = cause
        self.looks.look_again(calls)

    # --- time ------------------------------------------------------------------------------

    def _expect(self, place: Place, moment: int) -> None:
        """Look again when, by what the store says, something will be there."""
        if moment > self._clock():
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
        self.hunt(place, "due")

    # --- all at once -------------------------------------------------------------------------

    @property
    def is_held(self) -> bool:
        return self._held

    def hold(self, held: bool, cause: str = "admin") -> None:
        """While held nobody is woken: pops stay parked until their time is up."""
        was, self._held = self._held, held
        if was and not held:
            self.hunt_everywhere(cause)

    def close(self) -> None:
        """Answer all who are parked with nothing; who is looking gets what it finds."""
        self._closed = True
        for place in self.places:
            place.hunting = False
            for _, call in list(place.heap):
                if call.state == IDLE and call.place is not None:
                    self._leave(call, place)
                    self._answer_empty(call)
