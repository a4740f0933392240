"""Which way SQLite takes through its tables in the hot calls: never from one end to the other.

What the store runs is listened to and explained. SQLite chooses its plans without looking at the
data as long as nobody has run ANALYZE, which the store never does; so little data is enough.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from monarq.clock import DAY, SECOND, ManualClock
from monarq.errors import MonarqError
from monarq.model import (
    Ack,
    AckStatus,
    Pop,
    Popped,
    Push,
    PushItem,
    QueueKind,
    Renew,
    Transaction,
)
from monarq.store.contract import Outcome
from monarq.store.sqlite import SqliteStore
from tests.store.calls import ack_of

T = TypeVar("T")

#: What may be read through: one row, a list that came with the call, what a step before found.
SMALL = re.compile(
    r"SCAN (lease_numbers|\w+ VIRTUAL TABLE|CONSTANT ROW|\d+ CONSTANT ROWS|\(subquery-\d+\))"
)
#: In the lifecycle also a row a work queue, and the first of a list, up to a limit.
BOUNDED = re.compile(
    r"SCAN q USING INDEX queues_of_work|SCAN counters USING INDEX counters_changed.* limit \d+$"
    r"|SCAN deliveries: delete from deliveries where id in "
    r"\(select id from deliveries order by id limit \d+\)",
    re.DOTALL,
)
STATEMENT = re.compile(r"\s*(select|insert|update|delete|replace|with)\b", re.IGNORECASE)


class Listener:
    """A store on a file, the statements it runs, and their plans."""

    def __init__(self, store: SqliteStore, clock: ManualClock) -> None:
        self.store = store
        self.clock = clock
        self._connection = store._connection

    async def listen(self, heard: Callable[[str], None] | None) -> None:
        await self._connection.run(lambda: self._connection.db.set_trace_callback(heard))

    async def scans(self, statements: Sequence[str]) -> list[str]:
        """What they read from end to end, each with the statement that does."""
        return await self._connection.run(lambda: self._scans(statements))

    def _scans(self, statements: Sequence[str]) -> list[str]:
        found = []
        for statement in statements:
            if not STATEMENT.match(statement):
                continue
            plan = self._connection.db.execute(f"explain query plan {statement}").fetchall()
            details = [detail for *_, detail in plan]
            # What a subquery found may be read through: how it is found is in the plan, too.
            parts = {f"SCAN {line[11:]}" for line in details if line.startswith("CO-ROUTINE ")}
            found += [
                f"{detail}: {statement.strip()}"
                for detail in details
                if detail.startswith("SCAN") and not SMALL.match(detail) and detail not in parts
            ]
        return found


@pytest.fixture
async def listener(tmp_path: Path) -> AsyncIterator[Listener]:
    clock = ManualClock()
    path = str(tmp_path / "store.db")
    async with await SqliteStore.open(path, clock=clock, cipher=None) as store:
        await store.configure("jobs", kind=QueueKind.WORK)
        await store.configure("limited", options={"max_size": 1000})
        await store.configure("delayed", options={"delayed_processing": 1.0, "window_buffer": 1.0})
        await store.configure("labelled", namespace="labels", task="t")
        for queue in ("q", "limited", "delayed", "labelled"):
            for group in ("g", "h"):
                await store.subscribe(group, 0, queue=queue)
            for number in range(5):
                items = [PushItem(queue, b"1", f"p{number}", f"{queue} {number}")]
                good(await store.push([Push([*items, PushItem(queue, b"2", f"p{number}")])]))
        good(await store.push([Push([PushItem("jobs", b"1")] * 20)]))
        yield Listener(store, clock)


def good(outcomes: Sequence[Outcome[T]]) -> list[T]:
    for outcome in outcomes:
        if isinstance(outcome, MonarqError):
            raise outcome
    return [outcome for outcome in outcomes if not isinstance(outcome, MonarqError)]


async def popped(store: SqliteStore, *pops: Pop) -> list[Popped]:
    answers = good(await store.pop(pops))
    assert all(answer.messages for answer in answers)
    return answers


def acks(answers: Sequence[Popped], status: AckStatus = AckStatus.COMPLETED) -> list[Ack]:
    return [
        ack_of(message, answer.lease_id, status, group="g")
        for answer in answers
        for message in answer.messages
    ]


# --- the hot calls ---------------------------------------------------------------------------


async def push(listener: Listener) -> None:
    items = [PushItem("q", b"1", f"p{number}") for number in range(3)]
    items += [PushItem("q", b"1", "p1", "new"), PushItem("q", b"1", "p1", "q 1")]
    items += [PushItem("q", b"1", "first seen now"), PushItem("limited", b"1")]
    good(await listener.store.push([Push(items)]))


async def pop_and_ack(listener: Listener) -> None:
    store = listener.store
    answers = await popped(store, *[Pop(queue="q", group="g", batch=2)] * 2)
    good(await store.ack(acks(answers)))
    answers = await popped(store, Pop(queue="q", group="g", batch=4, partitions=2))
    good(await store.ack([Ack(lease_id=answers[0].lease_id, group="g")]))
    answers = await popped(store, Pop(queue="q", group="h", partition="p2"))
    good(await store.renew([Renew(answers[0].lease_id or "", 60.0)]))
    await popped(store, Pop(queue="q", group="h", auto_ack=True))
    good(await store.pop([Pop(queue="q", group="h", partition="p2")]))


async def pop_by_label(listener: Listener) -> None:
    for pop in (Pop(namespace="labels", group="g"), Pop(task="t", group="g")):
        good(await listener.store.ack(acks(await popped(listener.store, pop))))


async def pop_with_delays(listener: Listener) -> None:
    request = Pop(queue="delayed", group="g", batch=2)
    assert not good(await listener.store.pop([request]))[0].messages
    listener.clock.advance(2)
    good(await listener.store.ack(acks(await popped(listener.store, request))))


async def fail_release_and_bury(listener: Listener) -> None:
    for status in (AckStatus.FAILED, AckStatus.RELEASE, AckStatus.DEAD):
        answers = await popped(listener.store, Pop(queue="q", group="g", batch=2))
        good(await listener.store.ack(acks(answers, status)))


async def let_leases_expire(listener: Listener) -> None:
    await popped(listener.store, Pop(queue="q", group="g", batch=2, lease_seconds=5.0))
    listener.clock.advance(10)
    await popped(listener.store, *[Pop(queue="q", group="g", batch=2)] * 5)


async def transact(listener: Listener) -> None:
    answers = await popped(listener.store, Pop(queue="q", group="g"))
    jobs = await popped(listener.store, Pop(queue="jobs", batch=2))
    operations = [Push([PushItem("q", b"1"), PushItem("jobs", b"1")]), *acks([*answers, *jobs])]
    request = Transaction(operations, [answers[0].lease_id or ""])
    good(await listener.store.transaction([request]))


async def work(listener: Listener) -> None:
    store = listener.store
    items = [PushItem("jobs", b"1", transaction_id="named"), PushItem("jobs", b"1", priority=9)]
    items += [PushItem("jobs", b"1", delay_seconds=5.0)]
    good(await store.push([Push(items)]))
    for status in AckStatus:
        good(await store.ack(acks(await popped(store, Pop(queue="jobs", batch=2)), status)))
    answers = await popped(store, Pop(queue="jobs", batch=2), Pop(queue="jobs", batch=2))
    good(await store.renew([Renew(answers[0].lease_id or "", 400.0)]))
    good(await store.ack([Ack(lease_id=answers[0].lease_id)]))
    listener.clock.advance(350)
    await popped(store, Pop(queue="jobs", batch=3))
    good(await store.pop([Pop(queue="jobs", batch=100)]))
    good(await store.pop([Pop(queue="jobs")]))


async def step_of_the_lifecycle(listener: Listener) -> None:
    await popped(listener.store, Pop(queue="q", group="g"), Pop(queue="jobs", batch=2))
    for days in (0, 1, 8, 31, 40):
        listener.clock.advance(days * DAY // SECOND + 400)
        await listener.store.lifecycle(limit=10)


async def look_at_one_queue(listener: Listener) -> None:
    await listener.store.get_queue("q")
    await listener.store.get_queue("jobs")
    await listener.store.list_groups(queue="q", group="g")
    await listener.store.list_groups(queue="q")


async def look_at_pages_of_one_queue(listener: Listener) -> None:
    store = listener.store
    await store.list_cursors("q", "g")
    await store.list_standings("q", "g")
    await store.list_failing("q", "g")
    await store.standings_of(1)
    await store.list_deliveries(queue="q")
    await store.list_attempts(queue="jobs")
    await store.metrics(queue="q")
    await store.read_output("1-1", 1)


@pytest.mark.parametrize(
    "call",
    [
        push,
        pop_and_ack,
        pop_by_label,
        pop_with_delays,
        fail_release_and_bury,
        let_leases_expire,
        transact,
        work,
        step_of_the_lifecycle,
        look_at_one_queue,
        look_at_pages_of_one_queue,
    ],
    ids=lambda call: call.__name__,
)
async def test_no_hot_call_reads_a_table_from_end_to_end(
    listener: Listener, call: Callable[[Listener], Awaitable[None]]
) -> None:
    heard: dict[str, None] = {}
    await listener.listen(lambda statement: heard.setdefault(statement))
    await call(listener)
    await listener.listen(None)
    assert heard
    scans = await listener.scans(list(heard))
    if call is step_of_the_lifecycle:
        scans = [scan for scan in scans if not BOUNDED.match(scan)]
    assert not scans, "\n".join(scans)
