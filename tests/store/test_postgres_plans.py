"""How much the hot calls read in PostgreSQL when there is very much: no table is scanned, and
what is read depends on what is asked for, not on what is there.

Plans are what goes wrong: a procedure keeps the plan that it made when its tables were empty.
So each call is watched in three sessions: one that ran everything on small tables before they
grew, a fresh one on tables of which no statistics exist, and one after ANALYZE.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import asyncpg
import pytest
import pytest_asyncio

from monarq.model import (
    Ack,
    AckStatus,
    ItemState,
    Pop,
    Popped,
    Push,
    PushItem,
    QueueKind,
    Renew,
    Transaction,
)
from tests.postgres_server import fresh_database
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.calls import ack_of
from tests.store.grown_database import (
    GROW,
    NO_STATISTICS,
    Big,
    Session,
    good,
    make_queues,
    opened,
    supply,
)

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

Call = Callable[[Session], Awaitable[None]]
CALLS: list[Call] = []


def hot(call: Call) -> Call:
    CALLS.append(call)
    return call


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=POSTGRES_NAMES)
async def big(
    request: pytest.FixtureRequest, postgres_servers: Mapping[str, str]
) -> AsyncIterator[Big]:
    async with (
        fresh_database(postgres_servers[request.param]) as dsn,
        opened(dsn) as session,
    ):
        connection = await asyncpg.connect(dsn)
        await connection.execute(NO_STATISTICS)
        await make_queues(session.store)
        # An empty table that was vacuumed is known to be empty, the worst of all estimates.
        await connection.execute("vacuum analyze")
        await supply(session.store)
        session.watched = False
        # PostgreSQL settles for one plan after five runs.
        for _ in range(6):
            for call in CALLS:
                await call(session)
        await connection.execute(GROW)
        await connection.execute("select pg_stat_force_next_flush()")
        await connection.close()
        await session.hand_in()
        session.watched = True
        yield Big(dsn, session)


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["grown", "fresh", "analyzed"])
async def session(request: pytest.FixtureRequest, big: Big) -> AsyncIterator[Session]:
    async with contextlib.AsyncExitStack() as stack:
        session = big.old
        if request.param == "analyzed":
            connection = await asyncpg.connect(big.dsn)
            await connection.execute("analyze")
            await connection.close()
        if request.param != "grown":
            session = await stack.enter_async_context(opened(big.dsn))
        yield session
        # Handed in later, they would be counted as those of the next session.
        await session.hand_in()


async def test_every_hot_call_reads_only_what_it_is_asked_for(session: Session, call: Call) -> None:
    await call(session)


async def test_pages_of_cursors_and_logs_are_read_without_what_is_behind_them(big: Big) -> None:
    # And the names of what is on them. There are few unresolved messages, which may be scanned.
    besides = {"queues", "groups", "partitions", "unresolved"}
    async with opened(big.dsn) as session:
        async with session.reads(20, besides):
            page = await session.store.list_cursors("wide", "g", limit=10)
            await session.store.list_cursors("wide", "g", limit=10, after=page.next)
        async with session.reads(20, besides):
            standings = await session.store.list_standings("wide", "g", limit=10)
            await session.store.standings_of(standings.rows[0].partition_id)
        async with session.reads(20, besides):
            await session.store.list_deliveries(limit=10)
            await session.store.list_attempts(limit=10)


@pytest.mark.parametrize("server", POSTGRES_NAMES)
async def test_acks_read_only_their_items_though_none_was_leased_when_statistics_were_made(
    server: str, postgres_servers: Mapping[str, str]
) -> None:
    async with fresh_database(postgres_servers[server]) as dsn, opened(dsn) as session:
        await session.store.configure("jobs", kind=QueueKind.WORK)
        good(await session.store.push([Push([PushItem("jobs", b"1")] * 5_000)]))
        answers = await popped(session, [Pop(queue="jobs", batch=1_000)])
        good(await session.store.ack(acks(answers)))
        connection = await asyncpg.connect(dsn)
        await connection.execute("vacuum analyze")
        await connection.close()
        answers = await popped(session, [Pop(queue="jobs", batch=4_000)])
        async with session.reads(10):
            good(await session.store.ack(acks(answers)[:10]))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "call" in metafunc.fixturenames:
        metafunc.parametrize("call", CALLS, ids=lambda call: call.__name__)


# --- the hot calls ---


_numbers = iter(range(10**9))


def fresh_id() -> str:
    return f"id {next(_numbers)}"


async def popped(session: Session, pops: list[Pop]) -> list[Popped]:
    answers = good(await session.store.pop(pops))
    assert all(answer.messages for answer in answers)
    return answers


def acks(answers: list[Popped], status: AckStatus = AckStatus.COMPLETED) -> list[Ack]:
    """One for each message, under its transaction id."""
    return [
        ack_of(message, answer.lease_id, status, group="g")
        for answer in answers
        for message in answer.messages
    ]


@hot
async def push_one(session: Session) -> None:
    request = Push([PushItem("wide", b"1", "p7")])
    await session.store.push([request])  # finds the queue and the partition, once
    async with session.reads(1):
        good(await session.store.push([request]))


@hot
async def push_to_many_partitions(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{n}") for n in range(1, 51)])
    async with session.reads(50):
        good(await session.store.push([request]))


@hot
async def push_with_ids(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{n % 9}", fresh_id()) for n in range(9, 59)])
    async with session.reads(50):
        good(await session.store.push([request]))


@hot
async def push_to_partitions_not_seen_before(session: Session) -> None:
    request = Push([PushItem("wide", b"1", f"p{200 + next(_numbers)}") for _ in range(5)])
    async with session.reads(5):
        good(await session.store.push([request]))


@hot
async def push_to_a_queue_with_a_limit(session: Session) -> None:
    await session.store.configure("limited", options={"max_size": 10**6})
    request = Push([PushItem("limited", b"1")])
    await session.store.push([request])
    async with session.reads(1):
        good(await session.store.push([request]))


@hot
async def push_duplicates(session: Session) -> None:
    request = Push([PushItem("wide", b"1", "p3", fresh_id()) for _ in range(5)])
    good(await session.store.push([request]))
    async with session.reads(10):
        good(await session.store.push([request]))


@hot
async def pop_and_ack_one(session: Session) -> None:
    request = Pop(queue="wide", group="g")
    good(await session.store.ack(acks(await popped(session, [request]))))
    async with session.reads(1):
        answers = await popped(session, [request])
    async with session.reads(1):
        good(await session.store.ack(acks(answers)))


@hot
async def pop_and_ack_many(session: Session) -> None:
    requests = [Pop(queue="wide", group="g")] * 10
    async with session.reads(10):
        answers = await popped(session, requests)
    async with session.reads(10):
        good(await session.store.ack(acks(answers)))


@hot
async def ack_whole_leases(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g", batch=3)] * 5)
    async with session.reads(15):
        good(await session.store.ack([Ack(lease_id=a.lease_id, group="g") for a in answers]))


@hot
async def ack_and_pop_what_has_waited_longer(session: Session) -> None:
    requests = [Pop(queue="wide", group="g")] * 10
    answers = await popped(session, requests)
    async with session.reads(20):
        acked, then = await session.store.ack_and_pop(acks(answers), requests)
    good(acked)
    good(await session.store.ack(acks(good(then))))


@hot
async def ack_and_pop_what_was_freed(session: Session) -> None:
    items = [PushItem("passed", b"1", f"p{n}") for n in range(10)] * 3
    good(await session.store.push([Push(items)]))
    requests = [Pop(queue="passed", group="g")] * 10
    first = await popped(session, requests)
    async with session.reads(20):
        acked, then = await session.store.ack_and_pop(acks(first), requests)
    good(acked)
    second = good(then)
    leases = [Ack(lease_id=answer.lease_id) for answer in second]
    async with session.reads(20):
        acked, then = await session.store.ack_and_pop(leases, requests)
    good(acked)
    good(await session.store.ack(acks(good(then))))


@hot
async def pop_a_named_partition(session: Session) -> None:
    good(await session.store.push([Push([PushItem("wide", b"1", "p5")])]))
    async with session.reads(1):
        [answer] = good(
            await session.store.pop([Pop(queue="wide", group="g", partition="p5", batch=5)])
        )
    if answer.messages:
        async with session.reads(5):
            good(await session.store.ack([Ack(lease_id=answer.lease_id, group="g")]))


@hot
async def pop_several_partitions_at_once(session: Session) -> None:
    async with session.reads(10):
        answers = await popped(session, [Pop(queue="wide", group="g", batch=10, partitions=10)])
    async with session.reads(10):
        good(await session.store.ack(acks(answers)))


@hot
async def pop_with_auto_ack(session: Session) -> None:
    async with session.reads(2):
        await popped(session, [Pop(queue="wide", group="g", batch=2, auto_ack=True)])


@hot
async def pop_by_label(session: Session) -> None:
    # Asks for the label's queues each time, which is one read or two a queue.
    async with session.reads(20):
        [answer] = good(await session.store.pop([Pop(namespace="labels", group="g")]))
    assert answer.messages
    good(await session.store.ack(acks([answer])))
    refill = [PushItem(f"labelled-{n}", b"1") for n in range(20)]
    good(await session.store.push([Push(refill)]))


@hot
async def pop_from_a_queue_with_many_groups(session: Session) -> None:
    good(await session.store.push([Push([PushItem("shared", b"1", f"p{n}") for n in range(5)])]))
    async with session.reads(1):
        answers = await popped(session, [Pop(queue="shared", group="g")])
    async with session.reads(1):
        good(await session.store.ack(acks(answers)))


@hot
async def fail_and_pop_again(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g", batch=2)] * 3)
    async with session.reads(6):
        good(await session.store.ack(acks(answers, AckStatus.FAILED)))
    async with session.reads(3):
        good(await session.store.ack(acks(await popped(session, [Pop(queue="wide", group="g")]))))


@hot
async def bury_and_release(session: Session) -> None:
    for status in (AckStatus.DEAD, AckStatus.RELEASE):
        answers = await popped(session, [Pop(queue="wide", group="g")])
        async with session.reads(1):
            good(await session.store.ack(acks(answers, status)))


@hot
async def renew_leases(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g")] * 3)
    async with session.reads(3):
        good(await session.store.renew([Renew(a.lease_id or "", 60.0) for a in answers]))
    good(await session.store.ack(acks(answers)))


@hot
async def transact(session: Session) -> None:
    answers = await popped(session, [Pop(queue="wide", group="g")])
    request = Transaction(
        [Push([PushItem("wide", b"1", "p9", fresh_id())]), *acks(answers)],
        [answers[0].lease_id or ""],
    )
    async with session.reads(2):
        good(await session.store.transaction([request]))


@hot
async def push_and_work_items(session: Session) -> None:
    request = Push([PushItem("jobs", b"1", transaction_id=fresh_id()) for _ in range(20)])
    await session.store.push([Push([PushItem("jobs", b"1")])])
    async with session.reads(20):
        good(await session.store.push([request]))
    for status in (AckStatus.COMPLETED, AckStatus.FAILED, AckStatus.RETRY, AckStatus.RELEASE):
        async with session.reads(4):
            answers = await popped(session, [Pop(queue="jobs", batch=4)])
        async with session.reads(4):
            good(await session.store.ack(acks(answers, status)))
    answers = await popped(session, [Pop(queue="jobs", batch=4)])
    async with session.reads(4):
        good(await session.store.renew([Renew(answers[0].lease_id or "", 60.0)]))
    async with session.reads(4):
        good(await session.store.ack([Ack(lease_id=answers[0].lease_id)]))


@hot
async def step_of_the_lifecycle(session: Session) -> None:
    expired = [Pop(queue="wide", group="g", lease_seconds=0.001)] * 3
    await popped(session, expired)
    await popped(session, [Pop(queue="jobs", batch=3, lease_seconds=0.001)])
    # Makes it look at the queue's partition.
    keep = {"completed_retention_seconds": 86_400.0 + next(_numbers)}
    await session.store.configure("jobs", options=keep)
    limit = 20
    # Each of its parts may read as far as its limit. Once a minute it goes through all queues.
    async with session.reads(10 * limit, besides={"queues", "counters"}):
        report = await session.store.lifecycle(limit=limit)
    assert report.expired == 6
    assert report.removed >= limit


@hot
async def look_at_one_queue(session: Session) -> None:
    for queue in ("wide", "jobs"):
        async with session.reads(10):
            await session.store.get_queue(queue)


@hot
async def look_at_a_page_of_queues(session: Session) -> None:
    async with session.reads(20):
        page = await session.store.list_queues(limit=20)
    names = [queue.name for queue in page.rows]
    async with session.reads(20):
        await session.store.describe_queues(names)


@hot
async def look_at_a_page_of_items(session: Session) -> None:
    # And the name of their queue.
    for state in (None, ItemState.READY):
        async with session.reads(20, besides={"queues"}):
            page = await session.store.list_items("jobs", state=state, limit=10)
            await session.store.list_items("jobs", state=state, limit=10, after=page.next)
        async with session.reads(20, besides={"queues"}):
            page = await session.store.newest_items("jobs", state=state, limit=10)
            await session.store.newest_items("jobs", state=state, limit=10, after=page.next)
    async with session.reads(10, besides={"queues"}):
        await session.store.list_items("jobs", limit=10, order="next")
    async with session.reads(10, besides={"queues"}):
        await session.store.list_items("jobs", transaction_id=page.rows[0].transaction_id)


@hot
async def look_at_ready_items_before_and_behind_many_that_are_done(session: Session) -> None:
    for read in (session.store.list_items, session.store.newest_items):
        async with session.reads(40, besides={"queues"}):
            page = await read("worked", state=ItemState.READY, limit=20)
            await read("worked", state=ItemState.READY, limit=20, after=page.next)


@hot
async def look_at_one_group(session: Session) -> None:
    # Its lag in seconds takes a look at each partition that it has to consume.
    async with session.reads(20):
        await session.store.list_groups(queue="shared", group="g")
    async with session.reads(30 * 20):
        page = await session.store.list_groups(queue="shared", limit=20)
    assert session.watched is False or len(page.rows) == 20
