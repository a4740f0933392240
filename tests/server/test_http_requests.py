"""Whatever a client may send is understood as it was meant, however it arrives."""

import asyncio
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarq.server.exchange import Handled, Pending, Response
from tests.server.http_endpoint import Echo, Served, serve

GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST /b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = (
    b"POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\nabc\r\n1;name=value\r\nd\r\n0\r\nTrailer: ignored\r\n\r\n"
)


def test_a_connection_is_kept_for_the_next_request() -> None:
    with serve(Echo()) as server, server.connect() as client:
        for number in range(3):
            client.send(b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n!" % number)
            answer = client.answer()
            assert (answer.status, answer.body) == (200, b"!")
            assert "connection" not in answer.headers


def test_method_target_headers_and_body_reach_the_application() -> None:
    echo = Echo()
    head = b"PUT /x%20y?a=b&c HTTP/1.1\r\nHost: x\r\nX-Some:  spaced \t\r\nx-SOME: twice\r\n"
    with serve(echo) as server:
        server.answer(head + b"Content-Length: 3\r\n\r\n\x00\xff!")
    method, target, headers, body = echo.requests[0]
    assert (method, target, body) == ("PUT", "/x%20y?a=b&c", b"\x00\xff!")
    assert headers == {"host": "x", "x-some": "spaced, twice", "content-length": "3"}


def test_an_answer_tells_type_length_and_date() -> None:
    with serve(Echo()) as server:
        answer = server.answer(POST)
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["content-length"] == "5"
    told = parsedate_to_datetime(answer.headers["date"])
    assert abs((datetime.now(UTC) - told).total_seconds()) < 10


def test_a_204_has_neither_body_nor_length() -> None:
    with serve(Served(lambda *_: Response(204))) as server, server.connect() as client:
        client.send(POST + POST)
        for _ in range(2):
            status, headers = client.head()
            assert status == 204
            assert set(headers) == {"date"}


def test_pipelined_requests_are_answered_one_at_a_time_and_in_order() -> None:
    waiting: list[tuple[bytes, asyncio.Future[bytes]]] = []

    def handle(method: str, target: str, body: bytes) -> Handled:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        waiting.append((body, future))
        return Pending(future, lambda result: Response(200, result))

    with serve(Served(handle)) as server, server.connect() as client:
        bodies = [b"%d" % number for number in range(20)]
        client.send(
            b"".join(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
                for body in bodies
            )
        )
        for number, body in enumerate(bodies):
            server.wait_until(lambda number=number: len(waiting) > number)  # type: ignore[misc]
            assert len(waiting) == number + 1, "the next one must wait"
            assert waiting[number][0] == body
            server.call(lambda number=number: waiting[number][1].set_result(b"<%d>" % number))  # type: ignore[misc]
            assert client.answer().body == b"<%d>" % number


def test_a_client_that_pipelines_without_end_is_not_read_without_end() -> None:
    future: list[asyncio.Future[bytes]] = []

    def handle(method: str, target: str, body: bytes) -> Handled:
        if target == "/a":
            return Response(200, b"small")
        future.append(asyncio.get_running_loop().create_future())
        return Pending(future[0], lambda result: Response(200, result))

    requests = 50_000
    with serve(Served(handle), read_ahead_bytes=10_000) as server, server.connect() as client:
        client.send(b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
        server.wait_until(lambda: bool(future))
        # More than the sockets' buffers hold would block this thread, so that many and no more.
        client.socket.settimeout(0.5)
        sent = 0
        data = GET * requests
        try:
            while sent < len(data):
                sent += client.socket.send(data[sent : sent + 65_536])
        except TimeoutError:
            pass
        (connection,) = server.endpoint.connections
        held = server.call(lambda: len(connection._held or b""))
        assert held <= 10_000 + (256 << 10)
        client.socket.settimeout(20)
        server.call(lambda: future[0].set_result(b"done"))
        assert client.answer().body == b"done"
        for _ in range(sent // len(GET)):
            assert client.answer().body == b"small"


@pytest.mark.parametrize("request_bytes", [GET, POST, CHUNKED], ids=["get", "post", "chunked"])
def test_a_request_may_come_byte_by_byte(request_bytes: bytes) -> None:
    echo = Echo()
    with serve(echo) as server, server.connect() as client:
        for byte in request_bytes:
            client.send(bytes([byte]))
        assert client.answer().body == {GET: b"", POST: b"hello", CHUNKED: b"abcd"}[request_bytes]
    assert len(echo.requests) == 1


REQUESTS = st.lists(
    st.one_of(
        st.just((GET, "/a", b"")),
        st.just((POST, "/b", b"hello")),
        st.just((CHUNKED, "/c", b"abcd")),
        st.binary(max_size=3_000).map(
            lambda body: (
                b"POST /d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body),
                "/d",
                body,
            )
        ),
        st.lists(st.binary(min_size=1, max_size=500), max_size=5).map(
            lambda pieces: (
                b"POST /e HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: Chunked\r\n\r\n"
                + b"".join(b"%X\r\n%b\r\n" % (len(piece), piece) for piece in pieces)
                + b"0\r\n\r\n",
                "/e",
                b"".join(pieces),
            )
        ),
        st.just((b"\r\n" + GET, "/a", b"")),
    ),
    min_size=1,
    max_size=8,
)


@given(requests=REQUESTS, data=st.data(), slow=st.booleans())
def test_however_the_bytes_are_split_the_requests_are_the_same(
    requests: list[tuple[bytes, str, bytes]], data: Any, slow: bool
) -> None:
    """Fed straight into the protocol, so that the pieces are the ones that were chosen."""
    stream = b"".join(request for request, _, _ in requests)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(stream)), max_size=40)))
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    seen: list[tuple[str, bytes]] = []

    def handle(method: str, target: str, body: bytes) -> Handled:
        seen.append((target, body))
        if not slow:
            return Response(200, body)
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, body)
        return Pending(future, lambda result: Response(200, result))

    answers = asyncio.run(feed(Served(handle), [piece for piece in pieces if piece]))
    assert seen == [(target, body) for _, target, body in requests]
    assert answers == [body for _, _, body in requests]


async def feed(application: Any, pieces: list[bytes]) -> list[bytes]:
    """Give the pieces to a connection as reads of their own; returns the bodies it answered."""
    from monarq.server.http import Connection, Endpoint

    written = bytearray()
    endpoint = Endpoint(application)
    connection = Connection(endpoint)

    class Transport(asyncio.Transport):
        def write(self, data: Any) -> None:
            written.extend(data)

        def writelines(self, parts: Any) -> None:
            written.extend(b"".join(parts))

        def is_closing(self) -> bool:
            return False

        def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
            pass

    connection.connection_made(Transport())
    for piece in pieces:
        connection.data_received(piece)
        await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    endpoint.close()
    bodies = []
    while written:
        head, _, rest = bytes(written).partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
        bodies.append(rest[:length])
        written = bytearray(rest[length:])
    return bodies


def test_a_client_is_told_to_go_on_only_if_it_asks_and_the_body_is_wanted() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n"
    with serve(Echo(), body_bytes=10) as server, server.connect() as client:
        client.send(head % 5)
        assert client.answer().status == 100
        client.send(b"hello")
        assert client.answer().body == b"hello"
        client.send(head % 5 + b"again")
        assert client.answer().body == b"again", "who sends at once is not told to"
        client.send(head % 11)
        assert client.answer().status == 413, "the body is not asked for first"
        assert client.is_closed()


def test_an_unknown_expectation_fails() -> None:
    with serve(Echo()) as server:
        answer = server.answer(b"GET / HTTP/1.1\r\nHost: x\r\nExpect: wonders\r\n\r\n")
    assert answer.status == 417


@pytest.mark.parametrize(
    ("head", "option", "kept"),
    [
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", "close", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: x, Close\r\n\r\n", "close", False),
        (b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\n", None, True),
        (b"GET / HTTP/1.0\r\n\r\n", "close", False),
        (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "keep-alive", True),
    ],
)
def test_a_connection_is_kept_or_closed_as_asked(head: bytes, option: str, kept: bool) -> None:
    with serve(Echo()) as server, server.connect() as client:
        client.send(head)
        assert client.answer().headers.get("connection") == option
        if kept:
            client.send(POST)
            assert client.answer().body == b"hello"
        else:
            assert client.is_closed()


def test_head_is_answered_like_get_but_without_the_body() -> None:
    def handle(method: str, target: str, body: bytes) -> Handled:
        return Response(200, b"0123456789")

    with serve(Served(handle)) as server, server.connect() as client:
        client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer(bare=True).headers["content-length"] == "10"
        client.send(GET)
        assert client.answer().body == b"0123456789", "nothing of the body was left over"


def test_an_invitation_to_another_protocol_is_passed_over() -> None:
    head = b"POST / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    with serve(Echo()) as server:
        answer = server.answer(head + b"Content-Length: 2\r\n\r\nok")
    assert (answer.status, answer.body) == (200, b"ok")


def test_an_application_that_fails_answers_500_and_keeps_the_connection() -> None:
    def handle(method: str, target: str, body: bytes) -> Handled:
        raise RuntimeError("secret")

    with serve(Served(handle)) as server, server.connect() as client:
        for _ in range(2):
            client.send(GET)
            answer = client.answer()
            assert answer.status == 500
            assert b'"code":"internal"' in answer.body
            assert b"secret" not in answer.body


def test_the_same_head_with_another_body_is_another_request() -> None:
    echo = Echo()
    with serve(echo) as server, server.connect() as client:
        for body in (b"hello", b"world"):
            client.send(POST[:-5] + body)
            assert client.answer().body == body


def test_more_heads_than_are_remembered_are_told_apart() -> None:
    echo = Echo()
    with serve(echo) as server, server.connect() as client:
        for number in range(6_000):
            client.send(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number)
            client.answer()
        assert server.call(lambda: len(server.endpoint.heads.known)) <= 4_096
    assert [target for _, target, _, _ in echo.requests] == [f"/{n}" for n in range(6_000)]
