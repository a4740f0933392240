"""Who is served by what became available: finds the places that an event is for.

An ordered queue serves one pop of a group with each partition, a work queue one with each item.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from monarq.broker.facts import Facts
from monarq.broker.places import Place
from monarq.broker.waiting import Waiting
from monarq.model import QueueKind


class Waking:
    def __init__(self, waiting: Waiting, facts: Facts) -> None:
        self._waiting = waiting
        self._places = waiting.places
        self._facts = facts

    @property
    def is_anybody_here(self) -> bool:
        return self._waiting.total > 0

    def pushed(self, queue: str, partitions: Mapping[str, int], cause: str = "push") -> None:
        """So many messages or items came to these partitions, or can be leased again."""
        if self._waiting.is_held or not self._places.concerned(queue):
            return
        facts = self._facts.get(queue)
        if facts is None:
            self._unknown(queue, partitions, cause)
        elif facts.kind is QueueKind.WORK:
            self._items_came(self._places.of_queue(queue), sum(partitions.values()), cause)
        else:
            for group in self._places.groups(queue):
                self._partitions_free(queue, group, partitions, cause)

    def _unknown(self, queue: str, partitions: Mapping[str, int], cause: str) -> None:
        for place in [*self._places.of_queue(queue), *self._labelled(queue, None)]:
            if place.partition is None or place.partition in partitions:
                self._waiting.hunt(place, cause)

    def freed(self, queue: str, partition: str, group: str | None, cause: str = "free") -> None:
        """A lease ended, and there may be more in the partition; for one group, or nobody
        knows for which."""
        if self._waiting.is_held or not self._places.concerned(queue):
            return
        for name in self._places.groups(queue) if group is None else [group]:
            self._partitions_free(queue, name, [partition], cause)

    def stirred(self, queue: str, cause: str) -> None:
        """Something may have become available in the queue; nobody knows how much."""
        if self._waiting.is_held or not self._places.concerned(queue):
            return
        for place in [*self._places.of_queue(queue), *self._labelled(queue, None)]:
            self._waiting.hunt(place, cause)

    def stirred_anywhere(self, cause: str) -> None:
        self._waiting.hunt_everywhere(cause)

    def _items_came(self, places: Sequence[Place], count: int, cause: str) -> None:
        if len(places) == 1:
            self._waiting.serve(places[0], count, cause)
            return
        for _ in range(count):
            if self._waiting.serve_one(places, cause) is None:
                break

    def _partitions_free(
        self, queue: str, group: str, partitions: Iterable[str], cause: str
    ) -> None:
        """Each partition can serve one pop of the group."""
        places = self._places.of_group(queue, group)
        wide = self._labelled(queue, group)
        if places is not None and places.any is not None:
            wide.append(places.any)
        named = places.named if places is not None else {}
        spare = 0
        for partition in partitions:
            place = named.get(partition)
            candidates = wide if place is None else [*wide, place]
            if not candidates:
                continue
            if spare > 0:
                # Somebody who takes several partitions was woken before.
                spare -= 1
                continue
            call = self._waiting.serve_one(candidates, cause)
            if call is not None:
                spare = min(call.request.partitions, call.request.batch) - 1

    def _labelled(self, queue: str, group: str | None) -> list[Place]:
        """Places that this queue's labels may serve."""
        places = self._places.labelled(group)
        if not places:
            return places
        facts = self._facts.get(queue)
        if facts is None:
            return places
        return [place for place in places if place.matches(facts.namespace, facts.task)]
