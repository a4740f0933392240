"""Answers that are not there at once: awaited, streamed, given up when nobody waits any more."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from typing import Any

import pytest

from monarq.errors import OverloadedError
from monarq.server.exchange import (
    Admission,
    Handled,
    Pending,
    RequestHead,
    Response,
    StreamingResponse,
)
from tests.server.http_endpoint import Client, Served, Welcoming, serve

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Parked(Welcoming):
    """Every request waits for the test to resolve it."""

    def __init__(self) -> None:
        self.futures: list[asyncio.Future[bytes]] = []
        self.undelivered: list[bytes] = []
        self.finished: list[bytes] = []

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.futures.append(future)
        return Pending(future, self._finish, self.undelivered.append)

    def _finish(self, result: bytes) -> Response:
        self.finished.append(result)
        return Response(200, result)


def reset(client: Client) -> None:
    """Close as a client that crashes does."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


def test_a_pending_answer_is_written_when_it_is_there_without_a_task() -> None:
    parked = Parked()
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        assert server.call(lambda: len(asyncio.all_tasks(server.loop))) == 1, "only the server's"
        server.call(lambda: parked.futures[0].set_result(b"now"))
        assert client.answer().body == b"now"
        assert not parked.undelivered


@pytest.mark.parametrize("leave", [lambda client: client.socket.close(), reset], ids=["fin", "rst"])
def test_a_client_that_goes_away_cancels_its_pending_answer_at_once(leave: Any) -> None:
    parked = Parked()
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        leave(client)
        server.wait_until(lambda: parked.futures[0].cancelled())
        server.wait_until(lambda: not server.endpoint.connections)
        assert server.endpoint.counters.abandoned == 1
        assert not parked.undelivered, "there was nothing to deliver"


def test_a_result_that_comes_with_the_clients_end_is_told_undelivered() -> None:
    """Both in one turn of the loop: the result is there, and then the connection is lost."""
    parked = Parked()
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        (connection,) = server.endpoint.connections

        def both() -> None:
            parked.futures[0].set_result(b"lease")
            connection.abort()

        server.call(both)
        server.wait_until(lambda: bool(parked.undelivered))
        assert parked.undelivered == [b"lease"]
        assert not parked.finished
        server.wait_until(lambda: not server.endpoint.connections)
        assert parked.undelivered == [b"lease"], "once"


def test_an_error_that_comes_with_the_clients_end_does_not_keep_the_request() -> None:
    parked = Parked()
    error = OverloadedError("later")
    try:
        raise error
    except OverloadedError:
        assert error.__traceback__ is not None
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        (connection,) = server.endpoint.connections

        def both() -> None:
            parked.futures[0].set_exception(error)
            connection.abort()

        server.call(both)
        server.wait_until(lambda: not server.endpoint.connections)
        server.wait_until(lambda: error.__traceback__ is None)
        assert not parked.undelivered


def test_an_answer_of_which_a_part_was_never_sent_is_told_undelivered() -> None:
    parked = Parked()
    large = b"x" * (32 << 20)
    with serve(parked) as server, server.connect(receive_buffer=4096) as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        server.call(lambda: parked.futures[0].set_result(large))
        assert client.head()[0] == 200
        reset(client)
        server.wait_until(lambda: bool(parked.undelivered))
        assert parked.undelivered == [large]


def test_an_answer_that_was_read_whole_is_not_told_undelivered() -> None:
    parked = Parked()
    large = b"x" * (8 << 20)
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        server.call(lambda: parked.futures[0].set_result(large))
        assert client.answer().body == large
        reset(client)
        server.wait_until(lambda: not server.endpoint.connections)
        assert not parked.undelivered


def test_a_pending_answer_that_fails_is_answered_with_its_error() -> None:
    def handle(method: str, target: str, body: bytes) -> Handled:
        future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        future.set_exception(OverloadedError("too much"))
        return Pending(future, lambda result: Response(200, result))

    with serve(Served(handle)) as server, server.connect() as client:
        client.send(GET)
        answer = client.answer()
        assert answer.status == 503
        assert answer.headers["retry-after"] == "1"
        client.send(GET)
        assert client.answer().status == 503, "the connection is kept"


def test_a_call_that_is_given_up_by_the_broker_is_answered_503() -> None:
    parked = Parked()
    with serve(parked) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        server.call(lambda: parked.futures[0].cancel())
        assert client.answer().status == 503


def test_a_coroutine_is_cancelled_when_its_client_goes_away() -> None:
    seen: list[str] = []

    async def forever() -> Response:
        seen.append("began")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return Response()

    with serve(Served(lambda *_: forever())) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: seen == ["began"])
        client.socket.close()
        server.wait_until(lambda: seen == ["began", "cancelled"])


def test_a_coroutine_may_end_with_a_pending_answer() -> None:
    parked = Parked()

    async def later() -> Any:
        await asyncio.sleep(0)
        return parked.handle(RequestHead("GET", "/", {}), b"")

    with serve(Served(lambda *_: later())) as server, server.connect() as client:
        client.send(GET)
        server.wait_until(lambda: bool(parked.futures))
        server.call(lambda: parked.futures[0].set_result(b"at last"))
        assert client.answer().body == b"at last"


def test_a_coroutine_that_fails_answers_500_and_keeps_the_connection() -> None:
    async def fail() -> Response:
        raise RuntimeError("secret")

    with serve(Served(lambda *_: fail())) as server, server.connect() as client:
        for _ in range(2):
            client.send(GET)
            answer = client.answer()
            assert (answer.status, b"secret" in answer.body) == (500, False)


class Stream:
    """Counts what it was asked for, and whether it was closed."""

    def __init__(self, pieces: int, size: int, fails_at: int = -1) -> None:
        self.asked = 0
        self.closed = False
        self._pieces, self._size, self._fails_at = pieces, size, fails_at

    def answer(self, *_: object) -> StreamingResponse:
        return StreamingResponse(self._chunks(), content_type=b"text/plain")

    async def _chunks(self) -> AsyncIterator[bytes]:
        try:
            for number in range(self._pieces):
                if number == self._fails_at:
                    raise RuntimeError("broken")
                self.asked += 1
                yield b"x" * self._size
                await asyncio.sleep(0)
        finally:
            self.closed = True


def test_a_stream_is_sent_in_chunks_and_the_connection_is_kept() -> None:
    stream = Stream(5, 1000)
    with serve(Served(stream.answer)) as server, server.connect() as client:
        for _ in range(2):
            client.send(GET)
            answer = client.answer()
            assert answer.headers["transfer-encoding"] == "chunked"
            assert answer.headers["content-type"] == "text/plain"
            assert answer.body == b"x" * 5000
        assert stream.closed


def test_a_stream_waits_for_a_reader_that_is_slow() -> None:
    stream = Stream(10_000, 64 << 10)
    with serve(Served(stream.answer)) as server, server.connect(receive_buffer=4096) as client:
        client.send(GET)
        assert client.head()[0] == 200
        (connection,) = server.endpoint.connections
        server.wait_until(lambda: not connection._writable)
        asked = stream.asked
        for _ in range(50):
            server.call(lambda: None)
        assert stream.asked == asked < 200, "it is not asked for more than the client takes"
        client.socket.close()
        server.wait_until(lambda: stream.closed)


def test_a_stream_to_http_1_0_ends_with_the_connection() -> None:
    stream = Stream(3, 10)
    with serve(Served(stream.answer)) as server:
        answer = server.answer(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert "transfer-encoding" not in answer.headers
    assert answer.headers["connection"] == "close"
    assert answer.body == b"x" * 30


def test_a_stream_that_fails_at_once_is_a_500_and_later_a_broken_answer() -> None:
    for fails_at in (0, 2):
        stream = Stream(5, 1000, fails_at)
        with serve(Served(stream.answer)) as server, server.connect() as client:
            client.send(GET)
            if fails_at:
                with pytest.raises((EOFError, ConnectionResetError)):
                    client.answer()
            else:
                assert client.answer().status == 500
            assert stream.closed


def test_head_of_a_stream_asks_for_nothing() -> None:
    stream = Stream(5, 1000)
    with serve(Served(stream.answer)) as server, server.connect() as client:
        client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer(bare=True).status == 200
        client.send(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer(bare=True).status == 200
    assert stream.asked == 0


def test_a_drain_ends_idle_connections_at_once_and_busy_ones_with_their_answer() -> None:
    parked = Parked()
    with serve(parked) as server, server.connect() as idle, server.connect() as busy:
        busy.send(GET + GET)
        server.wait_until(lambda: len(parked.futures) == 1)
        server.wait_until(lambda: len(server.endpoint.connections) == 2)
        server.call(server.endpoint.drain)
        assert idle.is_closed()
        server.call(lambda: parked.futures[0].set_result(b"last"))
        answer = busy.answer()
        assert answer.body == b"last"
        assert answer.headers["connection"] == "close"
        assert busy.is_closed(), "the second was not taken: the client knows by the close"
        assert len(parked.futures) == 1
        with server.connect() as late:
            assert late.answer().status == 503


def test_large_answers_go_out_whole_to_slow_and_pipelining_readers() -> None:
    large = bytes(range(256)) * 8_000
    answering = Served(lambda *_: Response(200, large))
    with serve(answering) as server, server.connect(receive_buffer=4096) as client:
        client.send(GET * 5)
        for _ in range(5):
            assert client.answer().body == large


def test_a_client_that_resets_in_the_middle_harms_nobody() -> None:
    with serve(Served(lambda *_: Response(200, b"x" * 1_000_000))) as server:
        for _ in range(20):
            with server.connect(receive_buffer=4096) as client:
                client.send(GET * 3)
                client.socket.recv(100)
                reset(client)
        server.wait_until(lambda: not server.endpoint.connections)
        assert server.answer(GET).status == 200
