"""Runs a load from its first connection to its findings."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable
from time import perf_counter
from urllib.parse import quote

import msgspec

from monarq.errors import MonarqError
from monarq.loadgen.connection import ConnectionLostError, LoadConnection
from monarq.loadgen.consumers import Consumers, Consumption
from monarq.loadgen.driving import Report, closed_loop, open_loop
from monarq.loadgen.findings import Findings, Snapshot
from monarq.loadgen.plan import Mode, Plan
from monarq.loadgen.requests import PopRequests, PushRequests, Target

Watch = Callable[[Snapshot], None]

_WATCH_SECONDS = 0.25
_LINGER_SECONDS = 5.0
_WAIT_MS = 20_000
_FILL_CONNECTIONS = 8
_FILL_BATCH = 500
_OPENED_TOGETHER = 200


class LoadError(MonarqError):
    """The load could not be run."""

    code = "load_failed"


async def run_load(plan: Plan, watch: Watch | None = None) -> Findings:
    """Run the load; `watch` is told a few times a second how it goes."""
    try:
        target = Target(plan.url, plan.token)
        async with _queue(plan, target):
            run = _Run(plan, target, watch)
            return await (run.pop() if plan.mode is Mode.POP else run.push())
    except ValueError as error:
        raise LoadError(str(error)) from None
    except (OSError, ConnectionLostError) as error:
        raise LoadError(
            f"cannot speak to {plan.url} ({error}): start a broker with `monarq serve`, or "
            "correct --url"
        ) from None


class _Run:
    def __init__(self, plan: Plan, target: Target, watch: Watch | None) -> None:
        self._plan = plan
        self._target = target
        self._watch = watch
        self._pushes = Report()
        self._consumption = Consumption()
        self._errors: Counter[str] = Counter()
        self._received = 0
        self._arrived = asyncio.Event()

    async def push(self) -> Findings:
        """Pushes alone, or with consumers that wait for them."""
        plan = self._plan
        connections = await self._connect(plan.connections)
        requests = PushRequests(plan, self._target)
        consumers = []
        if plan.mode is Mode.END_TO_END:
            consumers = await self._consumers(plan.consumers, _WAIT_MS)
        for one in consumers:
            one.start()
        try:
            sent = 0
            if plan.warm_up_seconds:
                async with self._watched("warming up"):
                    sent += await self._drive(connections, requests, plan.warm_up_seconds)
            self._errors.clear()
            self._consumption = Consumption(since=perf_counter())
            self._pushes = Report()
            async with self._watched("measuring"):
                sent += await self._drive(connections, requests, plan.seconds)
            popped, requests_made = self._consumption.popped, self._consumption.requests
            wanted = sent * plan.groups if consumers else 0
            await self._receive(wanted)
        finally:
            for one in consumers:
                one.close()
            _close(connections)
        found = self._findings(self._pushes.seconds, missing=max(wanted - self._received, 0))
        found.popped, found.requests = popped, requests_made + self._pushes.requests
        return found

    async def pop(self) -> Findings:
        """Pops and acks of a backlog."""
        plan = self._plan
        await self._fill()
        consumers = await self._consumers(plan.connections, 0)
        self._consumption = Consumption()
        started = perf_counter()
        async with self._watched("measuring"):
            for one in consumers:
                one.start()
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(plan.seconds):
                        await asyncio.gather(*(one.finished() for one in consumers))
            finally:
                seconds = perf_counter() - started
                for one in consumers:
                    one.close()
        return self._findings(seconds, missing=0)

    async def _drive(
        self, connections: list[LoadConnection], requests: PushRequests, seconds: float
    ) -> int:
        """Push for so long; how many messages were answered."""
        plan, report = self._plan, self._pushes
        if plan.rate:
            await open_loop(
                connections,
                requests.next_stamped,
                rate=plan.rate / plan.batch,
                seconds=seconds,
                check=self._check,
                report=report,
                grace_seconds=_LINGER_SECONDS,
            )
        else:
            stamped = plan.mode is Mode.END_TO_END
            await closed_loop(
                connections,
                (lambda: requests.next_stamped(perf_counter())) if stamped else requests.next,
                seconds=seconds,
                check=self._check,
                report=report,
            )
        return report.messages

    async def _fill(self) -> None:
        """Push the backlog, over all partitions alike, so that many can be popped at once."""
        plan = self._plan
        if not plan.backlog:
            return
        batch = min(_FILL_BATCH, plan.backlog)
        filling = msgspec.structs.replace(plan, batch=batch, spread=True)
        requests = PushRequests(filling, self._target, most=-(-plan.backlog // batch))
        connections = await self._connect(_FILL_CONNECTIONS)
        check = self._checking(batch)
        async with self._watched("filling"):
            await closed_loop(connections, requests.next, check=check, report=self._pushes)
        _close(connections)
        if self._errors:
            [(error, _)] = self._errors.most_common(1)
            raise LoadError(f"the backlog could not be pushed: {error}")
        self._pushes = Report()

    async def _consumers(self, count: int, wait_ms: int) -> list[Consumers]:
        plan = self._plan
        return [
            Consumers(
                await self._connect(count),
                PopRequests(plan, self._target, group, wait_ms),
                lambda: self._consumption,
                is_stamped=plan.mode is Mode.END_TO_END,
                until_empty=plan.mode is Mode.POP,
                on_delivery=self._delivered,
            )
            for group in _groups(plan)
        ]

    async def _connect(self, count: int) -> list[LoadConnection]:
        connections: list[LoadConnection] = []
        while len(connections) < count:
            together = min(_OPENED_TOGETHER, count - len(connections))
            opening = (self._target.connect() for _ in range(together))
            connections += await asyncio.gather(*opening)
        return connections

    async def _receive(self, wanted: int) -> None:
        """Wait for what was pushed to arrive, within a bound."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while self._received < wanted:
                    self._arrived.clear()
                    await self._arrived.wait()

    def _delivered(self, count: int) -> None:
        self._received += count
        self._arrived.set()

    @property
    def _check(self) -> Callable[[int, bytes], int]:
        return self._checking(self._plan.batch)

    def _checking(self, batch: int) -> Callable[[int, bytes], int]:
        def check(status: int, body: bytes) -> int:
            if status == 201:
                return batch
            text = body[:200].decode("utf-8", "replace")
            self._errors[f"{status or 'lost'}: {text}"] += 1
            return -1

        return check

    @contextlib.asynccontextmanager
    async def _watched(self, phase: str) -> AsyncIterator[None]:
        if self._watch is None:
            yield
            return
        watching = asyncio.create_task(self._watching(self._watch, phase))
        try:
            yield
        finally:
            watching.cancel()

    async def _watching(self, watch: Watch, phase: str) -> None:
        started = perf_counter()
        while True:
            consumption = self._consumption
            latencies = (consumption.end_to_end, self._pushes.latency, consumption.pop)
            watch(
                Snapshot(
                    phase=phase,
                    seconds=perf_counter() - started,
                    pushed=self._pushes.messages,
                    popped=consumption.popped,
                    errors=self._errors.total() + consumption.errors.total(),
                    latency=next((each for each in latencies if each.count), latencies[0]),
                )
            )
            await asyncio.sleep(_WATCH_SECONDS)

    def _findings(self, seconds: float, missing: int) -> Findings:
        consumption = self._consumption
        latencies = {
            "push": self._pushes.latency,
            "pop": consumption.pop,
            "ack": consumption.ack,
            "endToEnd": consumption.end_to_end,
        }
        return Findings(
            plan=self._plan,
            seconds=seconds,
            pushed=self._pushes.messages,
            popped=consumption.popped,
            acked=consumption.acked,
            requests=consumption.requests,
            unsent=self._pushes.unsent,
            missing=missing,
            latencies={name: found for name, found in latencies.items() if found.count},
            errors=dict((self._errors + consumption.errors).most_common(20)),
        )


@contextlib.asynccontextmanager
async def _queue(plan: Plan, target: Target) -> AsyncIterator[None]:
    """The queue of the load, deleted afterwards unless it is to be kept."""
    connection = await target.connect()
    body = msgspec.json.encode({"queue": plan.queue})
    status, answer = await connection.ask(target.compose("POST", "/api/v1/configure", body))
    connection.close()
    if not 200 <= status < 300:
        raise LoadError(f"{plan.url} refuses the queue ({status}): {answer[:300].decode()}")
    try:
        yield
    finally:
        if not plan.keep_queue:
            with contextlib.suppress(OSError, ConnectionLostError):
                last = await target.connect()
                path = f"/api/v1/resources/queues/{quote(plan.queue, safe='')}"
                await last.ask(target.compose("DELETE", path))
                last.close()


def _close(connections: list[LoadConnection]) -> None:
    for connection in connections:
        connection.close()


def _groups(plan: Plan) -> list[str | None]:
    return [None] if plan.groups == 1 else [f"bench-{number}" for number in range(plan.groups)]
