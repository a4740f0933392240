"""The loads of the broker benchmark: each does a fixed number of messages, and says how long."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from time import perf_counter

import msgspec

from bench.served import Watched
from monarq.loadgen import (
    Findings,
    LoadConnection,
    LoadError,
    Mode,
    Plan,
    closed_loop,
    run_load,
)
from monarq.loadgen.consumers import Consumers, Consumption
from monarq.loadgen.requests import PopRequests, PushRequests, Target

SIZE = 256
FILL_BATCH = 1000


def plan_of(
    url: str,
    *,
    batch: int = 1,
    partitions: int = 100,
    connections: int = 64,
    spread: bool = False,
    ack_and_pop: bool = False,
) -> Plan:
    return Plan(
        mode=Mode.PUSH,
        url=url,
        queue=f"bench-{secrets.token_hex(4)}",
        size=SIZE,
        batch=batch,
        pop_batch=batch,
        partitions=partitions,
        connections=connections,
        spread=spread,
        ack_and_pop=ack_and_pop,
    )


async def push(plan: Plan, messages: int, *, delete: bool = True) -> float:
    """Seconds for so many messages, each connection pushing when its last push was answered."""
    target = Target(plan.url)
    requests = PushRequests(plan, target, most=-(-messages // plan.batch))
    async with _connections(target, plan.connections) as connections:
        report = await closed_loop(
            connections,
            requests.next,
            check=lambda status, _: plan.batch if status == 201 else -1,
        )
    if report.errors:
        raise LoadError(f"pushes failed: {report.statuses}")
    if delete:
        await delete_queue(plan)
    return report.seconds * messages / report.messages


async def fill(plan: Plan, messages: int) -> None:
    """Push so many messages over all partitions alike."""
    filling = msgspec.structs.replace(plan, batch=FILL_BATCH, connections=4, spread=True)
    await push(filling, messages, delete=False)


async def pop(plan: Plan, messages: int) -> float:
    """Seconds to pop and ack the messages of a queue that was filled."""
    target = Target(plan.url)
    consumption = Consumption()

    async with _connections(target, plan.connections) as connections:
        consumers = Consumers(
            connections,
            PopRequests(plan, target, None, wait_ms=1000),
            lambda: consumption,
            is_stamped=False,
            until_empty=False,
            on_delivery=lambda _: None,
        )
        started = perf_counter()
        consumers.start()
        async with asyncio.timeout(300):
            while consumption.acked < messages:  # noqa: ASYNC110 (looked at once a millisecond)
                await asyncio.sleep(0.001)
        seconds = perf_counter() - started
        consumers.close()
    if consumption.errors:
        raise LoadError(f"pops failed: {consumption.errors.most_common(3)}")
    await delete_queue(plan)
    return seconds


async def end_to_end(url: str, seconds: float) -> Findings:
    """200 messages a second to consumers that wait."""
    plan = Plan(
        mode=Mode.END_TO_END,
        url=url,
        size=SIZE,
        partitions=100,
        connections=8,
        consumers=16,
        rate=200,
        seconds=seconds,
        warm_up_seconds=2,
    )
    findings = await run_load(plan)
    if findings.errors or findings.missing:
        raise LoadError(f"{findings.missing} missing, errors: {findings.errors}")
    return findings


async def parked(broker: Watched, count: int, seconds: float) -> dict[str, float]:
    """The broker's CPU, in parts of one core, while so many pops wait and nothing happens."""
    target = Target(broker.url)
    queue = f"bench-{secrets.token_hex(4)}"
    request = target.compose("GET", f"/api/v1/pop/queue/{queue}?wait=true&timeout=600000")
    before = broker.memory()
    async with _connections(target, count) as connections:
        for connection in connections:
            connection.send(request, lambda _status, _body: None)
        await _all_parked(broker.url, count)
        memory = broker.memory()
        started, used = perf_counter(), broker.cpu_seconds()
        await asyncio.sleep(seconds)
        share = (broker.cpu_seconds() - used) / (perf_counter() - started)
    return {"cores": share, "bytes_each": (memory - before) / count}


async def delete_queue(plan: Plan) -> None:
    target = Target(plan.url)
    connection = await target.connect()
    await connection.ask(target.compose("DELETE", f"/api/v1/resources/queues/{plan.queue}"))
    connection.close()


async def _all_parked(url: str, count: int) -> None:
    target = Target(url)
    wanted = f'"monarq_pops_parked":{float(count)}'.encode()
    connection = await target.connect()
    async with asyncio.timeout(120):
        while True:
            _, body = await connection.ask(target.compose("GET", "/metrics"))
            if wanted in body:
                break
            await asyncio.sleep(0.2)
    connection.close()
    await asyncio.sleep(2)  # what connecting caused is over


@contextlib.asynccontextmanager
async def _connections(target: Target, count: int) -> AsyncIterator[list[LoadConnection]]:
    connections: list[LoadConnection] = []
    while len(connections) < count:
        together = min(200, count - len(connections))
        connections += await asyncio.gather(*(target.connect() for _ in range(together)))
    try:
        yield connections
    finally:
        for connection in connections:
            connection.close()
