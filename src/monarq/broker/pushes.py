"""The inbox of pushes: to the store, or to the buffer files while the store cannot take them."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from monarq.broker.batching import Call, Inbox, Limits, Trip
from monarq.broker.failover import Failover, Route
from monarq.broker.measures import Measures
from monarq.errors import MonarqError, StoreUnavailableError
from monarq.model import Push, PushColumns, Pushed, PushItem
from monarq.store.contract import Outcome, Store
from monarq.store.validation import check_push


def payload_bytes(items: Sequence[PushItem]) -> int:
    if type(items) is PushColumns:
        return len(items.data)
    return sum([len(item.payload) for item in items])


class PushCall(Call):
    __slots__ = ()
    request: Push


class ChainedPush(Struct, frozen=True):
    """A push with a mark of its sender's, and the mark of the one that must be stored before it.
    It goes to the store alone, and never to the buffer."""

    push: Push
    mark: str | None
    after: str | None


class ChainedCall(Call):
    __slots__ = ()
    request: ChainedPush


class PushInbox(Inbox[PushCall]):
    """Every batch has a mark, so that one whose fate nobody knows can be repeated."""

    def __init__(
        self,
        limits: Limits,
        measures: Measures,
        on_unavailable: Callable[[StoreUnavailableError], None],
        store: Callable[[], Store],
        pushed: Callable[[Sequence[Push], Sequence[Outcome[list[Pushed]]]], None],
    ) -> None:
        super().__init__(limits, measures.push, measures, on_unavailable)
        self._store = store
        self._pushed = pushed
        self._sender = secrets.token_hex(12)
        self._sent = 0
        self._to_buffer: set[Trip[PushCall]] = set()
        self.failover: Failover | None = None

    def route_changed(self, route: Route) -> None:
        self.hold(route is Route.HOLD)

    def _new_mark(self) -> str:
        self._sent += 1
        return f"{self._sender}-{self._sent:x}"

    async def _ask(self, trip: Trip[PushCall]) -> Sequence[Any]:
        failover = self.failover
        if failover is not None and failover.route is not Route.DIRECT:
            self._to_buffer.add(trip)
            try:
                return await self._keep(failover, trip)
            finally:
                self._to_buffer.discard(trip)
        requests = [call.request for call in trip.calls]
        return await self._store().push(requests, mark=trip.mark)

    def _settle_late(self, calls: list[PushCall], answers: Sequence[Any]) -> None:
        self._pushed([call.request for call in calls], answers)

    def _abandon(self, trip: Trip[PushCall]) -> None:
        # A slow disk is no reason to write the same pushes down again.
        if trip not in self._to_buffer:
            super()._abandon(trip)

    def _unavailable(self, trip: Trip[PushCall], error: StoreUnavailableError) -> None:
        if self.failover is None:
            super()._unavailable(trip, error)
        else:
            self._send(self._keep_unanswered(self.failover, trip), trip.calls)

    async def _keep_unanswered(self, failover: Failover, trip: Trip[PushCall]) -> None:
        # All of them, as the store was given them: it may know some under this mark.
        requests = [call.request for call in trip.calls]
        try:
            kept: Sequence[Any] = await failover.keep(trip.mark, requests, attempted=True)
        except MonarqError as error:
            kept = [error] * len(requests)
        self._note_kept(trip.calls, kept)
        self._settle(trip.calls, kept)

    async def _keep(
        self, failover: Failover, trip: Trip[PushCall]
    ) -> Sequence[Outcome[list[Pushed]]]:
        """Write to the buffer what is not malformed: nobody could tell its sender later."""
        refused = [_refusal(call.request) for call in trip.calls]
        good = [call for call, error in zip(trip.calls, refused, strict=True) if error is None]
        kept: Sequence[Any] = []
        if good:
            try:
                kept = await failover.keep(trip.mark, [call.request for call in good])
            except MonarqError as error:
                kept = [error] * len(good)
            self._note_kept(good, kept)
        answers = iter(kept)
        return [next(answers) if refusal is None else refusal for refusal in refused]

    def _note_kept(self, calls: Sequence[PushCall], kept: Sequence[Any]) -> None:
        for call, answer in zip(calls, kept, strict=True):
            if not isinstance(answer, MonarqError):
                self._measures.buffered += call.count


def _refusal(push: Push) -> MonarqError | None:
    try:
        check_push(push)
    except MonarqError as error:
        return error
    return None
