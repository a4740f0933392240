"""How fast the stores are: push, pop and ack beside what the database can do at all.

Run it with `./dev bench store`; bench/README.md says what is measured and how to read it.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from msgspec import Struct

from bench import harness, workloads
from bench.bars import Bars
from bench.harness import Rounds, progress, rate, times
from bench.places import Place, open_place

BATCHES = (1, 10, 100, 1000)
PARTITIONS = (1, 1000)
SHAPES = ((64, 1), (8, 100), (1, 1000))
"""Pops in one call, and messages of each: what a broker with many consumers asks for."""

PUSH_BAR = {"sqlite": 1.5, "postgres": 2.5}
POP_BAR = 2.0
GROWTH_BAR = 1.5


class Scale(Struct, frozen=True):
    """How much is measured."""

    messages: int
    calls: int
    rounds: int
    seconds: float | None
    many_partitions: int
    many_items: int
    backlog: int
    batches: tuple[int, ...] = BATCHES
    partitions: tuple[int, ...] = PARTITIONS


FULL = Scale(
    messages=20_000,
    calls=200,
    rounds=7,
    seconds=None,
    many_partitions=100_000,
    many_items=1_000_000,
    backlog=500_000,
)
QUICK = Scale(
    messages=4_000,
    calls=40,
    rounds=3,
    seconds=None,
    many_partitions=5_000,
    many_items=20_000,
    backlog=20_000,
)


class Report:
    """What was measured, as rows to print and as JSON to keep."""

    def __init__(self) -> None:
        self.flows: list[tuple[str, ...]] = []
        self.shapes: list[tuple[str, ...]] = []
        self.growths: list[tuple[str, ...]] = []
        self.bars = Bars()
        self.json: list[dict[str, Any]] = []

    def flow(self, store: str, partitions: int, batch: int, count: int, rounds: Rounds) -> None:
        consume, consume_each = ("pop", "ack"), ("pop_ids", "ack_each")
        push_over_rows = rounds.times_faster(["push"], ["rows"])
        pop_over_push = rounds.times_faster(consume, ["push"])
        ids_over_rows = rounds.times_faster(["push_ids"], ["rows"])
        joint_over_push = rounds.times_faster(["ack_and_pop"], ["push_joint"])
        each_over_push = rounds.times_faster(consume_each, ["push_ids"])
        self.flows.append(
            (
                f"{store} {partitions} x {batch}",
                *(rate(count, rounds.seconds(name)) for name in ("bulk", "rows", "push")),
                times(push_over_rows),
                rate(count, rounds.seconds("push_ids")),
                times(ids_over_rows),
                *(rate(count, rounds.seconds(name)) for name in consume),
                times(pop_over_push),
                rate(count, rounds.seconds("ack_and_pop")),
                times(joint_over_push),
                *(rate(count, rounds.seconds(name)) for name in consume_each),
                times(each_over_push),
            )
        )
        self.json.append(
            {
                "store": store,
                "kind": "flow",
                "partitions": partitions,
                "batch": batch,
                "messages": count,
                "push_over_rows": round(push_over_rows, 3),
                "push_over_bulk": round(rounds.times_faster(["push"], ["bulk"]), 3),
                "push_with_ids_over_rows": round(ids_over_rows, 3),
                "pop_and_ack_over_push": round(pop_over_push, 3),
                "ack_and_pop_over_push": round(joint_over_push, 3),
                "pop_and_ack_each_over_push_with_ids": round(each_over_push, 3),
                "rounds": rounds.as_json(),
            }
        )
        if (partitions, batch) == (1, 1000):
            wanted = PUSH_BAR[store]
            self.bars.at_least(f"{store}: push against rows", push_over_rows, wanted)
            self.bars.at_least(f"{store}: pop and ack against push", pop_over_push, POP_BAR)
            self.bars.at_least(f"{store}: the same in one call", joint_over_push, POP_BAR)

    def shape(self, store: str, pops: int, batch: int, count: int, rounds: Rounds) -> None:
        self.shapes.append(
            (
                f"{store} {pops} x {batch}",
                rate(count, rounds.seconds("pop")),
                rate(count, rounds.seconds("ack")),
                rate(count, rounds.seconds("pop", "ack")),
                rate(count, rounds.seconds("pop_ids", "ack_each")),
            )
        )
        self.json.append(
            {
                "store": store,
                "kind": "shape",
                "pops_per_call": pops,
                "batch": batch,
                "messages": count,
                "rounds": rounds.as_json(),
            }
        )

    def growth(
        self, store: str, what: str, few: int, many: int, pops: int, rounds: Rounds
    ) -> float:
        growth = rounds.times_faster(["few"], ["many"])
        self.growths.append(
            (
                f"{store} {what}",
                f"{few:,}",
                f"{many:,}",
                f"{rounds.seconds('few') / pops * 1e6:,.0f}",
                f"{rounds.seconds('many') / pops * 1e6:,.0f}",
                times(growth),
            )
        )
        self.json.append(
            {
                "store": store,
                "kind": "growth",
                "what": what,
                "few": few,
                "many": many,
                "pops": pops,
                "many_over_few": round(growth, 3),
                "rounds": rounds.as_json(),
            }
        )
        return growth

    def text(self) -> str:
        parts = []
        if self.flows:
            headings = (
                "partitions x batch",
                *("bulk", "rows", "push", "/rows", "push ids", "/rows"),
                *("pop", "ack", "/push", "ack+pop", "/push", "pop", "ack each", "/push ids"),
            )
            parts.append("Messages a second:\n\n" + harness.table(headings, self.flows))
        if self.shapes:
            headings = ("pops a call x batch", "pop", "ack", "pop + ack", "with ack each")
            parts.append(
                "Messages a second, many consumers in 1,000 partitions:\n\n"
                + harness.table(headings, self.shapes)
            )
        if self.growths:
            headings = ("what grows", "few", "many", "us a pop", "us a pop", "many/few")
            parts.append("What a pop costs:\n\n" + harness.table(headings, self.growths))
        if self.bars:
            parts.append(self.bars.table())
        return "\n\n".join(parts)


async def measure_flows(place: Place, scale: Scale, report: Report) -> None:
    for partitions in scale.partitions:
        for batch in scale.batches:
            progress(f"{place.name}: {partitions} partition(s), batch {batch}")
            calls = max(4, min(scale.calls, scale.messages // batch))
            await place.settle()
            async with place.store() as store, place.floors() as floors:
                await workloads.prepare(store, partitions)
                if (partitions, batch) == (1, 1000):
                    await workloads.keep_backlog(store, floors, scale.backlog)
                    await place.tidy()
                    await place.settle()
                make = workloads.Batches(batch, calls, partitions)
                rounds = await harness.take_turns(
                    [
                        workloads.flow(store, make),
                        workloads.joint_flow(store, make),
                        workloads.flow_with_ids(store, make),
                        workloads.bulk_floor(floors, make),
                        workloads.row_floor(floors, make),
                    ],
                    rounds=scale.rounds,
                    seconds=scale.seconds,
                )
            report.flow(place.name, partitions, batch, batch * calls, rounds)


async def measure_shapes(place: Place, scale: Scale, report: Report) -> None:
    for pops, batch in SHAPES:
        progress(f"{place.name}: {pops} pop(s) of {batch} in one call")
        calls = max(4, min(scale.calls, scale.messages // (pops * batch)))
        await place.settle()
        async with place.store() as store:
            await workloads.prepare(store, 1000)
            sides = [
                workloads.consume(store, pops, batch, calls, each=each) for each in (False, True)
            ]
            rounds = await harness.take_turns(sides, rounds=scale.rounds, seconds=scale.seconds)
        report.shape(place.name, pops, batch, pops * batch * calls, rounds)


async def measure_growth(place: Place, scale: Scale, report: Report) -> None:
    few, many, calls = 100, scale.many_partitions, 10
    await place.settle()
    async with AsyncExitStack() as stack:
        small, large = [await stack.enter_async_context(place.store()) for _ in range(2)]
        for store, partitions in ((small, few), (large, many)):
            await workloads.fill_partitions(store, partitions, partitions)
        await place.settle()
        for store, partitions in ((small, few), (large, many)):
            await workloads.wear_in(store, partitions)
        for per_call in (1, 64):
            progress(f"{place.name}: {per_call} pop(s) a call at {few:,} and {many:,} partitions")
            pops = calls * per_call
            # More than is popped: the last call, too, has to find a partition for each pop.
            supply = pops * (scale.rounds + 1) + 2 * few
            await workloads.fill_partitions(small, few, supply)
            await workloads.fill_partitions(large, many, supply)
            await place.tidy()
            rounds = await harness.take_turns(
                [
                    workloads.single_pops("few", small, per_call, calls),
                    workloads.single_pops("many", large, per_call, calls),
                ],
                rounds=scale.rounds,
            )
            what = f"partitions, {per_call} a call"
            growth = report.growth(place.name, what, few, many, pops, rounds)
        name = f"{place.name}: a pop at {many:,} partitions against {few}"
        report.bars.at_most(name, growth, GROWTH_BAR)

    few, many, calls, batch = 1_000, scale.many_items, 10, 10
    await place.settle()
    async with AsyncExitStack() as stack:
        small, large = [await stack.enter_async_context(place.store()) for _ in range(2)]
        progress(f"{place.name}: claims at {few:,} and {many:,} waiting items")
        await workloads.fill_items(small, few)
        await workloads.fill_items(large, many)
        await place.settle()
        rounds = await harness.take_turns(
            [
                workloads.claims("few", small, batch, calls),
                workloads.claims("many", large, batch, calls),
            ],
            rounds=min(scale.rounds, few // (batch * calls) - 1),
        )
        report.growth(place.name, f"items, {batch} a call", few, many, batch * calls, rounds)


async def measure(place: Place, scale: Scale, parts: Sequence[str], report: Report) -> None:
    if "flow" in parts:
        await measure_flows(place, scale, report)
    if "shape" in parts:
        await measure_shapes(place, scale, report)
    if "growth" in parts:
        await measure_growth(place, scale, report)


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench store", description=__doc__)
    parser.add_argument("--store", choices=["all", "sqlite", "postgres"], default="all")
    parser.add_argument(
        "--part",
        choices=["flow", "shape", "growth"],
        action="append",
        help="only this part of it; may be given several times",
    )
    parser.add_argument("--quick", action="store_true", help="little data, rough figures")
    parser.add_argument("--messages", type=int, help="messages of a measurement, at most")
    parser.add_argument("--rounds", type=int, help="how often each measurement is repeated")
    parser.add_argument("--seconds", type=float, help="repeat each for this long instead")
    for name, kind in (("--batch", "batches"), ("--partitions", "numbers of partitions")):
        parser.add_argument(
            name, type=int, action="append", help=f"only these {kind} of the flow part"
        )
    parser.add_argument("--backlog", type=int, help="messages kept before the bars are measured")
    parser.add_argument("--json", type=Path, help="where to write the record of the run")
    return parser.parse_args(arguments)


def chosen_scale(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    return Scale(
        messages=options.messages or scale.messages,
        calls=scale.calls,
        rounds=options.rounds or scale.rounds,
        seconds=options.seconds,
        many_partitions=scale.many_partitions,
        many_items=scale.many_items,
        backlog=scale.backlog if options.backlog is None else options.backlog,
        batches=tuple(options.batch or BATCHES),
        partitions=tuple(options.partitions or PARTITIONS),
    )


def main() -> None:
    options = parse()
    scale = chosen_scale(options)
    parts = options.part or ["flow", "shape", "growth"]
    report = Report()
    settings: dict[str, Any] = {}
    machine = harness.machine(["monarq", "asyncpg", "msgspec"])
    for name in ("sqlite", "postgres"):
        if options.store in ("all", name):
            with open_place(name) as place:
                settings[name] = asyncio.run(place.settings())
                asyncio.run(measure(place, scale, parts, report))
    print(report.text())
    content = {
        "machine": machine,
        "settings": settings,
        "scale": {name: getattr(scale, name) for name in Scale.__struct_fields__},
        "payload_bytes": workloads.PAYLOAD_BYTES,
        "bars": report.bars.as_json(),
        "results": report.json,
    }
    # Rough figures are not for the record, unless someone says where.
    if options.json or not options.quick:
        path = harness.write_json("store", content, options.json)
        progress(f"written to {path.name}")


if __name__ == "__main__":
    main()
