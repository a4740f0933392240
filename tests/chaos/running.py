"""One chaos run: processes, clients and faults for a while, then peace, then the verdict."""

import asyncio
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

from msgspec import Struct

from tests.chaos.calls import Connection, NoAnswerError
from tests.chaos.checker import Rules, Violation, check
from tests.chaos.clients import Consumer, Sender
from tests.chaos.cluster import Cluster
from tests.chaos.events import Log, read_logs
from tests.chaos.faults import LEASE_SECONDS, STORE_TIMEOUT_SECONDS, Fault, faults_of

ORDERED, WORK = "ordered", "work"
GROUPS = ("left", "right")
PARTITIONS = 4
CALM_SECONDS = 300
"""Far longer than emptying all queues takes; a run that hangs ends here."""
ATTEMPTS = 1_000

OPTIONS = [
    *("--store-timeout-seconds", str(STORE_TIMEOUT_SECONDS)),
    *("--buffer-retry-seconds", "0.2"),
    *("--buffer-file-bytes", "200000"),
    *("--lifecycle-max-seconds", "1"),
    *("--drain-seconds", "10"),
]


class Report(Struct, frozen=True, kw_only=True):
    seed: int
    seconds: float
    faults: dict[str, int]
    pushes: dict[str, int]
    longest_push_seconds: float
    delivered: int
    refused_acks: dict[str, int]
    violations: list[Violation]
    brokers: dict[str, str]
    """The end of each broker's log."""


class ChaosRun:
    def __init__(self, directory: Path, *, is_postgres: bool, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.faults: Counter[str] = Counter()
        self.cluster = Cluster(directory, is_postgres=is_postgres, options=OPTIONS)
        self._chance = random.Random(seed)
        self._log = Log(directory / "clients.log")
        self._ports = [broker.port for broker in self.cluster.brokers]
        self._senders: list[Sender] = []
        self._consumers: list[Consumer] = []

    async def run(self, seconds: float) -> Report:
        """Disturb it for so long, from when all of it runs."""
        began = time.monotonic()
        try:
            await self.cluster.start()
            await self._configure()
            self._make_clients()
            sending = [asyncio.create_task(sender.run()) for sender in self._senders]
            consuming = [asyncio.create_task(consumer.run()) for consumer in self._consumers]
            try:
                await self._disturb(time.monotonic() + seconds, [*sending, *consuming])
                for sender in self._senders:
                    sender.stop()
                await asyncio.gather(*sending)
                for consumer in self._consumers:
                    consumer.calm_down()
                violations = await self._until_empty()
            finally:
                for task in (*sending, *consuming):
                    task.cancel()
                await asyncio.gather(*sending, *consuming, return_exceptions=True)
        finally:
            await self.cluster.stop()
            self._log.close()
        violations += check(read_logs(self.directory), self._rules())
        return self._report(time.monotonic() - began, violations)

    async def _configure(self) -> None:
        options = {"leaseTime": LEASE_SECONDS, "retryDelay": 0, "retryLimit": ATTEMPTS - 1}
        await self._ask("POST", "/api/v1/configure", {"queue": ORDERED, "options": options})
        options = {"leaseTime": LEASE_SECONDS, "maxAttempts": ATTEMPTS, "backoffBase": 0}
        body = {"queue": WORK, "kind": "work", "options": options}
        await self._ask("POST", "/api/v1/configure", body)
        for group in GROUPS:
            path = f"/api/v1/pop/queue/{ORDERED}?consumerGroup={group}"
            await self._ask("GET", path)

    def _make_clients(self) -> None:
        """Two senders a partition, one with transaction ids and one without; they stay with
        their broker, since order is promised to those who do."""
        for number in range(2 * PARTITIONS):
            port = self._ports[number // 2 % len(self._ports)]
            self._senders.append(
                Sender(
                    f"sender-{number}",
                    ORDERED,
                    f"partition-{number // 2}",
                    port,
                    with_ids=number % 2 == 0,
                    log=self._log,
                )
            )
        for number, port in enumerate(self._ports):
            name = f"worker-sender-{number}"
            self._senders.append(Sender(name, WORK, None, port, with_ids=True, log=self._log))
        for queue, group in (*((ORDERED, group) for group in GROUPS), (WORK, None)):
            for number in range(3):
                self._consumers.append(
                    Consumer(
                        f"{queue}-{group}-{number}",
                        queue,
                        group,
                        self._ports,
                        lease_seconds=LEASE_SECONDS,
                        log=self._log,
                    )
                )

    async def _disturb(self, until: float, clients: list[asyncio.Task[None]]) -> None:
        """Every fault once, in any order, then any of them, until the time is over."""
        waiting: list[Fault] = []
        while time.monotonic() < until:
            await asyncio.sleep(self._chance.uniform(0.5, 2))
            if not waiting:
                waiting = faults_of(self.cluster)
                self._chance.shuffle(waiting)
            fault = waiting.pop()
            self.faults[fault.__name__] += 1
            await fault(self.cluster, self._chance)
            for client in clients:
                if client.done():
                    client.result()

    async def _until_empty(self) -> list[Violation]:
        """Wait until all is consumed and replayed; what is wrong if it never is."""
        deadline = time.monotonic() + CALM_SECONDS
        left: dict[str, Any] = {}
        while time.monotonic() < deadline:
            left = await self._left()
            if not left:
                return []
            await asyncio.sleep(0.2)
        return [Violation("everything comes to rest", f"after {CALM_SECONDS} s: {left}")]

    async def _left(self) -> dict[str, Any]:
        """What is still to be done, by what it is."""
        left: dict[str, Any] = {}
        try:
            for port, broker in zip(self._ports, self.cluster.brokers, strict=True):
                buffers = await self._ask("GET", "/api/v1/status/buffers", port=port)
                if buffers["bytes"] or buffers["route"] != "direct" or not buffers["healthy"]:
                    left[broker.name] = buffers
            groups = (await self._ask("GET", "/api/v1/consumer-groups"))["consumerGroups"]
            left |= {row["name"]: row["lag"] for row in groups if row["lag"]}
            for state in ("scheduled", "ready", "leased"):
                path = f"/api/v1/items?queue={WORK}&state={state}&limit=1"
                if (await self._ask("GET", path))["items"]:
                    left[WORK] = state
            dead = await self._ask("GET", "/api/v1/dlq")
            if dead["total"]:
                left["dead letters"] = dead["total"]
        except NoAnswerError as error:
            left["no answer"] = str(error)
        return left

    async def _ask(self, method: str, path: str, body: Any = None, port: int | None = None) -> Any:
        connection = Connection(port or self._ports[0])
        try:
            status, answer = await connection.call(method, path, body)
        finally:
            connection.close()
        if status not in (200, 201, 204):
            raise NoAnswerError(f"{method} {path}: {status} {answer}")
        return answer

    def _rules(self) -> Rules:
        return Rules(
            groups={ORDERED: list(GROUPS), WORK: [""]},
            ordered={ORDERED},
            lease_seconds=LEASE_SECONDS,
            max_attempts=ATTEMPTS,
        )

    def _report(self, seconds: float, violations: list[Violation]) -> Report:
        pushes: Counter[str] = Counter()
        refused: Counter[str] = Counter()
        for sender in self._senders:
            pushes.update(sender.statuses)
        for consumer in self._consumers:
            refused.update(consumer.refused)
        return Report(
            seed=self.seed,
            seconds=seconds,
            faults=dict(self.faults),
            pushes=dict(pushes),
            longest_push_seconds=max(sender.longest for sender in self._senders),
            delivered=sum(consumer.received for consumer in self._consumers),
            refused_acks=dict(refused),
            violations=violations,
            brokers={broker.name: broker.log[-20_000:] for broker in self.cluster.brokers},
        )
