"""Streams of events from a real server: what changes arrives, nothing else does, and a stream
never keeps the server from ending."""

import asyncio
import contextlib
import http.client
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from monarq.errors import StoreUnavailableError
from monarq.server.exchange import StreamingResponse
from monarq.server.watch import topics
from tests.server.application import Api
from tests.server.conftest import StartServer
from tests.server.serving import ServerProcess

BOUND = 60.0
ON_SQLITE = pytest.mark.parametrize("served_store", ["sqlite"], indirect=True)


class Stream:
    """One stream, as a page reads it."""

    def __init__(self, server: ServerProcess, query: str, headers: dict[str, str]) -> None:
        self._connection = http.client.HTTPConnection(server.host, server.port, timeout=BOUND)
        self._connection.request("GET", f"/api/v1/events?{query}", headers=headers)
        self.answer = self._connection.getresponse()

    def close(self) -> None:
        self.answer.close()
        self._connection.close()

    def next(self) -> tuple[str, Any] | None:
        """The next event and what it tells; None at the end of the stream."""
        name, data = "", ""
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            if line.startswith("event: "):
                name = line[7:].strip()
            elif line.startswith("data: "):
                data = line[6:]
            elif line == "\n" and name:
                return name, json.loads(data)

    def some(self) -> tuple[str, Any]:
        told = self.next()
        assert told is not None, "the stream ended"
        return told

    def until(self, wanted: str, **fields: Any) -> Any:
        """The next event of this name that has these fields."""
        deadline = time.monotonic() + BOUND
        while time.monotonic() < deadline:
            told = self.next()
            assert told is not None, f"the stream ended before {wanted}"
            name, data = told
            if name == wanted and all(data.get(key) == value for key, value in fields.items()):
                return data
        raise AssertionError(f"no {wanted} with {fields}")


@contextlib.contextmanager
def stream(server: ServerProcess, query: str, **headers: str) -> Iterator[Stream]:
    opened = Stream(server, query, headers)
    try:
        yield opened
    finally:
        opened.close()


def push(server: ServerProcess, queue: str, *payloads: Any) -> Any:
    items = [{"queue": queue, "payload": payload} for payload in payloads]
    answer = server.post("/api/v1/push", {"items": items})
    assert answer.status == 201, answer
    return answer.json


def streams_open(server: ServerProcess) -> int:
    return int(server.get("/api/v1/dashboard/system").json["connections"]["streams"])


def wait_until_closed(server: ServerProcess) -> None:
    deadline = time.monotonic() + BOUND
    while streams_open(server):
        assert time.monotonic() < deadline


@pytest.mark.slow
def test_what_changes_arrives_and_only_that(server: ServerProcess) -> None:
    push(server, "still", 1)
    push(server, "moving", 1)
    with stream(server, "topics=overview,queues,queue&queue=moving") as page:
        assert page.answer.status == 200
        assert page.answer.headers["Content-Type"] == "text/event-stream"
        assert page.answer.headers["Cache-Control"] == "no-store"
        assert page.next()[0] == "hello"  # type: ignore[index]
        first = page.until("overview")
        assert {"health", "totals", "rates", "attention"} <= set(first)
        push(server, "moving", 2, 3)
        told = page.until("queues", total=2)
        while not told["changed"]:
            told = page.until("queues")
        # The page's first look may be older than the first pushes.
        while {line["name"] for line in told["changed"]} != {"moving"}:
            told = page.until("queues")
        while told["changed"][0]["pending"] != 3:
            told = page.until("queues")
        push(server, "moving", 4)
        while (told := page.until("queue"))["line"]["pending"] != 4:
            pass
        later = page.until("overview")
        assert "version" not in later
        server.delete("/api/v1/resources/queues/moving")
        left = {"queue", "queues"}
        while left:
            name, told = page.some()
            if name == "queue" and told.get("gone"):
                left.discard("queue")
            elif name == "queues" and told["gone"]:
                assert (told["gone"], told["total"]) == (["moving"], 1)
                left.discard("queues")
    wait_until_closed(server)


@ON_SQLITE
def test_groups_and_their_end_arrive(server: ServerProcess) -> None:
    push(server, "q", 1, 2)
    with stream(server, "topics=groups") as page:
        page.until("groups")
        server.get("/api/v1/pop/queue/q?consumerGroup=g&autoAck=true")
        told = page.until("groups")
        while not told["changed"]:
            told = page.until("groups")
        assert (told["changed"][0]["name"], told["changed"][0]["lag"]) == ("g", 1)
        server.delete("/api/v1/consumer-groups/g")
        while not (told := page.until("groups"))["gone"]:
            pass
        assert told["gone"] == [{"queue": "q", "name": "g"}]


async def test_an_idle_stream_says_nothing_but_that_it_is_there(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("INTERVAL_SECONDS", "IDLE_INTERVAL_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(f"monarq.server.watch.sampler.{name}", 0.01)
    monkeypatch.setattr("monarq.server.watch.streams.TICK_SECONDS", 0.5)
    await memory_api.push_payloads("q", 1)
    answer = memory_api.handle("GET", "/api/v1/events?topics=overview,queues", None, {})
    assert isinstance(answer, StreamingResponse)
    sampler = memory_api.service.sampler
    told = []
    async with contextlib.aclosing(answer.chunks) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            told.append(chunk)
            if len([one for one in told if one.startswith(b": here\n")]) == 2:
                break
        looked = sampler.sight.view.version
        assert told[-1].startswith(b": here\nevent: tick\n")
        assert told[-2].startswith(b": here\nevent: tick\n")
        assert looked > 3
    assert (memory_api.service.streams.open, sampler.watchers) == (0, 0)


async def test_the_store_is_looked_at_only_while_somebody_watches(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.watch.sampler.INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr("monarq.server.watch.sampler.LONGEST_SECONDS", 0.01)
    sampler = memory_api.service.sampler
    looks = 0
    read = memory_api.broker.store.queue_flows

    async def counted(**options: Any) -> Any:
        nonlocal looks
        looks += 1
        return await read(**options)

    monkeypatch.setattr(memory_api.broker.store, "queue_flows", counted, raising=False)
    async with asyncio.timeout(BOUND):
        async with sampler.watching(), sampler.watching():
            seen = 0
            for _ in range(5):
                seen = (await sampler.next_sight(seen)).view.version
        assert looks >= 5
        stopped_at = looks
        for _ in range(100):
            await asyncio.sleep(0)
        assert looks == stopped_at
        async with sampler.watching():
            await sampler.next_sight(sampler.sight.view.version)
        assert looks > stopped_at


class Down:
    """A call of the store that fails so many times, and then is made."""

    def __init__(self, call: Any, times: int) -> None:
        self._call = call
        self.left = times

    async def __call__(self, *values: Any, **options: Any) -> Any:
        if self.left:
            self.left -= 1
            raise StoreUnavailableError("down")
        return await self._call(*values, **options)


@pytest.mark.parametrize("times_down", [0, 4])
async def test_what_was_not_looked_at_yet_is_not_told_to_be_gone(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch, times_down: int
) -> None:
    for name in ("INTERVAL_SECONDS", "LONGEST_SECONDS"):
        monkeypatch.setattr(f"monarq.server.watch.sampler.{name}", 0.0)
    await memory_api.push_payloads("q", 1)
    down = Down(memory_api.broker.store.queue_flows, times_down)
    monkeypatch.setattr(memory_api.broker.store, "queue_flows", down, raising=False)
    async with (
        asyncio.timeout(BOUND),
        contextlib.aclosing(topics.watch_queue(memory_api.service, "q")) as queue,
        contextlib.aclosing(topics.watch_queues(memory_api.service)) as queues,
        contextlib.aclosing(topics.watch_groups(memory_api.service)) as groups,
    ):
        assert (await anext(queue))[1]["line"].pending == 1
        assert (await anext(queues))[1]["total"] == 1
        assert not (await anext(groups))[1]["at"].startswith("1970")
    assert not down.left


async def test_who_comes_back_is_not_told_what_was_seen_long_ago(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.watch.sampler.FRESH_SECONDS", 0.0)
    monkeypatch.setattr("monarq.server.watch.sampler.LONGEST_SECONDS", 0.0)
    await memory_api.service.sampler.current()
    await memory_api.push_payloads("q", 1)
    async with (
        asyncio.timeout(BOUND),
        contextlib.aclosing(topics.watch_queue(memory_api.service, "q")) as queue,
    ):
        assert "gone" not in (await anext(queue))[1]


async def test_a_job_is_watched_through_an_outage_of_the_store(
    memory_api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("monarq.server.watch.topics._OUTPUT_SECONDS", 0.0)
    await memory_api.configure("jobs", kind="work")
    [pushed] = await memory_api.push_payloads("jobs", "run")
    down = Down(memory_api.broker.store.get_item, 2)
    monkeypatch.setattr(memory_api.broker.store, "get_item", down, raising=False)
    async with (
        asyncio.timeout(BOUND),
        contextlib.aclosing(topics.watch_item(memory_api.service, pushed["message_id"])) as item,
    ):
        assert (await anext(item))[1]["state"] == "ready"


def test_the_output_of_a_job_arrives_as_it_is_printed(server: ServerProcess) -> None:
    server.post("/api/v1/configure", {"queue": "jobs", "kind": "work"})
    [pushed] = push(server, "jobs", "run")
    item = pushed["message_id"]
    with stream(server, f"topics=item&item={item}") as page:
        assert page.until("item")["state"] == "ready"
        popped = server.get("/api/v1/pop/queue/jobs").json
        page.until("item", state="leased", attempt=1, reset=True)
        body = {"attempt": 1, "data": "aGVsbG8="}
        assert server.post(f"/api/v1/items/{item}/output", body).status == 200
        assert page.until("item", output="aGVsbG8=")["next"] == 5
        ack = {"leaseId": popped["leaseId"], "status": "completed"}
        server.post("/api/v1/ack/batch", ack)
        page.until("item", state="done")


@ON_SQLITE
def test_a_stop_ends_every_stream_at_once(server: ServerProcess) -> None:
    with stream(server, "topics=overview") as one, stream(server, "topics=queues") as two:
        one.until("overview")
        two.until("queues")
        begin = time.monotonic()
        server.signal()
        for page in (one, two):
            page.until("bye")
            assert page.next() is None
        # Far below the time that a drain waits for what is under way.
        assert server.wait(20) == 0
        assert time.monotonic() - begin < 20


@ON_SQLITE
def test_a_server_has_only_so_many_streams_and_room_again_when_one_ends(
    start_server: StartServer,
) -> None:
    server = start_server(max_event_streams_per_address=1_000)
    with contextlib.ExitStack() as pages:
        for _ in range(256):
            page = pages.enter_context(stream(server, "topics=workers"))
            assert page.answer.status == 200
        refused = server.get("/api/v1/events?topics=workers")
        assert (refused.status, refused.json["code"]) == (503, "overloaded")
        assert "retry-after" in refused.headers
        # Everything else goes on.
        push(server, "q", 1)
        assert server.get("/api/v1/dashboard/overview").status == 200
    wait_until_closed(server)
    with stream(server, "topics=workers") as page:
        page.until("workers")


@ON_SQLITE
@pytest.mark.parametrize(
    "query",
    ["topics=", "topics=weather", "topics=overview,", "topics=queue", "topics=item", "item=x",
     "topics=item&item=1", "topic=overview", "topics=overview%0a"],
)  # fmt: skip
def test_what_nobody_can_watch_is_refused(server: ServerProcess, query: str) -> None:
    answer = server.get(f"/api/v1/events?{query}")
    assert (answer.status, answer.json["code"]) == (400, "invalid_request")


@ON_SQLITE
def test_pages_that_come_and_go_leave_nothing_behind(server: ServerProcess) -> None:
    push(server, "q", 1)

    def come_and_go() -> None:
        for _ in range(10):
            with stream(server, "topics=overview,queues,groups,workers") as page:
                page.next()

    threads = [threading.Thread(target=come_and_go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    wait_until_closed(server)
    assert not [line for line in server.log if line.get("level") in ("error", "warning")]


def test_the_broker_s_own_state_arrives_too(server: ServerProcess) -> None:
    with stream(server, "topics=overview") as page:
        page.until("overview")
        answer = server.post("/api/v1/system/maintenance/pop", {"enabled": True})
        assert answer.status == 200
        deadline = time.monotonic() + BOUND
        while not page.until("overview").get("health", {}).get("maintenancePop"):
            assert time.monotonic() < deadline
