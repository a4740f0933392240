"""Jobs from enqueue to done, beside two others of the same field, on the same PostgreSQL.

Run it with `./dev bench jobs`. The tasks do nothing, so what is measured is the way there and back.
The peers are used as their own documentation recommends for throughput; they come from the package
index (`pip install procrastinate pgqueuer`) and are no dependency of ours.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Protocol

import asyncpg

from bench.bars import Bars
from bench.harness import Rounds, machine, progress, rate, table, take_turns, write_json
from bench.places import POSTGRES_SETTINGS, PostgresPlace
from monarq.client.async_client import AsyncClient
from monarq.jobs.worker import Worker
from monarq.model import Ack, Pop, Push, PushItem, QueueKind
from monarq.store import open_store
from tests.postgres_server import PostgresServer, fresh_database

CALLERS = 50
BULK = 1000
CONCURRENCY = 100
CLAIMS = 300


class Peer(Protocol):
    """A queue for jobs, with a task that does nothing."""

    name: str

    async def enqueue(self, number: int) -> None: ...

    async def enqueue_many(self, numbers: range) -> None: ...

    async def run_all(self) -> None:
        """Run what is enqueued, and return when nothing is left."""


class Monarq:
    name = "monarq"

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

        @client.task(name="nothing", queue="nothing")
        async def nothing(number: int) -> None: ...

        self._task = nothing

    async def enqueue(self, number: int) -> None:
        await self._task.enqueue(number)

    async def enqueue_many(self, numbers: range) -> None:
        await self._task.enqueue_many([(number,) for number in numbers])

    async def run_all(self) -> None:
        tasks = self._client.tasks
        await Worker(
            self._client, tasks.queues, tasks=tasks, burst=True, concurrency=CONCURRENCY
        ).run()


class Procrastinate:
    name = "procrastinate"

    def __init__(self, app: Any) -> None:
        self._app = app

        @app.task(name="nothing", queue="nothing")
        async def nothing(number: int) -> None: ...

        self._task = nothing

    async def enqueue(self, number: int) -> None:
        await self._task.defer_async(number=number)

    async def enqueue_many(self, numbers: range) -> None:
        await self._task.batch_defer_async(*({"number": number} for number in numbers))

    async def run_all(self) -> None:
        await self._app.run_worker_async(
            wait=False, concurrency=CONCURRENCY, install_signal_handlers=False
        )


class PgQueuer:
    name = "pgqueuer"

    def __init__(self, driver: Any) -> None:
        from pgqueuer.queries import Queries

        self._driver = driver
        self._queries = Queries(driver)

    async def enqueue(self, number: int) -> None:
        await self._queries.enqueue("nothing", str(number).encode())

    async def enqueue_many(self, numbers: range) -> None:
        count = len(numbers)
        await self._queries.enqueue(
            ["nothing"] * count, [str(number).encode() for number in numbers], [0] * count
        )

    async def run_all(self) -> None:
        from datetime import timedelta

        from pgqueuer import PgQueuer as Queuer
        from pgqueuer.types import QueueExecutionMode

        queuer = Queuer(self._driver)

        @queuer.entrypoint("nothing")
        async def nothing(job: Any) -> None: ...

        await queuer.run(
            dequeue_timeout=timedelta(seconds=1),
            batch_size=CONCURRENCY,
            mode=QueueExecutionMode.drain,
        )


async def open_peers(server: PostgresServer, stack: AsyncExitStack) -> list[Peer]:
    """Each in a database of its own on one server."""
    import procrastinate
    from pgqueuer.db import AsyncpgPoolDriver
    from pgqueuer.queries import Queries

    monarq = await stack.enter_async_context(fresh_database(server.dsn))
    client = await stack.enter_async_context(AsyncClient(monarq))

    other = await stack.enter_async_context(fresh_database(server.dsn))
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=other, max_size=10))
    await stack.enter_async_context(app.open_async())
    await app.schema_manager.apply_schema_async()

    third = await stack.enter_async_context(fresh_database(server.dsn))
    pool = await stack.enter_async_context(asyncpg.create_pool(third, max_size=10))
    driver = AsyncpgPoolDriver(pool)
    await Queries(driver).install()
    return [Monarq(client), Procrastinate(app), PgQueuer(driver)]


def side(
    peer: Peer, place: PostgresPlace, each: int, bulk: int
) -> Callable[[], Awaitable[dict[str, float]]]:
    """Enqueue one by one from many callers, then many at once, then run them all."""

    async def measure() -> dict[str, float]:
        async def call(numbers: range) -> None:
            for number in numbers:
                await peer.enqueue(number)

        await place.settle()
        started = time.perf_counter()
        share = each // CALLERS
        await asyncio.gather(*(call(range(n * share, (n + 1) * share)) for n in range(CALLERS)))
        enqueued = time.perf_counter()
        for first in range(0, bulk, BULK):
            await peer.enqueue_many(range(first, first + BULK))
        enqueued_many = time.perf_counter()
        await peer.run_all()
        return {
            f"{peer.name} each": enqueued - started,
            f"{peer.name} bulk": enqueued_many - enqueued,
            f"{peer.name} run": time.perf_counter() - enqueued_many,
        }

    return measure


async def claims(server: PostgresServer, waiting: int) -> float:
    """Seconds for one claim and its answer, with so many jobs waiting."""
    async with fresh_database(server.dsn) as dsn, await open_store(dsn) as store:
        await store.configure("jobs", kind=QueueKind.WORK)
        for first in range(0, waiting, 10_000):
            count = min(10_000, waiting - first)
            await store.push([Push([PushItem("jobs", b"{}")] * count)])
        took = []
        for _ in range(CLAIMS):
            started = time.perf_counter()
            [popped] = await store.pop([Pop(queue="jobs", consumer=secrets.token_hex(4))])
            await store.ack([Ack(lease_id=popped.lease_id)])  # type: ignore[union-attr]
            took.append(time.perf_counter() - started)
        return sorted(took)[CLAIMS // 2]


def report(rounds: Rounds, names: list[str], each: int, bulk: int) -> dict[str, Any]:
    counts = {"each": each, "bulk": bulk, "run": each + bulk}
    rows = [
        [name, *(rate(counts[part], rounds.seconds(f"{name} {part}")) for part in counts)]
        for name in names
    ]
    print("Jobs a second:\n")
    print(table(["", "enqueue each", "enqueue bulk", "run"], rows))
    ratios = {}
    for part in counts:
        fastest = min(names[1:], key=lambda name: rounds.seconds(f"{name} {part}"))
        ratios[part] = rounds.times_faster([f"monarq {part}"], [f"{fastest} {part}"])
    return ratios


async def run(options: argparse.Namespace) -> None:
    logging.disable(logging.INFO)
    each, bulk = (500, 2_000) if options.quick else (options.each, options.bulk)
    with PostgresServer(durable=True, settings=POSTGRES_SETTINGS) as server:
        async with AsyncExitStack() as stack:
            peers = await open_peers(server, stack)
            place = PostgresPlace(server.dsn)
            sides = [side(peer, place, each, bulk) for peer in peers]
            rounds = await take_turns(sides, rounds=options.rounds)
            ratios = report(rounds, [peer.name for peer in peers], each, bulk)
        progress("claims with 1,000 and with many jobs waiting")
        many = 20_000 if options.quick else options.waiting
        few, lots = await claims(server, 1_000), await claims(server, many)
    bars = Bars()
    bars.at_least("enqueue, one by one, against the faster peer", ratios["each"], 3.0)
    bars.at_least("enqueue, many at once, against the faster peer", ratios["bulk"], 3.0)
    bars.at_least("run, against the faster peer", ratios["run"], 3.0)
    bars.at_most(f"claim at {many:,} waiting against 1,000", lots / few, 1.5)
    print("\n" + bars.table())
    content = {
        "machine": machine(["monarq", "asyncpg", "msgspec", "procrastinate", "pgqueuer"]),
        "jobs": {"each": each, "bulk": bulk, "concurrency": CONCURRENCY, "callers": CALLERS},
        "rounds": rounds.as_json(),
        "claim_ms": {"1000": few * 1000, str(many): lots * 1000},
        "bars": bars.as_json(),
    }
    print(f"written to {write_json('jobs', content, options.json).name}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev bench jobs", description=__doc__)
    parser.add_argument("--each", type=int, default=5_000, help="jobs enqueued one by one")
    parser.add_argument("--bulk", type=int, default=20_000, help="jobs enqueued many at once")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="jobs that wait at a claim")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little data, rough figures")
    parser.add_argument("--json", type=Path, help="where to write the record of the run")
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
