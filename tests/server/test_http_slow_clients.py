"""Clients that are slow on purpose hold nothing for longer than they are allowed to.

The limits here are short, so that the tests wait for the thing itself: the server's answer or
the end of the connection, within a bound that is far longer.
"""

import asyncio
import socket
import time
from typing import Any

from monarq.server.exchange import Handled, Pending, Response
from monarq.server.http.deadlines import Deadlines
from tests.server.http_endpoint import Client, Echo, Served, serve

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
SHORT: dict[str, Any] = {
    "head_seconds": 0.2,
    "body_seconds": 0.2,
    "keep_alive_seconds": 0.2,
    "write_seconds": 0.2,
    "linger_seconds": 0.2,
}


def test_a_head_that_does_not_end_is_answered_408_and_closed() -> None:
    with serve(Echo(), **(SHORT | {"keep_alive_seconds": 60})) as server:
        with server.connect() as client:
            client.send(GET)
            client.answer()
            client.send(b"GET / HTTP/1.1\r\nHost: x\r\nX-So")
            assert client.answer().status == 408
            assert client.is_closed()
        assert server.endpoint.counters.timed_out == 1


def test_a_head_that_trickles_does_not_buy_time() -> None:
    with serve(Echo(), **SHORT) as server, server.connect() as client:
        client.socket.settimeout(0.02)
        began = time.monotonic()
        client.send(b"GET / HTTP/1.1\r\nHost: x\r\n")
        received = b""
        while not received and time.monotonic() < began + 10:
            client.send(b"X: y\r\n")
            try:
                received = client.socket.recv(100)
            except TimeoutError:
                continue
        assert received.startswith(b"HTTP/1.1 408 ")


def test_a_connection_that_never_says_anything_is_closed() -> None:
    limits = SHORT | {"keep_alive_seconds": 60}
    with serve(Echo(), **limits) as server, server.connect() as client:
        assert client.is_closed()


def test_a_body_that_stops_coming_is_answered_408_and_closed() -> None:
    with serve(Echo(), **SHORT) as server, server.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nhalf")
        assert client.answer().status == 408
        assert client.is_closed()
        assert server.endpoint.incoming_bytes == 0


def test_a_body_that_keeps_coming_may_take_longer_than_one_pause() -> None:
    limits = SHORT | {"body_seconds": 0.5, "body_rate": 5}
    with serve(Echo(), **limits) as server, server.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n")
        began = time.monotonic()
        client.socket.settimeout(0.05)
        for _ in range(29):
            client.send(b"x")
            try:
                raise AssertionError(client.socket.recv(100))
            except TimeoutError:
                pass
        assert time.monotonic() > began + 1
        client.socket.settimeout(20)
        client.send(b"x")
        assert client.answer().body == b"x" * 30


def test_an_idle_connection_is_closed_in_silence() -> None:
    with serve(Echo(), **(SHORT | {"head_seconds": 60})) as server, server.connect() as client:
        client.send(GET)
        client.answer()
        assert client.rest() == b"", "no 408: a client that sends just now would take it as its own"


def test_a_client_that_waits_for_its_answer_is_not_idle() -> None:
    futures: list[asyncio.Future[bytes]] = []

    def handle(method: str, target: str, body: bytes) -> Handled:
        futures.append(asyncio.get_running_loop().create_future())
        return Pending(futures[0], lambda result: Response(200, result))

    with (
        serve(Served(handle), **SHORT) as server,
        server.connect() as client,
        server.connect() as idle,
    ):
        client.send(GET)
        # All limits pass at least twice for the one beside it.
        assert idle.is_closed()
        with server.connect() as another:
            assert another.is_closed()
        server.call(lambda: futures[0].set_result(b"patience"))
        assert client.answer().body == b"patience"


def test_a_client_that_does_not_read_is_cut_off() -> None:
    large = Served(lambda *_: Response(200, b"x" * (32 << 20)))
    with serve(large, **SHORT) as server, server.connect(receive_buffer=4096) as client:
        client.send(GET)
        server.wait_until(lambda: server.endpoint.counters.timed_out == 1)
        server.wait_until(lambda: not server.endpoint.connections)


def test_clients_that_do_not_read_are_cut_off_when_their_answers_fill_the_memory() -> None:
    size = 32 << 20
    large = Served(lambda *_: Response(200, b"x" * size))
    with (
        serve(large, unsent_bytes=2 * size) as server,
        server.connect(receive_buffer=4096) as first,
        server.connect(receive_buffer=4096) as second,
        socket.create_connection(("127.0.0.1", server.port), 20, ("127.0.0.2", 0)) as other,
    ):
        unsent = server.endpoint.unsent
        for number, stalled in enumerate((first, second), 1):
            stalled.send(GET.replace(b"Host", b"Connection: close\r\nHost"))
            server.wait_until(lambda least=number: unsent.held > least * size * 3 // 4)
        reader = Client(other)
        reader.send(GET)
        assert len(reader.answer().body) == size
        part, whole = sorted(len(stalled.rest()) for stalled in (first, second))
        assert part < size < whole
        server.wait_until(lambda: not unsent.held)


def test_a_client_that_reads_slowly_but_steadily_is_not_cut_off() -> None:
    size = 4 << 20
    limits = SHORT | {"write_seconds": 0.4}
    large = Served(lambda *_: Response(200, b"x" * size))
    with serve(large, **limits) as server, server.connect(receive_buffer=65_536) as client:
        client.send(GET)
        taken = 0
        while taken < size:
            # Waits for nothing: it gives the server time in which it can lose patience.
            time.sleep(0.02)
            taken += len(client.socket.recv(65_536))
        assert server.endpoint.counters.timed_out == 0


def test_a_refused_client_that_never_stops_sending_is_cut_off() -> None:
    with serve(Echo(), **(SHORT | {"body_bytes": 10})) as server, server.connect() as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n")
        assert client.answer().status == 413
        block = b"x" * 65_536
        try:
            while True:
                client.send(block)
        except (ConnectionResetError, BrokenPipeError):
            pass
        server.wait_until(lambda: not server.endpoint.connections)


# --- the timer itself, on time that the test moves -----------------------------------------


class Time:
    """As much of a loop as `Deadlines` uses."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.timers: list[tuple[float, Any]] = []
        self.made = 0

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Any) -> Any:
        self.made += 1
        timer = (self.now + delay, callback)
        self.timers.append(timer)
        return Handle(self, timer)

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.timers and min(at for at, _ in self.timers) <= end:
            timer = min(self.timers, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.now = max(self.now, timer[0])
            timer[1]()
        self.now = end


class Handle:
    def __init__(self, of: Time, timer: Any) -> None:
        self._of, self._timer = of, timer

    def cancel(self) -> None:
        if self._timer in self._of.timers:
            self._of.timers.remove(self._timer)


class Watched:
    looked_at = 0

    def __init__(self, *again: float) -> None:
        self.looks: list[float] = []
        self._again = list(again)

    def look(self, now: float) -> float:
        self.looks.append(now)
        return self._again.pop(0) if self._again else 0.0


def test_many_watched_cost_one_timer() -> None:
    clock = Time()
    deadlines = Deadlines(clock, 0.5)  # type: ignore[arg-type]
    watched = [Watched() for _ in range(10_000)]
    for one in watched:
        deadlines.watch(one, clock.now + 10)
    assert len(clock.timers) == 1
    clock.advance(9.9)
    assert not any(one.looks for one in watched)
    clock.advance(1.2)
    assert all(len(one.looks) == 1 for one in watched)
    assert clock.made < 30
    assert not clock.timers, "with nobody to watch there is no timer"


def test_a_look_comes_neither_before_its_time_nor_much_later() -> None:
    for wait in (0.0, 0.01, 0.49, 0.5, 0.51, 3.0, 77.7):
        clock = Time()
        deadlines = Deadlines(clock, 0.5)  # type: ignore[arg-type]
        one = Watched()
        due = clock.now + wait
        deadlines.watch(one, due)
        clock.advance(100)
        assert len(one.looks) == 1
        assert due <= one.looks[0] <= due + 1.1, wait


def test_a_sooner_look_replaces_a_later_one_and_not_the_other_way() -> None:
    clock = Time()
    deadlines = Deadlines(clock, 0.5)  # type: ignore[arg-type]
    one = Watched()
    deadlines.watch(one, clock.now + 50)
    deadlines.watch(one, clock.now + 5)
    deadlines.watch(one, clock.now + 70)
    clock.advance(10)
    assert len(one.looks) == 1
    clock.advance(100)
    assert len(one.looks) == 1


def test_who_asks_for_another_look_gets_it_also_if_its_time_has_passed() -> None:
    clock = Time()
    deadlines = Deadlines(clock, 0.5)  # type: ignore[arg-type]
    one = Watched(1_001.0, 1_003.0, 1_010.0)
    deadlines.watch(one, clock.now)
    clock.advance(30)
    assert len(one.looks) == 4
    assert one.looks == sorted(one.looks)
