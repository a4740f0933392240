"""What processes write down about a shared store, and what must be true of it in the end.

Every process has a log of its own, a line of JSON for each event, written before it goes on: a
process that is killed loses nothing but the answer it was waiting for.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, json

Place: TypeAlias = tuple[int, int]
"""A message or item: its partition and seq."""


class Sent(Struct, frozen=True, tag=True):
    """A push was answered."""

    transaction_id: str
    partition_id: int
    seq: int
    is_duplicate: bool


class Leased(Struct, frozen=True, tag=True):
    """A pop was answered with some messages of one partition, or some items."""

    group: str
    number: int
    """The lease's."""
    partition_id: int
    seqs: list[int]
    attempts: list[int]
    asked_at: int
    got_at: int
    until: int


class Asked(Struct, frozen=True, tag=True):
    """An ack is on its way."""

    group: str
    number: int
    partition_id: int
    seq: int
    status: str
    at: int


class Answered(Struct, frozen=True, tag=True):
    """An ack was answered; `error` is the code, if it was refused."""

    group: str
    number: int
    partition_id: int
    seq: int
    status: str
    error: str | None


Event: TypeAlias = Sent | Leased | Asked | Answered


class Log:
    """One process's events. Each is in the file when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, event: Event) -> None:
        os.write(self._file, json.encode(event) + b"\n")


def read_logs(directory: Path) -> list[Event]:
    """All events of all processes. A line that a killed process began is left out."""
    decode = json.Decoder(Event).decode
    return [
        decode(line)
        for path in sorted(directory.glob("*.log"))
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


class Outcome(Struct, frozen=True):
    """What the store says in the end, for one group or one work queue."""

    group: str
    completed: int
    dead: list[Place]


class History:
    """All events of one run, by kind."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.sent = [event for event in events if isinstance(event, Sent)]
        self.leases = [event for event in events if isinstance(event, Leased)]
        self.asked = [event for event in events if isinstance(event, Asked)]
        self.answered = [event for event in events if isinstance(event, Answered)]

    @property
    def queued(self) -> set[Place]:
        return {(e.partition_id, e.seq) for e in self.sent}

    def check_pushes(self, kept: Iterable[tuple[int, int, str]]) -> None:
        """`kept`: partition, seq and transaction id of all that the store has."""
        seqs: dict[int, list[int]] = defaultdict(list)
        names: dict[Place, str] = {}
        for partition_id, seq, transaction_id in kept:
            seqs[partition_id].append(seq)
            names[partition_id, seq] = transaction_id
        for partition_id, found in seqs.items():
            assert sorted(found) == list(range(1, len(found) + 1)), (
                f"the seqs of partition {partition_id} have a hole or repeat: {sorted(found)}"
            )
        assert len(set(names.values())) == len(names), "a transaction id was stored twice"
        firsts: Counter[str] = Counter()
        for event in self.sent:
            place = (event.partition_id, event.seq)
            assert names.get(place) == event.transaction_id, (
                f"{event} was answered, but {place} is {names.get(place)}"
            )
            firsts[event.transaction_id] += not event.is_duplicate
        twice = [name for name, count in firsts.items() if count > 1]
        assert not twice, f"two pushes of one id were both told that it is new: {twice}"

    def check_outcome(self, outcome: Outcome, stored: set[Place]) -> None:
        """Everything is completed or dead for the group, exactly once."""
        group = outcome.group
        lost = self.queued - stored
        assert not lost, f"answered as queued, and not there: {lost}"
        dead = set(outcome.dead)
        assert len(dead) == len(outcome.dead), f"{group}: dead twice: {outcome.dead}"
        assert outcome.completed + len(dead) == len(stored), (
            f"{group}: {outcome.completed} completed and {len(dead)} dead of {len(stored)}"
        )
        done = Counter(
            (e.partition_id, e.seq)
            for e in self.answered
            if e.group == group and e.status == "completed" and e.error is None
        )
        twice = [place for place, count in done.items() if count > 1]
        assert not twice, f"{group}: completed twice: {twice}"
        both = dead & set(done)
        assert not both, f"{group}: completed, and dead all the same: {both}"
        unanswered = {
            (e.partition_id, e.seq)
            for e in self.asked
            if e.group == group and e.status == "completed"
        }
        unexplained = stored - dead - unanswered
        assert not unexplained, f"{group}: consumed, but nobody acked them: {unexplained}"

    def check_order(self, outcome: Outcome) -> None:
        """No message is delivered before the one in front of it, unless that one died."""
        dead = set(outcome.dead)
        for partition_id, leases in self._leases_by_partition(outcome.group):
            seen: set[int] = set()
            for lease in leases:
                assert lease.seqs == sorted(set(lease.seqs)), f"not in order: {lease}"
                seen.update(lease.seqs)
                passed_over = {
                    seq
                    for seq in range(1, lease.seqs[-1])
                    if seq not in seen and (partition_id, seq) not in dead
                }
                assert not passed_over, f"{lease} came before {sorted(passed_over)}"

    def check_leases_of_partitions(self, group: str) -> None:
        """No two live leases of a group on one partition."""
        for _, leases in self._leases_by_partition(group):
            self._check_apart(leases)

    def check_leases_of_items(self) -> None:
        """No two live leases on one item."""
        by_item: dict[Place, list[Leased]] = defaultdict(list)
        for lease in sorted(self.leases, key=lambda lease: lease.number):
            for seq in lease.seqs:
                by_item[lease.partition_id, seq].append(lease)
        for (_, seq), leases in by_item.items():
            self._check_apart(leases, seq)

    def _leases_by_partition(self, group: str) -> Iterator[tuple[int, list[Leased]]]:
        """In the order of their numbers, which must be the order in which they were given."""
        found: dict[int, list[Leased]] = defaultdict(list)
        for lease in sorted(self.leases, key=lambda lease: lease.number):
            if lease.group == group:
                found[lease.partition_id].append(lease)
        yield from found.items()

    def _check_apart(self, leases: list[Leased], seq: int | None = None) -> None:
        for first, second in pairwise(leases):
            end = min(first.until, self._answered_at(first, seq))
            assert second.got_at >= end, f"{second} overlaps {first}, which ended at {end}"

    def _answered_at(self, lease: Leased, seq: int | None) -> int:
        """The earliest time at which the last answer under the lease may have been given."""
        wanted = set(lease.seqs) if seq is None else {seq}
        times: dict[int, int] = {}
        for event in self.asked:
            same = (event.number, event.partition_id) == (lease.number, lease.partition_id)
            if same and event.seq in wanted:
                times.setdefault(event.seq, event.at)
        return max(times.values()) if set(times) == wanted else lease.until
