"""Random time, pushes, pops, acks, renewals and transactions, on a store and on the model alike."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from monarq.clock import ManualClock
from monarq.model import (
    POP_MAX_BYTES,
    Ack,
    AckStatus,
    Message,
    Pop,
    Popped,
    Push,
    QueueKind,
    Renew,
    Transaction,
)
from monarq.store import Store, open_store
from monarq.store.contract import Outcome
from tests.store import strategies as some
from tests.store.calls import ack_of
from tests.store.comparison import SideBySide
from tests.store.conftest import Place
from tests.store.reference import Reference

WRONG_TOKEN = "0" * 16
MADE_UP_LEASES = ("999999999-0123456789abcdef", "nonsense")
MADE_UP_PARTITION = 999_999

#: A message, the lease it was delivered under, and the group.
Delivered = tuple[Message, str, str]


class RandomFlow(RuleBasedStateMachine):
    """A store, the model beside it, and what was delivered: the actions of clients and of time."""

    new_place: Callable[[], AbstractAsyncContextManager[Place]]
    """Where the store of one history is."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.runner = asyncio.Runner()
        self.resources = AsyncExitStack()
        try:
            store = self.runner.run(self.open())
        except BaseException:
            self.teardown()
            raise
        self.both = SideBySide(store, Reference(self.clock), self.runner.run)
        self.delivered: list[Delivered] = []

    async def open(self) -> Store:
        place = await self.resources.enter_async_context(self.new_place())
        opened = await open_store(place.address, clock=self.clock, schema=place.schema)
        return await self.resources.enter_async_context(opened)

    def teardown(self) -> None:
        with self.runner:
            self.runner.run(self.resources.aclose())

    @property
    def now(self) -> int:
        return self.clock.now()

    @property
    def model(self) -> Reference:
        return self.both.model

    # --- time ----------------------------------------------------------------------------------

    def time_passes(self, data: st.DataObject) -> None:
        seconds = data.draw(some.steps)
        self.both.note("advance", seconds)
        self.clock.advance(seconds)

    def lifecycle(self, data: st.DataObject) -> None:
        for _ in range(20):
            meeting = self.model.about_to_meet()
            if len(meeting) <= 1:
                self.both.lifecycle()
                return
            self.pop_these([meeting[0]])

    def much_time_passes(self, data: st.DataObject) -> None:
        """The lifecycle may be late with some things, but not for ever."""
        for _ in range(4):
            self.both.note("advance", 61)
            self.clock.advance(61)
            self.lifecycle(data)
        if not any(queue.paused for queue in self.model.world.queues.values()):
            assert self.model.overdue() == [], "\n".join(self.both.transcript)

    # --- push, pop, ack ------------------------------------------------------------------------

    def push(self, data: st.DataObject) -> None:
        self.both.push(data.draw(st.lists(self.some_pushes(), min_size=1, max_size=3)))

    def push_to_one_queue(self, data: st.DataObject) -> None:
        queue = data.draw(some.queues)
        self.both.push([data.draw(self.some_pushes([queue]))])

    def some_pushes(
        self, names: Sequence[str] = some.QUEUES, max_items: int = 5
    ) -> st.SearchStrategy[Push]:
        # A push to a queue that is not there makes an ordered one.
        queues = self.model.world.queues
        kinds = {n: queues[n].kind if n in queues else QueueKind.ORDERED for n in names}
        return some.pushes(self.now, kinds, self.own_ids(), max_items)

    def own_ids(self) -> list[str]:
        """Transaction ids that the store has made itself."""
        return [message.transaction_id for message, _, _ in self.delivered[-2:]]

    def pop(self, data: st.DataObject) -> None:
        self.pop_some(data, some.QUEUES)

    def pop_where_something_is(self, data: st.DataObject) -> None:
        self.pop_some(data, self.queues_with_something())

    def pop_and_ack(self, data: st.DataObject) -> None:
        before = len(self.delivered)
        self.pop_some(data, self.queues_with_something())
        fresh = self.delivered[before:]
        if fresh:
            self.ack_some(data, fresh, right=True)

    def queues_with_something(self) -> Sequence[str]:
        queues = self.model.world.queues.values()
        return [q.name for q in queues if self.model.pending(q) and not q.paused] or some.QUEUES

    def pop_some(self, data: st.DataObject, names: Sequence[str]) -> None:
        requests = data.draw(some.pop_calls(self.now, names))
        self.pop_these(requests, data.draw(some.max_bytes))

    def pop_these(self, requests: list[Pop], max_bytes: int = POP_MAX_BYTES) -> None:
        self.note_delivered(requests, self.both.pop(requests, max_bytes=max_bytes))

    def note_delivered(self, requests: list[Pop], answers: Sequence[Outcome[Popped]]) -> None:
        for request, answer in zip(requests, answers, strict=False):
            if isinstance(answer, Popped) and answer.lease_id is not None:
                for message in answer.messages:
                    self.delivered.append((message, answer.lease_id, request.group))

    def ack(self, data: st.DataObject) -> None:
        if not self.delivered:
            return
        self.ack_some(data, self.delivered[-8:], right=data.draw(st.booleans()))

    def ack_some(self, data: st.DataObject, delivered: list[Delivered], *, right: bool) -> None:
        acks = st.lists(self.some_acks(delivered, right=right), min_size=1, max_size=4)
        for call in self.in_calls(data.draw(acks)):
            self.both.ack(call)

    def in_calls(self, acks: list[Ack]) -> list[list[Ack]]:
        """Acks that may be sent in one call: only those of one partition and group are carried
        out in order, and what else they may do to each other (by a dead queue, by ending a lease
        that they do not name) would depend on it."""
        queues = self.model.world.queues.values()
        if all(ack.lease_id for ack in acks) and not any(q.options.dead_queue for q in queues):
            return [acks]
        calls: list[list[Ack]] = []
        for ack in acks:
            before = calls[-1][-1] if calls else None
            same = before and (before.partition_id, before.group) == (ack.partition_id, ack.group)
            if same and ack.partition_id is not None:
                calls[-1].append(ack)
            else:
                calls.append([ack])
        return calls

    def ack_and_pop(self, data: st.DataObject) -> None:
        """As those do who go from one message to the next; sometimes with acks of any kind."""
        acks = self.completed_leases(data)
        if self.delivered and data.draw(st.integers(0, 3)) == 0:
            right = data.draw(st.booleans())
            some_acks = self.some_acks(self.delivered[-8:], right=right)
            acks = data.draw(st.lists(some_acks, min_size=1, max_size=4))
        *before, last = self.in_calls(acks) or [[]]
        for call in before:
            self.both.ack(call)
        pops = data.draw(some.pop_calls(self.now, self.queues_with_something()))
        answers = self.both.ack_and_pop(last, pops, max_bytes=data.draw(some.max_bytes))
        self.note_delivered(pops, answers)

    def completed_leases(self, data: st.DataObject) -> list[Ack]:
        """Some leases as a whole, or each of their messages."""
        recent = {lease: group for _, lease, group in self.delivered[-8:]}
        leases = (
            data.draw(st.lists(st.sampled_from(sorted(recent)), unique=True, max_size=3))
            if (recent)
            else []
        )
        if data.draw(st.booleans()):
            return [Ack(lease_id=lease, group=recent[lease]) for lease in leases]
        return [
            ack_of(message, lease, group=group)
            for wanted in leases
            for message, lease, group in self.delivered
            if lease == wanted
        ]

    def ack_every_message_of_a_lease(self, data: st.DataObject) -> None:
        if not self.delivered:
            return
        lease_id = self.a_lease(data)
        group = next(group for _, lease, group in self.delivered if lease == lease_id)
        messages = [m for m, lease, _ in self.delivered if lease == lease_id]
        acks = [
            ack_of(
                message,
                lease_id,
                data.draw(some.statuses),
                group=group,
                error=data.draw(some.errors),
            )
            for message in data.draw(st.permutations(messages))
        ]
        for call in self.in_calls(acks):
            self.both.ack(call)

    def some_acks(self, recent: list[Delivered], *, right: bool) -> st.SearchStrategy[Ack]:
        """Acks of what was delivered; unless `right`, something may be wrong with them."""
        leases = [lease for _, lease, _ in recent]
        wrong_leases = [
            *leases,
            *(lease.partition("-")[0] + "-" + WRONG_TOKEN for lease in leases[-2:]),
            *MADE_UP_LEASES,
        ]

        @st.composite
        def acks(draw: st.DrawFn) -> Ack:
            message, lease_id, group = draw(st.sampled_from(recent))
            status = draw(some.statuses)
            can_wait = status in (AckStatus.FAILED, AckStatus.RETRY)
            fields: dict[str, Any] = {
                "status": status,
                "transaction_id": draw(st.sampled_from([message.transaction_id, message.id])),
                "partition_id": message.partition_id,
                "lease_id": draw(st.sampled_from([lease_id, lease_id, None])),
                "group": group,
                "error": draw(some.errors),
                "retry_at": draw(some.run_times(self.now)) if can_wait else None,
                "result": draw(st.sampled_from([None, b"7"])),
            }
            if right:
                return Ack(**fields)
            fields["lease_id"] = draw(st.sampled_from(wrong_leases))
            fields["group"] = draw(st.sampled_from([group, group, *some.GROUPS]))
            match draw(st.integers(0, 7)):
                case 0:
                    fields["partition_id"] = draw(
                        st.sampled_from([m.partition_id for m, _, _ in recent])
                    )
                case 1:
                    fields["transaction_id"] = draw(st.sampled_from(["x", "unheard-of"]))
                case 2:
                    fields |= {"transaction_id": None, "partition_id": None}
                case 3:
                    fields |= {"partition_id": MADE_UP_PARTITION, "lease_id": lease_id}
                case 4 | 5:
                    # A neighbour of the message, under the right lease.
                    neighbours = self.neighbours(message)
                    fields |= {"lease_id": lease_id, "group": group}
                    fields["transaction_id"] = draw(st.sampled_from(neighbours))
            return Ack(**fields)

        return acks()

    def neighbours(self, message: Message) -> list[str]:
        for queue, partition in self.model.all_partitions():
            if partition.id == message.partition_id and self.model.kept(queue, partition):
                return list(self.model.kept(queue, partition))
        return [message.transaction_id]

    def a_lease(self, data: st.DataObject) -> str:
        leases = [lease for _, lease, _ in self.delivered[-8:]]
        return data.draw(st.sampled_from(leases or MADE_UP_LEASES))

    def ack_a_whole_lease(self, data: st.DataObject) -> None:
        status = data.draw(some.statuses)
        error = data.draw(some.errors)
        self.both.ack([Ack(status=status, lease_id=self.a_lease(data), error=error)])

    def renew(self, data: st.DataObject) -> None:
        seconds = data.draw(st.sampled_from([1.0, 5.0, 20.0]))
        lease_id = data.draw(st.sampled_from([self.a_lease(data), *MADE_UP_LEASES]))
        self.both.renew([Renew(lease_id, seconds)])

    def transaction(self, data: st.DataObject) -> None:
        operations: st.SearchStrategy[Any] = self.some_pushes(max_items=2)
        required: list[str] = []
        if self.delivered:
            right = data.draw(st.integers(0, 2)) > 0
            operations = st.one_of(operations, self.some_acks(self.delivered[-8:], right=right))
            if data.draw(st.integers(0, 3)) == 0:
                required = [data.draw(st.sampled_from([self.a_lease(data), *MADE_UP_LEASES]))]
        chosen: list[Push | Ack] = data.draw(st.lists(operations, min_size=1, max_size=4))
        self.both.transaction(Transaction(chosen, required))
