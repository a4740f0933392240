"""Ordered queues in the reference model: groups, cursors, pop, ack and seek."""

from __future__ import annotations

from monarq.clock import micros
from monarq.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
)
from monarq.model import Message, Pop, Popped, SeekTo, StartFrom
from monarq.operations.groups import Seek
from tests.store.reference_core import AT_ONCE, LifecyclePace, ReferenceCore
from tests.store.reference_state import (
    CursorState,
    GroupState,
    KeptMessage,
    Lease,
    Partition,
    QueueState,
    Room,
    Scope,
)

EXPIRED = "the lease expired"
TOO_OLD = "waited too long"
UNSAID = "no error was given"


class OrderedRules(ReferenceCore):
    # --- groups ----------------------------------------------------------------------------

    def ask(self, group: str, start: StartFrom | int, scope: Scope) -> int:
        """Make the group where it asks for the first time; since when messages are for it."""
        if not isinstance(start, StartFrom) and start > self.now:
            raise InvalidRequestError("a group cannot begin in the future")
        known = self.world.subscriptions.get((group, scope))
        start_at = self.world.subscriptions.setdefault((group, scope), self.start_time(start))
        for queue in self.world.queues.values():
            if queue.is_work or not scope.covers(queue) or group in queue.groups:
                continue
            # What holds for the queue itself was said before, or is said by this.
            itself = Scope(queue.name)
            own = known if scope == itself else self.world.subscriptions.get((group, itself))
            began = start_at if own is None else own
            self.world.subscriptions[group, itself] = began
            queue.groups[group] = GroupState(began, self.now)
            for partition in queue.partitions.values():
                if known is None and own is None and start is StartFrom.NEW:
                    position = partition.last_seq
                else:
                    position = self.position_of_time(partition, began)
                cursor = CursorState(group, position, None, since=self.world.leases)
                partition.cursors[group] = cursor
                self.place(partition, cursor)
        return start_at

    def start_time(self, start: StartFrom | int) -> int:
        if isinstance(start, StartFrom):
            return self.now if start is StartFrom.NEW else 0
        return start

    def position_of_time(self, partition: Partition, time: int) -> int:
        """So that the next message is the first one that is not older."""
        for message in partition.messages:
            if message.created_at >= time:
                return message.seq - 1
        return partition.last_seq

    def place(self, partition: Partition, cursor: CursorState) -> None:
        """A cursor that has just been put somewhere is available now, if there is something."""
        self.advance(partition, cursor)
        cursor.available_at = self.now if self.unresolved(partition, cursor) else None

    # --- pop -------------------------------------------------------------------------------

    def pop_ordered(self, request: Pop, max_bytes: int) -> Popped:
        scope = Scope(request.queue, request.namespace, request.task)
        covered = [q for q in self.world.queues.values() if scope.covers(q) and not q.is_work]
        if covered and all(request.group in queue.groups for queue in covered):
            # A group that exists goes on from its cursor, whatever the request says; that counts
            # for queues that appear later.
            start_at = min(self.start_time(request.start), self.now)
            self.world.subscriptions.setdefault((request.group, scope), start_at)
        else:
            self.ask(request.group, request.start, scope)
        candidates = [
            (queue, partition, partition.cursors[request.group])
            for queue, partition in self.all_partitions()
            if not queue.is_work
            and scope.covers(queue)
            and not queue.paused
            and request.partition in (None, partition.name)
        ]
        candidates.sort(key=lambda c: (-c[0].options.priority, c[2].available_at or 0, c[1].number))
        lease_id = self.next_lease_id()
        messages: list[Message] = []
        leases: list[Lease] = []
        taken = 0
        until = None
        room = Room(max_bytes)
        for queue, partition, cursor in candidates:
            if cursor.available_at is None or cursor.available_at > self.now:
                continue
            if taken == request.partitions or len(messages) == request.batch or room.is_full:
                break
            self.settle(queue, partition, cursor)
            delivered = self.deliverable(queue, partition, cursor)
            delivered = delivered[: request.batch - len(messages)]
            delivered = self.within_limits(cursor, delivered)
            delivered = [message for message in delivered if room.has(message.payload)]
            if not delivered:
                continue
            has_suspects = any(message.seq in cursor.lease_limits for message in delivered)
            if has_suspects and taken:
                break
            taken += 1
            messages += [self.as_message(queue, partition, cursor, m) for m in delivered]
            if request.auto_ack:
                for message in delivered:
                    self.complete(queue, cursor, message)
                self.make_available(partition, cursor, self.now)
            else:
                seconds = request.lease_seconds or queue.options.lease_time
                until = self.now + micros(seconds)
                cursor.former += [cursor.lease] if cursor.lease else []
                cursor.lease = Lease(lease_id, until, self.now, request.consumer)
                cursor.lease.delivered = [message.seq for message in delivered]
                leases.append(cursor.lease)
                cursor.available_at = until
            if has_suspects:
                break
        for lease in leases:
            lease.size = len(messages)
        if not messages:
            times = [c.available_at for _, _, c in candidates if c.available_at is not None]
            return Popped(messages=[], next_at=min(times, default=None))
        if until is None:
            return Popped(messages=messages)
        return Popped(messages=messages, lease_id=lease_id, lease_until=until)

    def settle(
        self,
        queue: QueueState,
        partition: Partition,
        cursor: CursorState,
        pace: LifecyclePace = AT_ONCE,
    ) -> None:
        """What time has done to the partition, as this group sees it."""
        lease = cursor.lease
        if lease is not None and lease.has_run_out(self.now):
            unanswered = self.under_lease(partition, cursor)
            for message in unanswered:
                cursor.lease_limits[message.seq] = max(1, len(unanswered) // 2)
                if lease.size == 1:
                    self.count_delivery(queue, partition, cursor, message, EXPIRED)
            lease.ended = "expired"
            self.make_available(partition, cursor, lease.until)
        too_old = self.too_old(queue, partition, cursor)
        if too_old and pace.has_evicted(partition, cursor):
            for message in too_old:
                self.die(queue, partition, cursor, message, TOO_OLD)
        self.advance(partition, cursor)
        if not self.unresolved(partition, cursor):
            cursor.available_at = None

    def too_old(
        self, queue: QueueState, partition: Partition, cursor: CursorState
    ) -> list[KeptMessage]:
        """What has waited `maxWaitTimeSeconds`."""
        longest = micros(queue.options.max_wait_time_seconds)
        left = self.unresolved(partition, cursor)
        return [m for m in left if longest and m.created_at + longest <= self.now]

    def deliverable(
        self, queue: QueueState, partition: Partition, cursor: CursorState
    ) -> list[KeptMessage]:
        """What the group can have now; if that is nothing, the partition is put off."""
        left = self.unresolved(partition, cursor)
        if not left:
            return []
        put_off = self.ripe_at(queue, cursor, left[0])
        if queue.options.window_buffer:
            quiet_at = partition.last_push_at + micros(queue.options.window_buffer)
            put_off = max(put_off, quiet_at)
        if put_off > self.now:
            cursor.available_at = put_off
            return []
        ripe: list[KeptMessage] = []
        for message in left:
            if self.ripe_at(queue, cursor, message) > self.now:
                break
            ripe.append(message)
        return ripe

    def within_limits(self, cursor: CursorState, messages: list[KeptMessage]) -> list[KeptMessage]:
        """As many of them as each one's limit allows."""
        for count in range(len(messages), 0, -1):
            limits = [cursor.lease_limits.get(message.seq, count) for message in messages[:count]]
            if count <= min(limits):
                return messages[:count]
        return []

    def ripe_at(self, queue: QueueState, cursor: CursorState, message: KeptMessage) -> int:
        """From when on the message may be delivered: its age, and its retry time."""
        retry_at = cursor.retry_at.get(message.seq, 0)
        if not queue.options.delayed_processing:
            return retry_at
        return max(retry_at, message.created_at + micros(queue.options.delayed_processing))

    def make_available(self, partition: Partition, cursor: CursorState, since: int) -> None:
        """After a lease: none if drained, else when the first one left may be delivered."""
        self.advance(partition, cursor)
        left = self.unresolved(partition, cursor)
        if left:
            cursor.available_at = max(since, cursor.retry_at.get(left[0].seq, 0))
        else:
            cursor.available_at = None

    def as_message(
        self, queue: QueueState, partition: Partition, cursor: CursorState, message: KeptMessage
    ) -> Message:
        return Message(
            queue=queue.name,
            partition=partition.name,
            partition_id=partition.id,
            seq=message.seq,
            transaction_id=message.transaction_id,
            payload=message.payload,
            created_at=message.created_at,
            attempts=cursor.deliveries.get(message.seq, 0) + 1,
            trace_id=message.trace_id,
            producer=message.producer,
            headers=message.headers,
        )

    # --- what becomes of a message ---------------------------------------------------------

    def under_lease(self, partition: Partition, cursor: CursorState) -> list[KeptMessage]:
        """What was delivered under the latest lease and has no answer yet."""
        lease = cursor.lease
        assert lease is not None
        return [
            message
            for message in self.unresolved(partition, cursor)
            if message.seq in lease.delivered and message.seq not in lease.answered
        ]

    def complete(self, queue: QueueState, cursor: CursorState, message: KeptMessage) -> None:
        cursor.resolved.add(message.seq)
        queue.counters.completed += 1
        queue.groups[cursor.group].counters.completed += 1

    def count_delivery(
        self,
        queue: QueueState,
        partition: Partition,
        cursor: CursorState,
        message: KeptMessage,
        error: str,
    ) -> bool:
        """A delivery that failed; whether that was the last one."""
        queue.counters.failed += 1
        queue.groups[cursor.group].counters.failed += 1
        deliveries = cursor.deliveries.get(message.seq, 0) + 1
        cursor.deliveries[message.seq] = deliveries
        cursor.retry_at.pop(message.seq, None)
        if deliveries > queue.options.retry_limit and queue.options.dlq_after_max_retries:
            self.die(queue, partition, cursor, message, error)
            return True
        return False

    def die(
        self,
        queue: QueueState,
        partition: Partition,
        cursor: CursorState,
        message: KeptMessage,
        error: str,
    ) -> None:
        cursor.resolved.add(message.seq)
        queue.groups[cursor.group].counters.dead += 1
        self.bury(
            *(queue, partition, message),
            group=cursor.group,
            attempts=cursor.deliveries.get(message.seq, 0),
            error=error,
        )

    # --- seek ------------------------------------------------------------------------------

    def seek(self, request: Seek) -> int:
        queue = self.queue(request.queue)
        if queue.is_work:
            raise ConflictError("a work queue has no groups")
        if request.partition not in (None, *queue.partitions):
            raise NotFoundError("no such partition")
        if request.group not in queue.groups:
            self.ask(request.group, request.start(self.now), Scope(request.queue))
        before = 0
        for partition in queue.partitions.values():
            if request.partition in (None, partition.name):
                cursor = partition.cursors[request.group]
                self.end_lease(cursor)
                cursor.position = self.seek_position(partition, request)
                cursor.resolved.clear()
                cursor.deliveries.clear()
                cursor.retry_at.clear()
                cursor.lease_limits.clear()
                cursor.answered_under.clear()
                self.place(partition, cursor)
                before += self.lag(partition, cursor)
        return before

    def seek_position(self, partition: Partition, request: Seek) -> int:
        if request.to is SeekTo.START:
            return partition.first_kept - 1
        if request.to is SeekTo.END:
            return partition.last_seq
        if request.time is not None:
            return self.position_of_time(partition, request.time)
        assert request.seq is not None
        return min(max(request.seq, partition.first_kept) - 1, partition.last_seq)

    def skip(self, queue: str, group: str, partition: str, seq: int, error: str) -> int:
        """Of a cursor whose lease has not run out: what time does comes first otherwise."""
        known = self.queue(queue)
        place = known.partitions[partition]
        cursor = place.cursors[group]
        left = self.unresolved(place, cursor)
        if not left or left[0].seq != seq:
            raise ConflictError("another message is next")
        self.end_lease(cursor)
        self.die(known, place, cursor, left[0], error)
        self.make_available(place, cursor, self.now)
        return self.lag(place, cursor)

    def end_lease(self, cursor: CursorState) -> None:
        if cursor.lease is not None and cursor.lease.ended is None:
            cursor.lease.ended = "ended"
