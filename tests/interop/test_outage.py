"""The published client when a server goes away and comes back."""

import asyncio
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NewPostgresServer
from tests.interop.conftest import NewQueen
from tests.interop.verbs import Seen, data, pending, pop, push, started
from tests.server.serving import ServerProcess, sqlite_settings


@pytest.fixture
def dead_url() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


async def test_a_client_of_two_servers_goes_to_the_one_that_lives(
    new_queen: NewQueen, server: ServerProcess, dead_url: str, name: str
) -> None:
    queen = new_queen(urls=[dead_url, server.url], load_balancing_strategy="round-robin")
    for n in range(4):
        [result] = await push(queen, name, n)
        assert result["status"] == "queued"
    assert data(await pop(queen, name)) == [0, 1, 2, 3]


async def _all_acked(queen: Any, name: str) -> None:
    async with asyncio.timeout(15):
        while await pending(queen, name):
            pass


@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
async def test_a_consumer_and_its_messages_outlive_a_restart_of_the_server(
    new_queen: NewQueen, tmp_path: Path, name: str
) -> None:
    seen = Seen()
    with ServerProcess(sqlite_settings(tmp_path)) as server:
        queen = new_queen(urls=[server.url], retry_attempts=3, retry_delay_millis=50)
        consuming = started(queen.queue(name).group(name).batch(1).limit(3).consume(seen))
        await push(queen, name, "before")
        await _all_acked(queen, name)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        await push(queen, name, "after", "and on")
        await asyncio.wait_for(consuming, 20)
    assert seen == ["before", "after", "and on"]


@pytest.mark.slow
@pytest.mark.parametrize("server", ["sqlite"], indirect=True)
async def test_a_consumer_outlives_an_outage_of_the_database(
    new_queen: NewQueen, new_postgres_server: NewPostgresServer, tmp_path: Path, name: str
) -> None:
    seen = Seen()
    database = await asyncio.to_thread(new_postgres_server)
    with ServerProcess({"data_dir": str(tmp_path), "store": database.dsn}) as server:
        queen = new_queen(urls=[server.url])
        consuming = started(queen.queue(name).group(name).batch(1).limit(2).consume(seen))
        await push(queen, name, "before")
        await _all_acked(queen, name)
        await asyncio.to_thread(database.kill)
        [result] = await push(queen, name, "meanwhile")
        assert result["status"] == "buffered"
        await asyncio.to_thread(database.start)
        await asyncio.wait_for(consuming, 30)
    assert seen == ["before", "meanwhile"]
