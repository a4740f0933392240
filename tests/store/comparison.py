"""A store and the reference model side by side: every call goes to both, every answer and all
that can be seen afterwards must be the same.

Requests are made in the model's ids. The store numbers its partitions and leases as it likes,
so that they are translated on the way there and back.
"""

import difflib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from monarq.errors import MonarqError, TransactionFailedError
from monarq.ids import parse_lease_id
from monarq.model import (
    DEFAULT_PARTITION,
    POP_MAX_BYTES,
    Ack,
    Acked,
    DeadLetter,
    DeadLetterFilter,
    ItemState,
    LoggedAttempt,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.operations import Operation
from monarq.operations.queues import QueueDeleted, QueuePaused
from monarq.store import Store
from monarq.store.contract import Outcome
from tests.store.reference import Reference
from tests.store.reference_core import LifecyclePace
from tests.store.reference_state import CursorState, Partition, WorkItem
from tests.store.sight import Sight, described, look
from tests.store.translation import Ids, ignore_own_words, plain, short, to_store

T = TypeVar("T")


class Pace(LifecyclePace):
    """How far the store's lifecycle has come, as can be seen."""

    def __init__(self, sight: Sight, ids: Ids) -> None:

        def known(rows_of: Mapping[Any, list[T]]) -> list[T]:
            # Partitions that the step itself has made are not in the model yet.
            rows: Any = [row for rows in rows_of.values() for row in rows]
            return [row for row in rows if ids.knows(row.partition_id)]

        plans, items = known(sight.plans), known(sight.items)
        self._first = {ids.model_partition(row.partition_id): row.first_seq for row in plans}
        self._positions = {
            (ids.model_partition(row.partition_id), group): row.position
            for (_, group), rows in sight.cursors.items()
            for row in rows
            if ids.knows(row.partition_id)
        }
        self._states = {(ids.model_partition(i.partition_id), i.seq): i.state for i in items}

    def has_evicted(self, partition: Partition, cursor: CursorState) -> bool:
        return self._positions[partition.id, cursor.group] > cursor.position

    def has_removed(self, partition: Partition, seq: int) -> bool:
        return seq < self._first[partition.id]

    def has_buried(self, partition: Partition, item: WorkItem) -> bool:
        return self._states.get((partition.id, item.seq)) in (None, ItemState.DEAD)

    def has_removed_item(self, partition: Partition, item: WorkItem) -> bool:
        return (partition.id, item.seq) not in self._states


class SideBySide:
    """The calls of a store, made on both."""

    def __init__(
        self, store: Store, model: Reference, run: Callable[[Coroutine[Any, Any, Any]], Any]
    ):
        self.store = store
        self.model = model
        self.ids = Ids()
        self.transcript: list[str] = []
        self._run = run

    def note(self, call: str, *args: Any, **options: Any) -> None:
        """Write down what is done, for whoever has to find out why it went wrong."""
        named = [f"{name}={short(value)}" for name, value in options.items()]
        self.transcript.append(f"{call}({', '.join([*map(short, args), *named])})")

    # --- the hot path ------------------------------------------------------------------------

    def push(self, requests: Sequence[Push]) -> list[Outcome[list[Pushed]]]:
        self.note("push", *requests)
        expected = self.model.push(requests)
        got = self._run(self.store.push([to_store(self.ids, request) for request in requests]))
        for theirs, ours in zip(got, expected, strict=True):
            if not isinstance(theirs, MonarqError) and not isinstance(ours, MonarqError):
                self._learn_pushed(theirs, ours)
        self._same_answers("push", requests, got, expected)
        return expected

    def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        self.note("pop", *requests, max_bytes=max_bytes)
        expected = self.model.pop(requests, max_bytes=max_bytes)
        got = self._run(self.store.pop(requests, max_bytes=max_bytes))
        self._same_pops(requests, got, expected)
        return expected

    def _same_pops(
        self,
        requests: Sequence[Pop],
        got: list[Outcome[Popped]],
        expected: list[Outcome[Popped]],
    ) -> None:
        for theirs, ours in zip(got, expected, strict=True):
            if isinstance(theirs, MonarqError) or isinstance(ours, MonarqError):
                continue
            if theirs.lease_id is not None and ours.lease_id is not None:
                self.ids.learn_lease(ours.lease_id, theirs.lease_id)
                number, _ = parse_lease_id(ours.lease_id)
                self.model.lease_order[number], _ = parse_lease_id(theirs.lease_id)
        self._same_answers("pop", requests, got, expected)

    def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        self.note("ack", *requests)
        expected = self.model.ack(requests)
        got = self._run(self.store.ack([to_store(self.ids, request) for request in requests]))
        self._same_answers("ack", requests, got, expected)
        return expected

    def ack_and_pop(
        self, acks: Sequence[Ack], pops: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        self.note("ack_and_pop", *acks, *pops, max_bytes=max_bytes)
        expected_acks = self.model.ack(acks)
        expected_pops = self.model.pop(pops, max_bytes=max_bytes)
        asked = [to_store(self.ids, request) for request in acks]
        got_acks, got_pops = self._run(self.store.ack_and_pop(asked, pops, max_bytes=max_bytes))
        self._same_answers("ack", acks, got_acks, expected_acks)
        self._same_pops(pops, got_pops, expected_pops)
        return expected_pops

    def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        self.note("renew", *requests)
        expected = self.model.renew(requests)
        got = self._run(
            self.store.renew(
                [Renew(self.ids.store_lease(r.lease_id) or "", r.seconds) for r in requests]
            )
        )
        self._same_answers("renew", requests, got, expected)
        return expected

    def transaction(self, request: Transaction) -> Outcome[TransactionDone]:
        self.note("transaction", request)
        [expected] = self.model.transaction([request])
        [got] = self._run(
            self.store.transaction(
                [
                    Transaction(
                        [to_store(self.ids, operation) for operation in request.operations],
                        [self.ids.store_lease(r) or "" for r in request.required_leases],
                    )
                ]
            )
        )
        if isinstance(got, TransactionDone) and isinstance(expected, TransactionDone):
            for theirs, ours in zip(got.results, expected.results, strict=True):
                if isinstance(theirs, list) and isinstance(ours, list):
                    self._learn_pushed(theirs, ours)
        if _names_either(got, expected):
            return expected
        self._same_answers("transaction", [request], [got], [expected])
        return expected

    # --- everything else -----------------------------------------------------------------------

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Any call with arguments that need no translation, and an answer to compare."""
        self.note(name, *args, **options)
        expected = _outcome_of(lambda: getattr(self.model, name)(*args, **options))
        if args and isinstance(args[0], Operation):
            got = _outcome_of(lambda: self._run(self.store.call(*args)))
        else:
            got = _outcome_of(lambda: self._run(getattr(self.store, name)(*args, **options)))
        if isinstance(got, MonarqError) or isinstance(expected, MonarqError):
            self._same_answers(name, [(args, options)], [got], [expected])
        elif isinstance(expected, int | bool | QueueDeleted | QueuePaused | None):
            told = f"{name}{args}{options}: {got}, not {expected}"
            assert got == expected, f"{told}\n{self._told()}"
        return expected

    def call_on_message(self, name: str, partition_id: int, *args: str) -> Any:
        """A call about one message or item, by its partition."""
        self.note(name, partition_id, *args)
        theirs = self.ids.store_partition(partition_id)
        translated = [self.ids.store_transaction_id(arg) for arg in args]
        expected = _outcome_of(lambda: getattr(self.model, name)(partition_id, *args))
        got = _outcome_of(lambda: self._run(getattr(self.store, name)(theirs, *translated)))
        self._same_codes(name, (partition_id, args), got, expected)
        return expected

    def call_on_item(self, name: str, item_id: str) -> Any:
        self.note(name, item_id)
        theirs = self.ids.store_transaction_id(item_id)
        expected = _outcome_of(lambda: getattr(self.model, name)(item_id))
        got = _outcome_of(lambda: self._run(getattr(self.store, name)(theirs)))
        self._same_codes(name, item_id, got, expected)
        return expected

    def set_archived(self, queue: str, partition_id: int, seq: int) -> None:
        self.note("set_archived", queue, partition_id, seq)
        theirs = {self.ids.store_partition(partition_id): seq}
        expected = _outcome_of(lambda: self.model.set_archived(queue, partition_id, seq))
        got = _outcome_of(lambda: self._run(self.store.set_archived(queue, theirs)))
        self._same_codes("set_archived", (queue, partition_id, seq), got, expected)

    def lifecycle(self) -> None:
        self.note("lifecycle")
        self._run(self.store.lifecycle(limit=100_000))
        sight = self._run(look(self.store))
        self._learn_partitions(sight)
        self.model.lifecycle(Pace(sight, self.ids))

    # --- all that can be seen --------------------------------------------------------------------

    def compare_everything(self) -> None:
        sight: Sight = self._run(look(self.store))
        model = self.model
        self._same("queues", sight.queues, model.list_queues())
        self._learn_partitions(sight)
        self._compare_dead_letters(sight)
        for name, messages in sight.messages.items():
            self._same(f"messages of {name}", messages, model.list_messages(name))
        for (name, group), cursors in sight.cursors.items():
            expected = model.list_cursors(name, group)
            self._same(f"cursors of {group} in {name}", cursors, expected)
        for name, items in sight.items.items():
            self._same(f"items of {name}", items, model.list_items(name))
            self._same(f"next of {name}", sight.next_items[name], model.next_items(name))
            self._same_attempts(name, sight.attempts[name])
        self._same("groups", sight.groups, model.list_groups())
        flows = sorted(map(described, sight.flows))
        self._same("flows", flows, sorted(map(described, sight.queues)))

    def _compare_dead_letters(self, sight: Sight) -> None:
        """In whatever order those died that time has killed together."""

        # A message may die again, once a seek has brought it back.
        def place(letter: DeadLetter) -> tuple[str, str, int, str, int]:
            return letter.queue, letter.partition, letter.seq, letter.group, letter.failed_at

        found = {place(letter): order for order, letter in enumerate(sight.dead_letters)}
        letters = self.model.world.letters
        letters.sort(key=lambda letter: -found.get(place(letter), 0))
        expected = self.model.list_dead_letters(DeadLetterFilter())
        self._same("dead letters", sight.dead_letters, expected)

    def _same_attempts(self, queue: str, attempts: list[LoggedAttempt]) -> None:
        """In whatever order those ended that time has ended together."""

        def order(attempt: LoggedAttempt) -> tuple[str, int, int]:
            return attempt.item_id, attempt.started_at, attempt.attempt

        ids = self.ids
        named = [replace(a, item_id=ids.model_transaction_id(a.item_id)) for a in attempts]
        expected = sorted(self.model.list_attempts(queue), key=order)
        ours, theirs = plain(expected, None), plain(sorted(named, key=order), None)
        self._same_data(f"attempts of {queue}", theirs, ours)

    def compare_group_states(self) -> None:
        """What each message is to each group, one message at a time."""
        for queue in self.model.world.queues.values():
            for ours in [] if queue.is_work else self.model.list_messages(queue.name):
                theirs = self._run(
                    self.store.get_message(
                        self.ids.store_partition(ours.partition_id),
                        self.ids.store_transaction_id(ours.transaction_id) or "",
                    )
                )
                self._same(f"message {ours.id}", [theirs], [ours])

    def _learn_pushed(self, got: list[Pushed], expected: list[Pushed]) -> None:
        for theirs, ours in zip(got, expected, strict=True):
            self._learn_partition(ours.partition_id, theirs.partition_id)

    def _learn_partition(self, ours: int, theirs: int) -> None:
        self.ids.learn_partition(ours, theirs)
        self.model.partition_by_id(ours)[1].number = theirs

    def _learn_partitions(self, sight: Sight) -> None:
        """Also of those that no push has named: of dead queues."""
        found = {
            (q, row.partition): row.partition_id for q, rows in sight.plans.items() for row in rows
        }
        found |= {
            (q, DEFAULT_PARTITION): rows[0].partition_id for q, rows in sight.items.items() if rows
        }
        for queue, partition in self.model.all_partitions():
            if (queue.name, partition.name) in found:
                self._learn_partition(partition.id, found[queue.name, partition.name])

    # --- comparison ------------------------------------------------------------------------------

    def _same_answers(
        self, call: str, requests: Sequence[Any], got: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        self._same(f"{call} of {requests}", got, expected)

    def _same_codes(self, call: str, about: Any, got: Any, expected: Any) -> None:
        theirs, ours = (a.code if isinstance(a, MonarqError) else "done" for a in (got, expected))
        told = f"{call} of {about}: {theirs} ({got}), not {ours} ({expected})"
        assert theirs == ours, f"{told}\n{self._told()}"

    def _same(self, what: str, got: Sequence[Any], expected: Sequence[Any]) -> None:
        ours, theirs = plain(list(expected), None), plain(list(got), self.ids)
        self._same_data(what, theirs, ours)

    def _same_data(self, what: str, theirs: list[Any], ours: list[Any]) -> None:
        theirs = ignore_own_words(theirs, ours)
        if ours != theirs:
            raise AssertionError(f"{what}\n{_difference(theirs, ours)}\n{self._told()}")

    def _told(self) -> str:
        return "\n".join(["What was done, in the model's ids:", *self.transcript])


def _names_either(got: Any, expected: Any) -> bool:
    """Whether a transaction failed for two reasons, one of them a required lease: which of them
    is named is left to the store."""
    failed = [a for a in (got, expected) if isinstance(a, TransactionFailedError)]
    return len(failed) == 2 and any(error.operation is None for error in failed)


def _outcome_of(call: Callable[[], T]) -> T | MonarqError:
    try:
        return call()
    except MonarqError as error:
        return error


def _difference(got: Sequence[Any], expected: Sequence[Any]) -> str:
    """Lines that only the store has begin with `+`, those that only the model has with `-`."""
    if len(got) == len(expected):
        unequal = [pair for pair in zip(got, expected, strict=True) if pair[0] != pair[1]]
        got, expected = [pair[0] for pair in unequal], [pair[1] for pair in unequal]
    theirs, ours = (
        msgspec.json.format(msgspec.json.encode(rows, enc_hook=int), indent=1).decode().splitlines()
        for rows in (got, expected)
    )
    return "\n".join(line for line in difflib.ndiff(ours, theirs) if line[0] != "?")
