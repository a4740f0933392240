"""Pushes and acks that are committed or rolled back with the caller's own data."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from monarq.client.async_client import AsyncClient
from monarq.client.client import Client
from monarq.errors import InvalidRequestError, LeaseError, QueueFullError
from monarq.model import PushStatus
from tests.postgres_server import fresh_database


@pytest.fixture
async def database(postgres_dsn: str) -> AsyncIterator[str]:
    async with fresh_database(postgres_dsn) as dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute("create table orders (id int primary key)")
        await connection.close()
        yield dsn


@pytest.fixture
async def mq(database: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(database) as client:
        yield client


@asynccontextmanager
async def open_transaction(driver: str, dsn: str, commit: bool) -> AsyncIterator[Any]:
    """A transaction of that library's, in which an order was stored."""
    order = "insert into orders values (1)"
    if driver == "asyncpg":
        connection = await asyncpg.connect(dsn)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(order)
        yield connection
        await (transaction.commit() if commit else transaction.rollback())
        await connection.close()
    elif driver == "psycopg async":
        async with await psycopg.AsyncConnection.connect(dsn) as other:
            await other.execute(order)
            yield other
            await (other.commit() if commit else other.rollback())
    elif driver == "psycopg":
        with psycopg.connect(dsn) as blocking:
            blocking.execute(order)
            yield blocking
            blocking.commit() if commit else blocking.rollback()
    elif driver == "sqlalchemy async":
        engine = create_async_engine(dsn.replace("postgresql://", "postgresql+asyncpg://"))
        async with AsyncSession(engine) as session:
            await session.execute(text(order))
            yield session
            await (session.commit() if commit else session.rollback())
        await engine.dispose()
    else:
        blocking_engine = create_engine(dsn.replace("postgresql://", "postgresql+psycopg://"))
        with Session(blocking_engine) as blocking_session:
            blocking_session.execute(text(order))
            yield blocking_session
            blocking_session.commit() if commit else blocking_session.rollback()
        blocking_engine.dispose()


async def orders(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    count: int = await connection.fetchval("select count(*) from orders")
    await connection.close()
    return count


DRIVERS = ("asyncpg", "psycopg", "psycopg async", "sqlalchemy", "sqlalchemy async")


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_commit_stores_both(mq: AsyncClient, database: str, driver: str) -> None:
    queue = mq.queue("orders")
    async with open_transaction(driver, database, commit=True) as connection:
        pushed = await queue.push({"id": 1}, transaction_id="o-1", connection=connection)
        await queue.push_many([{"id": 2}, {"id": 3}], connection=connection)
        assert pushed.status is PushStatus.QUEUED
        assert not await queue.pop(10)
    assert await orders(database) == 1
    messages = await queue.pop(10, wait=10)
    assert [message.payload["id"] for message in messages] == [1, 2, 3]


@pytest.mark.parametrize("driver", DRIVERS)
async def test_a_rollback_leaves_nothing(mq: AsyncClient, database: str, driver: str) -> None:
    async with open_transaction(driver, database, commit=False) as connection:
        await mq.queue("orders").push({"id": 1}, connection=connection)
    assert await orders(database) == 0
    assert (await mq.admin.list_queues()).rows == []


@pytest.mark.parametrize("driver", DRIVERS)
async def test_an_ack_is_done_with_the_commit(mq: AsyncClient, database: str, driver: str) -> None:
    queue = mq.queue("q")
    await queue.push(1)
    [message] = await queue.pop()
    async with open_transaction(driver, database, commit=False) as connection:
        await message.ack(connection=connection)
    assert (await queue.stats()).completed == 0
    message.answered = False
    async with open_transaction(driver, database, commit=True) as connection:
        await message.ack(connection=connection)
    assert (await queue.stats()).completed == 1


@pytest.mark.parametrize("driver", DRIVERS)
async def test_what_is_refused_leaves_the_callers_transaction_as_it_was(
    mq: AsyncClient, database: str, driver: str
) -> None:
    queue = mq.queue("q")
    await queue.configure(max_size=1)
    await queue.push(0, transaction_id="known")
    [message] = await queue.pop()
    await queue.seek(to="start")
    async with open_transaction(driver, database, commit=True) as connection:
        again = await queue.push(0, transaction_id="known", connection=connection)
        assert again.status is PushStatus.DUPLICATE
        with pytest.raises(QueueFullError):
            await queue.push(1, connection=connection)
        with pytest.raises(LeaseError):
            await message.ack(connection=connection)
        await mq.queue("other").push(2, connection=connection)
    assert await orders(database) == 1
    assert (await mq.queue("other").stats()).pushed == 1


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg"])
async def test_without_a_transaction_it_is_refused(
    mq: AsyncClient, database: str, driver: str
) -> None:
    if driver == "asyncpg":
        connection: Any = await asyncpg.connect(database)
    else:
        connection = psycopg.connect(database, autocommit=True)
    with pytest.raises(InvalidRequestError, match="no open transaction"):
        await mq.queue("q").push(1, connection=connection)
    closing = connection.close()
    if closing is not None:
        await closing


async def test_what_is_no_connection_is_refused(mq: AsyncClient) -> None:
    with pytest.raises(InvalidRequestError, match="no connection"):
        await mq.queue("q").push(1, connection="postgresql://")


def test_the_synchronous_client_does_it_too(database: str) -> None:
    with Client(database) as mq, psycopg.connect(database) as connection:
        connection.execute("insert into orders values (7)")
        mq.queue("q").push("x", connection=connection)
        assert not mq.queue("q").pop()
        connection.commit()
        assert [message.payload for message in mq.queue("q").pop(wait=10)] == ["x"]
