"""The part of the reference model that both kinds of queue share: making queues, storing what
is pushed, and what becomes of the dead."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import msgspec
from msgspec import UNSET, Raw

from monarq.clock import Clock, micros
from monarq.errors import ConflictError, InvalidRequestError, MonarqError, NotFoundError
from monarq.ids import NumberText, message_id, parse_message_id
from monarq.model import (
    DeadLetter,
    ItemState,
    Pushed,
    PushItem,
    PushStatus,
    QueueKind,
    QueueOptions,
)
from monarq.store import validation
from monarq.times import Micros
from tests.store.reference_state import (
    CursorState,
    GroupState,
    KeptMessage,
    Partition,
    QueueState,
    Scope,
    WorkItem,
    World,
)

Request = TypeVar("Request")
Answer = TypeVar("Answer")


class LifecyclePace:
    """How far a lifecycle step has come. This one does at once whatever is due; a store's may
    come to eviction, expiry and retention a little later, and whoever compares it says so."""

    def has_evicted(self, partition: Partition, cursor: CursorState) -> bool:
        return True

    def has_removed(self, partition: Partition, seq: int) -> bool:
        return True

    def has_buried(self, partition: Partition, item: WorkItem) -> bool:
        return True

    def has_removed_item(self, partition: Partition, item: WorkItem) -> bool:
        return True


AT_ONCE = LifecyclePace()


class ReferenceCore:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.world = World()
        self.lease_order: dict[int, int] = {}
        """The place of a lease's number among all, where a store gave the numbers of one call
        in another order."""

    @property
    def now(self) -> int:
        return self.clock.now()

    # --- all or nothing ------------------------------------------------------------------

    def each(
        self, requests: Sequence[Request], carry_out: Callable[[Request], Answer]
    ) -> list[Answer | MonarqError]:
        """Carry out one request after the other; one that fails leaves nothing behind."""
        self.world.calls += 1
        answers: list[Answer | MonarqError] = []
        for request in requests:
            before = copy.deepcopy(self.world)
            try:
                answers.append(carry_out(request))
            except MonarqError as error:
                self.world = before
                answers.append(error)
        return answers

    # --- finding things ------------------------------------------------------------------

    def queue(self, name: str) -> QueueState:
        if name not in self.world.queues:
            raise NotFoundError(f"no queue {name!r}")
        return self.world.queues[name]

    def all_partitions(self) -> Iterator[tuple[QueueState, Partition]]:
        for queue in self.world.queues.values():
            for partition in queue.partitions.values():
                yield queue, partition

    def partition_by_id(self, partition_id: int) -> tuple[QueueState, Partition]:
        for queue, partition in self.all_partitions():
            if partition.id == partition_id:
                return queue, partition
        raise NotFoundError(f"no partition {partition_id}")

    def item_by_id(self, item_id: str) -> tuple[QueueState, WorkItem]:
        partition_id, seq = validation.check_item_id(item_id)
        queue, _ = self.partition_by_id(partition_id)
        for item in queue.items:
            if item.seq == seq:
                return queue, item
        raise NotFoundError(f"no item {item_id}")

    def message_named(self, partition: Partition, name: str) -> KeptMessage:
        """By its transaction id, or by its id."""
        for message in partition.messages:
            if name in (message.transaction_id, message_id(partition.id, message.seq)):
                return message
        raise NotFoundError(f"no message {name!r}")

    def item_named(self, queue: QueueState, name: str) -> WorkItem:
        """By its transaction id, or by its id."""
        for partition in queue.partitions.values():
            for item in queue.items:
                if name in (item.transaction_id, message_id(partition.id, item.seq)):
                    return item
        raise NotFoundError(f"no item {name!r}")

    def next_lease_id(self) -> str:
        self.world.leases += 1
        return f"{self.world.leases}-{self.world.leases:016x}"

    # --- queues --------------------------------------------------------------------------

    def make_queue(self, name: str, kind: QueueKind, namespace: str, task: str) -> QueueState:
        queue = QueueState(name, kind, namespace, task, self.now, QueueOptions())
        self.world.queues[name] = queue
        if kind is QueueKind.ORDERED:
            subscriptions = self.world.subscriptions.items()
            # A subscription to the queue counts before those to its labels, of those the earliest.
            ordered = sorted(subscriptions, key=lambda one: (not one[0][1].queue, one[1]))
            for (group, scope), start_at in ordered:
                if scope.covers(queue) and group not in queue.groups:
                    queue.groups[group] = GroupState(start_at, self.now)
            for group, known in queue.groups.items():
                self.world.subscriptions.setdefault((group, Scope(queue.name)), known.start_at)
        return queue

    def make_partition(self, queue: QueueState, name: str) -> Partition:
        self.world.partitions += 1
        partition = Partition(self.world.partitions, name, number=self.world.partitions)
        for group in queue.groups:
            partition.cursors[group] = CursorState(group, position=0, available_at=None)
        queue.partitions[name] = partition
        return partition

    def pending(self, queue: QueueState) -> int:
        if queue.is_work:
            return sum(not item.is_finished for item in queue.items)
        if not queue.groups:
            return self.stored(queue)
        return max(
            sum(self.lag(p, p.cursors[group]) for p in queue.partitions.values())
            for group in queue.groups
        )

    def stored(self, queue: QueueState) -> int:
        if queue.is_work:
            return len(queue.items)
        # A deleted message keeps its place until it is removed with its neighbours.
        return sum(len(partition.messages) for partition in queue.partitions.values())

    def lag(self, partition: Partition, cursor: CursorState) -> int:
        """Everything behind the position, also what was answered ahead of its turn."""
        return partition.last_seq - cursor.position

    def unresolved(self, partition: Partition, cursor: CursorState) -> list[KeptMessage]:
        """What is still before the group, in order."""
        return [m for m in partition.messages if not self.is_resolved(cursor, m)]

    def is_resolved(self, cursor: CursorState, message: KeptMessage) -> bool:
        return (
            message.seq <= cursor.position
            or message.seq in cursor.resolved
            or message.deleted
            or message.only_for not in (None, cursor.group)
        )

    def advance(self, partition: Partition, cursor: CursorState) -> None:
        """Move the position over everything resolved at its front."""
        left = self.unresolved(partition, cursor)
        cursor.position = left[0].seq - 1 if left else partition.last_seq
        cursor.resolved = {seq for seq in cursor.resolved if seq > cursor.position}

    # --- storing ---------------------------------------------------------------------------

    def kept(self, queue: QueueState, partition: Partition) -> dict[str, int]:
        """The seq of each transaction id that the partition has."""
        kept = queue.items if queue.is_work else partition.messages
        return {thing.transaction_id: thing.seq for thing in kept}

    def duplicate_of(
        self, queue: QueueState, partition: Partition, transaction_id: str
    ) -> int | None:
        seq = self.kept(queue, partition).get(transaction_id)
        named = parse_message_id(transaction_id)
        if seq is None and named is not None and named[0] == partition.id:
            raise InvalidRequestError(f"{transaction_id} is not a message of its partition")
        return seq

    def store_item(
        self, item: PushItem, producer: str | None = None, only_for: str | None = None
    ) -> Pushed:
        """Append one item to its queue, which exists; `maxSize` is the caller's business."""
        queue = self.queue(item.queue)
        if queue.is_work:
            validation.check_work_item(item)
        else:
            validation.check_ordered_item(item)
        partition = queue.partitions.get(item.partition) or self.make_partition(
            queue, item.partition
        )
        if item.transaction_id is not None:
            first = self.duplicate_of(queue, partition, item.transaction_id)
            if first is not None:
                return Pushed(
                    *(PushStatus.DUPLICATE, queue.name, partition.id, first),
                    *(item.transaction_id, item.trace_id),
                )
        partition.last_seq += 1
        queue.pushed += 1
        seq = partition.last_seq
        transaction_id = item.transaction_id or message_id(partition.id, seq)
        partition.last_push_at = max(self.now, partition.last_push_at)
        if queue.is_work:
            self.add_item(queue, partition, item, transaction_id, producer)
        else:
            self.add_message(partition, item, transaction_id, producer, only_for)
        return Pushed(
            *(PushStatus.QUEUED, queue.name, partition.id, seq, transaction_id, item.trace_id)
        )

    def add_message(
        self,
        partition: Partition,
        item: PushItem,
        transaction_id: str,
        producer: str | None,
        only_for: str | None,
    ) -> None:
        message = KeptMessage(
            seq=partition.last_seq,
            transaction_id=transaction_id,
            payload=item.payload,
            created_at=partition.last_push_at,
            pushed_in=self.world.calls,
            trace_id=item.trace_id,
            producer=producer,
            headers=item.headers,
            only_for=only_for,
        )
        partition.messages.append(message)
        for cursor in partition.cursors.values():
            if self.is_resolved(cursor, message):
                self.advance(partition, cursor)
            elif cursor.available_at is None:
                cursor.available_at = self.now

    def add_item(
        self,
        queue: QueueState,
        partition: Partition,
        item: PushItem,
        transaction_id: str,
        producer: str | None,
    ) -> None:
        # Every push ages all waiting items by one.
        for waiting in queue.items:
            if waiting.state is ItemState.READY:
                waiting.waited += 1
        options = queue.options
        run_at = item.run_at
        if item.delay_seconds is not None:
            run_at = self.now + micros(item.delay_seconds)
        is_scheduled = run_at is not None and run_at > self.now
        created_at = partition.last_push_at
        queue.turns += 1
        queue.items.append(
            WorkItem(
                seq=partition.last_seq,
                transaction_id=transaction_id,
                payload=item.payload,
                created_at=created_at,
                state=ItemState.SCHEDULED if is_scheduled else ItemState.READY,
                run_at=run_at if is_scheduled else None,
                priority=options.default_priority if item.priority is None else item.priority,
                turn=queue.turns,
                max_attempts=item.max_attempts or options.max_attempts,
                backoff_base=(
                    options.backoff_base if item.backoff_base is None else item.backoff_base
                ),
                backoff_cap=options.backoff_cap,
                expires_at=self.expiry(queue, created_at),
                trace_id=item.trace_id,
                producer=producer,
                headers=item.headers,
            )
        )

    def expiry(self, queue: QueueState, since: int) -> int | None:
        timeout = micros(queue.options.expire_timeout)
        return since + timeout if timeout else None

    # --- the dead --------------------------------------------------------------------------

    def bury(
        self,
        queue: QueueState,
        partition: Partition,
        thing: KeptMessage | WorkItem,
        *,
        group: str,
        attempts: int,
        error: str,
    ) -> bool:
        """Keep a dead message or item where its queue says; whether it is a dead letter now."""
        queue.counters.dead += 1
        if queue.options.dead_queue:
            headers = with_headers(
                thing.headers,
                monarqDeadFrom=queue.name,
                monarqDeadGroup=group,
                monarqDeadAttempts=attempts,
                monarqDeadError=error,
            )
            self.store_item(
                PushItem(
                    queue=queue.options.dead_queue,
                    payload=thing.payload,
                    partition=partition.name,
                    transaction_id=self.moved_id(queue, partition, thing.transaction_id),
                    trace_id=thing.trace_id,
                    headers=headers,
                    priority=thing.priority if isinstance(thing, WorkItem) else None,
                ),
                thing.producer,
            )
            return False
        if not queue.options.dead_letter_queue:
            return False
        self.world.dead += 1
        self.world.letters.append(
            DeadLetter(
                id=NumberText(self.world.dead),
                message_id=message_id(partition.id, thing.seq),
                transaction_id=thing.transaction_id,
                partition_id=NumberText(partition.id),
                queue=queue.name,
                partition=partition.name,
                group=group,
                error=error,
                attempts=attempts,
                raw=Raw(thing.payload),
                trace_id=thing.trace_id,
                producer=thing.producer,
                created_at=Micros(thing.created_at),
                failed_at=Micros(self.now),
                raw_headers=UNSET if thing.headers is None else Raw(thing.headers),
            )
        )
        return True

    def moved_id(self, queue: QueueState, partition: Partition, transaction_id: str) -> str | None:
        """Kept on the way to the dead queue, unless it would name a message of the partition
        there."""
        there = self.queue(queue.options.dead_queue).partitions.get(partition.name)
        named = parse_message_id(transaction_id)
        is_mistaken = there is not None and named is not None and named[0] == there.id
        return None if is_mistaken else transaction_id

    def letters_of(self, queue: QueueState) -> list[DeadLetter]:
        return [letter for letter in self.world.letters if letter.queue == queue.name]

    def check_dead_queue(self, queue: QueueState, dead_queue: str) -> None:
        """Before `queue` gets this dead queue."""
        target = self.world.queues.get(dead_queue)
        if target is None or target is queue:
            raise InvalidRequestError("a dead queue must exist, and must be another queue")
        if target.kind is not queue.kind or target.options.dead_queue:
            raise InvalidRequestError("a dead queue is of the same kind and has none itself")
        if self.is_dead_queue(queue.name):
            raise InvalidRequestError("a dead queue cannot have a dead queue")

    def is_dead_queue(self, name: str) -> bool:
        return any(queue.options.dead_queue == name for queue in self.world.queues.values())

    def check_kind(self, queue: QueueState, kind: QueueKind | None) -> None:
        if kind is not None and kind is not queue.kind:
            raise ConflictError(f"{queue.name!r} is {queue.kind}")


def with_headers(headers: bytes | None, **more: object) -> bytes:
    named = msgspec.json.decode(headers, type=dict[str, object]) if headers else {}
    return msgspec.json.encode({**named, **more})
