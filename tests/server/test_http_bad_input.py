"""What is no proper request gets a clear 4xx and a closed connection, and harms nobody else."""

import contextlib
import json
import socket

import pytest

from tests.server.bad_requests import BAD, BAD_CHUNKS, SMUGGLED, head
from tests.server.http_endpoint import Answer, Echo, HttpThread, serve

GOOD = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\ngood"


def refused(server: HttpThread, data: bytes, echo: Echo) -> Answer:
    """Send `data` and a request behind it; the first must be refused and the second not seen."""
    before = len(echo.requests)
    with server.connect() as client:
        client.send(data + SMUGGLED)
        answer = client.answer()
        assert client.is_closed()
    assert len(echo.requests) == before, "it reached the application"
    told = json.loads(answer.body)
    assert set(told) == {"error", "code"}
    assert len(told["error"]) < 400
    assert answer.headers["connection"] == "close"
    assert server.answer(GOOD).body == b"good", "the server does not serve any more"
    return answer


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_a_bad_head_is_refused_with_400(data: bytes) -> None:
    echo = Echo()
    with serve(echo) as server:
        assert refused(server, data, echo).status == 400


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_a_bad_head_behind_a_good_request_is_refused_in_its_turn(data: bytes) -> None:
    echo = Echo()
    with serve(echo) as server, server.connect() as client:
        client.send(GOOD + data + SMUGGLED)
        assert client.answer().body == b"good"
        assert client.answer().status == 400
        assert client.is_closed()
    assert len(echo.requests) == 1


@pytest.mark.parametrize("chunks", BAD_CHUNKS.values(), ids=BAD_CHUNKS.keys())
def test_a_bad_chunked_body_is_refused_with_400(chunks: bytes) -> None:
    echo = Echo()
    with serve(echo) as server:
        assert refused(server, head(b"Transfer-Encoding: chunked") + chunks, echo).status == 400
        assert server.endpoint.incoming_bytes == 0


@pytest.mark.parametrize("method", [b"CONNECT", b"BREW", b"get"])
def test_a_method_that_nobody_has_is_refused_with_405(method: bytes) -> None:
    echo = Echo()
    with serve(echo) as server:
        answer = refused(server, head(request=method + b" / HTTP/1.1"), echo)
    assert answer.status == 405
    assert "GET" in answer.headers["allow"]


def test_a_head_that_is_too_long_is_cut_off_before_it_ends() -> None:
    echo = Echo()
    with serve(echo, head_bytes=1_000) as server:
        # No end of the head in sight, and none needed.
        assert refused(server, b"GET / HTTP/1.1\r\nX: " + b"a" * 2_000, echo).status == 431
        assert refused(server, head(b"X: " + b"a" * 2_000), echo).status == 431
        assert refused(server, b"GET /" + b"a" * 2_000, echo).status == 431


def test_too_many_headers_are_refused() -> None:
    echo = Echo()
    with serve(echo) as server:
        many = head(*(b"X-%d: a" % number for number in range(300)))
        assert refused(server, many, echo).status == 431


def test_a_body_that_is_announced_too_long_is_refused_before_it_comes() -> None:
    echo = Echo()
    with serve(echo, body_bytes=100) as server:
        assert refused(server, head(b"Content-Length: 101"), echo).status == 413


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_long() -> None:
    echo = Echo()
    body = b"32\r\n" + b"a" * 50 + b"\r\n33\r\n"
    with serve(echo, body_bytes=100) as server:
        assert refused(server, head(b"Transfer-Encoding: chunked") + body, echo).status == 413


def test_a_refused_client_that_goes_on_sending_still_reads_why() -> None:
    with serve(Echo(), body_bytes=100, linger_seconds=10) as server, server.connect() as client:
        client.send(head(b"Content-Length: 50000000"))
        block = b"a" * 100_000
        for _ in range(100):
            client.send(block)
        assert client.answer().status == 413
        assert client.is_closed()


def test_bodies_that_come_in_together_are_bounded_together() -> None:
    with serve(Echo(), bodies_bytes=100_000, stalled_seconds=60.0) as server:
        with server.connect() as one, server.connect() as two, server.connect() as three:
            for client in (one, two):
                client.send(head(b"Content-Length: 60000") + b"a" * 45_000)
            server.wait_until(lambda: server.endpoint.incoming_bytes == 90_000)
            three.send(head(b"Content-Length: 60000") + b"a" * 20_000)
            answer = three.answer()
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"
            for client in (one, two):
                client.send(b"a" * 15_000)
                assert client.answer().status == 200
        server.wait_until(lambda: server.endpoint.incoming_bytes == 0)


def test_a_client_that_goes_away_in_the_middle_of_a_body_leaves_nothing_behind() -> None:
    echo = Echo()
    with serve(echo) as server:
        with server.connect() as client:
            client.send(head(b"Content-Length: 60000") + b"a" * 45_000)
            server.wait_until(lambda: server.endpoint.incoming_bytes == 45_000)
        server.wait_until(lambda: not server.endpoint.connections)
        assert server.endpoint.incoming_bytes == 0
    assert not echo.requests


def test_connections_over_the_limit_of_their_address_are_turned_away() -> None:
    with serve(Echo(), connections_per_address=2) as server:
        with server.connect() as one, server.connect() as two:
            for client in (one, two):
                client.send(GOOD)
                assert client.answer().status == 200
            with server.connect() as three:
                answer = three.answer()
                assert (answer.status, b"your address" in answer.body) == (503, True)
                assert three.is_closed()
            with socket.create_connection(
                ("127.0.0.1", server.port), 20, ("127.0.0.2", 0)
            ) as other:
                other.sendall(GOOD)
                assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        server.wait_until(lambda: not server.endpoint.connections)
        assert server.answer(GOOD).body == b"good"


def test_connections_that_are_turned_away_use_up_no_limit() -> None:
    """One address that goes on connecting would otherwise lock the others out."""
    ports = {"connections": 3, "connections_per_address": 2, "turned_away": 1}
    with serve(Echo(), **ports) as server, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(server.connect()) for _ in range(2)]
        server.wait_until(lambda: len(server.endpoint.connections) == 2)
        told = stack.enter_context(server.connect())
        assert told.answer().status == 503
        for _ in range(3):
            with server.connect() as cut, contextlib.suppress(ConnectionError):
                assert cut.rest() == b""
        with socket.create_connection(
            ("127.0.0.1", server.port), timeout=20, source_address=("127.0.0.2", 0)
        ) as other:
            other.sendall(GOOD)
            assert other.recv(100).startswith(b"HTTP/1.1 200 ")
        for client in clients:
            client.send(GOOD)
            assert client.answer().status == 200
        counters = server.endpoint.counters
        assert (counters.accepted, counters.turned_away) == (7, 4)
        stack.close()
        server.wait_until(lambda: not counters.open)


def test_connections_over_the_limit_are_turned_away_and_the_others_stay() -> None:
    with serve(Echo(), connections=2) as server:
        with server.connect() as one, server.connect() as two:
            for client in (one, two):
                client.send(GOOD)
                assert client.answer().status == 200
            with server.connect() as three:
                answer = three.answer()
                assert answer.status == 503
                assert b"connections" in answer.body
                assert three.is_closed()
            one.send(GOOD)
            assert one.answer().body == b"good"
        server.wait_until(lambda: not server.endpoint.connections)
        assert server.answer(GOOD).body == b"good"
