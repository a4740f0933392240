"""Several processes on one port."""

import http.client
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess
from tests.shared_postgres import POSTGRES_NAMES

pytestmark = pytest.mark.parametrize("served_store", [POSTGRES_NAMES[-1]], indirect=True)

BOUND = 30.0


@pytest.fixture
def cluster(start_server: StartServer) -> ServerProcess:
    return start_server(workers=2)


def workers(server: ServerProcess) -> list[psutil.Process]:
    return psutil.Process(server.pid).children()


@contextmanager
def connections_to_each(server: ServerProcess) -> Iterator[list[http.client.HTTPConnection]]:
    """A kept connection to each process. The system deals connections out by their ports."""
    with ExitStack() as stack:
        found: dict[int, http.client.HTTPConnection] = {}
        deadline = time.monotonic() + BOUND
        while len(found) < 2:
            assert time.monotonic() < deadline
            connection = http.client.HTTPConnection(server.host, server.port, timeout=BOUND)
            stack.callback(connection.close)
            connection.request("GET", "/health")
            assert connection.getresponse().read()
            found.setdefault(_owner(server, connection), connection)
        yield list(found.values())


def _owner(server: ServerProcess, connection: http.client.HTTPConnection) -> int:
    port = connection.sock.getsockname()[1]
    for worker in workers(server):
        if any(one.raddr and one.raddr.port == port for one in worker.net_connections("tcp")):
            return int(worker.pid)
    raise AssertionError("nobody has it")


def ask(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes = b""
) -> bytes:
    headers = {"Content-Type": "application/json"} if body else {}
    connection.request(method, target, body or None, headers)
    answer = connection.getresponse()
    assert answer.status < 300, answer.read()
    return answer.read()


PUSH = b'{"items":[{"queue":"q","payload":1}]}'


def test_a_push_to_one_process_wakes_a_pop_parked_on_the_other(cluster: ServerProcess) -> None:
    with connections_to_each(cluster) as (one, other):
        # Both know the queue before it is timed.
        ask(other, "POST", "/api/v1/push", PUSH)
        ask(one, "GET", "/api/v1/pop/queue/q?autoAck=true")
        took: list[float] = []
        for _ in range(10):
            woken: list[float] = []

            def wait(woken: list[float] = woken) -> None:
                assert ask(one, "GET", "/api/v1/pop/queue/q?wait=true&autoAck=true&timeout=20000")
                woken.append(time.monotonic())

            waiting = threading.Thread(target=wait)
            waiting.start()
            deadline = time.monotonic() + BOUND
            while cluster.get("/metrics").json["metrics"]["monarq_pops_parked"] != 1:
                assert time.monotonic() < deadline
            ask(other, "POST", "/api/v1/push", PUSH)
            pushed = time.monotonic()
            waiting.join(BOUND)
            took.append(woken[0] - pushed)
        # The fallback alone would take 100 ms and more.
        assert sorted(took)[len(took) // 2] < 0.05, took


def test_a_process_that_dies_is_started_again_and_the_others_go_on(cluster: ServerProcess) -> None:
    with connections_to_each(cluster) as (one, other):
        victim = psutil.Process(_owner(cluster, one))
        victim.kill()
        for _ in range(20):
            assert ask(other, "POST", "/api/v1/push", PUSH)
        cluster.wait_for_log("started again")
        deadline = time.monotonic() + BOUND
        while True:
            living = [worker.pid for worker in workers(cluster)]
            if len(living) == 2 and victim.pid not in living:
                break
            assert time.monotonic() < deadline
    with connections_to_each(cluster) as both:
        for connection in both:
            assert ask(connection, "GET", "/health")


def test_a_process_that_keeps_dying_is_started_ever_more_slowly(cluster: ServerProcess) -> None:
    pauses = []
    for count in (1, 2, 3):
        deadline = time.monotonic() + BOUND
        while not (living := workers(cluster)) or len(living) < 2:
            assert time.monotonic() < deadline
        # The one that was started last, so always the same.
        max(living, key=lambda worker: worker.create_time()).kill()
        pauses.append(cluster.wait_for_log("started again", count)["restart_seconds"])
    assert pauses[0] < pauses[1] < pauses[2]


def test_any_process_tells_the_metrics_of_all(cluster: ServerProcess) -> None:
    with connections_to_each(cluster) as both:
        for connection in both:
            for _ in range(3):
                ask(connection, "POST", "/api/v1/push", PUSH)
        for connection in both:
            text = ask(connection, "GET", "/metrics/prometheus").decode()
            assert 'monarq_calls_total{call="push"} 6.0' in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_all_and_answers_parked_pops(cluster: ServerProcess, number: int) -> None:
    with connections_to_each(cluster) as both:
        answers: list[int] = []

        def wait(connection: http.client.HTTPConnection) -> None:
            connection.request("GET", "/api/v1/pop/queue/q?wait=true&timeout=60000")
            answers.append(connection.getresponse().status)

        waiting = [threading.Thread(target=wait, args=(one,)) for one in both]
        for thread in waiting:
            thread.start()
        deadline = time.monotonic() + BOUND
        while cluster.get("/metrics").json["metrics"]["monarq_pops_parked"] != 2:
            assert time.monotonic() < deadline
        # As Ctrl+C and service managers do: it reaches every process, not the supervisor alone.
        for process in cluster.processes():
            process.send_signal(number)
        for thread in waiting:
            thread.join(BOUND)
        assert answers == [204, 204]
    assert cluster.wait(BOUND) == 0
    assert not [entry for entry in cluster.log if "now" in str(entry["message"])]


def test_a_second_signal_stops_all_now(start_server: StartServer) -> None:
    cluster = start_server(workers=2, drain_seconds=600)
    with cluster.connect() as half:
        half.sendall(
            b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nhalf"
        )
        assert cluster.get("/health").status == 200
        cluster.signal()
        cluster.wait_for_log("draining", 2)
        cluster.signal()
        assert cluster.wait(BOUND) == 0


def test_the_processes_do_not_outlive_their_supervisor(cluster: ServerProcess) -> None:
    left = workers(cluster)
    assert len(left) == 2
    cluster.signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(left, BOUND)
    assert not alive
    # Nobody listens any more.
    with (
        pytest.raises(ConnectionRefusedError),
        socket.create_connection((cluster.host, cluster.port)),
    ):
        pass


def test_a_second_supervisor_does_not_share_the_port_in_silence(
    cluster: ServerProcess, start_server: StartServer, tmp_path: Path
) -> None:
    second = ServerProcess(cluster.settings | {"port": cluster.port})
    second.launch()
    try:
        assert second.wait(BOUND) == 1
        assert any(f"port {cluster.port}" in str(entry["message"]) for entry in second.log)
    finally:
        second.end()
    assert cluster.get("/health").status == 200
