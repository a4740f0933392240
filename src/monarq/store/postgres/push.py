"""Push: gathers the items of many requests into one call a kind, and mends what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter

import asyncpg

from monarq.crypto import Cipher
from monarq.errors import (
    AlreadyPushedError,
    EncryptionKeyError,
    InvalidRequestError,
    MonarqError,
    QueueFullError,
    StoreUnavailableError,
)
from monarq.ids import message_id
from monarq.model import Push, Pushed, PushItem, PushStatus, Queue, QueueKind
from monarq.store.contract import Outcome
from monarq.store.postgres.catalog import Catalog, make_partitions, make_queues
from monarq.store.postgres.database import LOST_A_DEADLOCK, Database, RefusedError, Work
from monarq.store.postgres.push_arguments import Target, item_arguments, message_arguments
from monarq.store.validation import (
    PushShape,
    check_commands,
    check_mark,
    check_ordered_item,
    check_push,
    check_work_item,
)

MAX_ROUNDS = 50
_MESSAGES = "select monarq.push_messages(" + ", ".join(f"${n}" for n in range(1, 22)) + ")"
_MARK = "select monarq.keep_mark($1, $2)"
_NOTE_REFUSED = "update monarq.push_marks set refused = $2 where mark = $1"
_REFUSED = "select refused from monarq.push_marks where mark = $1"
_IS_MARKED = "select exists (select from monarq.push_marks where mark = $1)"
_ITEMS = "select monarq.push_items(" + ", ".join(f"${n}" for n in range(1, 22)) + ")"


class _MissingError(Exception):
    """A queue or partition that is pushed to does not exist yet."""


class _TriedError(Exception):
    """A push that was only tried has come to its end, and is undone."""


class PushBatch:
    """Requests that are pushed together; what was learnt of them in earlier rounds."""

    def __init__(
        self,
        catalog: Catalog,
        cipher: Cipher | None,
        requests: Sequence[Push],
        mark: str | None = None,
    ) -> None:
        self._catalog = catalog
        self.cipher = cipher
        self.requests = requests
        self.mark = mark
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
        comes to nothing; without one, `_MissingError` says that there are such.
        """
        queues = await self._queues(unit)
        open_requests = self.open
        keys = set().union(*(self._shapes[index].names for index in open_requests))
        names: dict[str, set[str]] = {}
        for queue, partition in keys:
            names.setdefault(queue, set()).add(partition)
        targets: dict[tuple[str, str], Target] = {}
        for queue in sorted(names):
            ids = await self._partition_ids(unit, queues[queue].id, names[queue])
            for partition in names[queue]:
                targets[queue, partition] = Target(queues[queue], partition, ids[partition])
        for index in open_requests:
            request, shape = self.requests[index], self._shapes[index]
            if (
                shape.place is not None
                and self._is_whole(request, shape)
                and targets[shape.place].add_whole(index, request.items, shape.ids)
            ):
                continue
            for place, item in enumerate(request.items):
                target = targets[item.queue, item.partition]
                if item.transaction_id is None or (
                    (target.partition_id, item.transaction_id) not in self._known
                ):
                    target.add(index, place, item)
        return sorted(targets.values(), key=_partition_id)

    def _is_whole(self, request: Push, shape: PushShape) -> bool:
        """Whether all of its items are alike, and none is known to be there already."""
        return not shape.ids or (not self._known and len(shape.ids) == len(request.items))

    async def _queues(self, unit: Work | None) -> dict[str, Queue]:
        """The queues of all open requests; those whose items do not fit them are answered."""
        queues = await self._catalog.queues(self._queue_names(), unit)
        found_good: set[tuple[int, bool]] = set()
        for index in self.open:
            kind = (id(self._shapes[index]), self.requests[index].commands)
            if kind in found_good:
                continue
            try:
                if self._check(index, queues):
                    found_good.add(kind)
            except MonarqError as error:
                self.outcomes[index] = error
        wanted = self._queue_names()
        missing = wanted - queues.keys()
        if missing:
            if unit is None:
                raise _MissingError
            made = await make_queues(unit, self._labels(missing))
            if any(queue.kind is not QueueKind.ORDERED for queue in made.values()):
                raise RefusedError("stale", None)
            queues |= made
        return queues

    def _labels(self, names: set[str]) -> dict[str, tuple[str, str]]:
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
                raise _MissingError
            ids = await make_partitions(unit, queue_id, sorted(names))
            if len(ids) < len(names):
                raise RefusedError("stale", None)
        return ids

    def _queue_names(self) -> set[str]:
        return {queue for index in self.open for queue, _ in self._shapes[index].names}

    def _check(self, index: int, queues: dict[str, Queue]) -> bool:
        """Refuse a request whose items are not what their queues take; a missing one is ordered.
        Returns whether any other request of this shape is good too."""
        shape = self._shapes[index]
        known = [queues.get(queue) for queue, _ in shape.names]
        for queue in known:
            check_commands(queue, self.requests[index].commands)
            if queue is not None and queue.options.encryption_enabled and self.cipher is None:
                raise EncryptionKeyError(
                    f"queue {queue.name!r} is encrypted, and this store was given no key"
                )
        all_ordered = all(queue is None or queue.kind is QueueKind.ORDERED for queue in known)
        if all_ordered and not shape.has_work_fields:
            return True
        for item in self.requests[index].items:
            queue = queues.get(item.queue)
            if queue is None or queue.kind is QueueKind.ORDERED:
                check_ordered_item(item)
            else:
                check_work_item(item)
        return False

    def learn(self, refusal: RefusedError, targets: Sequence[Target]) -> None:
        """Take note of why a round was refused."""
        if refusal.reason == "marked":
            raise _already_pushed(self.mark)
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
                self.outcomes[index] = QueueFullError(
                    f"queue {queue.name!r} is full: it has room for {max(0, room[queue.id])} "
                    f"of its maxSize of {queue.options.max_size}"
                )
            else:
                for queue_id, count in sizes[index].items():
                    room[queue_id] -= count

    def finish(self, targets: Sequence[Target], first_seqs: dict[int, int]) -> None:
        """All open requests were stored."""
        in_parts: dict[int, list[Pushed | None]] = {}
        for target in targets:
            first = first_seqs.get(target.partition_id, 0)
            pushed = _queued(target, first)
            start = 0
            for index, place, count in target.runs:
                end = start + count
                size = len(self.requests[index].items)
                if count == size:
                    self.outcomes[index] = pushed[start:end]
                else:
                    answers = in_parts.get(index) or in_parts.setdefault(index, [None] * size)
                    answers[place : place + count] = pushed[start:end]
                start = end
            for index, place, nth in target.repeats or ():
                item = self.requests[index].items[place]
                answers = in_parts.setdefault(index, [None] * len(self.requests[index].items))
                answers[place] = _duplicate(item, target.partition_id, first + nth)
        for index in self.open:
            answers = in_parts.get(index) or [None] * len(self.requests[index].items)
            self._add_duplicates(index, answers, targets)
            self.outcomes[index] = [answer for answer in answers if answer is not None]

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


def _queued(target: Target, first_seq: int) -> list[Pushed]:
    partition_id = target.partition_id
    if len(target.items) == 1:
        [item] = target.items
        own = item.transaction_id or f"{partition_id}-{first_seq}"
        queue = target.queue.name
        return [Pushed(PushStatus.QUEUED, queue, partition_id, first_seq, own, item.trace_id)]
    seqs = range(first_seq, first_seq + len(target.items))
    if not target.by_id:
        ids = [f"{partition_id}-{seq}" for seq in seqs]
    else:
        given = zip(seqs, target.ids(), strict=True)
        ids = [own or f"{partition_id}-{seq}" for seq, own in given]
    return list(
        map(
            Pushed,
            repeat(PushStatus.QUEUED),
            repeat(target.queue.name),
            repeat(partition_id),
            seqs,
            ids,
            [item.trace_id for item in target.items],
        )
    )


def _duplicate(item: PushItem, partition_id: int, seq: int) -> Pushed:
    return Pushed(
        PushStatus.DUPLICATE,
        item.queue,
        partition_id,
        seq,
        item.transaction_id or message_id(partition_id, seq),
        item.trace_id,
    )


def _already_pushed(mark: str | None) -> AlreadyPushedError:
    return AlreadyPushedError(f"the push with the mark {mark!r} was stored before")


async def push(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[Push],
    mark: str | None = None,
) -> list[Outcome[list[Pushed]]]:
    if mark is None:
        return await _push(database, catalog, cipher, requests, None)
    check_mark(mark)
    try:
        return await _push(database, catalog, cipher, requests, mark)
    except AlreadyPushedError as error:
        refused = await database.fetchval(_REFUSED, mark)
        raise AlreadyPushedError(str(error), refused or ()) from None


async def _push(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[Push],
    mark: str | None,
) -> list[Outcome[list[Pushed]]]:
    batch = PushBatch(catalog, cipher, requests, mark)
    try:
        await push_batch(database, batch)
    except asyncpg.PostgresError:
        # Something that validation did not foresee. Only the request it belongs to may fail.
        if len(requests) == 1:
            raise
        refused = [await _try_alone(database, catalog, cipher, request) for request in requests]
        batch = PushBatch(catalog, cipher, requests, mark)
        for index, error in enumerate(refused):
            batch.outcomes[index] = error or batch.outcomes[index]
        await push_batch(database, batch)
    if mark is not None and await _is_repeat(database, batch, mark):
        raise _already_pushed(mark)
    return [outcome for outcome in batch.outcomes if outcome is not None]


async def _try_alone(
    database: Database, catalog: Catalog, cipher: Cipher | None, request: Push
) -> InvalidRequestError | None:
    """Why PostgreSQL does not take a request, if it does not. Nothing of it is kept: all of a
    call is stored in one transaction, or its mark would promise too much."""
    batch = PushBatch(catalog, cipher, [request])
    try:
        async with database.transaction() as unit:
            targets = await batch.targets(unit)
            await store_targets(unit, batch, *by_kind(targets))
            raise _TriedError
    except (_TriedError, RefusedError, *LOST_A_DEADLOCK):
        return None
    except asyncpg.PostgresError as error:
        return InvalidRequestError(f"PostgreSQL does not take this push: {error}")


async def _is_repeat(database: Database, batch: PushBatch, mark: str) -> bool:
    """Whether a call of which nothing was stored, perhaps because of what its first try has
    done, is a repeat."""
    if any(isinstance(outcome, list) for outcome in batch.outcomes):
        return False
    if not batch.has_valid:
        return False
    return bool(await database.fetchval(_IS_MARKED, mark))


async def push_batch(database: Database, batch: PushBatch) -> None:
    """Push in rounds: each either stores all that is left, or learns what is in its way."""
    for _ in range(MAX_ROUNDS):
        if batch.is_done:
            return
        if await _push_existing(database, batch) is False:
            await _push_making(database, batch)
    if not batch.is_done:
        raise StoreUnavailableError("the queues change faster than this push can follow")


async def _push_existing(database: Database, batch: PushBatch) -> bool:
    """The usual way, one call; False if it takes several: a queue or partition has to be made
    first, or what was refused has to be noted with the mark."""
    targets: list[Target] = []
    try:
        targets = await batch.targets()
        if batch.is_done:
            return True
        ordered, work = by_kind(targets)
        if (ordered and work) or (batch.mark is not None and batch.refused):
            return False
        if ordered or work:
            first_seqs = await store_targets(database, batch, ordered, work, batch.mark)
        else:
            first_seqs = {}
            await _keep_mark(database, batch)
        batch.finish(targets, first_seqs)
    except _MissingError:
        return False
    except RefusedError as refusal:
        batch.learn(refusal, refused(refusal, targets))
    return True


async def _push_making(database: Database, batch: PushBatch) -> None:
    """All in one transaction: what is made for a push that is refused goes with it."""
    targets: list[Target] = []
    try:
        async with database.transaction() as unit:
            await _keep_mark(unit, batch)
            targets = await batch.targets(unit)
            if batch.is_done:
                raise _TriedError  # nothing to store, so no mark either
            first_seqs = await store_targets(unit, batch, *by_kind(targets))
            if batch.mark is not None and batch.refused:
                await unit.fetchval(_NOTE_REFUSED, batch.mark, batch.refused)
        batch.finish(targets, first_seqs)
    except RefusedError as refusal:
        batch.learn(refusal, refused(refusal, targets))
    except (_TriedError, *LOST_A_DEADLOCK):
        return


async def _keep_mark(unit: Database | Work, batch: PushBatch) -> None:
    if batch.mark is not None:
        await unit.fetchval(_MARK, unit.now(), batch.mark)


def by_kind(targets: list[Target]) -> tuple[list[Target], list[Target]]:
    """Those with something to store: of ordered queues, and of work queues."""
    full = [target for target in targets if target.items]
    return (
        [target for target in full if target.queue.kind is QueueKind.ORDERED],
        [target for target in full if target.queue.kind is QueueKind.WORK],
    )


def refused(refusal: RefusedError, targets: list[Target]) -> list[Target]:
    """The targets that the refusing procedure was given, by which it counts."""
    return [t for t in targets if t.items and t.queue.kind is refusal.kind]


async def store_targets(
    unit: Database | Work,
    batch: PushBatch,
    ordered: list[Target],
    work: list[Target],
    mark: str | None = None,
) -> dict[int, int]:
    """Call the procedures; the first seq in each partition. With a mark, of one kind only."""
    first_seqs: dict[int, int] = {}
    for kind, targets in ((QueueKind.ORDERED, ordered), (QueueKind.WORK, work)):
        if not targets:
            continue
        if kind is QueueKind.ORDERED:
            sql, arguments = _MESSAGES, message_arguments(targets, batch.requests, batch.cipher)
        else:
            sql, arguments = _ITEMS, item_arguments(targets, batch.requests, batch.cipher)
        try:
            seqs = await unit.fetchval(sql, unit.now(), mark, *arguments)
        except RefusedError as refusal:
            refusal.kind = kind
            raise
        first_seqs.update(zip((t.partition_id for t in targets), seqs, strict=True))
    return first_seqs
