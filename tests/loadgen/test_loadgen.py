"""The load generator: it counts what happened, and a server that stalls cannot hide it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from monarq.loadgen import (
    Histogram,
    LoadConnection,
    LoadError,
    Mode,
    Plan,
    Report,
    closed_loop,
    compose_request,
    connect,
    open_loop,
    run_load,
)
from monarq.loadgen.requests import PushRequests, Target

Answers = Callable[[str, bytes], "asyncio.Future[bytes] | bytes"]


@asynccontextmanager
async def server(answer: Answers) -> AsyncIterator[int]:
    """Answers each request with what `answer` says of its first line and body."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = 0
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        length = int(line.partition(b":")[2])
                body = await reader.readexactly(length)
                said = answer(head.split(b"\r\n")[0].decode(), body)
                writer.write(said if isinstance(said, bytes) else await said)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        await asyncio.sleep(0)


def said(status: int, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body)


REQUEST = compose_request("GET", "/")


@given(st.lists(st.floats(0, 10_000), min_size=1, max_size=300), st.floats(0.1, 100))
def test_a_percentile_is_within_two_percent_of_the_real_one(
    values: list[float], percent: float
) -> None:
    found = Histogram()
    for value in values:
        found.add(value)
    ordered = sorted(values)
    exact = ordered[max(1, -int(-len(ordered) * percent // 100)) - 1]
    assert found.percentile(percent) == pytest.approx(exact, rel=0.02, abs=2e-6)
    assert found.percentile(100) == pytest.approx(ordered[-1], rel=1e-6, abs=2e-6)


@given(st.lists(st.floats(0, 100), max_size=50), st.lists(st.floats(0, 100), max_size=50))
def test_histograms_merge_as_if_they_were_one(one: list[float], two: list[float]) -> None:
    parts, whole = (Histogram(), Histogram()), Histogram()
    for part, values in zip(parts, (one, two), strict=True):
        for value in values:
            part.add(value)
            whole.add(value)
    parts[0].merge(parts[1])
    assert parts[0].count == whole.count
    percents = (1, 50, 99, 100)
    assert parts[0].percentiles(percents) == whole.percentiles(percents)


async def test_a_stall_shows_in_every_request_that_was_due_meanwhile() -> None:
    stalled = asyncio.Event()
    asked = 0

    def answer(_: str, __: bytes) -> "asyncio.Future[bytes]":
        nonlocal asked
        asked += 1

        async def slow() -> bytes:
            await stalled.wait()
            return said(200)

        return asyncio.ensure_future(slow())

    async with server(answer) as port:
        connections = [await connect("127.0.0.1", port) for _ in range(2)]
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, stalled.set)
        report = await open_loop(connections, lambda _: REQUEST, rate=100, seconds=0.4)
        for connection in connections:
            connection.close()
    # Only two were on their way; a closed loop would have seen two slow requests.
    assert report.requests == 40
    assert report.latency.percentile(10) > 0.1
    assert report.latency.percentile(99) > 0.45


async def test_what_could_never_be_sent_counts_as_late_too() -> None:
    def never(_: str, __: bytes) -> "asyncio.Future[bytes]":
        return asyncio.get_running_loop().create_future()

    async with server(never) as port:
        connection = await connect("127.0.0.1", port)
        report = await open_loop(
            [connection], lambda _: REQUEST, rate=100, seconds=0.2, grace_seconds=0.1
        )
        connection.close()
    assert report.unsent == 19
    assert report.latency.count >= 19
    assert report.latency.longest >= 0.1 * 1e6


async def test_due_times_are_evenly_spaced_whatever_the_server_does() -> None:
    dues: list[float] = []

    def due(at: float) -> bytes:
        dues.append(at)
        return REQUEST

    async with server(lambda _, __: said(200)) as port:
        connections = [await connect("127.0.0.1", port) for _ in range(4)]
        await open_loop(connections, due, rate=200, seconds=0.5)
        for connection in connections:
            connection.close()
    gaps = [after - before for before, after in pairwise(dues)]
    assert len(dues) == 100
    assert gaps == pytest.approx([0.005] * 99)


async def test_a_server_that_refuses_is_not_asked_in_a_tight_loop() -> None:
    asked = 0

    def refuse(_: str, __: bytes) -> bytes:
        nonlocal asked
        asked += 1
        return said(503)

    async with server(refuse) as port:
        connection = await connect("127.0.0.1", port)
        report = await closed_loop([connection], lambda: REQUEST, seconds=0.3)
        connection.close()
    assert report.errors == asked
    assert asked <= 8


async def test_a_lost_connection_ends_its_part_and_is_counted() -> None:
    def hang_up(_: str, __: bytes) -> bytes:
        raise ConnectionError

    async with server(hang_up) as port:
        connection = await connect("127.0.0.1", port)
        started = perf_counter()
        report = await closed_loop([connection], lambda: REQUEST, seconds=30)
    assert (report.errors, report.statuses) == (1, {0: 1})
    assert perf_counter() - started < 10


class Nowhere(asyncio.Transport):
    """Takes what is sent; what comes back is up to the test, byte by byte."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        return

    def close(self) -> None:
        return


@pytest.mark.parametrize("split", [1, 7, 1000])
async def test_answers_are_whole_however_they_are_split(split: int) -> None:
    body = b"x" * 5000
    chunked = b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    connection = LoadConnection()
    connection.connection_made(Nowhere())
    for whole, expected in ((said(200, body), body), (chunked, b"hello"), (said(204), b"")):
        answers: list[bytes] = []
        connection.send(REQUEST, lambda _, got, answers=answers: answers.append(got))
        for at in range(0, len(whole), split):
            assert answers == []
            connection.data_received(whole[at : at + split])
        assert answers == [expected]


def test_pushes_go_over_the_partitions_in_turn() -> None:
    target = Target("http://localhost:1")

    def partitions(plan: Plan, count: int) -> list[list[str]]:
        requests = PushRequests(plan, target)
        made = [requests.next() for _ in range(count)]
        return [
            [item["partition"] for item in json.loads(each.partition(b"\r\n\r\n")[2])["items"]]
            for each in made
            if each is not None
        ]

    plan = Plan(mode=Mode.PUSH, url="", batch=2, partitions=3)
    assert partitions(plan, 4) == [["p0", "p0"], ["p1", "p1"], ["p2", "p2"], ["p0", "p0"]]
    spread = Plan(mode=Mode.PUSH, url="", batch=2, partitions=3, spread=True)
    assert partitions(spread, 3) == [["p0", "p1"], ["p2", "p0"], ["p1", "p2"]]


@pytest.mark.parametrize("size", [32, 256, 100_000])
def test_payloads_have_the_size_that_was_asked_for(size: int) -> None:
    plan = Plan(mode=Mode.PUSH, url="", size=size, partitions=1)
    request = PushRequests(plan, Target("http://localhost:1")).next_stamped(12345.678901)
    body = request.partition(b"\r\n\r\n")[2]
    payload = body.partition(b'"payload":')[2].removesuffix(b"}]}")
    assert len(payload) == max(size, len(b'{"due":12345.678901,"pad":""}'))
    assert json.loads(payload)["due"] == 12345.678901


async def test_a_refused_queue_is_told_with_the_reason() -> None:
    async with server(lambda _, __: said(401, b'{"error":"who are you"}')) as port:
        plan = Plan(mode=Mode.PUSH, url=f"http://127.0.0.1:{port}")
        with pytest.raises(LoadError, match=r"401.*who are you"):
            await run_load(plan)


def test_reports_count_messages_and_errors_apart() -> None:
    report = Report(seconds=2.0)
    report.count(201, 10)
    report.count(503, -1)
    assert (report.requests, report.messages, report.errors) == (2, 10, 1)
    assert report.messages_per_second == 5
