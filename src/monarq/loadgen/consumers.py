"""Consumers: each pops, acks what it got as a whole, and pops again, or both in one request."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any

import msgspec

from monarq.loadgen.connection import LoadConnection
from monarq.loadgen.driving import PAUSE_SECONDS
from monarq.loadgen.histogram import Histogram
from monarq.loadgen.requests import CountedPop, PopRequests, StampedPop

_counted = msgspec.json.Decoder(CountedPop)
_stamped = msgspec.json.Decoder(StampedPop)


class Consumption:
    """What consumers did; a new one is begun after the warm-up."""

    def __init__(self, since: float = 0.0) -> None:
        self.since = since
        """What was due before counts as delivered, and not in the latency."""
        self.pop = Histogram()
        self.ack = Histogram()
        self.end_to_end = Histogram()
        self.requests = 0
        self.popped = 0
        self.acked = 0
        self.errors: Counter[str] = Counter()


class Consumers:
    """All of one group. `on_delivery` is told how many messages came."""

    def __init__(
        self,
        connections: Sequence[LoadConnection],
        requests: PopRequests,
        consumption: Callable[[], Consumption],
        *,
        is_stamped: bool,
        until_empty: bool,
        on_delivery: Callable[[int], None],
    ) -> None:
        self.requests = requests
        self.consumption = consumption
        self.decoder: Any = _stamped if is_stamped else _counted
        self.is_stamped = is_stamped
        self.until_empty = until_empty
        self.on_delivery = on_delivery
        self.is_running = False
        self._consumers = [_Consumer(self, connection) for connection in connections]
        self._busy = 0
        self._finished = asyncio.Event()

    def start(self) -> None:
        self.is_running = True
        self._busy = len(self._consumers)
        for consumer in self._consumers:
            consumer.pop()

    async def finished(self) -> None:
        """Until all found the queue empty."""
        await self._finished.wait()

    def close(self) -> None:
        self.is_running = False
        for consumer in self._consumers:
            consumer.close()

    def ended(self) -> None:
        self._busy -= 1
        if not self._busy:
            self._finished.set()


class _Consumer:
    __slots__ = ("_connection", "_consumers", "_count", "_started")

    def __init__(self, consumers: Consumers, connection: LoadConnection) -> None:
        self._consumers = consumers
        self._connection = connection
        self._started = 0.0
        self._count = 0

    def close(self) -> None:
        self._connection.close()

    def pop(self) -> None:
        consumers = self._consumers
        if not consumers.is_running or not self._connection.is_open:
            consumers.ended()
            return
        self._started = perf_counter()
        self._connection.send(consumers.requests.pop, self._popped)

    def _popped(self, status: int, body: bytes) -> None:
        now = perf_counter()
        consumers = self._consumers
        consumption = consumers.consumption()
        consumption.requests += 1
        if status == 204 and consumers.until_empty:
            consumers.ended()
        elif status == 204:
            self.pop()
        elif status != 200:
            self._failed(status, body)
        else:
            self._delivered(consumers.decoder.decode(body), consumption, now)

    def _delivered(self, answer: Any, consumption: Consumption, now: float) -> None:
        consumers = self._consumers
        self._count = len(answer.messages)
        if consumers.is_stamped:
            for message in answer.messages:
                if message.data.due >= consumption.since:
                    consumption.end_to_end.add(now - message.data.due)
        else:
            consumption.pop.add(now - self._started)
        consumption.popped += self._count
        consumers.on_delivery(self._count)
        if answer.lease_id is None:
            self.pop()
            return
        self._started = now
        self._connection.send(consumers.requests.ack(answer.lease_id), self._acked)

    def _acked(self, status: int, body: bytes) -> None:
        now = perf_counter()
        consumers = self._consumers
        consumption = consumers.consumption()
        consumption.requests += 1
        if status != 200 or b'"success":false' in body:
            self._failed(status, body)
            return
        consumption.ack.add(now - self._started)
        consumption.acked += self._count
        if consumers.requests.asks_for_next and consumers.is_running:
            answer = consumers.decoder.decode(body)
            if answer.messages:
                self._delivered(answer, consumption, now)
                return
        self.pop()

    def _failed(self, status: int, body: bytes) -> None:
        if self._consumers.is_running:
            text = body[:200].decode("utf-8", "replace")
            self._consumers.consumption().errors[f"{status or 'lost'}: {text}"] += 1
        asyncio.get_running_loop().call_later(PAUSE_SECONDS, self.pop)
