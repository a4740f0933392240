"""The requests of one push call: where their items go, what is in their way, what became of them.

Calls no procedure of push: whoever does tells it what was refused, or what was stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from monarq.crypto import Cipher
from monarq.errors import (
    AlreadyPushedError,
    EncryptionKeyError,
    InvalidRequestError,
    MonarqError,
    QueueFullError,
)
from monarq.ids import message_id, message_ids
from monarq.model import Push, PushColumns, Pushed, PushItem, PushStatus, Queue, QueueKind
from monarq.store.contract import Outcome
from monarq.store.postgres.catalog import Catalog, make_partitions, make_queues
from monarq.store.postgres.database import RefusedError, Work
from monarq.store.postgres.push_arguments import Target
from monarq.store.postgres.pushed_segments import MOST_SEGMENTS, segment_name
from monarq.store.validation import (
    PushShape,
    check_commands,
    check_ordered_item,
    check_push,
    check_work_place,
    comes_too_early,
)


class MissingError(Exception):
    """A queue or partition that is pushed to does not exist yet."""


class PushBatch:
    """Requests that are pushed together; what was learnt of them in earlier rounds."""

    def __init__(
        self,
        catalog: Catalog,
        cipher: Cipher | None,
        requests: Sequence[Push],
        mark: str | None = None,
        after: str | None = None,
    ) -> None:
        self._catalog = catalog
        self.cipher = cipher
        self.requests = requests
        self.mark = mark
        self.after = after
        self.outcomes: list[Outcome[list[Pushed]] | None] = [None] * len(requests)
        self._known: dict[tuple[int, str], int] = {}
        self._shapes: dict[int, PushShape] = {}
        for index, request in enumerate(requests):
            try:
                self._shapes[index] = check_push(request)
            except MonarqError as error:
                self.outcomes[index] = error

    @property
    def has_valid(self) -> bool:
        """Whether a request is well-formed, whatever became of it."""
        return bool(self._shapes)

    @property
    def refused(self) -> list[int]:
        """Well-formed requests that are refused, as far as is known."""
        return [i for i in self._shapes if isinstance(self.outcomes[i], MonarqError)]

    @property
    def open(self) -> list[int]:
        return [index for index, outcome in enumerate(self.outcomes) if outcome is None]

    @property
    def is_done(self) -> bool:
        return None not in self.outcomes

    async def targets(self, unit: Work | None = None) -> list[Target]:
        """Where everything goes, sorted by partition id.

        Queues and partitions that do not exist are made by `unit`, so that they are gone if it
        comes to nothing; without one, `MissingError` says that there are such.
        """
        queues = await self._queues(unit)
        open_requests = self.open
        keys = frozenset().union(*{self._shapes[index].names for index in open_requests})
        names: dict[str, set[str]] = {}
        for queue, partition in keys:
            names.setdefault(queue, set()).add(partition)
        targets: dict[tuple[str, str], Target] = {}
        for queue in sorted(names):
            ids = await self._partition_ids(unit, queues[queue].id, names[queue])
            for partition in names[queue]:
                targets[queue, partition] = Target(queues[queue], partition, ids[partition])
        for index in open_requests:
            items, shape = self.requests[index].items, self._shapes[index]
            # All of its items are alike, and none is known to be there already.
            is_whole = not shape.ids or (not self._known and len(shape.ids) == len(items))
            if (
                is_whole
                and shape.place is not None
                and targets[shape.place].add_whole(index, items, shape.ids)
            ):
                continue
            for place, item in enumerate(items):
                target = targets[item.queue, item.partition]
                if item.transaction_id is None or (
                    (target.partition_id, item.transaction_id) not in self._known
                ):
                    target.add(index, place, item)
        return sorted(targets.values(), key=_partition_id)

    async def _queues(self, unit: Work | None) -> dict[str, Queue]:
        """The queues of all open requests; those whose items do not fit them are answered."""
        open_requests = self.open
        wanted = self._queue_names(open_requests)
        queues = await self._catalog.queues(wanted, unit)
        found_good: set[tuple[frozenset[str], bool, bool]] = set()
        for index in open_requests:
            shape = self._shapes[index]
            kind = (shape.queues, shape.has_work_fields, self.requests[index].commands)
            if kind in found_good:
                continue
            try:
                if self._check(index, queues):
                    found_good.add(kind)
            except MonarqError as error:
                self.outcomes[index] = error
        if len(queues) == len(wanted):
            return queues
        missing = self._queue_names(self.open) - queues.keys()
        if missing:
            if unit is None:
                raise MissingError
            made = await make_queues(unit, self._labels(missing))
            if any(queue.kind is not QueueKind.ORDERED for queue in made.values()):
                raise RefusedError("stale", None)
            queues |= made
            if not missing <= queues.keys():
                # Somebody deleted it between these two statements.
                raise RefusedError("stale", None)
        return queues

    def _labels(self, names: frozenset[str]) -> dict[str, tuple[str, str]]:
        """Namespace and task of queues that have to be made: what the first item says."""
        labels: dict[str, tuple[str, str]] = {}
        for index in self.open:
            for item in self.requests[index].items:
                if item.queue in names:
                    labels.setdefault(item.queue, (item.namespace or "", item.task or ""))
        return labels

    async def _partition_ids(
        self, unit: Work | None, queue_id: int, names: set[str]
    ) -> dict[str, int]:
        ids = await self._catalog.partition_ids(queue_id, names, unit)
        if len(ids) < len(names):
            if unit is None:
                raise MissingError
            ids = await make_partitions(unit, queue_id, sorted(names))
            if len(ids) < len(names):
                raise RefusedError("stale", None)
        return ids

    def _queue_names(self, indexes: Sequence[int]) -> frozenset[str]:
        return frozenset().union(*{self._shapes[index].queues for index in indexes})

    def _check(self, index: int, queues: dict[str, Queue]) -> bool:
        """Refuse a request whose items are not what their queues take; a missing one is ordered.
        Returns whether any other request of this kind is good too."""
        shape = self._shapes[index]
        known = [queues.get(queue) for queue in shape.queues]
        for queue in known:
            check_commands(queue, self.requests[index].commands)
            if queue is not None and queue.options.encryption_enabled and self.cipher is None:
                raise EncryptionKeyError(
                    f"queue {queue.name!r} is encrypted, and this store was given no key"
                )
        all_ordered = all(queue is None or queue.kind is QueueKind.ORDERED for queue in known)
        if all_ordered and not shape.has_work_fields:
            return True
        work = [queue.name for queue in known if queue is not None and queue.kind is QueueKind.WORK]
        for name, partition in shape.names:
            if name in work:
                check_work_place(name, partition)
        if shape.has_work_fields and len(work) < len(known):
            for item in self.requests[index].items:
                if item.queue not in work:
                    check_ordered_item(item)
        return False

    def learn(self, refusal: RefusedError, targets: Sequence[Target]) -> None:
        """Take note of why a round was refused."""
        if refusal.reason == "marked":
            raise already_pushed()
        if refusal.reason == "early":
            raise comes_too_early()
        if refusal.reason == "stale":
            self._catalog.forget_all()
        elif refusal.reason == "known":
            for target, place, seq in refusal.detail:
                item = targets[target - 1].items[place]
                assert item.transaction_id is not None
                self._known[targets[target - 1].partition_id, item.transaction_id] = seq
        elif refusal.reason == "reserved":
            for target, place in refusal.detail:
                item = targets[target - 1].items[place]
                self.outcomes[targets[target - 1].requests()[place]] = InvalidRequestError(
                    f"transactionId {item.transaction_id!r} has the form of this partition's own "
                    "ids and names no message that is kept: choose another"
                )
        else:
            self._refuse_full(dict(refusal.detail), targets)

    def _refuse_full(self, room: dict[int, int], targets: Sequence[Target]) -> None:
        """Requests are taken in order while there is room for them."""
        sizes: dict[int, dict[int, int]] = {}
        for target in targets:
            if target.queue.id in room:
                for index, _, count in target.runs:
                    counts = sizes.setdefault(index, {})
                    counts[target.queue.id] = counts.get(target.queue.id, 0) + count
        names = {target.queue.id: target.queue for target in targets}
        for index in sorted(sizes):
            full = [queue for queue, count in sizes[index].items() if count > room[queue]]
            if full:
                queue = names[full[0]]
                pending = queue.options.max_size - room[queue.id] + sizes[index][queue.id]
                self.outcomes[index] = QueueFullError(
                    f"queue {queue.name!r} is full: its maxSize is {queue.options.max_size}, "
                    f"and this push would make it {pending}"
                )
            else:
                for queue_id, count in sizes[index].items():
                    room[queue_id] -= count

    def finish(self, targets: Sequence[Target], first_seqs: dict[int, int]) -> None:
        """All open requests were stored."""
        requests, outcomes = self.requests, self.outcomes
        in_parts: dict[int, list[Pushed | None]] = {}
        for target in targets:
            first = first_seqs.get(target.partition_id, 0)
            pushed = _queued(target, first)
            start = 0
            for index, place, count in target.runs:
                end = start + count
                size = len(requests[index].items)
                if count == size:
                    outcomes[index] = pushed[start:end]
                else:
                    answers = in_parts.get(index) or in_parts.setdefault(index, [None] * size)
                    answers[place : place + count] = pushed[start:end]
                start = end
            for index, place, nth in target.repeats or ():
                items = requests[index].items
                answers = in_parts.setdefault(index, [None] * len(items))
                answers[place] = _duplicate(items[place], target.partition_id, first + nth)
        for index in self.open:
            answers = in_parts.get(index) or [None] * len(requests[index].items)
            self._add_duplicates(index, answers, targets)
            outcomes[index] = [answer for answer in answers if answer is not None]

    def keep(
        self, targets: Sequence[Target], first_seqs: Sequence[int], times: Sequence[int]
    ) -> None:
        """Messages that were stored for good, for whoever pops them."""
        if len(targets) > MOST_SEGMENTS:
            return
        for target, first_seq, time in zip(targets, first_seqs, times, strict=True):
            if target.data is not None:
                name = segment_name(target.partition_id, first_seq, time)
                self._catalog.pushed.learn(target.queue.id, name, target.data)

    def _add_duplicates(
        self, index: int, answers: list[Pushed | None], targets: Sequence[Target]
    ) -> None:
        """Answer what was not sent because it was known to be there."""
        if None not in answers:
            return
        partition_ids = {(t.queue.name, t.partition): t.partition_id for t in targets}
        for place, item in enumerate(self.requests[index].items):
            if answers[place] is None:
                partition_id = partition_ids[item.queue, item.partition]
                answers[place] = self._known_duplicate(item, partition_id)

    def _known_duplicate(self, item: PushItem, partition_id: int) -> Pushed:
        assert item.transaction_id is not None
        return _duplicate(item, partition_id, self._known[partition_id, item.transaction_id])


_partition_id = attrgetter("partition_id")
# Looked up once: to find a member by its name takes as long as a struct.
_QUEUED = PushStatus.QUEUED


def _queued(target: Target, first_seq: int) -> list[Pushed]:
    queue, partition_id = target.queue.name, target.partition_id
    if len(target.items) == 1:
        [item] = target.items
        own = item.transaction_id or f"{partition_id}-{first_seq}"
        return [Pushed(_QUEUED, queue, partition_id, first_seq, own, item.trace_id)]
    if type(target.items) is PushColumns:
        ids = target.items.transaction_ids or message_ids(
            partition_id, first_seq, len(target.items)
        )
        return [
            Pushed(_QUEUED, queue, partition_id, seq, own) for seq, own in enumerate(ids, first_seq)
        ]
    return [
        Pushed(
            _QUEUED,
            queue,
            partition_id,
            seq,
            item.transaction_id or f"{partition_id}-{seq}",
            item.trace_id,
        )
        for seq, item in enumerate(target.items, first_seq)
    ]


def _duplicate(item: PushItem, partition_id: int, seq: int) -> Pushed:
    return Pushed(
        PushStatus.DUPLICATE,
        item.queue,
        partition_id,
        seq,
        item.transaction_id or message_id(partition_id, seq),
        item.trace_id,
    )


def already_pushed() -> AlreadyPushedError:
    return AlreadyPushedError("a push with this mark was stored before")
