"""Looking at the reference model: the same rows as the store's inspection calls, unpaged."""

from __future__ import annotations

from msgspec import UNSET, Raw

from monarq.clock import SECOND
from monarq.ids import LongNumberText, NumberText, message_id
from monarq.model import (
    DEFAULT_GROUP,
    Cursor,
    Group,
    Item,
    ItemState,
    LoggedAttempt,
    MessageStatus,
    QueueCounts,
    QueueInfo,
    StoredMessage,
)
from monarq.times import Micros, StartTime, micros_or_none
from tests.store.reference_state import (
    CursorState,
    KeptMessage,
    Partition,
    QueueState,
    WorkItem,
)
from tests.store.reference_work import WorkRules, work_partition


class Inspection(WorkRules):
    def list_queues(self) -> list[QueueInfo]:
        return [
            QueueInfo(
                id=LongNumberText(0),
                name=queue.name,
                kind=queue.kind,
                namespace=queue.namespace,
                task=queue.task,
                paused=queue.paused,
                created_at=Micros(queue.created_at),
                partitions=len(queue.partitions),
                counts=QueueCounts(
                    stored=self.stored(queue),
                    pending=self.pending(queue),
                    pushed=queue.pushed,
                    completed=queue.counters.completed,
                    failed=queue.counters.failed,
                    dead=queue.counters.dead,
                    dead_letters=len(self.letters_of(queue)),
                    states={
                        state: count
                        for state in ItemState
                        if (count := sum(item.state is state for item in queue.items))
                    },
                ),
                options=queue.options,
            )
            for _, queue in sorted(self.world.queues.items())
        ]

    def list_groups(self) -> list[Group]:
        return [
            self.group_row(queue, name)
            for _, queue in sorted(self.world.queues.items())
            for name in sorted(queue.groups)
        ]

    def group_row(self, queue: QueueState, name: str) -> Group:
        group = queue.groups[name]
        waiting = [
            message
            for partition in queue.partitions.values()
            for message in self.unresolved(partition, partition.cursors[name])
        ]
        oldest = min((message.created_at for message in waiting), default=self.now)
        return Group(
            name=name,
            queue=queue.name,
            start_at=StartTime(group.start_at),
            created_at=Micros(group.created_at),
            lag=sum(self.lag(p, p.cursors[name]) for p in queue.partitions.values()),
            lag_seconds=max(0, self.now - oldest) / SECOND,
            completed=group.counters.completed,
            failed=group.counters.failed,
            dead=group.counters.dead,
        )

    def list_cursors(self, queue_name: str, group: str) -> list[Cursor]:
        queue = self.queue(queue_name)
        return [
            self.cursor_row(queue, partition, partition.cursors[group])
            for partition in sorted(queue.partitions.values(), key=lambda p: p.number)
        ]

    def cursor_row(self, queue: QueueState, partition: Partition, cursor: CursorState) -> Cursor:
        lease = cursor.lease
        until = lease.until if lease is not None and lease.ended is None else None
        return Cursor(
            partition=partition.name,
            partition_id=NumberText(partition.id),
            position=cursor.position,
            last_seq=partition.last_seq,
            lag=self.lag(partition, cursor),
            available_at=micros_or_none(cursor.available_at),
            lease_until=micros_or_none(until),
            lease_active=until is not None and until > self.now,
        )

    def list_messages(self, queue_name: str) -> list[StoredMessage]:
        queue = self.queue(queue_name)
        return [
            self.message_row(queue, partition, message)
            for partition in sorted(queue.partitions.values(), key=lambda p: p.number)
            for message in partition.messages
            if not message.deleted
        ]

    def message_row(
        self, queue: QueueState, partition: Partition, message: KeptMessage
    ) -> StoredMessage:
        groups = {
            group: self.state_for(partition, cursor, message)
            for group, cursor in partition.cursors.items()
        }
        return StoredMessage(
            id=message_id(partition.id, message.seq),
            transaction_id=message.transaction_id,
            partition_id=NumberText(partition.id),
            queue=queue.name,
            partition=partition.name,
            seq=message.seq,
            status=self.status_of(groups),
            groups=groups,
            trace_id=message.trace_id,
            producer=message.producer,
            created_at=Micros(message.created_at),
            raw=Raw(message.payload),
            raw_headers=UNSET if message.headers is None else Raw(message.headers),
        )

    @staticmethod
    def status_of(groups: dict[str, str]) -> MessageStatus:
        """The view of all groups together, or that of the queue mode if the queue has it."""
        if DEFAULT_GROUP in groups:
            groups = {DEFAULT_GROUP: groups[DEFAULT_GROUP]}
            if groups[DEFAULT_GROUP] == "dead":
                return "dead_letter"
        if "leased" in groups.values():
            return "processing"
        is_consumed = groups and all(state in ("done", "dead") for state in groups.values())
        return "completed" if is_consumed else "pending"

    def state_for(self, partition: Partition, cursor: CursorState, message: KeptMessage) -> str:
        """What the message is to a group."""
        if self.is_resolved(cursor, message):
            place = (partition.id, message.seq, cursor.group)
            letters = ((d.partition_id, d.seq, d.group) for d in self.world.letters)
            return "dead" if place in letters else "done"
        lease = cursor.lease
        is_live = lease is not None and lease.is_live(self.now)
        if is_live and message in self.under_lease(partition, cursor):
            return "leased"
        return "pending"

    def list_items(self, queue_name: str) -> list[Item]:
        queue = self.queue(queue_name)
        return [self.item_row(queue, item) for item in queue.items]

    def next_items(self, queue_name: str) -> list[Item]:
        queue = self.queue(queue_name)
        return [self.item_row(queue, item) for item in self.in_order_of_delivery(queue)]

    def item_row(self, queue: QueueState, item: WorkItem) -> Item:
        is_leased = item.state is ItemState.LEASED and item.lease is not None
        partition_id = work_partition(queue).id
        return Item(
            id=message_id(partition_id, item.seq),
            queue=queue.name,
            partition_id=NumberText(partition_id),
            seq=item.seq,
            transaction_id=item.transaction_id,
            raw=Raw(item.payload),
            state=item.state,
            priority=item.priority,
            effective_priority=item.effective_priority,
            attempts=item.attempts,
            max_attempts=item.max_attempts,
            backoff_base=item.backoff_base,
            created_at=Micros(item.created_at),
            run_at=micros_or_none(item.run_at),
            lease_until=micros_or_none(item.lease.until if is_leased and item.lease else None),
            finished_at=micros_or_none(item.finished_at),
            consumer=item.consumer,
            error=item.error,
            trace_id=item.trace_id,
            producer=item.producer,
            raw_headers=UNSET if item.headers is None else Raw(item.headers),
        )

    def list_attempts(self, queue_name: str) -> list[LoggedAttempt]:
        """In the order in which they ended."""
        queue = self.queue(queue_name)
        return [
            LoggedAttempt(
                item_id=message_id(work_partition(queue).id, attempt.seq),
                queue=queue.name,
                attempt=attempt.attempt,
                started_at=Micros(attempt.started_at),
                ended_at=Micros(attempt.ended_at),
                outcome=attempt.outcome,
                consumer=attempt.consumer,
                error=attempt.error,
                raw_result=UNSET if attempt.result is None else Raw(attempt.result),
            )
            for attempt in queue.attempts
        ]
