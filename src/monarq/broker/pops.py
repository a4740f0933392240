"""The inbox of pops: looks of new ones and of those that were woken, in the order they came.

Pops of one queue and group are in one call to the store at a time. Two would pass over what the
other has locked: one who came early would go away empty, and one who came late be served. Others
go over different connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from monarq.broker.batching import Inbox, Limits, Trip, fail
from monarq.broker.facts import Facts
from monarq.broker.measures import Measures
from monarq.broker.places import AckAndPopCall, PopCall
from monarq.broker.waiting import Waiting
from monarq.errors import MonarqError, StoreUnavailableError
from monarq.model import Ack, Acked, Popped, QueueKind
from monarq.store.contract import Outcome, Store

_SPREAD = 16
"""Fewer pops than this are not worth a second connection."""
_FULL_ANSWERS = 8
"""What one call to the store brings is bounded by so many answers that are full; more pops than
that have less room each."""
_SHARING_MAX = 1_000
"""Pops of one work queue that share what is there, whatever a call to the store may hold."""

_ACKS = 1_000
"""That go with the pops of one call to the store."""
_NOTHING = Popped(messages=[])

Lane = tuple[str | None, str]
"""A queue (None: labels) and a group."""


class PopInbox(Inbox[PopCall]):
    def __init__(
        self,
        limits: Limits,
        measures: Measures,
        on_unavailable: Callable[[StoreUnavailableError], None],
        store: Callable[[], Store],
        waiting: Waiting,
        facts: Facts,
        leased: Callable[[int], None],
        spanned: Callable[[Popped], None],
        acked: Callable[[Sequence[Ack], Sequence[Outcome[Acked]]], None],
        max_bytes: int,
    ) -> None:
        """`leased` is told when a lease ends, `spanned` of one that may be over several queues,
        `acked` of acks that came with a pop. An answer holds `max_bytes` of payloads at most."""
        super().__init__(limits, measures.pop, measures, on_unavailable)
        self._store = store
        self._waiting = waiting
        self._facts = facts
        self._leased = leased
        self._spanned = spanned
        self._acked = acked
        self._max_bytes = max_bytes
        self._flying: set[Lane] = set()
        """What calls under way are about."""
        self._lanes: dict[asyncio.Task[Any], set[Lane]] = {}
        self._blocked: dict[Lane, list[PopCall]] = {}
        """Pops of the same, until the call is back."""
        self._blocked_count = 0
        self._give_back: Callable[[Popped, str], None] = lambda popped, group: None

    def give_back_to(self, give_back: Callable[[Popped, str], None]) -> None:
        """Whom to tell of leases that nobody received."""
        self._give_back = give_back

    # --- lanes -----------------------------------------------------------------------------

    def look_again(self, calls: Sequence[PopCall]) -> None:
        """Those who were woken are not refused: they have waited."""
        self._queue.extend(calls)
        self._count += len(calls)
        if not self._scheduled:
            self.consider()

    def __len__(self) -> int:
        return len(self._queue) + self._blocked_count

    @property
    def is_busy(self) -> bool:
        return bool(self._blocked_count) or super().is_busy

    @property
    def is_full(self) -> bool:
        return len(self) >= self.limits.calls_max

    def _take(self) -> list[PopCall]:
        queue = self._queue
        free = self.limits.concurrency - self._in_flight
        most = min(self.limits.batch_max, max(_SPREAD, -(-len(queue) // free)))
        calls: list[PopCall] = []
        acks = 0
        while queue:
            call = queue[0]
            lane = _lane(call)
            acks += len(_acks(call))
            if call.done():
                pass
            elif lane in self._flying:
                self._blocked.setdefault(lane, []).append(call)
                self._blocked_count += 1
            elif not calls or (acks <= _ACKS and (len(calls) < most or self._belongs(call, calls))):
                calls.append(call)
            else:
                break
            queue.popleft()
            self._count -= 1
        calls.sort(key=_ticket)
        for call in calls:
            if isinstance(call, AckAndPopCall):
                call.is_behind = self._waiting.would_overtake(call.request)
            self._waiting.looking(call)
        return calls

    def _belongs(self, call: PopCall, calls: list[PopCall]) -> bool:
        """Whether it goes with the one before, though the call to the store is large enough."""
        queue = call.request.queue
        if queue != calls[-1].request.queue or len(calls) >= _SHARING_MAX:
            return False
        if len(calls) < self.limits.batch_max:
            return True
        facts = None if queue is None else self._facts.peek(queue)
        return facts is not None and facts.kind is QueueKind.WORK

    def _send(self, work: Coroutine[Any, Any, None], calls: list[PopCall]) -> asyncio.Task[None]:
        task = super()._send(work, calls)
        lanes = self._lanes[task] = {_lane(call) for call in calls}
        self._flying |= lanes
        return task

    def _free_slot(self, task: asyncio.Task[Any]) -> None:
        lanes = self._lanes.pop(task)
        self._flying -= lanes
        for lane in lanes:
            blocked = self._blocked.pop(lane, None)
            if blocked:
                blocked.sort(key=_ticket)
                self._queue.extendleft(reversed(blocked))
                self._count += len(blocked)
                self._blocked_count -= len(blocked)
        super()._free_slot(task)

    def refuse_all(self, error: MonarqError) -> None:
        for blocked in self._blocked.values():
            for call in blocked:
                fail(call, error)
        self._blocked.clear()
        self._blocked_count = 0
        super().refuse_all(error)

    # --- looking -----------------------------------------------------------------------------

    async def _ask(self, trip: Trip[PopCall]) -> Sequence[Any]:
        self._measures.pops_leasing += len(trip.calls)
        try:
            with_acks = [call for call in trip.calls if isinstance(call, AckAndPopCall)]
            if with_acks:
                return await self._ask_both(trip.calls, with_acks)
            requests = [call.request for call in trip.calls]
            return await self._store().pop(requests, max_bytes=self._room(len(requests)))
        finally:
            self._measures.pops_leasing -= len(trip.calls)

    async def _ask_both(
        self, calls: list[PopCall], with_acks: list[AckAndPopCall]
    ) -> list[Outcome[Popped]]:
        behind = {call for call in with_acks if call.is_behind}
        acks = [ack for call in with_acks for ack in call.acks]
        pops = [call.request for call in calls if call not in behind]
        acked, popped = await self._store().ack_and_pop(
            acks, pops, max_bytes=self._room(len(pops) or 1)
        )
        start = 0
        for call in with_acks:
            end = start + len(call.acks)
            call.acked = acked[start:end]
            start = end
        found = iter(popped)
        return [_NOTHING if call in behind else next(found) for call in calls]

    def _room(self, pops: int) -> int:
        return max(self._max_bytes * min(_FULL_ANSWERS, pops) // pops, 1)

    def _settle(self, calls: list[PopCall], answers: Sequence[Any]) -> None:
        if self._nobody_waits(calls):
            self._free_early()
        self._settle_acks(calls)
        waiting, steps = self._waiting, self._measures.pop_steps
        messages = delivered = failed = 0
        soonest: int | None = None
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, MonarqError):
                failed += 1
                call.refuse(answer)
                waiting.failed(call)
            elif answer.messages:
                until = answer.lease_until
                if until is not None and (soonest is None or until < soonest):
                    soonest = until
                if call.request.queue is None and call.request.partitions > 1:
                    self._spanned(answer)
                if call.done():
                    self._give_back(answer, call.request.group)
                    continue
                delivered += 1
                messages += len(answer.messages)
                call.answer(answer)
                waiting.found(call, answer)
            elif not call.done():
                if call.place is None:
                    call.answer(answer)
                else:
                    waiting.found_nothing(call, answer)
        if soonest is not None:
            self._leased(soonest)
        self._measure.errors += failed
        self._measure.messages += messages
        self._measure.batch_messages.observe(messages)
        steps["delivered"] += delivered
        steps["failed"] += failed
        steps["empty"] += len(calls) - delivered - failed

    def _nobody_waits(self, calls: list[PopCall]) -> bool:
        """Whether it makes no difference to anybody if the next call to the store leaves before the
        answers of this one are known: nobody is parked, and nobody will be."""
        joint = all(isinstance(call, AckAndPopCall) for call in calls)
        return joint and not self._waiting.parked

    def _settle_acks(self, calls: list[PopCall]) -> None:
        for call in calls:
            if isinstance(call, AckAndPopCall):
                self._measures.ack.messages += len(call.acks)
                self._acked(call.acks, call.acked)

    def _settle_late(self, calls: list[PopCall], answers: Sequence[Any]) -> None:
        self._settle_acks(calls)
        for call, answer in zip(calls, answers, strict=True):
            if isinstance(answer, Popped) and answer.messages:
                self._give_back(answer, call.request.group)

    def _unavailable(self, trip: Trip[PopCall], error: StoreUnavailableError) -> None:
        """Who had waited goes on waiting: the store may be back before its time is up."""
        for call in trip.calls:
            if call.cause and call.place is not None and self._waiting.is_held:
                self._waiting.found_nothing(call, Popped(messages=[]))
                continue
            self._measure.errors += 1
            if isinstance(call, AckAndPopCall):
                self._measures.ack.errors += 1
            self._measures.pop_steps["failed"] += 1
            fail(call, error)
            self._waiting.failed(call)

    def _fail_alone(self, call: PopCall, error: Exception) -> None:
        super()._fail_alone(call, error)
        self._waiting.failed(call)


def _acks(call: PopCall) -> Sequence[Ack]:
    return call.acks if isinstance(call, AckAndPopCall) else ()


def _lane(call: PopCall) -> Lane:
    return call.request.queue, call.request.group


def _ticket(call: PopCall) -> int:
    return call.ticket
