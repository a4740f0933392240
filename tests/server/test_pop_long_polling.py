"""Many clients that wait, each on a connection of its own to a real server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from monarq.loadgen import LoadConnection, compose_request, connect
from tests.server.application import dumps
from tests.server.serving import ServerProcess

CLIENTS = 1_000
BOUND = 60.0


class Clients:
    """Clients that wait, in the order in which the server knows them."""

    def __init__(self, server: ServerProcess) -> None:
        self._server = server
        self._connections: list[LoadConnection] = []
        self._watcher: LoadConnection | None = None
        self.waiting: list[asyncio.Task[tuple[int, bytes]]] = []

    async def connect(self) -> LoadConnection:
        connection = await connect(self._server.host, self._server.port)
        self._connections.append(connection)
        return connection

    async def ask(self, method: str, target: str, body: Any = None) -> Any:
        connection = await connect(self._server.host, self._server.port)
        sent = b"" if body is None else dumps(body)
        status, answer = await connection.ask(compose_request(method, target, sent))
        connection.close()
        assert status in (200, 201, 204), answer
        return json.loads(answer) if answer else None

    async def wait(self, target: str, count: int) -> None:
        """Let so many clients wait, one after the other."""
        pop = compose_request("GET", target)
        for number in range(len(self.waiting), len(self.waiting) + count):
            connection = await self.connect()
            self.waiting.append(asyncio.create_task(connection.ask(pop)))
            await self.parked(number + 1)

    async def parked(self, count: int) -> None:
        """Until exactly so many wait."""
        look = compose_request("GET", "/api/v1/analytics/worker-metrics")
        if self._watcher is None:
            self._watcher = await connect(self._server.host, self._server.port)
        async with asyncio.timeout(BOUND):
            while json.loads((await self._watcher.ask(look))[1])["pops"]["parked"] != count:
                pass

    def hang_up(self, number: int) -> None:
        self._connections[number].close()

    def close(self) -> None:
        for connection in (*self._connections, self._watcher):
            if connection is not None:
                connection.close()


@contextlib.asynccontextmanager
async def clients_of(server: ServerProcess) -> AsyncIterator[Clients]:
    clients = Clients(server)
    try:
        yield clients
    finally:
        clients.close()
        await asyncio.gather(*clients.waiting, return_exceptions=True)


def items(numbers: range) -> dict[str, Any]:
    return {"items": [{"queue": "jobs", "payload": number} for number in numbers]}


def got(answer: tuple[int, bytes]) -> Any:
    status, body = answer
    assert status == 200, answer
    (message,) = json.loads(body)["messages"]
    assert message["attempts"] == 1
    return message["data"]


@pytest.mark.slow
async def test_a_thousand_waiting_clients_are_served_in_order_and_none_twice(
    server: ServerProcess,
) -> None:
    async with clients_of(server) as clients:
        await clients.ask("POST", "/api/v1/configure", {"queue": "jobs", "kind": "work"})
        await clients.wait("/api/v1/pop/queue/jobs?wait=true&timeout=120000", CLIENTS)
        one_by_one = 20
        for number in range(one_by_one):
            await clients.ask("POST", "/api/v1/push", items(range(number, number + 1)))
            async with asyncio.timeout(BOUND):
                assert got(await clients.waiting[number]) == number
        assert not any(task.done() for task in clients.waiting[one_by_one:])
        await clients.ask("POST", "/api/v1/push", items(range(one_by_one, CLIENTS)))
        async with asyncio.timeout(BOUND):
            answers = await asyncio.gather(*clients.waiting[one_by_one:])
        assert sorted(map(got, answers)) == list(range(one_by_one, CLIENTS))


async def test_clients_that_hung_up_are_given_nothing_and_the_others_everything(
    server: ServerProcess,
) -> None:
    count = 100
    async with clients_of(server) as clients:
        await clients.ask("POST", "/api/v1/configure", {"queue": "jobs", "kind": "work"})
        await clients.wait("/api/v1/pop/queue/jobs?wait=true&timeout=120000", count)
        for number in range(0, count, 2):
            clients.hang_up(number)
        await clients.parked(count // 2)
        await clients.ask("POST", "/api/v1/push", items(range(count // 2)))
        async with asyncio.timeout(BOUND):
            answers = await asyncio.gather(*clients.waiting[1::2])
        assert [got(answer) for answer in answers] == list(range(count // 2))


async def test_waits_that_run_out_are_answered_204_on_time(server: ServerProcess) -> None:
    loop = asyncio.get_running_loop()
    async with clients_of(server) as clients:
        connections = [await clients.connect() for _ in range(300)]
        started = loop.time()
        pop = compose_request("GET", "/api/v1/pop/queue/none?wait=true&timeout=1500")
        async with asyncio.timeout(BOUND):
            answers = await asyncio.gather(*(connection.ask(pop) for connection in connections))
        took = loop.time() - started
        assert set(answers) == {(204, b"")}
        assert 1.5 <= took < 6.5, "clients give up five seconds after their time-out"
