"""A broker that takes requests and never answers: a caller learns of it in time, or is served by
another."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from monarq.client import http
from monarq.client.async_client import AsyncClient
from monarq.errors import StoreUnavailableError
from tests.client.conftest import served

PATIENCE_SECONDS = 0.3


class SilentBroker:
    def __init__(self) -> None:
        self.url = ""
        self.requests = 0
        self._kept: list[asyncio.StreamWriter] = []

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._kept.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1

    def hang_up(self) -> None:
        for writer in self._kept:
            writer.close()


@asynccontextmanager
async def silent_broker() -> AsyncIterator[SilentBroker]:
    broker = SilentBroker()
    server = await asyncio.start_server(broker.take, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    broker.url = f"http://{host}:{port}"
    async with server:
        yield broker
        broker.hang_up()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "_ANSWER_SECONDS", 0.0)


async def test_a_broker_that_never_answers_is_asked_once_and_the_error_names_it() -> None:
    async with silent_broker() as broker:
        with pytest.raises(StoreUnavailableError, match=broker.url):
            await AsyncClient(broker.url, timeout=PATIENCE_SECONDS).connect()
        assert broker.requests == 1


async def test_each_of_several_brokers_is_asked_before_the_caller_is_told() -> None:
    async with silent_broker() as one, silent_broker() as other:
        with pytest.raises(StoreUnavailableError):
            await AsyncClient([one.url, other.url], timeout=PATIENCE_SECONDS).connect()
        assert (one.requests, other.requests) == (1, 1)


@pytest.mark.slow
async def test_beside_a_broker_that_never_answers_another_serves(tmp_path: Path) -> None:
    async with silent_broker() as silent, served(tmp_path) as url:
        # Long enough for one that serves, on a busy machine too.
        async with AsyncClient([silent.url, url], timeout=3.0) as mq:
            for number in range(2):
                await mq.queue("q").push(number)
        async with AsyncClient(url) as mq:
            payloads = [message.payload for message in await mq.queue("q").pop(batch=10)]
    assert payloads == [0, 1]
