"""Long polling over real connections: many clients that wait, and what becomes of each."""

import asyncio
import json
import time
from typing import Any

import pytest

from monarq.loadgen import LoadConnection, compose_request, connect
from tests.server.serving import ServerProcess

BOUND = 60.0


class Waiting:
    """A client that waits for a message on a connection of its own."""

    def __init__(self, number: int, connection: LoadConnection, options: str) -> None:
        self.number = number
        self.connection = connection
        self.answers: list[tuple[int, bytes]] = []
        self.answered_at = 0.0
        self.done = asyncio.get_running_loop().create_future()
        target = f"/api/v1/pop/queue/q?wait=true&{options}"
        connection.send(compose_request("GET", target), self._answer)

    def _answer(self, status: int, body: bytes) -> None:
        self.answers.append((status, body))
        self.answered_at = time.monotonic()
        if not self.done.done():
            self.done.set_result(None)

    @property
    def messages(self) -> list[Any]:
        return [
            message["data"]
            for status, body in self.answers
            if status == 200
            for message in json.loads(body)["messages"]
        ]


async def park(
    server: ServerProcess, count: int, options: str = "autoAck=true&timeout=55000"
) -> list[Waiting]:
    waiting = []
    for number in range(count):
        connection = await connect(server.host, server.port)
        waiting.append(Waiting(number, connection, options))
    await parked(server, count)
    return waiting


async def parked(server: ServerProcess, count: int) -> None:
    """Wait until the server tells that so many pops are parked."""
    deadline = time.monotonic() + BOUND
    while True:
        answer = await asyncio.to_thread(server.get, "/metrics")
        found = answer.json["metrics"]["monarq_pops_parked"]
        if found == count:
            return
        assert time.monotonic() < deadline, f"{found} are parked"


async def push(server: ServerProcess, payloads: range) -> None:
    items = [{"queue": "q", "payload": payload} for payload in payloads]
    answer = await asyncio.to_thread(server.post, "/api/v1/push", {"items": items})
    assert answer.status == 201


@pytest.mark.parametrize("kind", ["ordered", "work"])
async def test_a_thousand_waiting_clients_are_served_in_order_and_none_twice(
    server: ServerProcess, kind: str
) -> None:
    assert server.post("/api/v1/configure", {"queue": "q", "kind": kind}).status == 200
    waiting = await park(server, 1_000)
    pushed = 0
    for count in (1, 5, 50, 394, 550):
        await push(server, range(pushed, pushed + count))
        pushed += count
        deadline = time.monotonic() + BOUND
        while (answered := sum(1 for client in waiting if client.answers)) < pushed:
            assert time.monotonic() < deadline, answered
            await asyncio.sleep(0.01)
        # Whoever came first is served first, and nobody for whom there is nothing.
        assert not any(client.answers for client in waiting[pushed:])
    assert all(len(client.answers) == 1 for client in waiting)
    received = [message for client in waiting for message in client.messages]
    assert sorted(received) == list(range(1_000))
    assert server.get("/api/v1/pop/queue/q").status == 204
    for client in waiting:
        client.connection.close()


async def test_those_that_go_away_lose_nothing_for_those_that_stay(server: ServerProcess) -> None:
    waiting = await park(server, 300, "timeout=55000")
    for client in waiting[::2]:
        client.connection.close()
    staying = waiting[1::2]
    await parked(server, len(staying))
    # Each of its own partition, so that all can be leased at once.
    items = [
        {"queue": "q", "payload": number, "partition": f"p{number}"}
        for number in range(len(staying))
    ]
    assert server.post("/api/v1/push", {"items": items}).status == 201
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(client.done for client in staying))
    received = [message for client in staying for message in client.messages]
    assert sorted(received) == list(range(len(staying))), "each once, and no lease to the absent"
    for client in staying:
        client.connection.close()


async def test_clients_that_come_and_go_while_messages_arrive_lose_none(
    server: ServerProcess,
) -> None:
    """Every message is acked in the end, by whoever read it; a lease that went to somebody who
    left is back at once, not when it runs out."""
    count = 300
    received: list[int] = []
    stop = asyncio.Event()

    async def come_and_go(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            connection = await connect(server.host, server.port)
            client = Waiting(number, connection, "timeout=20000&batch=3")
            if (number + turn) % 3 == 0:
                # Leaves at some moment: parked, being served, or just answered. What was under
                # way by then it still reads, since no server could know that it did not.
                await asyncio.sleep(0.001 * (turn % 7))
                if not client.done.done():
                    connection._transport.write_eof()  # type: ignore[union-attr]
                    await client.done
                    connection.close()
                    connection = await connect(server.host, server.port)
            gone = asyncio.create_task(stop.wait())
            await asyncio.wait({client.done, gone}, return_when=asyncio.FIRST_COMPLETED)
            gone.cancel()
            for status, body in client.answers:
                if status != 200:
                    continue
                popped = json.loads(body)
                ack = json.dumps({"leaseId": popped["leaseId"], "status": "completed"}).encode()
                status, _ = await connection.ask(compose_request("POST", "/api/v1/ack/batch", ack))
                assert status == 200
                received.extend(message["data"] for message in popped["messages"])
            connection.close()

    clients = [asyncio.create_task(come_and_go(number)) for number in range(20)]
    for number in range(0, count, 5):
        items = [
            {"queue": "q", "payload": number + step, "partition": f"p{number % 7}"}
            for step in range(5)
        ]
        answer = await asyncio.to_thread(server.post, "/api/v1/push", {"items": items})
        assert answer.status == 201
    deadline = time.monotonic() + BOUND
    while len(set(received)) < count:
        assert time.monotonic() < deadline, sorted(set(range(count)) - set(received))
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*clients)
    assert sorted(received) == list(range(count))


async def test_time_outs_answer_204_on_time(server: ServerProcess) -> None:
    began = time.monotonic()
    waiting = await park_without_looking(server, [300, 600, 900, 1_200] * 25)
    async with asyncio.timeout(BOUND):
        await asyncio.gather(*(client.done for client, _, _ in waiting))
    for client, milliseconds, sent in waiting:
        assert [status for status, _ in client.answers] == [204]
        took = client.answered_at - sent
        assert milliseconds / 1000 - 0.01 <= took < milliseconds / 1000 + 1.0
        client.connection.close()
    assert time.monotonic() - began < BOUND


async def park_without_looking(
    server: ServerProcess, timeouts: list[int]
) -> list[tuple[Waiting, int, float]]:
    made = []
    for number, milliseconds in enumerate(timeouts):
        connection = await connect(server.host, server.port)
        sent = time.monotonic()
        made.append((Waiting(number, connection, f"timeout={milliseconds}"), milliseconds, sent))
    return made
