"""Reads the clients' logs and says which promises were broken.

It knows nothing of brokers and stores: what the clients were answered is all it believes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeAlias

from msgspec import Struct

from tests.chaos.events import (
    AckAnswered,
    AckAsked,
    Event,
    Popped,
    PushAnswered,
    PushUnanswered,
    Seen,
)

TOLERANCE_SECONDS = 0.05
"""Between when a lease begins in the store and when its consumer asked for it, and clocks."""

Place: TypeAlias = tuple[int, int]
"""Partition and seq."""


class Rules(Struct, frozen=True, kw_only=True):
    """What the run was set up with."""

    groups: dict[str, list[str]]
    """Of each queue."""
    ordered: set[str]
    """Queues whose messages have an order."""
    lease_seconds: float
    max_attempts: int


class Violation(Struct, frozen=True):
    promise: str
    what: str

    def __str__(self) -> str:
        return f"{self.promise}: {self.what}"


class Delivery(Struct, frozen=True):
    popped: Popped
    message: Seen


def check(events: Sequence[Event], rules: Rules) -> list[Violation]:
    """Every promise that these events break; none if all is well."""
    return [*_Checker(events, rules).violations()]


class _Checker:
    def __init__(self, events: Sequence[Event], rules: Rules) -> None:
        self.rules = rules
        self.answered = [event for event in events if isinstance(event, PushAnswered)]
        self.unanswered = [event for event in events if isinstance(event, PushUnanswered)]
        self.popped = sorted(
            (event for event in events if isinstance(event, Popped)), key=lambda event: event.lease
        )
        self.asked = [event for event in events if isinstance(event, AckAsked)]
        self.acked = [event for event in events if isinstance(event, AckAnswered)]
        self.taken = {
            (event.queue, event.sender, number)
            for event in self.answered
            for number in event.numbers
        }

    def violations(self) -> Iterator[Violation]:
        yield from self._check_stored_once()
        for queue, groups in self.rules.groups.items():
            if queue in self.rules.ordered:
                yield from self._check_sender_order(queue)
            for group in groups:
                deliveries = self._deliveries(queue, group)
                yield from self._check_nothing_lost(queue, group, deliveries)
                yield from self._check_acked_once(queue, group)
                yield from self._check_redeliveries(queue, group, deliveries)
                if queue in self.rules.ordered:
                    yield from self._check_delivery_order(queue, group)

    def _deliveries(self, queue: str, group: str) -> dict[Place, list[Delivery]]:
        """By message, in the order of their leases."""
        found: dict[Place, list[Delivery]] = defaultdict(list)
        for popped in self.popped:
            if (popped.queue, popped.group) == (queue, group):
                for message in popped.messages:
                    place = (message.partition_id, message.seq)
                    found[place].append(Delivery(popped, message))
        return found

    def _check_stored_once(self) -> Iterator[Violation]:
        """A push has one place, and a place one push."""
        places: dict[tuple[str, str, int], set[Place]] = defaultdict(set)
        names: dict[tuple[str, Place], set[tuple[str, int]]] = defaultdict(set)
        for popped in self.popped:
            for message in popped.messages:
                place = (message.partition_id, message.seq)
                places[popped.queue, message.sender, message.number].add(place)
                names[popped.queue, place].add((message.sender, message.number))
        asked_for = self.taken | {
            (event.queue, event.sender, number)
            for event in self.unanswered
            for number in event.numbers
        }
        for name, found in places.items():
            if len(found) > 1:
                yield Violation("a push is stored once", f"{name} is at {sorted(found)}")
            if name not in asked_for:
                yield Violation("nothing comes from nowhere", f"{name} was never pushed")
        for at, pushed in names.items():
            if len(pushed) > 1:
                yield Violation("a message never changes", f"{at} is {sorted(pushed)}")

    def _check_sender_order(self, queue: str) -> Iterator[Violation]:
        """Of what was answered: a sender who went on without an answer has no order to lose."""
        numbers: dict[tuple[int, str], dict[int, int]] = defaultdict(dict)
        for popped in self.popped:
            if popped.queue == queue:
                for message in popped.messages:
                    if (queue, message.sender, message.number) in self.taken:
                        seqs = numbers[message.partition_id, message.sender]
                        seqs[message.seq] = message.number
        for (partition_id, sender), seqs in numbers.items():
            in_order = [seqs[seq] for seq in sorted(seqs)]
            for first, second in pairwise(in_order):
                if second <= first:
                    yield Violation(
                        "a sender's order is kept",
                        f"{queue}: partition {partition_id}: {sender}'s {second} follows {first}",
                    )

    def _check_nothing_lost(
        self, queue: str, group: str, deliveries: dict[Place, list[Delivery]]
    ) -> Iterator[Violation]:
        seen = {
            (delivery.message.sender, delivery.message.number): place
            for place, found in deliveries.items()
            for delivery in found
        }
        completed = {
            place
            for event in self.asked
            if (event.queue, event.group, event.status) == (queue, group, "completed")
            for place in event.places
        }
        for taken_queue, sender, number in sorted(self.taken):
            if taken_queue != queue:
                continue
            place = seen.get((sender, number))
            if place is None:
                what = f"{queue}: {sender}'s {number} was answered and never came to {group}"
                yield Violation("nothing that was answered is lost", what)
            elif place not in completed:
                what = f"{queue}: {sender}'s {number} came to {group}, and nobody completed it"
                yield Violation("nothing that was answered is lost", what)

    def _check_acked_once(self, queue: str, group: str) -> Iterator[Violation]:
        successes = Counter(
            event.place for event in self._successes(queue, group) if event.status == "completed"
        )
        for place, count in successes.items():
            if count > 1:
                what = f"{queue}: {place} was completed {count} times for {group}"
                yield Violation("no message is acked by two", what)

    def _check_redeliveries(
        self, queue: str, group: str, deliveries: dict[Place, list[Delivery]]
    ) -> Iterator[Violation]:
        completed: set[tuple[Place, int]] = set()
        failed: set[tuple[Place, int]] = set()
        handed_back: set[tuple[Place, int]] = set()
        for event in self._successes(queue, group):
            (completed if event.status == "completed" else failed).add((event.place, event.lease))
        for asked in self.asked:
            if (asked.queue, asked.group) == (queue, group) and asked.status != "completed":
                handed_back.update((place, asked.lease) for place in asked.places)
        for place, found in deliveries.items():
            where = f"{queue}: {place} for {group}"
            most = max(delivery.message.attempts for delivery in found)
            if most > self.rules.max_attempts:
                yield Violation("attempts are bounded", f"{where} had {most}")
            for first, second in pairwise(found):
                if (place, first.popped.lease) in completed:
                    what = f"{where} was completed under lease {first.popped.lease}"
                    yield Violation("what was completed is not delivered again", what)
                # The expiry of a lease over several messages counts for none of them.
                counts = (
                    queue not in self.rules.ordered
                    or len(first.popped.messages) == 1
                    or (place, first.popped.lease) in failed
                )
                if second.message.attempts < first.message.attempts + counts:
                    what = f"{where}: {second.message.attempts} after {first.message.attempts}"
                    yield Violation("deliveries that count are counted", what)
                held = second.popped.at - first.popped.asked_at
                is_early = held < self.rules.lease_seconds - TOLERANCE_SECONDS
                if is_early and (place, first.popped.lease) not in handed_back:
                    what = f"{where} was delivered again after {held:.3f} s"
                    yield Violation("a lease is its holder's until it ends", what)

    def _check_delivery_order(self, queue: str, group: str) -> Iterator[Violation]:
        """No message comes before the one in front of it has come."""
        seen: dict[int, set[int]] = defaultdict(set)
        reached: dict[int, int] = defaultdict(int)
        for popped in self.popped:
            if (popped.queue, popped.group) != (queue, group):
                continue
            by_partition: dict[int, list[int]] = defaultdict(list)
            for message in popped.messages:
                by_partition[message.partition_id].append(message.seq)
            for partition_id, seqs in by_partition.items():
                where = f"{queue}: lease {popped.lease} of {group}, partition {partition_id}"
                if seqs != sorted(set(seqs)):
                    yield Violation("messages come in order", f"{where} has {seqs}")
                seen[partition_id].update(seqs)
                while reached[partition_id] + 1 in seen[partition_id]:
                    reached[partition_id] += 1
                if seqs and reached[partition_id] < max(seqs):
                    missing = reached[partition_id] + 1
                    yield Violation(
                        "messages come in order", f"{where} has {seqs} before {missing}"
                    )
                    reached[partition_id] = max(seqs)

    def _successes(self, queue: str, group: str) -> Iterable[AckAnswered]:
        return (
            event
            for event in self.acked
            if (event.queue, event.group) == (queue, group) and event.error is None
        )
