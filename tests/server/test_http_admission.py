"""The application decides by a request's head whether its body is read, and unfinished bodies
share the memory fairly."""

import asyncio
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from monarq.operations.operation import Role
from monarq.server.exchange import (
    UNAUTHENTICATED,
    Admission,
    Admitted,
    Handled,
    Principal,
    RequestHead,
    Response,
)
from tests.server.http_endpoint import Echo, Served, serve

ANN = Principal("ann", Role.ADMIN)
GET = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
NO = Response(401, b"no")


def head(*lines: bytes) -> bytes:
    return b"\r\n".join((b"POST /b HTTP/1.1", b"Host: x", *lines, b"", b""))


class Guarded(Echo):
    """Admits by the header X-Owner: none is refused, `slow` is answered by `later`, any other
    value is the owner of the body."""

    def __init__(self, most_bytes: int | None = None) -> None:
        super().__init__()
        self.asked = 0
        self.given: list[Admission | None] = []
        self.later: asyncio.Future[Admitted] | None = None
        self._most_bytes = most_bytes

    def admit(self, head: RequestHead) -> Admitted | Coroutine[Any, Any, Admitted]:  # type: ignore[override]
        self.asked += 1
        owner = head.headers.get("x-owner")
        if owner is None:
            return NO
        if owner == "slow":
            return self._wait()
        return Admission(ANN, self._most_bytes, UNAUTHENTICATED if owner == "none" else owner)

    async def _wait(self) -> Admitted:
        self.later = asyncio.get_running_loop().create_future()
        return await self.later

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        self.given.append(admission)
        return super().handle(head, body, admission)


# --- refused by the head ---


def test_a_refused_body_is_neither_asked_for_nor_read() -> None:
    guarded = Guarded()
    with serve(guarded) as server, server.connect() as client:
        client.send(head(b"Content-Length: 5", b"Expect: 100-continue"))
        assert client.answer().status == 401
        assert client.is_closed()
    assert not guarded.requests


@pytest.mark.parametrize("framing", [b"Content-Length: 9", b"Transfer-Encoding: chunked"])
def test_requests_behind_a_refused_body_are_not_run(framing: bytes) -> None:
    guarded = Guarded()
    with serve(guarded) as server, server.connect() as client:
        client.send(GET + head(framing) + b"5\r\n")
        assert client.answer().status == 200
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (401, "close")
        client.send(b"abcde" + GET)
        assert client.is_closed()
        assert server.endpoint.incoming_bytes == 0
    assert [target for _, target, _, _ in guarded.requests] == ["/a"]


def test_a_body_that_comes_with_its_head_is_authenticated_once() -> None:
    guarded = Guarded()
    with serve(guarded) as server:
        assert server.answer(head(b"Content-Length: 5") + b"hello").body == b"hello"
        assert (guarded.asked, guarded.given) == (0, [None])
        with server.connect() as client:
            client.send(head(b"X-Owner: ann", b"Content-Length: 5"))
            server.wait_until(lambda: guarded.asked == 1)
            client.send(b"hello")
            assert client.answer().body == b"hello"
    assert guarded.asked == 1
    assert guarded.given[1] == Admission(ANN, None, "ann")


@pytest.mark.parametrize(
    "sent",
    [
        head(b"X-Owner: ann", b"Content-Length: 11", b"Expect: 100-continue"),
        head(b"X-Owner: ann", b"Transfer-Encoding: chunked") + b"b\r\n",
    ],
    ids=["length", "chunked"],
)
def test_a_body_over_the_limit_of_its_admission_is_refused(sent: bytes) -> None:
    guarded = Guarded(most_bytes=10)
    with serve(guarded) as server, server.connect() as client:
        client.send(sent)
        assert client.answer().status == 413
        assert client.is_closed()
    assert not guarded.requests


def test_an_application_that_fails_at_a_head_answers_500_and_closes() -> None:
    class Failing(Echo):
        def admit(self, head: RequestHead) -> Admitted:
            raise RuntimeError("secret")

    with serve(Failing()) as server, server.connect() as client:
        client.send(head(b"Content-Length: 5"))
        answer = client.answer()
        assert (answer.status, b"secret" in answer.body) == (500, False)
        assert client.is_closed()


# --- decided later ---


def test_a_body_waits_while_its_credentials_are_checked() -> None:
    guarded = Guarded()
    size = 300_000
    with serve(guarded, read_ahead_bytes=10_000) as server, server.connect() as client:
        client.send(head(b"X-Owner: slow", b"Content-Length: %d" % size) + b"a")
        server.wait_until(lambda: guarded.later is not None)
        client.socket.settimeout(0.5)
        data = b"a" * (size - 1) + GET
        sent = 0
        try:
            while sent < len(data):
                sent += client.socket.send(data[sent : sent + 65_536])
        except TimeoutError:
            pass
        (connection,) = server.endpoint.connections
        assert server.call(lambda: len(connection._held or b"")) <= 10_000 + (256 << 10)
        assert not guarded.requests
        client.socket.settimeout(20)
        later = guarded.later
        assert later is not None
        server.call(lambda: later.set_result(Admission(ANN)))
        client.send(data[sent:])
        assert len(client.answer().body) == size
        assert client.answer().status == 200


@pytest.mark.parametrize("expects", [True, False])
def test_credentials_that_are_refused_later_close_the_connection(expects: bool) -> None:
    guarded = Guarded()
    lines = [b"X-Owner: slow", b"Content-Length: 5"] + [b"Expect: 100-continue"] * expects
    with serve(guarded) as server, server.connect() as client:
        client.send(head(*lines))
        server.wait_until(lambda: guarded.later is not None)
        if not expects:
            client.send(b"hello" + GET)
        later = guarded.later
        assert later is not None
        server.call(lambda: later.set_result(NO))
        assert client.answer().status == 401
        assert client.is_closed()
    assert not guarded.requests


def test_a_client_that_leaves_while_it_is_checked_leaves_nothing_behind() -> None:
    guarded = Guarded()
    with serve(guarded) as server:
        with server.connect() as client:
            client.send(head(b"X-Owner: slow", b"Content-Length: 5"))
            server.wait_until(lambda: guarded.later is not None)
        server.wait_until(lambda: not server.endpoint.connections)
        later = guarded.later
        assert later is not None
        server.wait_until(later.cancelled)


def test_a_client_that_leaves_before_its_call_began_leaves_no_coroutine_unawaited() -> None:
    called: list[None] = []

    async def answer() -> Response:
        called.append(None)
        return Response()

    def handle(method: str, target: str, body: bytes) -> Handled:
        # Comes in the turn of the loop in which the call's task would begin.
        (connection,) = server.endpoint.connections
        server.loop.call_soon(connection.connection_lost, None)
        return answer()

    with serve(Served(handle)) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(called))


# --- slow bodies ---


def test_a_body_that_drips_is_answered_408_though_it_never_pauses() -> None:
    limits: dict[str, Any] = {"body_seconds": 0.5, "body_rate": 1_000}
    with serve(Echo(), **limits) as server, server.connect() as client:
        client.send(head(b"Content-Length: 10000"))
        client.socket.settimeout(0.05)
        began = time.monotonic()
        received = b""
        while not received and time.monotonic() < began + 15:
            client.send(b"a")
            try:
                received = client.socket.recv(100)
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408 ")
        assert server.endpoint.counters.timed_out == 1


# --- memory ---


def body(owner: bytes, size: int) -> bytes:
    return head(b"X-Owner: " + owner, b"Content-Length: %d" % size)


def test_an_owner_who_fills_the_memory_loses_its_own_body_and_not_anothers() -> None:
    with (
        serve(Guarded(), bodies_bytes=100_000, stalled_seconds=60.0) as server,
        server.connect() as small,
        server.connect() as large,
        server.connect() as other,
    ):
        small.send(body(b"hog", 60_000) + b"a" * 30_000)
        server.wait_until(lambda: server.endpoint.incoming_bytes == 30_000)
        large.send(body(b"hog", 90_000) + b"a" * 60_000)
        server.wait_until(lambda: server.endpoint.incoming_bytes == 90_000)
        other.send(body(b"ann", 60_000) + b"a" * 40_000)
        answer = large.answer()
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert large.is_closed()
        other.send(b"a" * 20_000)
        assert len(other.answer().body) == 60_000
        small.send(b"a" * 30_000)
        assert len(small.answer().body) == 60_000
        assert server.endpoint.incoming_bytes == 0


def test_of_one_owners_bodies_the_stalled_one_goes_first() -> None:
    with (
        serve(Guarded(), bodies_bytes=100_000, stalled_seconds=0.2) as server,
        server.connect() as stalled,
        server.connect() as moving,
    ):
        stalled.send(body(b"ann", 90_000) + b"a" * 70_000)
        server.wait_until(lambda: server.endpoint.incoming_bytes == 70_000)
        (held,) = [one._body for one in server.endpoint.connections if one._body is not None]
        server.wait_until(lambda: server.loop.time() > held.moved_at + 0.2)
        moving.send(body(b"ann", 60_000) + b"a" * 40_000)
        assert stalled.answer().status == 503
        moving.send(b"a" * 20_000)
        assert moving.answer().status == 200


def test_callers_without_credentials_share_a_small_part_of_the_memory() -> None:
    with (
        serve(Guarded(), bodies_bytes=80_000, stalled_seconds=60.0) as server,
        server.connect() as one,
        server.connect() as two,
        server.connect() as known,
    ):
        one.send(body(b"none", 9_000) + b"a" * 8_000)
        server.wait_until(lambda: server.endpoint.incoming_bytes == 8_000)
        two.send(body(b"none", 9_000) + b"a" * 8_000)
        assert two.answer().status == 503
        known.send(body(b"ann", 70_000) + b"a" * 69_000)
        server.wait_until(lambda: server.endpoint.incoming_bytes == 77_000)
        known.send(b"a" * 1_000)
        assert known.answer().status == 200
        one.send(b"a" * 1_000)
        assert one.answer().status == 200
