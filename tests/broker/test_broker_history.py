"""Random callers at once, who come, go and give up: nothing is lost, doubled or out of order.

What each caller saw is written down and checked in the end against what was pushed.
"""

import asyncio
import random
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from monarq.broker.broker import Broker
from monarq.errors import LeaseError, MonarqError
from monarq.model import Ack, AckStatus, DeadLetterFilter, Pop, Popped, Push, PushItem, QueueKind
from tests.broker.calls import until
from tests.broker.conftest import STORE_NAMES, StartBroker
from tests.broker.watching import Watched

PARTITIONS = 7
PUSHERS = 6
PER_PUSHER = 40
GROUPS = ("a", "b")
CONSUMERS = 8


class Run:
    """Pushers and consumers on one queue, and what they saw."""

    def __init__(self, brokers: list[Broker], seed: int, queue: str) -> None:
        self._brokers = brokers
        self._random = random.Random(seed)
        self._queue = queue
        self.pushed: dict[str, list[bytes]] = defaultdict(list)
        """By partition and sender, in the order of their answers."""
        self.unsure: set[bytes] = set()
        """Whose push was cancelled, so that nobody knows."""
        self.delivered: dict[str, list[tuple[str, int, bytes]]] = defaultdict(list)
        """By group: partition, seq and payload, in the order in which they were received."""
        self.completed: dict[str, Counter[bytes]] = {group: Counter() for group in GROUPS}
        self.stopping = False

    def broker(self) -> Broker:
        return self._random.choice(self._brokers)

    async def push_some(self, sender: int) -> None:
        for number in range(PER_PUSHER):
            partition = f"p{self._random.randrange(PARTITIONS)}"
            count = self._random.choice((1, 1, 1, 3, 10))
            payloads = [b'"%d-%d-%d"' % (sender, number, n) for n in range(count)]
            items = [PushItem(self._queue, payload, partition) for payload in payloads]
            future = self.broker().submit_push(Push(items))
            if self._random.random() < 0.1:
                await self._turns(self._random.randrange(6))
                if future.cancel():
                    self.unsure.update(payloads)
                    continue
            await future
            self.pushed[f"{partition}/{sender}"] += payloads
            await self._turns(self._random.randrange(3))

    async def consume(self, group: str) -> None:
        rng = self._random
        while not self.stopping:
            broker = self.broker()
            pop = Pop(
                queue=self._queue,
                group=group,
                batch=rng.choice((1, 5, 100)),
                partitions=rng.choice((1, 1, 3)),
            )
            future = broker.submit_pop(pop, rng.choice((0.0, 0.05, 1.0)))
            if rng.random() < 0.25:
                await self._turns(rng.randrange(12))
                if future.cancel():
                    continue
            popped = await future
            if popped.messages:
                await self._answer(broker, group, popped)

    async def _answer(self, broker: Broker, group: str, popped: Popped) -> None:
        rng = self._random
        if rng.random() < 0.1:
            # It never reached anybody.
            broker.give_back(popped, group)
            return
        self.delivered[group] += [(m.partition, m.seq, m.payload) for m in popped.messages]
        status = rng.choices(
            [AckStatus.COMPLETED, AckStatus.RELEASE, AckStatus.RETRY], weights=[8, 1, 1]
        )[0]
        acks = (
            [Ack(status=status, lease_id=popped.lease_id, group=group)]
            if rng.random() < 0.5
            else [
                Ack(
                    status=status,
                    lease_id=popped.lease_id,
                    group=group,
                    partition_id=m.partition_id,
                    transaction_id=m.transaction_id,
                )
                for m in popped.messages
            ]
        )
        for answer in await broker.submit_acks(acks):
            assert not isinstance(answer, LeaseError), answer
            assert not isinstance(answer, MonarqError), answer
        if status is AckStatus.COMPLETED:
            self.completed[group].update(m.payload for m in popped.messages)

    async def _turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    def is_done(self) -> bool:
        sure = {payload for payloads in self.pushed.values() for payload in payloads}
        return all(sure <= set(self.completed[group]) for group in GROUPS)

    def check(self, stored: list[bytes]) -> None:
        sure = [payload for payloads in self.pushed.values() for payload in payloads]
        assert len(set(stored)) == len(stored), "a message was stored twice"
        assert set(sure) <= set(stored), f"lost: {set(sure) - set(stored)}"
        assert set(stored) <= set(sure) | self.unsure, "stored what nobody pushed"
        for group in GROUPS:
            twice = [p for p, count in self.completed[group].items() if count > 1]
            assert not twice, f"{group} completed twice: {twice}"
            self._check_order(group)

    def _check_order(self, group: str) -> None:
        """A partition's first deliveries are in the order of seq, and a sender's in his own."""
        first: dict[str, list[tuple[int, bytes]]] = defaultdict(list)
        seen: set[tuple[str, int]] = set()
        for partition, seq, payload in self.delivered[group]:
            if (partition, seq) not in seen:
                seen.add((partition, seq))
                first[partition].append((seq, payload))
        for partition, deliveries in first.items():
            seqs = [seq for seq, _ in deliveries]
            assert seqs == sorted(seqs), f"{group}, {partition}: out of order"
            got = [payload for _, payload in deliveries]
            for sender in range(PUSHERS):
                sent = self.pushed[f"{partition}/{sender}"]
                mine = set(sent)
                assert [payload for payload in got if payload in mine] == sent


async def run_history(brokers: list[Broker], seed: int, bound: float = 60.0) -> None:
    queue = "q"
    await brokers[0].store.configure(queue, options={"retryDelay": 0, "retryLimit": 1_000_000})
    run = Run(brokers, seed, queue)
    async with asyncio.timeout(bound):
        consumers = [
            asyncio.ensure_future(run.consume(GROUPS[n % len(GROUPS)])) for n in range(CONSUMERS)
        ]
        await asyncio.gather(*[run.push_some(sender) for sender in range(PUSHERS)])
        while not run.is_done():
            await asyncio.sleep(0.005)
            for consumer in consumers:
                if consumer.done():
                    consumer.result()
        run.stopping = True
        await asyncio.gather(*consumers)
    stored: list[bytes] = []
    after: str | None = None
    while True:
        page = await brokers[0].store.list_messages(queue, limit=1000, after=after)
        stored += [row.payload for row in page.rows]
        if page.next is None:
            break
        after = page.next
    run.check(stored)
    assert await brokers[0].store.count_dead_letters(DeadLetterFilter(queue=queue)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_random_callers_of_one_broker_lose_nothing(
    start_broker: StartBroker, seed: int
) -> None:
    broker = await start_broker(clock=None, batch_max=50, pop_batch_max=8)
    await run_history([broker], seed)
    assert broker.measures.pop_steps["given_back"] > 0
    assert broker.measures.abandoned == 0


@pytest.mark.slow
@pytest.mark.parametrize("place", STORE_NAMES[1:], indirect=True)
async def test_random_callers_of_two_brokers_lose_nothing(start_broker: StartBroker) -> None:
    brokers = [await start_broker(clock=None, batch_max=50) for _ in range(2)]
    await run_history(brokers, 7)


async def test_random_callers_lose_nothing_while_the_store_comes_and_goes(
    start_broker: StartBroker, watched: Watched, tmp_path: Path
) -> None:
    """Only pushes: what was answered is there in the end, once and in order."""
    broker = await start_broker(
        clock=None, buffer_dir=tmp_path / "buffer", buffer_retry_seconds=0.01, batch_max=20
    )
    rng = random.Random(1)
    answered: dict[int, list[bytes]] = defaultdict(list)

    async def send(sender: int) -> None:
        for number in range(60):
            payload = b'"%d-%d"' % (sender, number)
            await broker.push(Push([PushItem("q", payload, f"p{sender}")]))
            answered[sender].append(payload)

    async def disturb() -> None:
        while True:
            await asyncio.sleep(rng.uniform(0.0, 0.02))
            watched.is_down = not watched.is_down

    disturbing = asyncio.ensure_future(disturb())
    async with asyncio.timeout(60):
        await asyncio.gather(*[send(sender) for sender in range(8)])
        disturbing.cancel()
        watched.is_down = False
        await until(lambda: (h := broker.health().buffer) is not None and h.route == "direct")
    for sender in range(8):
        rows = (await broker.store.list_messages("q", partition=f"p{sender}", limit=1000)).rows
        assert [row.payload for row in rows] == answered[sender]
    assert broker.measures.store_failures > 0


@pytest.mark.slow
async def test_random_callers_of_a_work_queue_share_all_of_it(start_broker: StartBroker) -> None:
    broker = await start_broker(clock=None, pop_batch_max=8)
    await broker.configure("w", kind=QueueKind.WORK)
    rng = random.Random(3)
    done: Counter[bytes] = Counter()
    total = 400

    async def work() -> None:
        while sum(done.values()) < total:
            future = broker.submit_pop(Pop(queue="w", batch=rng.choice((1, 3, 20))), 0.2)
            if rng.random() < 0.2:
                for _ in range(rng.randrange(10)):
                    await asyncio.sleep(0)
                if future.cancel():
                    continue
            popped = await future
            if not popped.messages:
                continue
            status = rng.choice([AckStatus.COMPLETED] * 4 + [AckStatus.RELEASE])
            [answer] = await broker.submit_acks([Ack(lease_id=popped.lease_id, status=status)])
            assert not isinstance(answer, MonarqError), answer
            if status is AckStatus.COMPLETED:
                done.update(message.payload for message in popped.messages)

    async with asyncio.timeout(60):
        workers = [asyncio.ensure_future(work()) for _ in range(10)]
        for number in range(total):
            await broker.push(Push([PushItem("w", b"%d" % number)]))
        await asyncio.gather(*workers)
    assert set(done.values()) == {1}
    assert len(done) == total
