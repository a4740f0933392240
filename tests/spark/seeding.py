"""Fills queues for the tests of Spark, straight in the store."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from monarq.errors import MonarqError
from monarq.model import Push, PushItem, QueueKind, StoredMessage
from monarq.store import open_store
from monarq.store.contract import Store

T = TypeVar("T")


class Urls(NamedTuple):
    store: str
    broker: str


def in_store(url: str, work: Callable[[Store], Any]) -> Any:
    """Run `work` (a coroutine function) with the store open."""

    async def run() -> Any:
        async with await open_store(url) as store:
            return await work(store)

    return asyncio.run(run())


def fill(url: str, items: Iterable[PushItem], *, at_once: int = 10_000) -> int:
    """Push these; returns how many."""

    async def push(store: Store) -> int:
        count = 0
        for part in _parts(items, at_once):
            for answer in await store.push([Push(part)]):
                if isinstance(answer, MonarqError):
                    raise answer
            count += len(part)
        return count

    pushed: int = in_store(url, push)
    return pushed


def make_queue(url: str, name: str, kind: QueueKind = QueueKind.ORDERED, **options: Any) -> None:
    async def make(store: Store) -> None:
        await store.configure(name, kind=kind, options=options)

    in_store(url, make)


def numbered(
    queue: str, count: int, *, partitions: int = 1, first: int = 0, size: int = 0
) -> Iterator[PushItem]:
    """Messages `{"n": 0}`, `{"n": 1}` … dealt over partitions `p-0`, `p-1` …"""
    filler = "x" * size
    for number in range(first, first + count):
        payload = f'{{"n": {number}, "filler": "{filler}"}}' if size else f'{{"n": {number}}}'
        yield PushItem(queue, payload.encode(), partition=f"p-{number % partitions}")


def messages_of(url: str, queue: str) -> list[StoredMessage]:
    async def listed(store: Store) -> list[StoredMessage]:
        rows: list[StoredMessage] = []
        after = None
        while True:
            page = await store.list_messages(queue, limit=1000, after=after)
            rows += page.rows
            after = page.next
            if after is None:
                return rows

    found: list[StoredMessage] = in_store(url, listed)
    return found


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while part := list(islice(iterator, size)):
        yield part


def rows_of(frame: Any, *columns: str) -> Sequence[Any]:
    """The rows as sorted tuples, so that two readings can be compared."""
    return sorted(tuple(row) for row in frame.select(*columns).collect())
