"""What the benchmark of the stores has them do. Requests are made before the clock starts."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from typing import TypeVar

from bench.floors import Floors, Row
from bench.harness import Side, Stopwatch
from monarq.errors import MonarqError
from monarq.model import Ack, Pop, Popped, Push, PushItem, QueueKind, SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from monarq.store.message_list import walk

PAYLOAD_BYTES = 256
PLAIN = "plain"
NAMED = "named"
WORK = "work"
BACKLOG_STEP = 20_000
GROUP = "bench"

T = TypeVar("T")


def payload() -> bytes:
    """A JSON string; random, so that nothing is saved by compressing it."""
    return b'"' + secrets.token_hex(PAYLOAD_BYTES // 2 - 1).encode() + b'"'


def partition_name(number: int) -> str:
    return f"partition-{number}"


def good(outcomes: Sequence[T | MonarqError]) -> list[T]:
    answers = []
    for outcome in outcomes:
        if isinstance(outcome, MonarqError):
            raise outcome
        answers.append(outcome)
    return answers


class Batches:
    """The batches of one measurement, the same for every side: messages go round the
    partitions one by one."""

    def __init__(self, batch: int, calls: int, partitions: int) -> None:
        self.batch = batch
        self.calls = calls
        self.partitions = partitions
        self._payloads = [payload() for _ in range(min(batch * calls, 1000))]

    @property
    def messages(self) -> int:
        return self.batch * self.calls

    def pushes(self, queue: str, *, ids: bool) -> list[Push]:
        return [
            Push(
                [
                    PushItem(
                        queue,
                        self._payload(number),
                        partition_name(number % self.partitions),
                        secrets.token_hex(16) if ids else None,
                    )
                    for number in numbers
                ]
            )
            for numbers in self._numbers()
        ]

    def rows(self) -> list[list[Row]]:
        now = time.time_ns() // 1000
        return [
            [
                (number % self.partitions, secrets.token_hex(16), now, self._payload(number))
                for number in numbers
            ]
            for numbers in self._numbers()
        ]

    def pops(self, queue: str) -> list[Pop]:
        """One call's requests: of one partition a batch, of many one message each."""
        if self.partitions == 1:
            return [Pop(queue=queue, group=GROUP, batch=self.batch)]
        return [Pop(queue=queue, group=GROUP)] * self.batch

    def _numbers(self) -> list[range]:
        return [range(n * self.batch, (n + 1) * self.batch) for n in range(self.calls)]

    def _payload(self, number: int) -> bytes:
        return self._payloads[number % len(self._payloads)]


async def prepare(store: Store, partitions: int) -> None:
    """The queues, with their partitions and a group in them."""
    for queue in (PLAIN, NAMED):
        await store.subscribe(GROUP, 0, queue=queue)
        for first in range(0, partitions, 1000):
            numbers = range(first, min(first + 1000, partitions))
            items = [PushItem(queue, b"0", partition_name(number)) for number in numbers]
            good(await store.push([Push(items)]))
        await _drain(store, queue)


async def _drain(store: Store, queue: str) -> None:
    while popped := await _pop(store, [Pop(queue=queue, group=GROUP)] * 500):
        good(await store.ack([Ack(lease_id=each.lease_id, group=GROUP) for each in popped]))


async def _pop(store: Store, pops: list[Pop]) -> list[Popped]:
    return [popped for popped in good(await store.pop(pops)) if popped.messages]


async def keep_backlog(store: Store, floors: Floors, messages: int) -> None:
    """Messages that were consumed and are kept, the same for every side: a broker has such."""
    for first in range(0, messages, BACKLOG_STEP):
        batches = Batches(1000, min(BACKLOG_STEP, messages - first) // 1000, 1)
        for queue, ids in ((PLAIN, False), (NAMED, True)):
            for request in batches.pushes(queue, ids=ids):
                good(await store.push([request]))
        for rows in batches.rows():
            await floors.bulk(rows)
            await floors.rows(rows)
    for queue in (PLAIN, NAMED):
        await store.call(Seek(group=GROUP, queue=queue, to=SeekTo.END))


def flow(store: Store, batches: Batches) -> Side:
    """Push without ids, pop, and ack by lease."""

    async def measure() -> dict[str, float]:
        push = await _timed_pushes(store, batches.pushes(PLAIN, ids=False))
        pop, ack = await _timed_pops(store, batches.pops(PLAIN), batches.messages, each=False)
        return {"push": push, "pop": pop, "ack": ack}

    return measure


def joint_flow(store: Store, batches: Batches) -> Side:
    """The same, with each ack in one call with the next pop, as the client's consumers do it."""

    async def measure() -> dict[str, float]:
        push = await _timed_pushes(store, batches.pushes(PLAIN, ids=False))
        joint = await _timed_joint_pops(store, batches.pops(PLAIN), batches.messages)
        return {"push_joint": push, "ack_and_pop": joint}

    return measure


def flow_with_ids(store: Store, batches: Batches) -> Side:
    """Push with an id of the caller's on every message, pop, and ack each by that id."""

    async def measure() -> dict[str, float]:
        push = await _timed_pushes(store, batches.pushes(NAMED, ids=True))
        pop, ack = await _timed_pops(store, batches.pops(NAMED), batches.messages, each=True)
        return {"push_ids": push, "pop_ids": pop, "ack_each": ack}

    return measure


def bulk_floor(floors: Floors, batches: Batches) -> Side:
    async def measure() -> dict[str, float]:
        rows, watch = batches.rows(), Stopwatch()
        for batch in rows:
            with watch:
                await floors.bulk(batch)
        return {"bulk": watch.seconds}

    return measure


def row_floor(floors: Floors, batches: Batches) -> Side:
    async def measure() -> dict[str, float]:
        rows, watch = batches.rows(), Stopwatch()
        for batch in rows:
            with watch:
                await floors.rows(batch)
        return {"rows": watch.seconds}

    return measure


def consume(store: Store, pops: int, batch: int, calls: int, *, each: bool) -> Side:
    """Several consumers in one call; segments as large as their batches."""

    async def measure() -> dict[str, float]:
        body = payload()
        for first in range(0, pops * calls, pops):
            items = [
                PushItem(PLAIN, body, partition_name(number % 1000))
                for number in range(first, first + pops)
                for _ in range(batch)
            ]
            good(await store.push([Push(items)]))
        requests = [Pop(queue=PLAIN, group=GROUP, batch=batch)] * pops
        pop, ack = await _timed_pops(store, requests, pops * batch * calls, each=each)
        return {"pop_ids": pop, "ack_each": ack} if each else {"pop": pop, "ack": ack}

    return measure


async def _timed_pushes(store: Store, pushes: list[Push]) -> float:
    watch = Stopwatch()
    for request in pushes:
        with watch:
            outcomes = await store.push([request])
        good(outcomes)
    return watch.seconds


async def _timed_pops(
    store: Store, pops: list[Pop], messages: int, *, each: bool
) -> tuple[float, float]:
    """Pop and ack until this many messages are through; seconds of each. What is popped is read:
    seqs, ids and payloads, or, where each is acked, as structs."""
    popping, acking = Stopwatch(), Stopwatch()
    while messages > 0:
        with popping:
            outcomes = await store.pop(pops)
            for answer in good(outcomes):
                _read(answer, as_structs=each)
        popped = [answer for answer in good(outcomes) if answer.messages]
        assert popped, "messages were lost"
        messages -= sum(len(answer.messages) for answer in popped)
        acks = _acks(popped, each)
        with acking:
            acked = await store.ack(acks)
        good(acked)
    return popping.seconds, acking.seconds


async def _timed_joint_pops(store: Store, pops: list[Pop], messages: int) -> float:
    """Seconds until this many messages are through, where a pop takes the acks of what was popped
    before it along; the first has none to take, and after the last only an ack is left."""
    watch = Stopwatch()
    acks: list[Ack] = []
    while messages > 0:
        with watch:
            acked, outcomes = await store.ack_and_pop(acks, pops)
            for answer in good(outcomes):
                _read(answer, as_structs=False)
        good(acked)
        popped = [answer for answer in good(outcomes) if answer.messages]
        assert popped, "messages were lost"
        messages -= sum(len(answer.messages) for answer in popped)
        acks = _acks(popped, each=False)
    with watch:
        acked = await store.ack(acks)
    good(acked)
    return watch.seconds


def _read(popped: Popped, *, as_structs: bool) -> int:
    """What somebody does who passes all of it on."""
    if as_structs:
        return sum([len(message.payload) for message in popped.messages])
    return sum([len(body) for _, _, body in walk(popped.messages)])


def _acks(popped: list[Popped], each: bool) -> list[Ack]:
    if not each:
        return [Ack(lease_id=answer.lease_id, group=GROUP) for answer in popped]
    return [
        Ack(
            transaction_id=message.transaction_id,
            partition_id=message.partition_id,
            lease_id=answer.lease_id,
            group=GROUP,
        )
        for answer in popped
        for message in answer.messages
    ]


# --- what grows --------------------------------------------------------------------------------


async def fill_partitions(store: Store, partitions: int, messages: int) -> None:
    """So many messages, one a segment, spread over so many partitions."""
    await store.subscribe(GROUP, 0, queue=PLAIN)
    body = payload()
    step = min(1000, partitions)
    for first in range(0, messages, step):
        numbers = range(first, min(first + step, messages))
        items = [PushItem(PLAIN, body, partition_name(n % partitions)) for n in numbers]
        good(await store.push([Push(items)]))


async def fill_items(store: Store, items: int) -> None:
    await store.configure(WORK, kind=QueueKind.WORK)
    body = payload()
    for first in range(0, items, 5000):
        count = min(5000, items - first)
        good(await store.push([Push([PushItem(WORK, body)] * count)]))


async def wear_in(store: Store, partitions: int) -> None:
    """Consume what is there, and push to each partition again: pages that were never written
    since the last checkpoint cost more, and how many those are is not what is compared."""
    await _drain(store, PLAIN)
    await fill_partitions(store, partitions, partitions)


def single_pops(name: str, store: Store, per_call: int, calls: int) -> Side:
    """Pops of one message; only they are measured."""

    async def measure() -> dict[str, float]:
        watch = Stopwatch()
        for _ in range(calls):
            with watch:
                outcomes = await store.pop([Pop(queue=PLAIN, group=GROUP)] * per_call)
            popped = good(outcomes)
            assert all(answer.messages for answer in popped), "nothing was left to pop"
            good(await store.ack([Ack(lease_id=each.lease_id, group=GROUP) for each in popped]))
        return {name: watch.seconds}

    return measure


def claims(name: str, store: Store, batch: int, calls: int) -> Side:
    """Pops of items; only they are measured."""

    async def measure() -> dict[str, float]:
        watch = Stopwatch()
        for _ in range(calls):
            with watch:
                outcomes = await store.pop([Pop(queue=WORK, batch=batch)])
            [popped] = good(outcomes)
            assert len(popped.messages) == batch, "nothing was left to pop"
            good(await store.ack([Ack(lease_id=popped.lease_id)]))
        return {name: watch.seconds}

    return measure
