"""The lifecycle of the reference model: what time does to queues that nobody asks."""

from __future__ import annotations

from monarq.clock import micros
from monarq.model import Pop
from tests.store.reference_core import AT_ONCE, LifecyclePace
from tests.store.reference_inspection import Inspection
from tests.store.reference_state import CursorState, KeptMessage, Partition, QueueState
from tests.store.reference_work import work_partition


class LifecycleRules(Inspection):
    def lifecycle(self, pace: LifecyclePace = AT_ONCE) -> None:
        """What time has done, in one step without bound."""
        self.world.calls += 1
        for queue in list(self.world.queues.values()):
            if queue.is_work:
                self.settle_items(queue, pace)
                for item in self.outlived_items(queue):
                    if pace.has_removed_item(work_partition(queue), item):
                        queue.items.remove(item)
                continue
            for partition in queue.partitions.values():
                for cursor in partition.cursors.values():
                    if cursor.lease is None or not cursor.lease.is_live(self.now):
                        self.settle(queue, partition, cursor, pace)
                self.retain(queue, partition, pace)

    def retain(self, queue: QueueState, partition: Partition, pace: LifecyclePace) -> None:
        for message in self.outlived(queue, partition):
            if pace.has_removed(partition, message.seq):
                partition.messages.remove(message)
        for cursor in partition.cursors.values():
            if cursor.position < partition.first_kept - 1:
                self.move_on(partition, cursor)

    def move_on(self, partition: Partition, cursor: CursorState) -> None:
        """What was next for the group is gone. A lease on nothing but that ends."""
        lease = cursor.lease
        self.advance(partition, cursor)
        if lease is None or lease.ended is not None:
            available_at = self.now if cursor.available_at is None else cursor.available_at
            self.make_available(partition, cursor, min(available_at, self.now))
        elif not self.under_lease(partition, cursor):
            lease.ended = "ended"
            self.make_available(partition, cursor, self.now)

    def outlived(self, queue: QueueState, partition: Partition) -> list[KeptMessage]:
        """What is not kept any longer. What was pushed together goes together."""
        keep = micros(queue.options.retention_seconds)
        keep_done = micros(queue.options.completed_retention_seconds)
        outlived: list[KeptMessage] = []
        for call in sorted({message.pushed_in for message in partition.messages}):
            together = [m for m in partition.messages if m.pushed_in == call]
            age = self.now - together[0].created_at
            is_consumed = bool(partition.cursors) and all(
                cursor.position >= together[-1].seq for cursor in partition.cursors.values()
            )
            if not (0 < keep <= age or (is_consumed and 0 < keep_done <= age)):
                break
            is_archived = together[-1].seq <= partition.archived_seq
            if queue.options.retain_until_archived and not is_archived:
                break
            outlived += together
        return outlived if queue.options.retention_enabled else []

    def about_to_meet(self) -> list[Pop]:
        """What would meet in a dead queue if the lifecycle ran now, each as a pop that settles
        it: which comes first within one step is a store's own business, and can be seen."""
        dead_queues = {queue.options.dead_queue for queue in self.world.queues.values()}
        found: list[Pop] = []
        for queue in self.world.queues.values():
            if not queue.options.dead_queue and queue.name not in dead_queues:
                continue
            if queue.is_work:
                if self.expired_items(queue) or any(self.is_due(item) for item in queue.items):
                    found.append(Pop(queue=queue.name))
                continue
            for partition in queue.partitions.values():
                for group, cursor in partition.cursors.items():
                    lease = cursor.lease
                    is_live = lease is not None and lease.is_live(self.now)
                    has_run_out = lease is not None and lease.has_run_out(self.now)
                    if has_run_out or (not is_live and self.too_old(queue, partition, cursor)):
                        found.append(Pop(queue=queue.name, partition=partition.name, group=group))
        return found

    def overdue(self) -> list[str]:
        """What the lifecycle has still to do."""
        found: list[str] = []
        for queue in self.world.queues.values():
            if queue.is_work:
                found += [f"bury {queue.name} {i.seq}" for i in self.expired_items(queue)]
                found += [f"remove {queue.name} {i.seq}" for i in self.outlived_items(queue)]
            for partition in queue.partitions.values():
                found += [
                    f"remove {queue.name} {partition.name} {message.seq}"
                    for message in self.outlived(queue, partition)
                ]
                found += [
                    f"evict {queue.name} {partition.name} {message.seq} for {group}"
                    for group, cursor in partition.cursors.items()
                    for message in self.too_old(queue, partition, cursor)
                    if cursor.lease is None or not cursor.lease.is_live(self.now)
                ]
        return found
