"""Two ways to put load on a server.

A closed loop keeps every connection busy: it finds out how much the server can do. An open loop
sends at a given rate whatever the server does, and counts each latency from the time at which
the request should have gone: a server that stalls cannot hide it by holding up the sender.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from monarq.loadgen.connection import LoadConnection
from monarq.loadgen.histogram import Histogram

NextRequest = Callable[[], bytes | None]
"""Makes the next request; None if there is none (any more)."""
DueRequest = Callable[[float], bytes | None]
"""The same, told when it was due (by `time.perf_counter`)."""
Check = Callable[[int, bytes], int]
"""Given the status and body of an answer, says how many messages it was good for; below 0: an
error."""

PAUSE_SECONDS = 0.05
"""After an error, so that a server that refuses is not asked in a tight loop."""


@dataclass(slots=True)
class Report:
    seconds: float = 0.0
    requests: int = 0
    messages: int = 0
    errors: int = 0
    unsent: int = 0
    """Open loop: requests whose time came, and that were not sent before the end."""
    statuses: dict[int, int] = field(default_factory=dict)
    latency: Histogram = field(default_factory=Histogram)

    @property
    def messages_per_second(self) -> float:
        return self.messages / self.seconds if self.seconds else 0.0

    def count(self, status: int, messages: int) -> None:
        self.requests += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        if messages < 0:
            self.errors += 1
        else:
            self.messages += messages


def is_good(status: int, body: bytes) -> int:
    return 1 if 200 <= status < 300 else -1


async def closed_loop(
    connections: Sequence[LoadConnection],
    next_request: NextRequest,
    *,
    seconds: float = float("inf"),
    check: Check = is_good,
    report: Report | None = None,
) -> Report:
    """Every connection sends its next request when the last one is answered, for `seconds` or
    until there is no next one. A given `report` can be looked at while it goes on."""
    report = report or Report()
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    clock = time.perf_counter
    started = clock()
    end = started + seconds
    running = len(connections)

    def send(connection: LoadConnection, now: float) -> None:
        nonlocal running
        request = next_request() if now < end and connection.is_open else None
        if request is not None:
            connection.send(request, partial(answered, connection, now))
            return
        running -= 1
        if not running and not done.done():
            done.set_result(None)

    def answered(connection: LoadConnection, sent: float, status: int, body: bytes) -> None:
        now = clock()
        report.latency.add(now - sent)
        messages = check(status, body)
        report.count(status, messages)
        if messages >= 0:
            send(connection, now)
        else:
            loop.call_later(PAUSE_SECONDS, again, connection)

    def again(connection: LoadConnection) -> None:
        send(connection, clock())

    for connection in connections:
        send(connection, started)
    if running:
        await done
    report.seconds = clock() - started
    return report


async def open_loop(
    connections: Sequence[LoadConnection],
    next_request: DueRequest,
    *,
    rate: float,
    seconds: float,
    check: Check = is_good,
    report: Report | None = None,
    grace_seconds: float = 10.0,
) -> Report:
    """Send `rate` requests a second, evenly spaced. What finds no free connection waits for one,
    and its latency counts from when it was due. After `seconds`, answers are waited for at most
    `grace_seconds`."""
    report = report or Report()
    loop = asyncio.get_running_loop()
    clock = time.perf_counter
    free = deque(connections)
    due: deque[float] = deque()
    under_way = 0
    quiet = asyncio.Event()

    def send(connection: LoadConnection) -> None:
        nonlocal under_way
        request = next_request(due[0]) if due and connection.is_open else None
        if request is None:
            if connection.is_open:
                free.append(connection)
            return
        under_way += 1
        connection.send(request, partial(answered, connection, due.popleft()))

    def answered(connection: LoadConnection, at: float, status: int, body: bytes) -> None:
        nonlocal under_way
        under_way -= 1
        report.latency.add(clock() - at)
        report.count(status, check(status, body))
        send(connection)
        if not under_way and not due:
            quiet.set()

    started = clock()
    for number in range(int(rate * seconds)):
        at = started + number / rate
        pause = at - clock()
        if pause > 0:
            await asyncio.sleep(pause)
        due.append(at)
        if free:
            send(free.popleft())
        elif number % 256 == 0:
            await asyncio.sleep(0)
    report.seconds = clock() - started
    if under_way or due:
        quiet.clear()
        timer = loop.call_later(grace_seconds, quiet.set)
        await quiet.wait()
        timer.cancel()
    report.unsent = len(due)
    now = clock()
    for at in due:
        # They waited at least this long; leaving them out would hide the worst.
        report.latency.add(now - at)
    return report
