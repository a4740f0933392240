"""Work queues in the reference model: items, each leased by itself."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.clock import micros
from monarq.errors import ConflictError, LeaseExpiredError
from monarq.model import (
    Ack,
    Acked,
    AckStatus,
    AttemptOutcome,
    ItemState,
    Message,
    Pop,
    Popped,
)
from monarq.model.retries import retry_delay
from tests.store.reference_acks import AckRules
from tests.store.reference_core import AT_ONCE, LifecyclePace
from tests.store.reference_ordered import EXPIRED, TOO_OLD, UNSAID
from tests.store.reference_state import (
    AttemptState,
    Lease,
    Partition,
    QueueState,
    Room,
    WorkItem,
)

CANCELLED = "cancelled"


class WorkRules(AckRules):
    # --- pop -------------------------------------------------------------------------------

    def pop_work(self, queue: QueueState, requests: Sequence[Pop], max_bytes: int) -> list[Popped]:
        """All requests of one call for one queue: they are dealt one item at a time."""
        if queue.paused or not queue.partitions:
            return [Popped(messages=[]) for _ in requests]
        self.settle_items(queue)
        ready = self.in_order_of_delivery(queue)
        hands: list[list[WorkItem]] = [[] for _ in requests]
        rooms = [Room(max_bytes) for _ in requests]
        asking = list(zip(requests, hands, rooms, strict=True))
        while ready and any(len(h) < r.batch and not room.is_full for r, h, room in asking):
            for request, hand, room in asking:
                if ready and len(hand) < request.batch and room.has(ready[0].payload):
                    hand.append(ready.pop(0))
        return [self.hand_out(queue, h, r) for h, r in zip(hands, requests, strict=True)]

    def in_order_of_delivery(self, queue: QueueState) -> list[WorkItem]:
        ready = [item for item in queue.items if item.state is ItemState.READY]
        return sorted(ready, key=lambda item: (-item.effective_priority, item.turn))

    def hand_out(self, queue: QueueState, items: list[WorkItem], request: Pop) -> Popped:
        if not items:
            return Popped(messages=[], next_at=self.next_change(queue))
        lease_id = self.next_lease_id()
        until = self.now + micros(request.lease_seconds or queue.options.lease_time)
        before = [item.lease for item in items]
        for item in items:
            item.state = ItemState.LEASED
            item.attempts += 1
            item.lease = Lease(lease_id, until, self.now, request.consumer)
            item.consumer = request.consumer
        partition = work_partition(queue)
        messages = [as_message(queue, partition, item) for item in items]
        if not request.auto_ack:
            return Popped(messages=messages, lease_id=lease_id, lease_until=until)
        for item, lease in zip(items, before, strict=True):
            self.answer_item(queue, item, Ack(status=AckStatus.COMPLETED))
            item.lease = lease  # nobody was told of the other one
        return Popped(messages=messages)

    def next_change(self, queue: QueueState) -> int | None:
        """When something that is scheduled or leased will be ready."""
        times = [i.run_at for i in queue.items if i.state is ItemState.SCHEDULED and i.run_at]
        times += [i.lease.until for i in queue.items if i.state is ItemState.LEASED and i.lease]
        return min(times, default=None)

    def settle_items(self, queue: QueueState, pace: LifecyclePace = AT_ONCE) -> None:
        """Return what is due, then bury what is expired."""
        for item in list(queue.items):
            lease = item.lease
            if item.state is ItemState.SCHEDULED and (item.run_at or 0) <= self.now:
                self.make_ready(item)
            elif item.state is ItemState.LEASED and lease and lease.has_run_out(self.now):
                lease.ended = "expired"
                queue.counters.failed += 1
                self.note(queue, item, AttemptOutcome.EXPIRED, EXPIRED, ended_at=lease.until)
                item.error = EXPIRED
                if item.attempts >= item.max_attempts:
                    self.kill(queue, item, EXPIRED)
                else:
                    self.make_ready(item)
        for item in self.expired_items(queue):
            if pace.has_buried(work_partition(queue), item):
                self.kill(queue, item, TOO_OLD)

    def is_due(self, item: WorkItem) -> bool:
        """Whether it is to be returned to the queue."""
        if item.state is ItemState.SCHEDULED:
            return item.run_at is not None and item.run_at <= self.now
        return item.lease is not None and item.lease.has_run_out(self.now)

    def expired_items(self, queue: QueueState) -> list[WorkItem]:
        """Those that are past their expiry and not leased."""
        return [
            item
            for item in queue.items
            if item.state in (ItemState.SCHEDULED, ItemState.READY)
            and item.expires_at is not None
            and item.expires_at <= self.now
        ]

    def outlived_items(self, queue: QueueState) -> list[WorkItem]:
        """Those that were done or cancelled long enough ago."""
        keep = micros(queue.options.completed_retention_seconds)
        if not queue.options.retention_enabled or not keep:
            return []
        return [
            item
            for item in queue.items
            if item.state in (ItemState.DONE, ItemState.CANCELLED)
            and item.finished_at is not None
            and item.finished_at + keep <= self.now
        ]

    # --- what becomes of an item -----------------------------------------------------------

    def make_ready(self, item: WorkItem) -> None:
        item.state = ItemState.READY
        item.run_at = None
        item.finished_at = None
        item.consumer = None

    def send_to_the_tail(self, queue: QueueState, item: WorkItem) -> None:
        queue.turns += 1
        item.turn = queue.turns
        item.waited = 0

    def schedule(self, item: WorkItem, run_at: int) -> None:
        if run_at > self.now:
            item.state = ItemState.SCHEDULED
            item.run_at = run_at
            item.consumer = None
        else:
            self.make_ready(item)

    def start_over(self, queue: QueueState, item: WorkItem) -> None:
        """Ready at the tail, as if it had never been tried."""
        self.make_ready(item)
        self.send_to_the_tail(queue, item)
        item.attempts = 0
        item.error = None
        item.expires_at = self.expiry(queue, self.now)

    def finish(self, item: WorkItem, state: ItemState) -> None:
        item.state = state
        item.run_at = None
        item.finished_at = self.now

    def kill(self, queue: QueueState, item: WorkItem, error: str) -> None:
        self.finish(item, ItemState.DEAD)
        item.error = error
        is_letter = self.bury(
            *(queue, work_partition(queue), item),
            group="",
            attempts=item.attempts,
            error=error,
        )
        if not is_letter:
            queue.items.remove(item)

    def note(
        self,
        queue: QueueState,
        item: WorkItem,
        outcome: AttemptOutcome,
        error: str | None = None,
        result: bytes | None = None,
        ended_at: int | None = None,
    ) -> None:
        assert item.lease is not None
        queue.attempts.append(
            AttemptState(
                item.seq,
                item.attempts,
                item.lease.started_at,
                self.now if ended_at is None else ended_at,
                outcome,
                item.lease.consumer,
                error,
                result,
            )
        )

    # --- ack -------------------------------------------------------------------------------

    def ack_item(self, queue: QueueState, request: Ack) -> Acked:
        assert request.transaction_id is not None
        item = self.item_named(queue, request.transaction_id)
        if request.lease_id is not None:
            self.fence(item.lease, request.lease_id)
        elif item.lease is None or not item.lease.is_live(self.now):
            raise LeaseExpiredError("the item is not leased")
        dead = self.answer_item(queue, item, request)
        return Acked(
            queue=queue.name,
            partition=work_partition(queue).name,
            transaction_id=request.transaction_id,
            lease_released=True,
            dead=int(dead),
        )

    def answer_item(self, queue: QueueState, item: WorkItem, request: Ack) -> bool:
        """Carry out the ack's status; whether the item is dead now."""
        assert item.lease is not None
        item.lease.ended = "answered"
        if request.status is AckStatus.RELEASE:
            item.attempts -= 1
            self.make_ready(item)
            return False
        self.note(queue, item, AttemptOutcome(request.status), request.error, request.result)
        if request.status is AckStatus.COMPLETED:
            queue.counters.completed += 1
            self.finish(item, ItemState.DONE)
            item.error = None
            return False
        error = request.error or UNSAID
        item.error = request.error or item.error
        if request.status is AckStatus.DEAD:
            self.kill(queue, item, error)
            return True
        queue.counters.failed += 1
        if item.attempts >= item.max_attempts:
            self.kill(queue, item, error)
            return True
        if request.status is AckStatus.FAILED:
            delay = retry_delay(item.attempts, base=item.backoff_base, cap=item.backoff_cap)
            self.schedule(item, request.retry_at or self.now + delay)
        else:
            self.send_to_the_tail(queue, item)
            self.schedule(item, request.retry_at or self.now)
        return False

    def leased_items(self, lease_id: str) -> list[tuple[QueueState, WorkItem]]:
        """What the lease still covers, live or run out."""
        return [
            (queue, item)
            for queue in self.world.queues.values()
            for item in queue.items
            if item.lease and item.lease.id == lease_id and item.lease.ended is None
        ]

    # --- by hand ---------------------------------------------------------------------------

    def cancel_item(self, item_id: str) -> WorkItem:
        queue, item = self.item_by_id(item_id)
        if item.is_finished:
            raise ConflictError("the item is finished")
        if item.state is ItemState.LEASED and item.lease is not None:
            item.lease.ended = "ended"
            self.note(queue, item, AttemptOutcome.CANCELLED)
        self.finish(item, ItemState.CANCELLED)
        return item

    def retry_item(self, item_id: str) -> WorkItem:
        queue, item = self.item_by_id(item_id)
        if item.state is ItemState.LEASED:
            raise ConflictError("the item is leased")
        self.start_over(queue, item)
        self.forget_letter(queue, item)
        return item

    def forget_letter(self, queue: QueueState, item: WorkItem) -> None:
        self.world.letters = [
            letter
            for letter in self.world.letters
            if (letter.queue, letter.seq) != (queue.name, item.seq)
        ]


def work_partition(queue: QueueState) -> Partition:
    [partition] = queue.partitions.values()
    return partition


def as_message(queue: QueueState, partition: Partition, item: WorkItem) -> Message:
    return Message(
        queue=queue.name,
        partition=partition.name,
        partition_id=partition.id,
        seq=item.seq,
        transaction_id=item.transaction_id,
        payload=item.payload,
        created_at=item.created_at,
        attempts=item.attempts,
        trace_id=item.trace_id,
        producer=item.producer,
        headers=item.headers,
        priority=item.priority,
        max_attempts=item.max_attempts,
    )
