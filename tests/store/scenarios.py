"""What several tests of the stores need: reading everything, comparing it, letting time work.

Only through the store's own contract, so that it holds for every store.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from monarq.model import (
    AckStatus,
    Cursor,
    DeadLetter,
    DeadLetterFilter,
    Group,
    Item,
    LifecycleReport,
    Message,
    Page,
    Popped,
    QueueCounts,
    QueueKind,
    StoredMessage,
)
from monarq.store import Store
from tests.store.calls import ack_all, next_items, pop, push_many

COMPLETED, FAILED, RETRY = AckStatus.COMPLETED, AckStatus.FAILED, AckStatus.RETRY
RELEASE, DEAD = AckStatus.RELEASE, AckStatus.DEAD
ORDERED, WORK = QueueKind.ORDERED, QueueKind.WORK
EVERY_DEAD_LETTER = DeadLetterFilter()

#: Names that are legal and awkward: for queues, partitions, groups and transaction ids.
AWKWARD_NAMES = [
    " ",
    "with space",
    "100%",
    "%s %d {} $1 ?1 :x @x",
    "a/b/c",
    "..",
    "\\",
    "'; drop table queues; --",
    '"quoted"',
    "null",
    "NULL",
    "0",
    "Größe",
    "日本語",
    "עברית",
    "👩‍👩‍👧‍👦🏳️‍🌈",
    "e\u0301",
    "\u2028",
    "\ufeff",
    "x" * 255,
    "🎉" * 255,
]

T = TypeVar("T")


def numbers(messages: Popped | list[Message]) -> list[int]:
    """The payloads, where these are numbers."""
    if isinstance(messages, Popped):
        messages = messages.messages
    return [int(message.payload) for message in messages]


def seqs_of(popped: Popped) -> list[int]:
    return [message.seq for message in popped.messages]


def headers_of(message: Message | StoredMessage | DeadLetter | Item) -> dict[str, Any]:
    return msgspec.json.decode(message.headers) if message.headers else {}


async def every(call: Callable[..., Awaitable[Page[T]]], *args: Any, **filters: Any) -> list[T]:
    """All rows of a paged call."""
    rows: list[T] = []
    filters.setdefault("limit", 1000)
    after: str | None = None
    for _ in range(10_000):
        page = await call(*args, after=after, **filters)
        assert len(page.rows) <= filters["limit"]
        rows += page.rows
        if page.next is None:
            return rows
        assert page.next != after, "a page that ends where it began"
        after = page.next
    raise AssertionError("paging never ends")


async def stats(store: Store, queue: str) -> QueueCounts:
    return (await store.get_queue(queue)).counts


async def group_row(store: Store, queue: str, group: str) -> Group:
    [row] = (await store.list_groups(queue=queue, group=group)).rows
    return row


async def cursor_row(store: Store, queue: str, group: str, partition: str = "Default") -> Cursor:
    rows = await every(store.list_cursors, queue, group)
    [row] = [row for row in rows if row.partition == partition]
    return row


async def dead_letters(store: Store, **which: Any) -> list[DeadLetter]:
    return await every(store.list_dead_letters, DeadLetterFilter(**which))


async def stored_payloads(store: Store, queue: str, **filters: Any) -> list[bytes]:
    return [row.payload for row in await every(store.list_messages, queue, **filters)]


async def drain(
    store: Store, queue: str | None = None, batch: int = 100, **fields: Any
) -> list[Message]:
    """Pop and complete until nothing is there."""
    messages: list[Message] = []
    for _ in range(10_000):
        popped = await pop(store, queue, batch, **fields)
        if not popped.messages:
            return messages
        messages += popped.messages
        if popped.lease_id is not None:
            await ack_all(store, popped)
    raise AssertionError("there is always one more")


async def let_time_work(store: Store) -> list[LifecycleReport]:
    """Steps of the lifecycle until one finds nothing to do; what each reported."""
    reports: list[LifecycleReport] = []
    for _ in range(1_000):
        report = await store.lifecycle()
        reports.append(report)
        if not (report.expired or report.promoted or report.buried or report.removed):
            return reports
    raise AssertionError("the lifecycle never comes to rest")


async def visible_state(store: Store) -> dict[str, Any]:
    """Everything that the contract shows, to compare before and after."""
    queues = await every(store.list_queues)
    state: dict[str, Any] = {
        "queues": queues,
        "groups": await every(store.list_groups),
        "dead letters": await every(store.list_dead_letters, EVERY_DEAD_LETTER),
        "deliveries": await every(store.list_deliveries),
        "attempts": await every(store.list_attempts),
        "trace names": await every(store.list_trace_names),
        "settings": await store.get_settings(),
    }
    for queue in queues:
        if queue.kind is WORK:
            state[f"items of {queue.name}"] = await every(store.list_items, queue.name)
            state[f"next of {queue.name}"] = await next_items(store, queue.name)
        else:
            rows = await every(store.list_messages, queue.name)
            state[f"messages of {queue.name}"] = [
                await store.get_message(row.partition_id, row.transaction_id) for row in rows
            ]
            state[f"plan of {queue.name}"] = await store.export_plan(queue.name)
            for group in state["groups"]:
                if group.queue == queue.name:
                    state[f"cursors of {group.name} in {queue.name}"] = await every(
                        store.list_cursors, queue.name, group.name
                    )
    return state


@contextlib.asynccontextmanager
async def nothing_changes(store: Store) -> AsyncIterator[None]:
    """Whatever happens inside must leave no trace."""
    before = await visible_state(store)
    yield
    after = await visible_state(store)
    changed = {
        what: (before.get(what), after.get(what))
        for what in before.keys() | after.keys()
        if before.get(what) != after.get(what)
    }
    assert not changed, f"this changed (before, after): {changed}"


async def ordered(store: Store, messages: int = 3, **options: object) -> None:
    """The ordered queue `q` with these options, and messages in it."""
    await store.configure("q", options=options)
    if messages:
        await push_many(store, "q", messages)
