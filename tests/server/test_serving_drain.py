"""A server that is told to stop ends in order: nothing that was answered is lost, nobody is left
without an answer, and it does not take for ever."""

import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.client import HTTPException

import pytest

from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess

pytestmark = pytest.mark.slow

PUSH = "/api/v1/push"


def push(server: ServerProcess, payload: object, queue: str = "q") -> int:
    return server.post(PUSH, {"items": [{"queue": queue, "payload": payload}]}).status


def send_pop(connection: socket.socket, options: str = "") -> None:
    target = f"/api/v1/pop/queue/q?{options}"
    connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())


def wait_until_parked(server: ServerProcess, count: int) -> None:
    """Wait until so many pops are parked, as the server itself tells."""
    deadline = time.monotonic() + 20
    while (parked := server.get("/metrics").json["metrics"]["monarq_pops_parked"]) != count:
        assert time.monotonic() < deadline, parked


def test_a_stop_answers_parked_pops_with_204_at_once(server: ServerProcess) -> None:
    with server.connect() as one, server.connect() as two:
        for connection in (one, two):
            send_pop(connection, "wait=true&timeout=60000")
        wait_until_parked(server, 2)
        server.signal()
        for connection in (one, two):
            answer = connection.recv(1000)
            assert answer.startswith(b"HTTP/1.1 204 ")
            assert b"Connection: close" in answer
    assert server.wait(20) == 0


def test_a_stop_closes_idle_connections_and_refuses_new_ones(server: ServerProcess) -> None:
    with server.connect() as idle:
        idle.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        server.signal(signal.SIGINT)
        assert idle.recv(1000) == b""
    assert server.wait(20) == 0
    with pytest.raises(ConnectionRefusedError):
        push(server, 1)


def test_what_was_answered_during_a_stop_is_there_after_it(server: ServerProcess) -> None:
    answered: list[int] = []
    began = threading.Event()

    def push_on(worker: int) -> None:
        for number in range(100_000):
            payload = worker * 1_000_000 + number
            try:
                status = push(server, payload)
            except (OSError, HTTPException):
                return
            if status == 503:
                return
            assert status == 201
            answered.append(payload)
            if len(answered) > 50:
                began.set()

    with ThreadPoolExecutor(8) as pool:
        pushing = [pool.submit(push_on, worker) for worker in range(8)]
        assert began.wait(30)
        server.signal()
        assert server.wait(60) == 0
        for one in pushing:
            one.result(30)
    server.start()
    found = set()
    while (answer := server.get("/api/v1/pop/queue/q?batch=1000&autoAck=true")).status == 200:
        found |= {message["data"] for message in answer.json["messages"]}
    assert set(answered) <= found


def fill(server: ServerProcess) -> None:
    """Enough that an answer with all of it does not fit into the sockets' buffers."""
    for _ in range(8):
        items = [{"queue": "q", "payload": "x" * 1_000_000} for _ in range(4)]
        assert server.post(PUSH, {"items": items}).status == 201


def pop_without_reading(server: ServerProcess) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect((server.host, server.port))
    send_pop(connection, "batch=100")
    assert connection.recv(100).startswith(b"HTTP/1.1 200 ")
    return connection


def test_a_lease_that_nobody_received_is_given_back_by_a_stop(start_server: StartServer) -> None:
    server = start_server(drain_seconds=1)
    fill(server)
    with pop_without_reading(server):
        assert server.get("/api/v1/pop/queue/q").status == 204, "it is leased"
        server.signal()
        assert server.wait(30) == 0
    server.start()
    answer = server.get("/api/v1/pop/queue/q?batch=1")
    assert answer.status == 200, "the lease ended with the server that could not deliver it"
    assert answer.json["messages"][0]["attempts"] == 1


def test_a_stop_under_load_leaves_no_lease_that_nobody_has(server: ServerProcess) -> None:
    lanes = [f"p{number}" for number in range(60)]
    items = [{"queue": "q", "payload": n, "partition": p} for p in lanes for n in range(150)]
    assert server.post(PUSH, {"items": items}).status == 201
    held: set[str] = set()
    """Lanes that a client got and has not seen acked."""
    acked = threading.Semaphore(0)

    def consume() -> None:
        with suppress(OSError, HTTPException):
            while True:
                answer = server.get("/api/v1/pop/queue/q?batch=1&wait=true&timeout=20000")
                if answer.status != 200:
                    return
                [message] = answer.json["messages"]
                held.add(message["partition"])
                ack = {
                    "transactionId": message["transactionId"],
                    "partitionId": message["partitionId"],
                    "leaseId": message["leaseId"],
                }
                if server.post("/api/v1/ack", ack).status != 200:
                    return
                held.remove(message["partition"])
                acked.release()

    with ThreadPoolExecutor(16) as pool:
        consuming = [pool.submit(consume) for _ in range(16)]
        for _ in range(100):
            assert acked.acquire(timeout=30)
        server.signal()
        assert server.wait(60) == 0
        for one in consuming:
            one.result(30)
    server.start()
    available = set()
    while (answer := server.get("/api/v1/pop/queue/q?batch=1")).status == 200:
        available.add(answer.json["messages"][0]["partition"])
    assert set(lanes) - available <= held


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_stop_takes_no_longer_than_it_may(start_server: StartServer) -> None:
    server = start_server(drain_seconds=1)
    with server.connect() as half:
        half.sendall(
            b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf"
        )
        assert push(server, 1) == 201
        began = time.monotonic()
        server.signal()
        assert server.wait(20) == 0
        assert time.monotonic() - began < 15
        with suppress(ConnectionResetError):
            assert half.recv(100) == b""


@pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)
def test_a_second_signal_stops_now(start_server: StartServer) -> None:
    server = start_server(drain_seconds=600)
    with server.connect() as half:
        half.sendall(
            b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf"
        )
        assert push(server, 1) == 201
        server.signal()
        server.wait_for_log("draining")
        assert server.process is not None
        assert server.process.poll() is None, "it waits for the request that is half there"
        server.signal()
        assert server.wait(20) == 0


def test_everything_is_where_it_was_after_a_restart(server: ServerProcess) -> None:
    assert (
        server.post("/api/v1/configure", {"queue": "q", "options": {"leaseTime": 77}}).status == 200
    )
    for number in range(5):
        assert push(server, number) == 201
    leased = server.get("/api/v1/pop/queue/q?batch=2&consumerGroup=g").json
    assert server.stop() == 0
    server.start()
    other = server.get("/api/v1/pop/queue/q?batch=2&consumerGroup=g")
    assert other.status == 204, "the lease outlives the server"
    ack = {"leaseId": leased["leaseId"], "status": "completed", "consumerGroup": "g"}
    assert server.post("/api/v1/ack/batch", ack).status == 200
    rest = server.get("/api/v1/pop/queue/q?batch=10&consumerGroup=g").json
    assert [message["data"] for message in rest["messages"]] == [2, 3, 4]
    options = server.post("/api/v1/configure", {"queue": "q", "options": {}}).json["options"]
    assert options["leaseTime"] == 77


def test_what_was_answered_before_a_kill_is_there_after_it(server: ServerProcess) -> None:
    for number in range(20):
        assert push(server, number) == 201
    server.kill()
    server.start()
    messages = server.get("/api/v1/pop/queue/q?batch=100").json["messages"]
    assert [message["data"] for message in messages] == list(range(20))
