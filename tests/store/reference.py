"""The rules of `docs/model.md` as a small program, for random histories to be compared with.

It makes the calls of `monarq.store.contract.Store`, one thread, no waiting, everything in plain
lists and dicts. It is written to be obviously right and not to be fast: nothing here may use a
trick that a store uses. The rules for ordered queues are in `reference_ordered` and
`reference_acks`, those for work queues in `reference_work`, what they share in `reference_core`.

Partition and lease ids are its own: whoever compares it with a store maps them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from monarq.clock import micros
from monarq.errors import (
    ConflictError,
    InvalidRequestError,
    LeaseExpiredError,
    LeaseUnknownError,
    MonarqError,
    NotFoundError,
    QueueFullError,
    TransactionFailedError,
)
from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    POP_MAX_BYTES,
    Ack,
    Acked,
    DeadLetter,
    DeadLetterFilter,
    ItemState,
    Pop,
    Popped,
    Push,
    Pushed,
    PushItem,
    PushStatus,
    QueueKind,
    Renew,
    Renewed,
    StartFrom,
    Transaction,
    TransactionDone,
)
from monarq.model.queue_options import OptionChanges
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.operations.queues import QueueDeleted, QueuePaused
from monarq.store import validation
from monarq.store.contract import Outcome
from tests.store.reference_core import with_headers
from tests.store.reference_lifecycle import LifecycleRules
from tests.store.reference_state import QueueState, Scope
from tests.store.reference_work import work_partition


class Reference(LifecycleRules):
    # --- push, pop, ack, renew, transaction --------------------------------------------------

    def push(self, requests: Sequence[Push]) -> list[Outcome[list[Pushed]]]:
        return self.each(requests, self.push_one)

    def push_one(self, request: Push) -> list[Pushed]:
        validation.check_push(request)
        before = {name: self.pending(queue) for name, queue in self.world.queues.items()}
        pushed: list[Pushed] = []
        for item in request.items:
            if item.queue not in self.world.queues:
                self.make_queue(
                    item.queue, QueueKind.ORDERED, item.namespace or "", item.task or ""
                )
            pushed.append(self.store_item(item, request.producer))
        for queue in self.world.queues.values():
            new = sum(p.status is PushStatus.QUEUED and p.queue == queue.name for p in pushed)
            limit = queue.options.max_size
            if limit and new and before.get(queue.name, 0) + new > limit:
                raise QueueFullError(f"{queue.name!r} is full")
        return pushed

    def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        """In order, but all requests for one work queue together, when the first one's turn is."""
        answers: dict[int, Outcome[Popped]] = {}
        for index, request in enumerate(requests):
            if index in answers:
                continue
            queue = self.world.queues.get(request.queue or "")
            if queue is None or not queue.is_work:
                [answers[index]] = self.each([request], partial(self.pop_one, max_bytes))
                continue
            same = [i for i, r in enumerate(requests) if r.queue == queue.name]
            refused = {i: refused_by_work_queue(requests[i]) for i in same}
            answers.update({i: error for i, error in refused.items() if error})
            served = [i for i in same if refused[i] is None]
            dealt = self.pop_work(queue, [requests[i] for i in served], max_bytes)
            answers.update(zip(served, dealt, strict=True))
        return [answers[index] for index in range(len(requests))]

    def pop_one(self, max_bytes: int, request: Pop) -> Popped:
        validation.check_pop(request)
        return self.pop_ordered(request, max_bytes)

    def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        return self.each(requests, self.ack_one)

    def ack_one(self, request: Ack) -> Acked:
        validation.check_ack(request)
        if request.partition_id is None:
            return self.ack_lease(request)
        queue, _ = self.partition_by_id(request.partition_id)
        return self.ack_item(queue, request) if queue.is_work else self.ack_message(request)

    def ack_lease(self, request: Ack) -> Acked:
        """Answer everything under the lease that has no answer yet."""
        assert request.lease_id is not None
        self.check_live(request.lease_id)
        answers: list[Acked] = []
        for queue, partition, cursor in self.leased_cursors(request.lease_id):
            messages = self.under_lease(partition, cursor)
            answers.append(self.answer(queue, partition, cursor, messages, request))
        for queue, item in self.leased_items(request.lease_id):
            dead = self.answer_item(queue, item, request)
            answers.append(
                Acked(
                    queue=queue.name,
                    partition=work_partition(queue).name,
                    transaction_id=None,
                    lease_released=True,
                    dead=int(dead),
                )
            )
        return msgspec.structs.replace(
            answers[0],
            dead=sum(answer.dead for answer in answers),
            count=sum(answer.count for answer in answers),
        )

    def check_live(self, lease_id: str) -> None:
        """A lease id alone: it must cover something, and not be past its deadline."""
        covered = [cursor.lease for _, _, cursor in self.leased_cursors(lease_id)]
        covered += [item.lease for _, item in self.leased_items(lease_id)]
        if not covered:
            raise LeaseUnknownError("the lease covers nothing")
        if any(lease is not None and not lease.is_live(self.now) for lease in covered):
            raise LeaseExpiredError("the lease is past its deadline")

    def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        return self.each(requests, self.renew_one)

    def renew_one(self, request: Renew) -> Renewed:
        validation.check_renew(request)
        self.check_live(request.lease_id)
        wanted = self.now + micros(request.seconds)
        until = wanted
        for _, _, cursor in self.leased_cursors(request.lease_id):
            assert cursor.lease is not None
            until = cursor.lease.until = max(cursor.lease.until, wanted)
            cursor.available_at = until
        for _, item in self.leased_items(request.lease_id):
            assert item.lease is not None
            until = item.lease.until = max(item.lease.until, wanted)
        return Renewed(request.lease_id, until)

    def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        return self.each(requests, self.transact)

    def transact(self, request: Transaction) -> TransactionDone:
        validation.check_transaction(request)
        for lease_id in request.required_leases:
            try:
                self.check_live(lease_id)
            except MonarqError as error:
                raise TransactionFailedError(None, error) from None
        results: dict[int, list[Pushed] | Acked] = {}
        indexes = range(len(request.operations))
        pushes_first = sorted(indexes, key=lambda i: not isinstance(request.operations[i], Push))
        for index in pushes_first:
            operation = request.operations[index]
            try:
                if isinstance(operation, Push):
                    results[index] = self.push_one(operation)
                else:
                    results[index] = self.ack_one(operation)
            except MonarqError as error:
                raise TransactionFailedError(index, error) from None
        return TransactionDone([results[index] for index in indexes])

    # --- queues ------------------------------------------------------------------------------

    def configure(
        self,
        name: str,
        *,
        kind: QueueKind | None = None,
        namespace: str | None = None,
        task: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> QueueState:
        def change(name: str) -> QueueState:
            return self.configure_one(name, kind, namespace, task, options or {})

        [answer] = self.each([name], change)
        if isinstance(answer, MonarqError):
            raise answer
        return answer

    def configure_one(
        self,
        name: str,
        kind: QueueKind | None,
        namespace: str | None,
        task: str | None,
        options: Mapping[str, Any],
    ) -> QueueState:
        changes = OptionChanges.read(options)
        queue = self.world.queues.get(name)
        if queue is None:
            queue = self.make_queue(name, kind or QueueKind.ORDERED, namespace or "", task or "")
        self.check_kind(queue, kind)
        if changes.get("dead_queue"):
            self.check_dead_queue(queue, changes["dead_queue"])
        queue.options = msgspec.structs.replace(queue.options, **changes)
        if changes.keys() & {"delayed_processing", "window_buffer"}:
            self.stop_waiting(queue)
        queue.namespace = queue.namespace if namespace is None else namespace
        queue.task = queue.task if task is None else task
        return queue

    def stop_waiting(self, queue: QueueState) -> None:
        """Partitions may wait for a delay that does not hold any more: the next pop finds out."""
        for partition in queue.partitions.values():
            for cursor in partition.cursors.values():
                is_leased = cursor.lease is not None and cursor.lease.ended is None
                if not is_leased and cursor.available_at is not None:
                    cursor.available_at = min(cursor.available_at, self.now)

    def delete_queue(self, name: str) -> QueueDeleted:
        if name not in self.world.queues:
            return QueueDeleted(deleted=False, queue=name, messages=0, dead_letters=0)
        if self.is_dead_queue(name):
            raise ConflictError("it is another queue's dead queue")
        gone = self.world.queues.pop(name)
        lost = len(self.letters_of(gone))
        self.world.letters = [letter for letter in self.world.letters if letter.queue != name]
        for group, scope in list(self.world.subscriptions):
            if scope.queue == name:
                del self.world.subscriptions[group, scope]
        return QueueDeleted(deleted=True, queue=name, messages=self.stored(gone), dead_letters=lost)

    def clear_queue(
        self, name: str, *, scheduled_only: bool = False, keep_leased: bool = False
    ) -> int:
        queue = self.queue(name)
        if scheduled_only or keep_leased:
            return self.clear_some(queue, scheduled_only)
        gone = self.stored(queue)
        if queue.is_work:
            dead = [item for item in queue.items if item.state is ItemState.DEAD]
            queue.items = dead
            return gone - len(dead)
        for partition in queue.partitions.values():
            partition.messages = []
            for cursor in partition.cursors.values():
                self.end_lease(cursor)
                self.place(partition, cursor)
        return gone

    def clear_some(self, queue: QueueState, scheduled_only: bool) -> int:
        if not queue.is_work:
            raise ConflictError(f"{queue.name!r} is an ordered queue")
        kept = []
        for item in queue.items:
            is_scheduled = item.state is ItemState.SCHEDULED
            is_leased = item.state is ItemState.LEASED and item.lease is not None
            is_live = is_leased and item.lease is not None and not item.lease.has_run_out(self.now)
            stays = not is_scheduled if scheduled_only else is_live
            if stays or item.state is ItemState.DEAD:
                kept.append(item)
        gone = len(queue.items) - len(kept)
        queue.items = kept
        return gone

    def set_archived(self, name: str, partition_id: int, seq: int) -> None:
        queue = self.queue(name)
        if queue.is_work:
            raise ConflictError(f"{name!r} is a work queue")
        for partition in queue.partitions.values():
            if partition.id == partition_id:
                if seq > partition.last_seq:
                    raise InvalidRequestError(f"{partition.name!r} has no {seq} yet")
                partition.archived_seq = max(partition.archived_seq, seq)

    def pause_queue(self, queue: str) -> QueuePaused:
        self.queue(queue).paused = True
        return QueuePaused(queue=queue, paused=True)

    def resume_queue(self, queue: str) -> QueuePaused:
        self.queue(queue).paused = False
        return QueuePaused(queue=queue, paused=False)

    # --- groups ------------------------------------------------------------------------------

    def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        return self.ask(group, start, Scope(queue, namespace, task))

    def delete_group(
        self, group: str, *, queue: str | None = None, forget_start: bool = True
    ) -> int:
        gone = 0
        for found in self.world.queues.values():
            if queue in (None, found.name) and group in found.groups:
                del found.groups[group]
                gone += 1
                for partition in found.partitions.values():
                    cursor = partition.cursors.pop(group)
                    self.end_lease(cursor)
                    if cursor.lease is not None:
                        self.world.ended_leases[partition.id, group] = cursor.lease
        for name, scope in list(self.world.subscriptions):
            if forget_start and name == group and queue in (None, scope.queue):
                del self.world.subscriptions[name, scope]
        return gone

    # --- dead letters --------------------------------------------------------------------------

    def list_dead_letters(self, which: DeadLetterFilter) -> list[DeadLetter]:
        """Newest first."""
        return [letter for letter in reversed(self.world.letters) if _matches(letter, which)]

    def redrive(self, request: Redrive) -> int:
        self.world.calls += 1
        which = request.which
        chosen = [letter for letter in self.world.letters if _matches(letter, which)]
        chosen = chosen[: request.limit]
        if request.to_queue is not None:
            self.queue(request.to_queue)
        for letter in chosen:
            self.redrive_one(letter, request.to_queue)
            self.world.letters.remove(letter)
        return len(chosen)

    def redrive_one(self, letter: DeadLetter, to: str | None) -> None:
        source = self.queue(letter.queue)
        target = self.queue(to or letter.queue)
        items = [item for item in source.items if item.seq == letter.seq]
        if source.is_work and target is source:
            self.start_over(source, items[0])
            return
        self.store_item(
            PushItem(
                queue=target.name,
                payload=letter.payload,
                partition=DEFAULT_PARTITION if target.is_work else letter.partition,
                trace_id=letter.trace_id,
                headers=with_headers(letter.headers, monarqRedrivenFrom=letter.transaction_id),
                priority=items[0].priority if items and target.is_work else None,
            ),
            letter.producer,
            only_for=letter.group if target is source else None,
        )
        source.items = [item for item in source.items if item not in items]

    def purge_dead_letters(self, request: PurgeDeadLetters) -> int:
        gone = [letter for letter in self.world.letters if _matches(letter, request.which)]
        for letter in gone:
            self.world.letters.remove(letter)
            queue = self.queue(letter.queue)
            queue.items = [item for item in queue.items if item.seq != letter.seq]
        return len(gone)

    # --- messages ------------------------------------------------------------------------------

    def delete_message(self, partition_id: int, transaction_id: str) -> None:
        queue, partition = self.partition_by_id(partition_id)
        if queue.is_work:
            self.delete_item(queue, transaction_id)
            return
        message = self.message_named(partition, transaction_id)
        if message.deleted:
            raise NotFoundError("deleted before")
        for cursor in partition.cursors.values():
            is_live = cursor.lease is not None and cursor.lease.is_live(self.now)
            if is_live and message in self.under_lease(partition, cursor):
                raise ConflictError("the message is leased")
        message.deleted = True
        for cursor in partition.cursors.values():
            if cursor.lease is None or not cursor.lease.is_live(self.now):
                was = cursor.position
                self.advance(partition, cursor)
                left = self.unresolved(partition, cursor)
                if not left:
                    cursor.available_at = None
                elif cursor.position > was:
                    free_at = min(cursor.available_at or self.now, self.now)
                    cursor.available_at = max(free_at, cursor.retry_at.get(left[0].seq, 0))

    def delete_item(self, queue: QueueState, transaction_id: str) -> None:
        item = self.item_named(queue, transaction_id)
        if item.state is ItemState.LEASED:
            raise ConflictError("the item is leased")
        queue.items.remove(item)
        self.forget_letter(queue, item)


def refused_by_work_queue(request: Pop) -> InvalidRequestError | None:
    if request.group != DEFAULT_GROUP or request.partition not in (None, DEFAULT_PARTITION):
        return InvalidRequestError("a work queue has neither groups nor partitions")
    return None


def _matches(letter: DeadLetter, which: DeadLetterFilter) -> bool:
    if which.ids is not None and letter.id not in which.ids:
        return False
    if which.failed_from is not None and letter.failed_at < which.failed_from:
        return False
    if which.failed_to is not None and letter.failed_at > which.failed_to:
        return False
    return (
        which.queue in (None, letter.queue)
        and which.group in (None, letter.group)
        and which.partition in (None, letter.partition)
    )
