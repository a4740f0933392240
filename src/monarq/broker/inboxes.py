"""The kinds of inbox: what each asks of the store, and how the answers are handed out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from monarq.broker.batching import Call, Inbox, Limits, Trip
from monarq.broker.measures import CallMeasure, Measures
from monarq.errors import MonarqError, StoreUnavailableError

OnUnavailable = Callable[[StoreUnavailableError], None]


class AckCall(Call):
    """`request` is a sequence of acks."""

    __slots__ = ()


class RenewCall(Call):
    """`request` is a sequence of renewals."""

    __slots__ = ()


class TransactionCall(Call):
    """`request` is one transaction."""

    __slots__ = ()


class ManyInbox(Inbox[Call]):
    """Calls that hold many requests each, which the store answers one by one."""

    def __init__(
        self,
        limits: Limits,
        measure: CallMeasure,
        measures: Measures,
        on_unavailable: OnUnavailable,
        ask: Callable[[Sequence[Any]], Any],
        done: Callable[[Sequence[Any], Sequence[Any]], None] | None = None,
    ) -> None:
        super().__init__(limits, measure, measures, on_unavailable)
        self._ask_store = ask
        self._done = done

    async def _ask(self, trip: Trip[Call]) -> Sequence[Any]:
        calls = trip.calls
        if len(calls) == 1:
            return [await self._ask_store(calls[0].request)]
        answers = await self._ask_store([each for call in calls for each in call.request])
        shares: list[Sequence[Any]] = []
        start = 0
        for call in calls:
            end = start + len(call.request)
            shares.append(answers[start:end])
            start = end
        return shares

    def _settle(self, calls: list[Call], answers: Sequence[Any]) -> None:
        measure = self._measure
        messages = 0
        for call, answer in zip(calls, answers, strict=True):
            if not call.done():
                call.set_result(answer)
            messages += len(answer)
        measure.messages += messages
        measure.batch_messages.observe(messages)
        self._settle_late(calls, answers)

    def _settle_late(self, calls: list[Call], answers: Sequence[Any]) -> None:
        if self._done is not None:
            for call, answer in zip(calls, answers, strict=True):
                self._done(call.request, answer)


class SingleInbox(Inbox[Call]):
    """Calls that are one request each."""

    def __init__(
        self,
        limits: Limits,
        measure: CallMeasure,
        measures: Measures,
        on_unavailable: OnUnavailable,
        ask: Callable[[Sequence[Any]], Any],
        done: Callable[[Any, Any], None],
    ) -> None:
        super().__init__(limits, measure, measures, on_unavailable)
        self._ask_store = ask
        self._done = done

    async def _ask(self, trip: Trip[Call]) -> Sequence[Any]:
        answers: Sequence[Any] = await self._ask_store([call.request for call in trip.calls])
        return answers

    def _settle_late(self, calls: list[Call], answers: Sequence[Any]) -> None:
        for call, answer in zip(calls, answers, strict=True):
            if not isinstance(answer, MonarqError):
                self._done(call.request, answer)
