"""A store and the reference model side by side: every call goes to both, every answer and all
that can be seen afterwards must be the same.

Requests are made in the model's ids. The store numbers its partitions and leases as it likes,
so that they are translated on the way there and back.
"""

import difflib
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from monarq.errors import MonarqError
from monarq.model import (
    DEFAULT_PARTITION,
    Ack,
    Acked,
    DeadLetter,
    DeadLetterFilter,
    Page,
    Pop,
    Popped,
    Push,
    Pushed,
    Renew,
    Renewed,
    Transaction,
    TransactionDone,
)
from monarq.store import Store
from monarq.store.contract import Outcome
from tests.store.reference import Reference
from tests.store.translation import Ids, ignore_own_words, plain, short, to_store

T = TypeVar("T")


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

    def pop(self, requests: Sequence[Pop]) -> list[Outcome[Popped]]:
        self.note("pop", *requests)
        expected = self.model.pop(requests)
        got = self._run(self.store.pop(requests))
        for theirs, ours in zip(got, expected, strict=True):
            if isinstance(theirs, MonarqError) or isinstance(ours, MonarqError):
                continue
            if theirs.lease_id is not None and ours.lease_id is not None:
                self.ids.learn_lease(ours.lease_id, theirs.lease_id)
        self._same_answers("pop", requests, got, expected)
        return expected

    def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        self.note("ack", *requests)
        expected = self.model.ack(requests)
        got = self._run(self.store.ack([to_store(self.ids, request) for request in requests]))
        self._same_answers("ack", requests, got, expected)
        return expected

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
        self._same_answers("transaction", [request], [got], [expected])
        return expected

    # --- everything else -----------------------------------------------------------------------

    def call(self, name: str, *args: Any, **options: Any) -> Any:
        """Any call with arguments that need no translation, and an answer to compare."""
        self.note(name, *args, **options)
        expected = _outcome_of(lambda: getattr(self.model, name)(*args, **options))
        got = _outcome_of(lambda: self._run(getattr(self.store, name)(*args, **options)))
        if isinstance(got, MonarqError) or isinstance(expected, MonarqError):
            self._same_answers(name, [(args, options)], [got], [expected])
        elif isinstance(expected, int | bool | None):
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

    def lifecycle(self) -> None:
        self.note("lifecycle")
        self.model.lifecycle()
        self._run(self.store.lifecycle(limit=100_000))

    # --- all that can be seen --------------------------------------------------------------------

    def compare_everything(self) -> None:
        self._learn_partitions()
        for what, got, expected in (
            ("queues", self._pages(self.store.list_queues), self.model.list_queues()),
            ("stats", self._pages(self.store.queue_stats), self.model.queue_stats()),
            ("groups", self._pages(self.store.list_groups), self.model.list_groups()),
            ("dead letters", self._dead_letters(), self._expected_dead_letters()),
        ):
            self._same(what, got, expected)
        for queue in self.model.world.queues.values():
            if queue.is_work:
                self._compare_items(queue.name)
            else:
                self._compare_partitions(queue.name, list(queue.groups))

    def _compare_partitions(self, queue: str, groups: list[str]) -> None:
        messages = self._pages(self.store.list_messages, queue)
        self._same(f"messages of {queue}", messages, self.model.list_messages(queue), "groups")
        for group in groups:
            cursors = self._pages(self.store.list_cursors, queue, group)
            expected = self.model.list_cursors(queue, group)
            expected.sort(key=lambda row: self.ids.store_partition(row.partition_id))
            self._same(f"cursors of {group} in {queue}", cursors, expected)

    def _compare_items(self, queue: str) -> None:
        items = self._pages(self.store.list_items, queue)
        expected = self.model.list_items(queue)
        self._same(f"items of {queue}", items, expected)
        in_order = self._run(self.store.next_items(queue, limit=1000))
        self._same(f"next items of {queue}", in_order, self.model.next_items(queue))
        for theirs, ours in zip(items, expected, strict=True):
            attempts = self._run(self.store.item_attempts(theirs.id))
            self._same(f"attempts of {ours.id}", attempts, self.model.item_attempts(ours.id))

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

    def _dead_letters(self) -> list[DeadLetter]:
        return self._pages(self.store.list_dead_letters, DeadLetterFilter())

    def _expected_dead_letters(self) -> list[DeadLetter]:
        return self.model.list_dead_letters(DeadLetterFilter())

    def _pages(self, call: Callable[..., Coroutine[Any, Any, Page[T]]], *args: Any) -> list[T]:
        rows: list[T] = []
        after = None
        while True:
            page = self._run(call(*args, limit=100, after=after))
            rows += page.rows
            after = page.next
            if after is None:
                return rows

    def _learn_pushed(self, got: list[Pushed], expected: list[Pushed]) -> None:
        for theirs, ours in zip(got, expected, strict=True):
            self.ids.learn_partition(ours.partition_id, theirs.partition_id)

    def _learn_partitions(self) -> None:
        """Also of those that no push has named: of dead queues."""
        for queue in self.model.world.queues.values():
            if queue.is_work:
                items = self._pages(self.store.list_items, queue.name)
                theirs = {DEFAULT_PARTITION: items[0].partition_id} if items else {}
            else:
                plan = self._run(self.store.export_plan(queue.name))
                theirs = {row.partition: row.partition_id for row in plan}
            for partition in queue.partitions.values():
                if partition.name in theirs:
                    self.ids.learn_partition(partition.id, theirs[partition.name])

    # --- comparison ------------------------------------------------------------------------------

    def _same_answers(
        self, call: str, requests: Sequence[Any], got: Sequence[Any], expected: Sequence[Any]
    ) -> None:
        self._same(f"{call} of {requests}", got, expected)

    def _same_codes(self, call: str, about: Any, got: Any, expected: Any) -> None:
        theirs, ours = (a.code if isinstance(a, MonarqError) else "done" for a in (got, expected))
        told = f"{call} of {about}: {theirs} ({got}), not {ours} ({expected})"
        assert theirs == ours, f"{told}\n{self._told()}"

    def _same(
        self, what: str, got: Sequence[Any], expected: Sequence[Any], without: str = ""
    ) -> None:
        ours = plain(list(expected), None)
        theirs = ignore_own_words(plain(list(got), self.ids), ours)
        for row in [*theirs, *ours]:
            if without:
                row.pop(without)
        if ours != theirs:
            raise AssertionError(f"{what}\n{_difference(theirs, ours)}\n{self._told()}")

    def _told(self) -> str:
        return "\n".join(["What was done, in the model's ids:", *self.transcript])


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
        msgspec.json.format(msgspec.json.encode(rows), indent=1).decode().splitlines()
        for rows in (got, expected)
    )
    return "\n".join(line for line in difflib.ndiff(ours, theirs) if line[0] != "?")
