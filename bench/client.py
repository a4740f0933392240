"""Measures the Python client: what an application gets out of a broker, or of a store of its own.

    ./dev bench client                 both stores
    ./dev bench client --quick         little data, rough figures
    ./dev bench client --store sqlite --loads push,consume

Each load is done by a client over HTTP, by the load generator behind `monarq bench` over as many
connections to the same broker, and by a client that is embedded, on a store of the same kind. All
of them run in this process on the same event loop, so that a ratio is what the client costs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import secrets
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import uvloop

from bench import broker_loads
from bench.broker_loads import SIZE, plan_of
from bench.harness import (
    Rounds,
    Side,
    machine,
    progress,
    rate,
    table,
    take_turns,
    times,
    write_json,
)
from bench.places import Place, PostgresPlace, open_place
from bench.served import served
from monarq.client.async_client import AsyncClient
from monarq.client.queue import AsyncQueue

PACKAGES = ("msgspec", "httpx", "asyncpg", "uvloop", "httptools")
IN_FLIGHT = 64
PARTITIONS = 100
BATCH = 100
CONSUME_SECONDS = 600
PAYLOAD = {"pad": "x" * (SIZE - len(json.dumps({"pad": ""}, separators=(",", ":"))))}


class Took(NamedTuple):
    seconds: float
    cpu: float
    """Of this process."""


class Watch:
    def __init__(self) -> None:
        self._started, self._used = time.perf_counter(), time.process_time()

    def took(self, seconds: float | None = None) -> Took:
        passed = time.perf_counter() - self._started
        return Took(passed if seconds is None else seconds, time.process_time() - self._used)


async def push_in_turn(queue: AsyncQueue[Any], messages: int) -> Took:
    """Push one message after the other, each when the last one was answered."""
    partition = queue.partition("p0")
    watch = Watch()
    for _ in range(messages):
        await partition.push(PAYLOAD)
    return watch.took()


async def push_together(queue: AsyncQueue[Any], messages: int) -> Took:
    """Push one message at a time from each of several tasks."""
    turns = iter(range(messages))
    partitions = [queue.partition(f"p{number}") for number in range(PARTITIONS)]

    async def push() -> None:
        for turn in turns:
            await partitions[turn % PARTITIONS].push(PAYLOAD)

    watch = Watch()
    async with asyncio.TaskGroup() as pushing:
        for _ in range(IN_FLIGHT):
            pushing.create_task(push())
    return watch.took()


async def consume(queue: AsyncQueue[Any], messages: int) -> Took:
    """Consume a filled queue with a handler that does nothing, until all messages are acked."""
    share = messages // PARTITIONS
    for number in range(PARTITIONS):
        await queue.partition(f"p{number}").push_many([PAYLOAD] * share)
    handled = 0
    is_over = asyncio.Event()

    async def handle(_: object) -> None:
        nonlocal handled
        handled += 1
        if handled == share * PARTITIONS:
            is_over.set()

    watch = Watch()
    async with queue.consumer(handle, batch=BATCH):
        await asyncio.wait_for(is_over.wait(), CONSUME_SECONDS)
    took = watch.took()
    [group] = (await queue.groups()).rows
    assert group.lag == 0, f"{group.lag} messages are not acked"
    return took


async def generated_push(url: str, connections: int, messages: int) -> Took:
    partitions = 1 if connections == 1 else PARTITIONS
    plan = plan_of(url, connections=connections, partitions=partitions)
    watch = Watch()
    return watch.took(await broker_loads.push(plan, messages))


async def generated_pops(url: str, connections: int, messages: int) -> Took:
    """Pop and ack with acks that take the next pop along, as the client's consumers do it."""
    plan = plan_of(
        url, batch=BATCH, connections=connections, partitions=PARTITIONS, ack_and_pop=True
    )
    await broker_loads.fill(plan, messages)
    watch = Watch()
    return watch.took(await broker_loads.pop(plan, messages))


@dataclass(frozen=True)
class Load:
    title: str
    messages: int
    client: Callable[[AsyncQueue[Any], int], Awaitable[Took]]
    generated: Callable[[str, int, int], Awaitable[Took]]
    connections: int


LOADS = {
    "push": Load("push, one after the other", 2_000, push_in_turn, generated_push, 1),
    "together": Load(
        f"push, {IN_FLIGHT} under way", 10_000, push_together, generated_push, IN_FLIGHT
    ),
    "consume": Load(f"consume, batch {BATCH}", 20_000, consume, generated_pops, 1),
}


@dataclass(frozen=True)
class Case:
    load: Load
    messages: int
    rounds: Rounds

    def row(self) -> tuple[str, ...]:
        def figures(side: str) -> str:
            return rate(self.messages, self.rounds.seconds(side))

        def cpu(side: str) -> str:
            return f"{self.rounds.seconds(f'{side} cpu') / self.messages * 1e6:.1f}"

        return (
            self.load.title,
            figures("http"),
            figures("generator"),
            times(self.rounds.times_faster(["http"], ["generator"])),
            cpu("http"),
            cpu("generator"),
            figures("embedded"),
            times(self.rounds.times_faster(["embedded"], ["http"])),
        )


def by_client(side: str, client: AsyncClient, load: Load, messages: int) -> Side:
    async def measure() -> Mapping[str, float]:
        queue = client.queue(f"bench-{secrets.token_hex(4)}")
        took = await load.client(queue, messages)
        await queue.delete()
        return {side: took.seconds, f"{side} cpu": took.cpu}

    return measure


def by_generator(url: str, load: Load, messages: int) -> Side:
    async def measure() -> Mapping[str, float]:
        took = await load.generated(url, load.connections, messages)
        return {"generator": took.seconds, "generator cpu": took.cpu}

    return measure


@contextlib.asynccontextmanager
async def clients(place: Place) -> AsyncIterator[tuple[str, AsyncClient, AsyncClient]]:
    """The address of a broker, a client of it, and an embedded one on a store of its own."""
    async with contextlib.AsyncExitStack() as stack:
        store, arguments, own = "", [], {}
        if isinstance(place, PostgresPlace):
            store = embedded = place.dsn
            arguments = ["--schema", await stack.enter_async_context(place.schema())]
            own = {"schema": await stack.enter_async_context(place.schema())}
        else:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="monarq-bench-"))
            embedded = f"sqlite:///{directory}/embedded.db"
        broker = await stack.enter_async_context(served(store, arguments))
        over_http = await stack.enter_async_context(AsyncClient(broker.url))
        yield (
            broker.url,
            over_http,
            await stack.enter_async_context(AsyncClient(embedded, **own)),
        )


async def measure(place: Place, options: argparse.Namespace) -> list[Case]:
    cases = []
    async with clients(place) as (url, over_http, embedded):
        for name in options.loads.split(","):
            load = LOADS[name]
            messages = load.messages // 10 if options.quick else load.messages
            progress(load.title)
            sides = [
                by_client("http", over_http, load, messages),
                by_generator(url, load, messages),
                by_client("embedded", embedded, load, messages),
            ]
            found = await take_turns(sides, rounds=options.rounds)
            cases.append(Case(load, messages, found))
            await place.settle()
    return cases


HEADINGS = ("client", "generator", "of it", "CPU µs", "generator's", "embedded", "of the client")


def as_json(cases: list[Case]) -> list[dict[str, Any]]:
    return [
        {"name": case.load.title, "messages": case.messages, "rounds": case.rounds.as_json()}
        for case in cases
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="./dev bench client",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--loads", default=",".join(LOADS), help="some of: " + ",".join(LOADS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--uvloop", action="store_true", help="not on asyncio's own event loop")
    parser.add_argument("--quick", action="store_true", help="little data, rough figures")
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args()
    stores = ("sqlite", "postgres") if options.store == "both" else (options.store,)
    loop = "uvloop" if options.uvloop else "asyncio"
    record: dict[str, Any] = {"machine": machine(PACKAGES), "loop": loop, "payload_bytes": SIZE}
    record["stores"] = {}
    factory = uvloop.new_event_loop if options.uvloop else None
    for name in stores:
        progress(f"== {name}")
        with open_place(name) as place, asyncio.Runner(loop_factory=factory) as runner:
            cases = runner.run(measure(place, options))
            settings = runner.run(place.settings())
        record["stores"][name] = {"settings": settings, "cases": as_json(cases)}
        print(table((name, *HEADINGS), [case.row() for case in cases]), end="\n\n")
    if not options.quick or options.output:
        progress(f"written to {write_json('client', record, options.output)}")


if __name__ == "__main__":
    main()
