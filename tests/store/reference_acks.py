"""Acks in the reference model: who may answer, and what an answer does to a message."""

from __future__ import annotations

from monarq.errors import (
    AlreadyAckedError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    LeaseUnknownError,
    NotFoundError,
    NotInLeaseError,
)
from monarq.ids import parse_lease_id
from monarq.model import Ack, Acked, AckStatus
from monarq.model.retries import retry_delay
from tests.store.reference_ordered import UNSAID, OrderedRules
from tests.store.reference_state import CursorState, KeptMessage, Lease, Partition, QueueState


class AckRules(OrderedRules):
    def ack_message(self, request: Ack) -> Acked:
        assert request.partition_id is not None
        assert request.transaction_id is not None
        queue, partition = self.partition_by_id(request.partition_id)
        cursor = partition.cursors.get(request.group)
        if request.lease_id is not None:
            try:
                self.check_lease(partition, request.group, request.lease_id)
            except LeaseTakenOverError:
                if cursor and self.was_answered(partition, cursor, request):
                    raise AlreadyAckedError("answered before, under this lease") from None
                raise
        elif cursor is None or cursor.lease is None or not cursor.lease.is_live(self.now):
            raise LeaseExpiredError("the message is not leased")
        assert cursor is not None
        assert cursor.lease is not None
        message = self.message_named(partition, request.transaction_id)
        if message.seq > cursor.lease.delivered[-1]:
            if request.lease_id is None:
                raise LeaseExpiredError("the message is not leased")
            raise NotInLeaseError("not delivered under this lease")
        if message.seq in cursor.lease.answered or self.is_resolved(cursor, message):
            raise AlreadyAckedError("answered before")
        return self.answer(queue, partition, cursor, [message], request)

    def answer(
        self,
        queue: QueueState,
        partition: Partition,
        cursor: CursorState,
        messages: list[KeptMessage],
        request: Ack,
    ) -> Acked:
        lease = cursor.lease
        assert lease is not None
        dead = 0
        for message in messages:
            lease.answered.add(message.seq)
            cursor.answered_under[message.seq] = lease.id
            dead += self.answer_one(queue, partition, cursor, message, request)
        self.advance(partition, cursor)
        if not self.under_lease(partition, cursor):
            lease.ended = "answered"
            self.make_available(partition, cursor, self.now)
        return Acked(
            queue=queue.name,
            partition=partition.name,
            transaction_id=request.transaction_id,
            lease_released=lease.ended is not None,
            dead=dead,
            count=len(messages),
        )

    def answer_one(
        self,
        queue: QueueState,
        partition: Partition,
        cursor: CursorState,
        message: KeptMessage,
        request: Ack,
    ) -> bool:
        """Carry out the ack's status; whether the message is dead now."""
        error = request.error or UNSAID
        match request.status:
            case AckStatus.COMPLETED:
                self.complete(queue, cursor, message)
            case AckStatus.FAILED | AckStatus.RETRY:
                if self.count_delivery(queue, partition, cursor, message, error):
                    return True
                attempts = cursor.deliveries[message.seq]
                retry_at = self.now + retry_delay(attempts, delay=queue.options.retry_delay)
                if request.retry_at is not None:
                    retry_at = request.retry_at
                cursor.retry_at[message.seq] = retry_at
            case AckStatus.DEAD:
                cursor.deliveries[message.seq] = cursor.deliveries.get(message.seq, 0) + 1
                self.die(queue, partition, cursor, message, error)
                return True
            case AckStatus.RELEASE:
                cursor.retry_at.pop(message.seq, None)
        return False

    def check_lease(self, partition: Partition, group: str, lease_id: str) -> None:
        """Raise unless this is the partition's and group's live lease."""
        cursor = partition.cursors.get(group)
        latest = cursor.lease if cursor else self.world.ended_leases.get((partition.id, group))
        self.fence(latest, lease_id)

    def was_answered(self, partition: Partition, cursor: CursorState, request: Ack) -> bool:
        """Whether the message has its answer under a lease before the latest one, as far as a store
        knows: of resolved ones, if this lease was not lost, and at most one was since."""
        assert request.lease_id is not None
        assert request.transaction_id is not None
        try:
            message = self.message_named(partition, request.transaction_id)
        except NotFoundError:
            return False
        if not self.is_resolved(cursor, message):
            return cursor.answered_under.get(message.seq) == request.lease_id
        number = parse_lease_id(request.lease_id)[0]
        lost = [one for one in [*cursor.former, cursor.lease] if one and one.was_lost]
        since = [one.number for one in lost if not self.is_earlier(one.number, number)]
        return number > cursor.since and number not in since and len(since) <= 1

    def fence(self, latest: Lease | None, lease_id: str) -> None:
        """Raise unless `lease_id` is the latest lease of what is acked, and live."""
        if latest is not None and latest.id == lease_id:
            if latest.is_live(self.now):
                return
            if latest.ended == "answered":
                raise AlreadyAckedError("the lease ended with everything answered")
            raise LeaseExpiredError("the lease has ended")
        if any(lease.id == lease_id and lease.is_live(self.now) for lease in self.all_leases()):
            raise LeaseForeignError("the lease is for something else")
        number = lease_number(lease_id)
        if latest is not None and number is not None and self.is_earlier(number, latest.number):
            raise LeaseTakenOverError("leased again since")
        raise LeaseUnknownError("no such lease")

    def is_earlier(self, one: int, other: int) -> bool:
        return self.lease_order.get(one, one) < self.lease_order.get(other, other)

    def all_leases(self) -> list[Lease]:
        """The latest lease of every cursor and every item."""
        leases = [c.lease for _, p in self.all_partitions() for c in p.cursors.values()]
        leases += [item.lease for queue in self.world.queues.values() for item in queue.items]
        return [lease for lease in leases if lease is not None]

    def leased_cursors(self, lease_id: str) -> list[tuple[QueueState, Partition, CursorState]]:
        """What the lease still covers, live or run out."""
        return [
            (queue, partition, cursor)
            for queue, partition in self.all_partitions()
            for cursor in partition.cursors.values()
            if cursor.lease and cursor.lease.id == lease_id and cursor.lease.ended is None
        ]


def lease_number(lease_id: str) -> int | None:
    """Of anything that has the form of a lease id."""
    try:
        return parse_lease_id(lease_id)[0]
    except LeaseUnknownError:
        return None
