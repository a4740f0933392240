"""What goes wrong in a chaos run. Each fault mends itself: at its end all processes run again."""

import asyncio
import contextlib
import random
import signal
import sqlite3
import time
from collections.abc import Awaitable, Callable

import asyncpg

from tests.chaos.cluster import Broker, Cluster

LEASE_SECONDS = 2.0
STORE_TIMEOUT_SECONDS = 1.5

Fault = Callable[[Cluster, random.Random], Awaitable[None]]


async def kill_a_broker(cluster: Cluster, chance: random.Random) -> None:
    broker = chance.choice(cluster.brokers)
    await broker.kill()
    await asyncio.sleep(chance.choice([0, 0.5, 2]))
    await broker.start()


async def end_a_broker_in_good_order(cluster: Cluster, chance: random.Random) -> None:
    broker = chance.choice(cluster.brokers)
    code = await broker.terminate()
    if code != 0:
        raise RuntimeError(f"{broker.name} ended with {code}\n{broker.log[-4000:]}")
    await broker.start()


async def freeze_a_broker_past_its_leases(cluster: Cluster, chance: random.Random) -> None:
    broker = chance.choice(cluster.brokers)
    broker.signal(signal.SIGSTOP)
    await asyncio.sleep(LEASE_SECONDS * chance.uniform(1.2, 2))
    broker.signal(signal.SIGCONT)


async def kill_postgres(cluster: Cluster, chance: random.Random) -> None:
    assert cluster.postgres is not None
    await asyncio.to_thread(cluster.postgres.kill)
    await asyncio.sleep(chance.uniform(0, 4))
    await asyncio.to_thread(cluster.postgres.start)


async def restart_postgres(cluster: Cluster, chance: random.Random) -> None:
    assert cluster.postgres is not None
    await asyncio.to_thread(cluster.postgres.stop)
    await asyncio.sleep(chance.uniform(0, 1))
    await asyncio.to_thread(cluster.postgres.start)


async def freeze_postgres(cluster: Cluster, chance: random.Random) -> None:
    """Connections stay open and nothing is answered: pushes must not hang for ever."""
    assert cluster.postgres is not None
    await asyncio.to_thread(cluster.postgres.pause)
    await asyncio.sleep(STORE_TIMEOUT_SECONDS * chance.uniform(0.5, 3))
    await asyncio.to_thread(cluster.postgres.resume)


async def lock_a_table(cluster: Cluster, chance: random.Random) -> None:
    """Whoever asks the server is answered; only pushes and pops stand still."""
    assert cluster.postgres is not None
    connection = await asyncpg.connect(cluster.postgres.dsn)
    try:
        async with connection.transaction():
            await connection.execute("lock table monarq.segments in access exclusive mode")
            await asyncio.sleep(STORE_TIMEOUT_SECONDS * chance.uniform(0.5, 3))
    finally:
        await connection.close()


async def lock_the_file(cluster: Cluster, chance: random.Random) -> None:
    [broker] = cluster.brokers

    def lock(seconds: float) -> None:
        with contextlib.closing(sqlite3.connect(broker.data / "monarq.db", timeout=30)) as db:
            db.execute("begin immediate")
            time.sleep(seconds)

    await asyncio.to_thread(lock, STORE_TIMEOUT_SECONDS * chance.uniform(0.5, 3))


async def kill_a_broker_that_has_buffered(cluster: Cluster, chance: random.Random) -> None:
    assert cluster.postgres is not None
    await asyncio.to_thread(cluster.postgres.kill)
    await asyncio.sleep(chance.uniform(0.5, 2))
    broker = chance.choice(cluster.brokers)
    await broker.kill()
    await broker.start()
    await asyncio.sleep(chance.uniform(0.5, 1))
    await asyncio.to_thread(cluster.postgres.start)


async def kill_a_broker_while_it_replays(cluster: Cluster, chance: random.Random) -> None:
    assert cluster.postgres is not None
    await asyncio.to_thread(cluster.postgres.kill)
    await asyncio.sleep(chance.uniform(2, 4))
    await asyncio.to_thread(cluster.postgres.start)
    await asyncio.sleep(chance.uniform(0, 0.5))
    broker = chance.choice(cluster.brokers)
    await broker.kill()
    await broker.start()


async def fill_the_disk_of_the_buffer(cluster: Cluster, chance: random.Random) -> None:
    assert cluster.postgres is not None
    broker = _with_small_disk(cluster)
    await asyncio.to_thread(cluster.postgres.kill)
    try:
        await asyncio.sleep(0.5)
        broker.fill_disk()
        await asyncio.sleep(chance.uniform(2, 4))
    finally:
        broker.free_disk()
    await asyncio.sleep(chance.uniform(0, 1))
    await asyncio.to_thread(cluster.postgres.start)


def _with_small_disk(cluster: Cluster) -> Broker:
    return next(broker for broker in cluster.brokers if broker.has_small_disk)


def faults_of(cluster: Cluster) -> list[Fault]:
    """All that can be done to it."""
    faults: list[Fault] = [
        kill_a_broker,
        end_a_broker_in_good_order,
        freeze_a_broker_past_its_leases,
    ]
    if cluster.postgres is not None:
        faults += [
            kill_postgres,
            restart_postgres,
            freeze_postgres,
            lock_a_table,
            kill_a_broker_that_has_buffered,
            kill_a_broker_while_it_replays,
        ]
        if any(broker.has_small_disk for broker in cluster.brokers):
            faults.append(fill_the_disk_of_the_buffer)
    else:
        faults.append(lock_the_file)
    return faults
