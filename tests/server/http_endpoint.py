"""The HTTP protocol on a real socket, on uvloop in a thread, in front of an application that a
test writes. The test itself talks to it with blocking sockets, byte by byte if it likes."""

import asyncio
import contextlib
import functools
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import uvloop

from monarq.operations.operation import Role
from monarq.server.exchange import Admission, Admitted, Handled, Principal, RequestHead, Response
from monarq.server.http import Connection, Endpoint, Limits

T = TypeVar("T")

BOUND = 20.0
"""Seconds after which something that should have happened never will."""


class Welcoming:
    """Lets every body in."""

    def admit(self, head: RequestHead) -> Admitted:
        return Admission(Principal(None, Role.ADMIN))


class Echo(Welcoming):
    """Answers every request with its body, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        self.requests.append((head.method, head.target, head.headers, body))
        return Response(200, body)


class Served(Welcoming):
    """An application, by a function of (method, target, body)."""

    def __init__(self, function: Callable[[str, str, bytes], Handled]) -> None:
        self._function = function

    def handle(self, head: RequestHead, body: bytes, admission: Admission | None = None) -> Handled:
        return self._function(head.method, head.target, body)


class HttpThread:
    def __init__(self, loop: asyncio.AbstractEventLoop, endpoint: Endpoint, port: int) -> None:
        self.loop = loop
        self.endpoint = endpoint
        self.port = port

    def call(self, function: Callable[[], T]) -> T:
        """Run it in the server's thread."""
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - it is the test's
                future.set_exception(error)

        self.loop.call_soon_threadsafe(run)
        return future.result(BOUND)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds in the server's thread, looking in every turn of its loop."""

        async def look() -> None:
            async with asyncio.timeout(BOUND):
                while not condition():  # noqa: ASYNC110 - of any kind, so it must be looked at
                    await asyncio.sleep(0.001)

        asyncio.run_coroutine_threadsafe(look(), self.loop).result(BOUND + 5)

    @contextlib.contextmanager
    def connect(self, timeout: float = BOUND, receive_buffer: int = 0) -> Iterator["Client"]:
        with socket.socket() as made:
            if receive_buffer:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
            made.settimeout(timeout)
            made.connect(("127.0.0.1", self.port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield Client(made)

    def answer(self, data: bytes) -> "Answer":
        """What a connection of its own is answered that sends this."""
        with self.connect() as client:
            client.send(data)
            return client.answer()

    def answer_bytes(self, data: bytes) -> bytes:
        """All that a connection of its own is answered; `data` must ask to close it."""
        with self.connect() as client:
            client.send(data)
            return client.rest()


class Answer:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:200]!r}"


class Client:
    """Reads answers strictly: a server that sends a byte too much or too few fails the test."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._input = bytearray()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def answer(self, *, bare: bool = False) -> Answer:
        """The next answer; `bare` for one to a HEAD request."""
        status, headers = self.head()
        if bare or status in (100, 204, 304):
            return Answer(status, headers, b"")
        if "content-length" in headers:
            return Answer(status, headers, self._take(int(headers["content-length"])))
        if headers.get("transfer-encoding") == "chunked":
            return Answer(status, headers, b"".join(self._chunks()))
        return Answer(status, headers, self.rest())

    def head(self) -> tuple[int, dict[str, str]]:
        first, *lines = self._until(b"\r\n\r\n").decode().split("\r\n")
        version, status, _ = first.split(" ", 2)
        assert version == "HTTP/1.1"
        headers = dict(line.split(": ", 1) for line in lines)
        return int(status), {name.lower(): value for name, value in headers.items()}

    def is_closed(self) -> bool:
        """Whether the server has nothing more to say and ends the connection."""
        return self.rest() == b""

    def rest(self) -> bytes:
        with contextlib.suppress(ConnectionResetError):
            while piece := self.socket.recv(1 << 16):
                self._input += piece
        return self._cut(len(self._input))

    def _chunks(self) -> Iterator[bytes]:
        while size := int(self._until(b"\r\n"), 16):
            yield self._take(size)
            assert self._take(2) == b"\r\n"
        assert self._take(2) == b"\r\n"

    def _until(self, end: bytes) -> bytes:
        while (at := self._input.find(end)) < 0:
            self._receive()
        return self._cut(at + len(end))[:at]

    def _take(self, size: int) -> bytes:
        while len(self._input) < size:
            self._receive()
        return self._cut(size)

    def _cut(self, size: int) -> bytes:
        taken = bytes(self._input[:size])
        del self._input[:size]
        return taken

    def _receive(self) -> None:
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise EOFError(f"the server closed after {bytes(self._input[:200])!r}")
        self._input += piece


@contextlib.contextmanager
def serve(application: Any, **limits: Any) -> Iterator[HttpThread]:
    """Serve it with these `Limits`."""
    started: Future[tuple[asyncio.AbstractEventLoop, Endpoint, int]] = Future()
    failures: list[dict[str, Any]] = []

    async def run() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: failures.append(context))
        endpoint = Endpoint(application, Limits(**limits))
        server = await loop.create_server(functools.partial(Connection, endpoint), "127.0.0.1", 0)
        stop = asyncio.Event()
        stopping.append(stop)
        started.set_result((loop, endpoint, server.sockets[0].getsockname()[1]))
        await stop.wait()
        server.close()
        endpoint.close()
        # What was cut is told so in the next turns.
        async with asyncio.timeout(BOUND):
            await endpoint.emptied()

    stopping: list[asyncio.Event] = []
    thread = threading.Thread(target=lambda: uvloop.run(run()), daemon=True)
    thread.start()
    loop, endpoint, port = started.result(BOUND)
    try:
        yield HttpThread(loop, endpoint, port)
    finally:
        loop.call_soon_threadsafe(stopping[0].set)
        thread.join(BOUND)
    assert not thread.is_alive()
    assert not failures, failures
