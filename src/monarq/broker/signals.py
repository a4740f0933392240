"""What calls that succeeded mean for those who wait, here and at the other brokers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from monarq.broker.facts import Facts
from monarq.broker.waking import Waking
from monarq.errors import MonarqError
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    Popped,
    Push,
    Pushed,
    PushStatus,
    QueueKind,
    Transaction,
    TransactionDone,
)
from monarq.store.contract import Outcome

Tell = Callable[[str, str | None, int], None]
"""Told a queue, a partition (None: nobody knows which) and how many messages."""

_SPANS = 10_000
_QUEUED = PushStatus.QUEUED
_ENDS_ITEM = (AckStatus.COMPLETED, AckStatus.DEAD)


class Signals:
    def __init__(self, waking: Waking, facts: Facts) -> None:
        self._waking = waking
        self._facts = facts
        self._spans: dict[str, set[str]] = {}
        self.tell_available: Tell | None = None
        """Tells the other brokers of messages."""
        self.tell_free: Tell | None = None
        """Tells them of partitions that are no longer leased."""

    def note_span(self, popped: Popped) -> None:
        """An answer to a whole lease names one queue; remember the others."""
        queues = {message.queue for message in popped.messages}
        if popped.lease_id is not None and len(queues) > 1:
            if len(self._spans) >= _SPANS:
                del self._spans[next(iter(self._spans))]
            self._spans[popped.lease_id] = queues

    def pushed(self, pushes: Sequence[Push], answers: Sequence[Outcome[list[Pushed]]]) -> None:
        waking, tell = self._waking, self.tell_available
        if not waking.is_anybody_here and tell is None:
            return
        came: dict[str, dict[str, int]] = {}
        for push, answer in zip(pushes, answers, strict=True):
            if isinstance(answer, MonarqError):
                continue
            for item, pushed in zip(push.items, answer, strict=True):
                if pushed.status is _QUEUED:
                    partitions = came.setdefault(item.queue, {})
                    partitions[item.partition] = partitions.get(item.partition, 0) + 1
        for queue, partitions in came.items():
            waking.pushed(queue, partitions)
            if tell is not None:
                for partition, count in partitions.items():
                    tell(queue, partition, count)

    def acked(self, acks: Sequence[Ack], answers: Sequence[Outcome[Acked]]) -> None:
        if not self._waking.is_anybody_here and self.tell_free is None:
            return
        for ack, answer in zip(acks, answers, strict=True):
            if isinstance(answer, Acked) and (answer.lease_released or answer.dead):
                self._acked(ack, answer)

    def _acked(self, ack: Ack, answer: Acked) -> None:
        waking, tell, queue = self._waking, self.tell_free, answer.queue
        facts = self._facts.get(queue) if waking.is_anybody_here else None
        if answer.dead and facts is not None and facts.options.dead_queue:
            waking.stirred(facts.options.dead_queue, "free")
            if tell is not None:
                tell(facts.options.dead_queue, None, answer.dead)
        if not answer.lease_released:
            return
        if facts is not None and facts.kind is QueueKind.WORK:
            if ack.status not in _ENDS_ITEM:
                waking.pushed(queue, {answer.partition: answer.count}, "free")
        elif ack.transaction_id is None:
            # A whole lease: over how many partitions, and for which group, is not said.
            for name in self._spans.pop(ack.lease_id or "", None) or (queue,):
                waking.stirred(name, "free")
        else:
            waking.freed(queue, answer.partition, ack.group)
        if tell is not None:
            tell(queue, answer.partition if ack.transaction_id is not None else None, answer.count)

    def transacted(self, request: Transaction, done: TransactionDone) -> None:
        for operation, result in zip(request.operations, done.results, strict=True):
            if isinstance(operation, Push):
                assert not isinstance(result, Acked)
                self.pushed([operation], [result])
            else:
                assert isinstance(result, Acked)
                self.acked([operation], [result])
