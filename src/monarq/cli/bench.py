"""`monarq bench`: put load on a broker, and see what it does."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Coroutine
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from monarq.cli.messages import answers, complain, progress
from monarq.cli.own_broker import own_broker
from monarq.errors import InvalidRequestError
from monarq.loadgen import Findings, Mode, Plan, Snapshot, run_load
from monarq.loadgen.findings import in_milliseconds

_TOKEN_VARIABLE = "MONARQ_TOKEN"


def add_to(app: typer.Typer) -> None:
    app.command("bench")(bench)


def bench(
    mode: Annotated[Mode, typer.Argument(help="push, pop (with ack), or end-to-end")] = Mode.PUSH,
    url: Annotated[
        str | None,
        typer.Option(help="the broker; without it one is started for the time", metavar="URL"),
    ] = None,
    store: Annotated[
        str, typer.Option(help="store of the broker that is started (default: a new SQLite file)")
    ] = "",
    size: Annotated[int, typer.Option(help="bytes of a payload")] = 256,
    batch: Annotated[int, typer.Option(help="messages of one push")] = 1,
    pop_batch: Annotated[
        int | None, typer.Option(help="messages of one pop", show_default="as --batch")
    ] = None,
    partitions: Annotated[int, typer.Option(help="partitions that are pushed to")] = 100,
    spread: Annotated[
        bool, typer.Option("--spread", help="the messages of one push to different partitions")
    ] = False,
    concurrency: Annotated[
        int, typer.Option(help="connections that push (in pop mode: that pop)")
    ] = 64,
    consumers: Annotated[
        int, typer.Option(help="end-to-end: connections of each group that wait")
    ] = 16,
    groups: Annotated[int, typer.Option(help="consumer groups")] = 1,
    rate: Annotated[float, typer.Option(help="messages a second; 0 is as many as go")] = 0,
    duration: Annotated[float, typer.Option(help="seconds to measure")] = 10,
    warm_up: Annotated[float, typer.Option(help="seconds before that")] = 1,
    backlog: Annotated[int, typer.Option(help="pop: messages that are pushed first")] = 100_000,
    auto_ack: Annotated[
        bool, typer.Option("--auto-ack", help="let pops complete what they deliver")
    ] = False,
    ack_and_pop: Annotated[
        bool, typer.Option("--ack-and-pop", help="ack and ask for the next in one request")
    ] = False,
    queue: Annotated[
        str | None, typer.Option(help="name of the queue", show_default="a new one, then deleted")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, no progress")] = False,
) -> None:
    """Put load on a broker and say how it did.

    With --rate every push has a time at which it is due, and its latency counts from then: a
    broker that stalls cannot hide it. Without, each connection pushes when the last push was
    answered, to find the most that goes. A token is taken from MONARQ_TOKEN.
    """
    plan = _checked(
        Plan(
            mode=mode,
            url=url or "",
            token=os.environ.get(_TOKEN_VARIABLE),
            size=size,
            batch=batch,
            pop_batch=batch if pop_batch is None else pop_batch,
            partitions=partitions,
            spread=spread,
            connections=concurrency,
            consumers=consumers,
            groups=groups,
            rate=rate,
            seconds=duration,
            warm_up_seconds=warm_up,
            backlog=backlog,
            auto_ack=auto_ack,
            ack_and_pop=ack_and_pop,
            keep_queue=queue is not None,
        ),
        queue,
    )
    findings = _run(plan, store, show=not as_json)
    if as_json:
        print(json.dumps(findings.as_json(), indent=2, ensure_ascii=False))
    else:
        answers().print(_table(findings))
    if findings.missing:
        complain(f"{findings.missing} messages were pushed and not delivered")
    for error, count in findings.errors.items():
        complain(f"{count} times {error}")
    if findings.errors or findings.missing:
        raise typer.Exit(1)


def _checked(plan: Plan, queue: str | None) -> Plan:
    if queue is not None:
        plan = msgspec.structs.replace(plan, queue=queue)
    try:
        return msgspec.convert(msgspec.to_builtins(plan), Plan)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(str(error).replace("`", "")) from None


def _run(plan: Plan, store: str, *, show: bool) -> Findings:
    import uvloop

    async def run() -> Findings:
        display = _Display(plan) if show else None
        watch = display.update if display else None
        if plan.url:
            return await _watched(run_load(plan, watch), display)
        async with own_broker(store) as broker:
            here = msgspec.structs.replace(plan, url=broker.url)
            return await _watched(run_load(here, watch), display)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


async def _watched(load: Coroutine[Any, Any, Findings], display: _Display | None) -> Findings:
    if display is None:
        return await load
    with display.live:
        return await load


class _Display:
    """How it goes, redrawn a few times a second on stderr."""

    def __init__(self, plan: Plan) -> None:
        self.live = Live(console=progress(), transient=True, auto_refresh=False)
        self._plan = plan
        self._last: Snapshot | None = None

    def update(self, now: Snapshot) -> None:
        last = self._last if self._last and self._last.phase == now.phase else None
        self._last = now
        seconds = now.seconds - (last.seconds if last else 0.0)
        rows = [f"{now.phase}  {now.seconds:5.1f} s of {self._plan.seconds:g} s"]
        for name, count, before in (
            ("pushed", now.pushed, last.pushed if last else 0),
            ("popped", now.popped, last.popped if last else 0),
        ):
            if count:
                rate = (count - before) / seconds if seconds > 0 else 0.0
                rows.append(f"  {name:8} {count:>12,}  {rate:>10,.0f}/s")
        if now.latency.count:
            found = in_milliseconds(now.latency)
            rows.append(f"  p50 {found['p50']:.2f} ms  p99 {found['p99']:.2f} ms")
        if now.errors:
            rows.append(f"  errors   {now.errors:>12,}")
        self.live.update(Group(*(Text(row) for row in rows)), refresh=True)


def _table(findings: Findings) -> Group:
    plan = findings.plan
    what = f"{plan.mode}: {findings.messages_per_second:,.0f} messages/s of {plan.size} bytes"
    how = f"in batches of {plan.batch}, over {plan.partitions} partitions"
    lines = [what, f"{how}, {plan.connections} connections"]
    if findings.unsent:
        lines.append(f"{findings.unsent} pushes were due and could not be sent: too high a rate")
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("ms")
    names = ("p50", "p90", "p99", "p99.9", "max")
    for name in names:
        table.add_column(name, justify="right")
    for name, latency in findings.latencies.items():
        row = in_milliseconds(latency)
        table.add_row(name, *(f"{row[each]:.2f}" for each in names))
    if not plan.rate:
        lines.append("each connection waited for its answers: set --rate for latencies under load")
    return Group(*(Text(line) for line in lines), table)
