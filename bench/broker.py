"""Measures the broker over HTTP: pushes, pops and acks, latency, waiting pops, memory.

    ./dev bench broker                 both stores
    ./dev bench broker --quick         little data, rough figures
    ./dev bench broker --store sqlite --parts push,idle

Everything runs on this machine: broker, store and load generator. Bars are ratios to floors of
the same run: a bare uvloop+httptools echo of the same requests, and the same bytes by COPY
(PostgreSQL) or executemany (SQLite), 1000 messages a transaction, made durable alike.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop

from bench.bars import Bars
from bench.broker_loads import SIZE, end_to_end, fill, parked, plan_of, pop, push
from bench.floors import Floors
from bench.harness import Rounds, machine, progress, rate, table, take_turns, times, write_json
from bench.places import Place, PostgresPlace, SqlitePlace, open_place
from bench.served import Watched, echo_server, served
from monarq.loadgen import Plan

PACKAGES = ("msgspec", "asyncpg", "uvloop", "httptools", "cryptography")
PARTS = ("push", "pop", "latency", "idle")
FLOOR_BATCH = 1000

#: Batch, messages, connections.
PUSHES = ((10, 60_000, 64), (100, 100_000, 32), (1000, 100_000, 8))
POPS = ((1, 10_000, 100), (100, 100_000, 16), (1000, 200_000, 8))
ACKS_AND_POPS = ((1, 10_000, 100), (100, 100_000, 16))

#: What Queen 0.15 did on a machine like this one, messages a second.
QUEEN = {
    "push 1": 4_800,
    "push 10": 14_000,
    "push 100": 20_000,
    "push 1000": 22_000,
    "pop+ack 1": 1_100,
    "pop+ack 1 in one request": 1_100,
    "pop+ack 100": 8_300,
    "pop+ack 100 in one request": 8_300,
    "pop+ack 1000": 11_800,
}


@dataclass
class Case:
    name: str
    messages: int
    rounds: Rounds
    ours: str
    floor: str


@dataclass
class Results:
    store: str
    cases: list[Case] = field(default_factory=list)
    bars: Bars = field(default_factory=Bars)
    figures: dict[str, Any] = field(default_factory=dict)


class Bench:
    def __init__(self, place: Place, broker: Watched, echo: str, quick: bool, rounds: int) -> None:
        self.place = place
        self.broker = broker
        self.echo = echo
        self.rounds = rounds
        self.scale = 0.2 if quick else 1.0
        self.results = Results(place.name)

    def count(self, messages: int) -> int:
        return max(int(messages * self.scale) // 1000 * 1000, 1000)

    async def push(self) -> None:
        url, rounds = self.broker.url, self.rounds
        messages = self.count(20_000)

        async def single() -> Mapping[str, float]:
            return await self._with_cpu("push", push(plan_of(url, connections=256), messages))

        async def bare() -> Mapping[str, float]:
            plan = plan_of(self.echo, connections=256)
            return {"echo": await push(plan, messages, delete=False)}

        progress("push one by one, 256 connections")
        found = await take_turns([single, bare], rounds=rounds)
        self.results.cases.append(Case("push 1", messages, found, "push", "echo"))
        ratio = found.times_faster(["push"], ["echo"])
        self.results.bars.at_least("push 1 of the echo", ratio, 0.35)
        for batch, amount, connections in PUSHES:
            await self._push_batches(f"push {batch}", batch, self.count(amount), connections, 100)
        spread = self.count(100_000)
        await self._push_batches("push 100 spread over 1,000", 100, spread, 32, 1000, spread=True)

    async def _push_batches(
        self,
        name: str,
        batch: int,
        messages: int,
        connections: int,
        partitions: int,
        spread: bool = False,
    ) -> None:
        async def ours() -> Mapping[str, float]:
            plan = plan_of(
                self.broker.url,
                batch=batch,
                connections=connections,
                partitions=partitions,
                spread=spread,
            )
            return await self._with_cpu("push", push(plan, messages))

        async with self.place.floors() as floors:

            async def bulk() -> Mapping[str, float]:
                return {"bulk": await _bulk(floors, messages)}

            progress(name)
            found = await take_turns([ours, bulk], rounds=self.rounds)
        self.results.cases.append(Case(name, messages, found, "push", "bulk"))
        if name == "push 100":
            ratio = found.times_faster(["push"], ["bulk"])
            self.results.bars.at_least("push 100 of COPY", ratio, 0.5)

    async def pop(self) -> None:
        for batch, amount, connections in POPS:
            name = f"pop+ack {batch}"
            await self._pop_batches(name, batch, self.count(amount), connections)
        for batch, amount, connections in ACKS_AND_POPS:
            name = f"pop+ack {batch} in one request"
            await self._pop_batches(name, batch, self.count(amount), connections, ack_and_pop=True)

    async def _pop_batches(
        self, name: str, batch: int, messages: int, connections: int, ack_and_pop: bool = False
    ) -> None:
        def plan() -> Plan:
            url = self.broker.url
            return plan_of(url, batch=batch, connections=connections, ack_and_pop=ack_and_pop)

        async def ours() -> Mapping[str, float]:
            return await self._popped(plan(), messages)

        async def pushed() -> Mapping[str, float]:
            return {"push": await push(plan(), messages)}

        progress(f"{name}, 100 partitions")
        found = await take_turns([ours, pushed], rounds=self.rounds)
        self.results.cases.append(Case(name, messages, found, "pop", "push"))
        ratio = found.times_faster(["pop"], ["push"])
        self.results.bars.at_least(f"{name} of push", ratio, 1.0)
        queen = messages / found.seconds("pop") / QUEEN[name]
        self.results.bars.at_least(f"{name} of Queen's", queen, 10.0)

    async def _popped(self, plan: Plan, messages: int) -> Mapping[str, float]:
        await fill(plan, messages)
        return await self._with_cpu("pop", pop(plan, messages))

    async def _with_cpu(self, name: str, load: Awaitable[float]) -> Mapping[str, float]:
        """Its seconds, and those of the broker's CPU: less shaken by a machine that is busy."""
        before = self.broker.cpu_seconds()
        seconds = await load
        return {name: seconds, "cpu": self.broker.cpu_seconds() - before}

    async def latency(self) -> None:
        progress("end to end at 200 messages/s")
        findings = await end_to_end(self.broker.url, 20 * self.scale + 2)
        found = findings.latencies["endToEnd"]
        self.results.bars.at_most("end to end p50", found.percentile(50) * 1e3, 10, "ms")
        self.results.bars.at_most("end to end p99", found.percentile(99) * 1e3, 25, "ms")
        self.results.figures["end_to_end"] = findings.as_json()["latencyMs"]

    async def idle(self) -> None:
        count = 10_000 if self.scale == 1.0 else 2_000
        progress(f"{count} waiting pops")
        found = await parked(self.broker, count, 10 * self.scale + 2)
        self.results.bars.at_most("CPU idle", found["cores"] * 100, 2, "%")
        self.results.figures["parked"] = {"count": count, **found}

    def finish(self) -> None:
        memory = self.broker.most_memory / 1e6
        self.results.bars.at_most("memory", memory, 150, "MB")


async def _bulk(floors: Floors, messages: int) -> float:
    now = int(time.time() * 1e6)
    payload = b"x" * SIZE
    started = time.perf_counter()
    for first in range(0, messages, FLOOR_BATCH):
        rows = [(1, f"{number}", now, payload) for number in range(first, first + FLOOR_BATCH)]
        await floors.bulk(rows)
    return time.perf_counter() - started


def drawn(results: Results) -> str:
    rows = []
    for case in results.cases:
        seconds = case.rounds.seconds(case.ours)
        queen = QUEEN.get(case.name)
        rows.append(
            (
                case.name,
                rate(case.messages, seconds),
                f"{case.floor} {rate(case.messages, case.rounds.seconds(case.floor))}",
                times(case.rounds.times_faster([case.ours], [case.floor])),
                times(case.messages / seconds / queen) if queen else "",
                f"{case.rounds.seconds('cpu') / case.messages * 1e6:.1f}",
            )
        )
    figures = table((results.store, "messages/s", "beside", "of it", "of Queen's", "CPU µs"), rows)
    return f"{figures}\n\n{results.bars.table()}"


def as_json(results: Results) -> dict[str, Any]:
    return {
        "cases": [
            {"name": case.name, "messages": case.messages, "rounds": case.rounds.as_json()}
            for case in results.cases
        ],
        "bars": results.bars.as_json(),
        **results.figures,
    }


@contextlib.asynccontextmanager
async def address_of(place: Place) -> AsyncIterator[str]:
    """Of an empty store of that kind, for the broker."""
    if isinstance(place, PostgresPlace):
        async with place.schema() as schema:
            yield f"{place.dsn} {schema}"
    else:
        assert isinstance(place, SqlitePlace)
        yield ""


async def measure(place: Place, options: argparse.Namespace) -> Results:
    with echo_server() as echo:
        async with address_of(place) as address:
            store, _, schema = address.partition(" ")
            arguments = ["--schema", schema] if schema else []
            async with served(store, arguments) as broker:
                bench = Bench(place, broker, echo, options.quick, options.rounds)
                steps: dict[str, Callable[[], Any]] = {
                    "push": bench.push,
                    "pop": bench.pop,
                    "latency": bench.latency,
                    "idle": bench.idle,
                }
                for part in options.parts.split(","):
                    await steps[part]()
                    await place.settle()
                bench.finish()
                return bench.results


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--parts", default=",".join(PARTS), help="some of: " + ",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="little data, rough figures")
    parser.add_argument("--output", type=Path, help="where to write the JSON")
    options = parser.parse_args()
    stores = ("sqlite", "postgres") if options.store == "both" else (options.store,)
    record: dict[str, Any] = {"machine": machine(PACKAGES), "payload_bytes": SIZE, "stores": {}}
    for name in stores:
        progress(f"== {name}")
        with (
            open_place(name) as place,
            asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
        ):
            results = runner.run(measure(place, options))
            record["stores"][name] = {
                "settings": runner.run(place.settings()),
                **as_json(results),
            }
        print(drawn(results), end="\n\n")
    if not options.quick or options.output:
        progress(f"written to {write_json('broker', record, options.output)}")


if __name__ == "__main__":
    main()
