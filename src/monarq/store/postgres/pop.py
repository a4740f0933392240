"""Pop: finds where each request may look, and asks for many in one call a kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from monarq.clock import micros
from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError, InvalidRequestError, MonarqError
from monarq.ids import lease_id, new_lease_tokens
from monarq.model import (
    DEFAULT_GROUP,
    DEFAULT_PARTITION,
    Ack,
    AckStatus,
    Message,
    Pop,
    Popped,
    Queue,
    QueueKind,
    StartFrom,
)
from monarq.store.contract import Outcome
from monarq.store.postgres import acks
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database, Work, one_for_all
from monarq.store.postgres.groups import join_labels, join_queue
from monarq.store.postgres.popped_rows import item_of, messages_of, popped
from monarq.store.postgres.pushed_segments import segment_name
from monarq.store.validation import check_may_work, check_pop

_MESSAGES = "select * from monarq.pop_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_ITEMS = "select * from monarq.pop_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_LABELLED = "select * from monarq.labelled_groups($1, $2, $3)"
_ROUNDS = 3
"""A group or queue may vanish between being found and being popped; then look again."""


class Wanted:
    """A request under way: where to look, and what it got."""

    __slots__ = ("groups", "index", "known", "queue", "request", "token")

    def __init__(self, index: int, request: Pop, token: str) -> None:
        self.index = index
        self.request = request
        self.token = token
        self.groups = ""
        self.queue: Queue | None = None
        self.known: Mapping[str, bytes] = {}
        """Segments whose payloads need not be sent."""

    @property
    def may_be_sealed(self) -> bool:
        """Whether an unreadable payload has to be expected, or could not be given back."""
        encrypted = self.queue is not None and self.queue.options.encryption_enabled
        return self.request.auto_ack or encrypted


class Look(NamedTuple):
    """Requests that are one call of `pop_messages`."""

    wanted: list[Wanted]
    outcomes: list[Outcome[Popped]]
    arguments: list[Any]
    """Behind time and room."""


class Popper:
    def __init__(self, database: Database, catalog: Catalog, cipher: Cipher | None) -> None:
        self._database = database
        self._catalog = catalog
        self._cipher = cipher

    async def pop(self, requests: Sequence[Pop], max_bytes: int) -> list[Outcome[Popped]]:
        wanted, outcomes = self._checked(requests)
        await self._go_on(wanted, outcomes, max_bytes)
        return outcomes

    async def plain_look(self, requests: Sequence[Pop]) -> Look | None:
        """All of the call as one call of `pop_messages`, of which nothing may have to be undone;
        None if it is not."""
        wanted, outcomes = self._checked(requests)
        ready, work = await self._find(wanted, outcomes)
        if work or not ready or any(want.may_be_sealed for want in ready):
            return None
        return Look(ready, outcomes, self._message_arguments(ready))

    async def finish(self, look: Look, rows: list[Any], max_bytes: int) -> list[Outcome[Popped]]:
        """The answers to such a call, from the rows of `pop_messages`."""
        again = await self._answer(look.wanted, look.outcomes, rows)
        await self._go_on(again, look.outcomes, max_bytes)
        return look.outcomes

    def _checked(self, requests: Sequence[Pop]) -> tuple[list[Wanted], list[Outcome[Popped]]]:
        outcomes: list[Outcome[Popped]] = [Popped(messages=[])] * len(requests)
        wanted: list[Wanted] = []
        checked: Pop | None = None
        tokens = new_lease_tokens(len(requests))
        for index, request in enumerate(requests):
            try:
                # Many in a row may be the same one.
                if request is not checked:
                    check_pop(request)
                    checked = request
                wanted.append(Wanted(index, request, tokens[index]))
            except MonarqError as error:
                outcomes[index] = error
        return wanted, outcomes

    async def _go_on(
        self, wanted: list[Wanted], outcomes: list[Outcome[Popped]], max_bytes: int
    ) -> None:
        for _ in range(_ROUNDS):
            if not wanted:
                break
            wanted = await self._round(wanted, outcomes, max_bytes)

    async def _round(
        self, wanted: list[Wanted], outcomes: list[Outcome[Popped]], max_bytes: int
    ) -> list[Wanted]:
        """Pop what can be popped; those that found their queue or group gone come again."""
        ready, work = await self._find(wanted, outcomes)
        again: list[Wanted] = []
        if ready:
            again += await self._pop_messages(ready, outcomes, max_bytes)
        if work:
            again += await self._pop_items(work, outcomes, max_bytes)
        return again

    async def _find(
        self, wanted: list[Wanted], outcomes: list[Outcome[Popped]]
    ) -> tuple[list[Wanted], list[Wanted]]:
        """Those for messages, each with its groups, and those for items."""
        names = {want.request.queue for want in wanted}
        queues = await self._catalog.queues(name for name in names if name is not None)
        ordered: list[Wanted] = []
        work: list[Wanted] = []
        for want in wanted:
            queue = queues.get(want.request.queue or "")
            want.queue = queue
            try:
                if queue is not None and queue.kind is QueueKind.WORK:
                    runs_commands = queue.options.runs_commands
                    check_may_work(runs_commands, queue.name, want.request.commands)
                    _check_work_pop(want.request)
                    work.append(want)
                else:
                    ordered.append(want)
            except MonarqError as error:
                outcomes[want.index] = error
        ready: list[Wanted] = []
        found: dict[tuple[str, str], str] = {}
        for want in ordered:
            # Those of one queue and group are found once; what it says of where to begin counts
            # only for the first, which makes the group.
            key = (want.request.queue or "", want.request.group)
            want.groups = found.get(key, "")
            try:
                if want.groups or await self._find_groups(want):
                    ready.append(want)
                    if want.request.queue is not None:
                        found[key] = want.groups
            except MonarqError as error:
                outcomes[want.index] = error
        return ready, work

    async def _find_groups(self, want: Wanted) -> bool:
        """Find the groups to pop for, made where they are missing; whether there are any."""
        request = want.request
        if request.queue is None:
            labels = (request.namespace or "", request.task or "")
            rows = await self._database.fetch(_LABELLED, *labels, request.group)
            joined = bool(rows) and all(row["id"] is not None for row in rows)
            # A group that is there already goes on from its cursors, whatever start it names.
            if not joined or not (rows[0]["noted"] or self._is_future(request.start)):
                await join_labels(self._database, *labels, request.group, request.start)
                rows = await self._database.fetch(_LABELLED, *labels, request.group)
            want.groups = ",".join(str(row["id"]) for row in rows if row["id"] is not None)
            return bool(want.groups)
        key = (want.queue.id, request.group) if want.queue is not None else None
        ids = await self._catalog.group_ids([key]) if key is not None else {}
        if not ids:
            await join_queue(self._database, request.queue, request.group, request.start)
            ids = await self._catalog.group_ids([key]) if key is not None else {}
        want.groups = ",".join(str(number) for number in ids.values())
        return bool(ids)

    def _is_future(self, start: StartFrom | int) -> bool:
        return not isinstance(start, StartFrom) and start > self._database.clock.now()

    async def _pop_messages(
        self, wanted: list[Wanted], outcomes: list[Outcome[Popped]], max_bytes: int
    ) -> list[Wanted]:
        arguments = self._message_arguments(wanted)
        return await self._call(wanted, outcomes, _MESSAGES, max_bytes, *arguments)

    def _message_arguments(self, wanted: list[Wanted]) -> list[Any]:
        """Of `pop_messages`, behind time and room; sorts the requests."""
        # Requests for the same thing stand next to each other, in the order they came.
        wanted.sort(key=lambda want: (want.groups, want.request.partition or "", want.index))
        runs: dict[tuple[str, str | None], int] = {}
        for want in wanted:
            key = (want.groups, want.request.partition)
            runs[key] = runs.get(key, 0) + 1
        requests = [want.request for want in wanted]
        [first, *others] = wanted
        if first.queue is not None and first.request.batch > 1 and not others:
            # Only to one who asks alone are segments sent as they are.
            first.known = self._catalog.pushed.of_queue(first.queue.id)
        return [
            [groups for groups, _ in runs],
            [partition for _, partition in runs],
            list(runs.values()),
            one_for_all([request.batch for request in requests]),
            one_for_all([request.partitions for request in requests]),
            one_for_all([_lease_micros(request) or 0 for request in requests]),
            one_for_all([request.auto_ack for request in requests]),
            one_for_all([request.consumer or "" for request in requests]),
            [want.token for want in wanted],
            list(first.known) or None,
        ]

    async def _pop_items(
        self, wanted: list[Wanted], outcomes: list[Outcome[Popped]], max_bytes: int
    ) -> list[Wanted]:
        wanted.sort(key=_queue_id)
        batches: dict[int, dict[int, int]] = {}
        for number, want in enumerate(wanted, 1):
            batches.setdefault(_queue_id(want), {})[number] = want.request.batch
        deals = [deal(each) for each in batches.values()] if len(wanted) > 1 else None
        return await self._call(
            wanted,
            outcomes,
            _ITEMS,
            max_bytes,
            list(batches),
            [len(each) for each in batches.values()],
            [sum(each.values()) for each in batches.values()],
            None if deals is None else [number for dealt in deals for number in dealt],
            [_lease_micros(want.request) for want in wanted],
            [want.request.auto_ack for want in wanted],
            [want.token for want in wanted],
            [want.request.consumer for want in wanted],
        )

    async def _call(
        self,
        wanted: list[Wanted],
        outcomes: list[Outcome[Popped]],
        sql: str,
        max_bytes: int,
        *arguments: Any,
    ) -> list[Wanted]:
        """Call a procedure and make of its rows what each request gets; who has to come again.

        What cannot be decrypted must not count as delivered: where that can happen, the call
        is undone, and each request asks alone.
        """
        if not any(want.may_be_sealed for want in wanted):
            rows = await self._database.fetch(sql, self._database.now(), max_bytes, *arguments)
            return await self._answer(wanted, outcomes, rows)

        async def attempt(unit: Work) -> list[Wanted]:
            rows = await unit.fetch(sql, unit.now(), max_bytes, *arguments)
            again = await self._answer(wanted, outcomes, rows, unit)
            _raise_undecrypted(wanted, outcomes)
            return again

        try:
            return await self._database.atomically(attempt)
        except EncryptionKeyError:
            if len(wanted) == 1:
                return []
        pop = self._pop_messages if sql == _MESSAGES else self._pop_items
        again = []
        for want in wanted:
            outcomes[want.index] = Popped(messages=[])
            again += await pop([want], outcomes, max_bytes)
        return again

    async def _answer(
        self,
        wanted: list[Wanted],
        outcomes: list[Outcome[Popped]],
        rows: list[Any],
        unit: Work | None = None,
    ) -> list[Wanted]:
        by_request: dict[int, list[Any]] = {}
        for row in rows:
            others = by_request.get(row[0])
            if others is None:
                by_request[row[0]] = [row]
            else:
                others.append(row)
        again: list[Wanted] = []
        for number, found in by_request.items():
            want = wanted[number - 1]
            if found[0]["partition_id"] is not None:
                outcomes[want.index] = await self._delivered(want, found, unit)
            elif found[0]["next_at"] != -1:
                outcomes[want.index] = Popped(messages=[], next_at=found[0]["next_at"])
            else:
                if want.queue is not None:
                    self._catalog.forget_queue(want.queue.name)
                    self._catalog.forget_group(want.queue.id, want.request.group)
                again.append(want)
        return again

    async def _delivered(self, want: Wanted, rows: list[Any], unit: Work | None) -> Outcome[Popped]:
        messages: Sequence[Message]
        queue = want.queue
        try:
            if queue is not None and queue.kind is QueueKind.WORK:
                self._catalog.learn_partition(rows[0]["partition_id"], DEFAULT_PARTITION, queue)
                messages = [item_of(row, queue.name, self._cipher) for row in rows]
            elif queue is not None and self._learn(want, queue, rows):
                names = [queue.name] * len(rows)
                messages = messages_of(rows, names, self._cipher, want.known)
            else:
                facts = await self._catalog.facts([row["partition_id"] for row in rows], unit)
                names = [facts[row["partition_id"]].queue for row in rows]
                messages = messages_of(rows, names, self._cipher, want.known)
        except MonarqError as error:
            if not want.may_be_sealed:
                await self._give_back(want, rows[0]["lease_no"])
            return error
        return popped(rows[0], want.token, messages)

    def _learn(self, want: Wanted, queue: Queue, rows: list[Any]) -> bool:
        """Keep what acks will want to know; False if not all is of this queue."""
        catalog = self._catalog
        for row in rows:
            partition_id, ids = row["partition_id"], row["transaction_ids"]
            if row["queue_id"] != queue.id:
                return False
            catalog.learn_partition(partition_id, row["partition_name"], queue)
            if ids is not None and row["lease_no"] is not None:
                catalog.delivered.learn(want.token, partition_id, row["seq"], ids)
            if row["data"] is None:
                catalog.pushed.forget(segment_name(partition_id, row["seq"], row["created_at"]))
        return True

    async def _give_back(self, want: Wanted, lease_number: int) -> None:
        """Nobody can read what was leased: let go of it, as if it had not been popped."""
        release = Ack(
            lease_id=lease_id(lease_number, want.token),
            status=AckStatus.RELEASE,
            group=want.request.group,
        )
        await acks.ack(self._database, self._catalog, self._cipher, [release])


def _raise_undecrypted(wanted: list[Wanted], outcomes: list[Outcome[Popped]]) -> None:
    for want in wanted:
        outcome = outcomes[want.index]
        if isinstance(outcome, EncryptionKeyError):
            raise outcome


def deal(batches: dict[int, int]) -> list[int]:
    """To whom each item goes: one at a time to each who still wants some."""
    order: list[int] = []
    left = dict(batches)
    while left:
        order += left
        left = {number: want - 1 for number, want in left.items() if want > 1}
    return order


def _queue_id(want: Wanted) -> int:
    assert want.queue is not None
    return want.queue.id


def _check_work_pop(request: Pop) -> None:
    if request.group != DEFAULT_GROUP:
        raise InvalidRequestError(f"{request.queue!r} is a work queue, which has no groups")
    if request.partition not in (None, DEFAULT_PARTITION):
        raise InvalidRequestError(f"{request.queue!r} is a work queue, which has no partitions")


def _lease_micros(request: Pop) -> int | None:
    return None if request.lease_seconds is None else micros(request.lease_seconds)
