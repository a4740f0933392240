"""Where pushes go: in order for each sender, across failures, replays and recoveries."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from monarq.broker.failover import HOLD_BYTES, Failover, Route
from monarq.broker.push_buffer import PushBuffer
from monarq.clock import SECOND, ManualClock
from monarq.errors import BufferWriteError, NotFoundError, StoreUnavailableError
from monarq.model import Push, Pushed, PushItem, PushStatus, QueueKind
from monarq.store import Store, open_store
from monarq.store.contract import Outcome
from tests.broker.buffering import push_of, until

PATIENCE_SECONDS = 30


class Sender:
    """Does with pushes what a broker does, without its batching."""

    def __init__(self, store: Store, buffer: PushBuffer, **options: Any) -> None:
        self.store = store
        self.is_down = False
        self.loses_answers = 0.0
        self.delay = 0.0
        self.may_push = asyncio.Event()
        self.may_push.set()
        self.is_asked = asyncio.Event()
        self.chance = random.Random(1)
        self.marks = 0
        self.routes: list[Route] = []
        self.route_changed = asyncio.Event()
        self.failover = Failover(
            buffer, push=self.push_to_store, probe=self.probe, changed=self.changed, **options
        )
        self.failover.start()

    async def probe(self) -> None:
        if self.is_down:
            raise StoreUnavailableError("down")

    async def push_to_store(
        self, requests: Sequence[Push], *, mark: str | None
    ) -> list[Outcome[list[Pushed]]]:
        await self.probe()
        await asyncio.sleep(self.delay)
        self.is_asked.set()
        await self.may_push.wait()
        answers = await self.store.push(requests, mark=mark)
        if self.is_down or self.chance.random() < self.loses_answers:
            raise StoreUnavailableError("the connection broke before the answer came")
        return answers

    def changed(self, route: Route) -> None:
        self.routes.append(route)
        self.route_changed.set()
        self.route_changed = asyncio.Event()

    async def push(self, push: Push) -> PushStatus:
        while self.failover.route is Route.HOLD:
            await self.route_changed.wait()
        self.marks += 1
        mark = f"mark-{self.marks}"
        if self.failover.route is Route.DIRECT:
            try:
                [answer] = await self.push_to_store([push], mark=mark)
            except StoreUnavailableError:
                self.failover.store_failed()
                [answer] = await self.failover.keep(mark, [push], attempted=True)
        else:
            [answer] = await self.failover.keep(mark, [push])
        assert isinstance(answer, list)
        return answer[0].status


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    async with await open_store("memory:") as store:
        yield store


@pytest.fixture
async def sender(store: Store, tmp_path: Path) -> AsyncIterator[Sender]:
    buffer = await PushBuffer.open(tmp_path / "buffer")
    sender = Sender(store, buffer, retry_seconds=0.01)
    yield sender
    await sender.failover.close()


async def stored(store: Store) -> list[str]:
    found: list[str] = []
    after = None
    while True:
        try:
            page = await store.list_messages("q", limit=1000, after=after)
        except NotFoundError:
            return found
        found += [row.payload.decode().strip(' "') for row in page.rows]
        after = page.next
        if after is None:
            return found


async def until_direct(sender: Sender) -> None:
    await until(lambda: sender.failover.route is Route.DIRECT, PATIENCE_SECONDS)


async def test_pushes_go_to_the_store_while_it_serves(sender: Sender, store: Store) -> None:
    assert await sender.push(push_of("1")) is PushStatus.QUEUED
    assert sender.routes == []
    assert await stored(store) == ["1"]


async def test_pushes_are_buffered_while_the_store_is_down_and_stored_when_it_is_back(
    sender: Sender, store: Store
) -> None:
    sender.is_down = True
    for number in range(10):
        assert await sender.push(push_of(str(number))) is PushStatus.BUFFERED
    assert await stored(store) == []
    sender.is_down = False
    await until_direct(sender)
    assert await sender.push(push_of("10")) is PushStatus.QUEUED
    assert await stored(store) == [str(number) for number in range(11)]


async def test_no_push_passes_those_before_it_in_the_buffer(sender: Sender, store: Store) -> None:
    """The store is back, the replay has not begun: a push must not go direct."""
    sender.is_down = True
    await sender.push(push_of("1"))
    sender.is_down = False
    assert sender.failover.route is Route.BUFFER
    statuses = [await sender.push(push_of(str(number))) for number in range(2, 200)]
    assert PushStatus.QUEUED in statuses
    assert await stored(store) == [str(number) for number in range(1, 200)]


async def test_a_store_that_answers_and_hangs_on_pushes_keeps_no_later_push_waiting(
    sender: Sender, store: Store
) -> None:
    """Somebody holds a lock: whoever asks the store finds it well, and the replay stands still."""
    sender.is_down = True
    await sender.push(push_of("0"))
    sender.may_push.clear()
    sender.is_down = False
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sender.is_asked.wait()
        for number in range(1, 10):
            assert await sender.push(push_of(str(number))) is PushStatus.BUFFERED
    sender.may_push.set()
    await until_direct(sender)
    assert await sender.push(push_of("10")) is PushStatus.QUEUED
    assert await stored(store) == [str(number) for number in range(11)]


async def test_what_is_buffered_is_told_the_transaction_id_under_which_it_will_be_stored(
    sender: Sender, store: Store
) -> None:
    sender.is_down = True
    push = Push([PushItem("q", b"1"), PushItem("q", b"2", transaction_id="mine", trace_id="t")])
    sender.failover.store_failed()
    [[made, given]] = await sender.failover.keep("m", [push])
    assert (given.transaction_id, given.trace_id) == ("mine", "t")
    assert (made.status, made.partition_id, made.seq) == (PushStatus.BUFFERED, 0, 0)
    sender.is_down = False
    await until_direct(sender)
    rows = (await store.list_messages("q")).rows
    assert [row.transaction_id for row in rows] == [made.transaction_id, "mine"]


async def test_a_delay_counts_from_the_push_not_from_its_replay(tmp_path: Path) -> None:
    clock = ManualClock()
    async with await open_store("memory:", clock=clock) as store:
        await store.configure("w", kind=QueueKind.WORK)
        buffer = await PushBuffer.open(tmp_path)
        sender = Sender(store, buffer, retry_seconds=0.01, clock=clock)
        sender.is_down = True
        pushed_at = clock.now()
        await sender.push(Push([PushItem("w", b"1", delay_seconds=60)]))
        clock.advance(50)
        sender.is_down = False
        await until_direct(sender)
        [item] = (await store.list_items("w")).rows
        assert item.run_at == pushed_at + 60 * SECOND
        await sender.failover.close()


async def test_in_maintenance_pushes_stay_in_the_buffer(sender: Sender, store: Store) -> None:
    sender.failover.set_maintenance(True)
    assert await sender.push(push_of("1")) is PushStatus.BUFFERED
    for _ in range(50):
        await asyncio.sleep(0)
    assert await stored(store) == []
    sender.failover.set_maintenance(False)
    await until_direct(sender)
    assert await stored(store) == ["1"]


async def test_what_an_earlier_process_buffered_comes_before_the_first_new_push(
    store: Store, tmp_path: Path
) -> None:
    buffer = await PushBuffer.open(tmp_path)
    await buffer.append("m", [push_of("old")])
    await buffer.close()
    buffer = await PushBuffer.open(tmp_path)
    sender = Sender(store, buffer, retry_seconds=0.01)
    assert sender.failover.route is not Route.DIRECT
    await sender.push(push_of("new"))
    await until_direct(sender)
    assert await stored(store) == ["old", "new"]
    await sender.failover.close()


async def test_what_another_process_left_is_found_while_running(
    sender: Sender, store: Store, tmp_path: Path
) -> None:
    sender.failover._adopt_seconds = 0.01
    sender.failover.try_now()
    other = await PushBuffer.open(tmp_path / "buffer")
    await other.append("m", [push_of("left")])
    await other.close()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            if await stored(store):
                break
            await asyncio.sleep(0.01)
    await until_direct(sender)
    assert await stored(store) == ["left"]


async def test_a_push_that_cannot_be_buffered_is_refused_and_the_next_ones_are_not(
    store: Store, tmp_path: Path
) -> None:
    buffer = await PushBuffer.open(tmp_path, max_bytes=2_000)
    sender = Sender(store, buffer, retry_seconds=0.01)
    sender.is_down = True
    assert await sender.push(push_of("1")) is PushStatus.BUFFERED
    with pytest.raises(BufferWriteError):
        await sender.push(push_of("large", size=4_000))
    assert await sender.push(push_of("2")) is PushStatus.BUFFERED
    sender.is_down = False
    await until_direct(sender)
    assert await stored(store) == ["1", "2"]
    await sender.failover.close()


async def test_the_replay_gains_on_senders_who_push_faster_than_the_store_takes(
    store: Store, tmp_path: Path
) -> None:
    """A call to the store takes 5 ms here, an append a tenth of that: without being held back
    the senders would keep the buffer growing for ever."""
    buffer = await PushBuffer.open(tmp_path)
    sender = Sender(store, buffer, retry_seconds=0.01, batch_max=20)
    sender.is_down = True
    sender.delay = 0.005
    for number in range(20):
        await sender.push(push_of(f"0.{number}", size=HOLD_BYTES // 10, partition="0"))
    sender.is_down = False
    is_over = False

    async def press(name: int) -> list[str]:
        sent: list[str] = []
        while not is_over:
            sent.append(f"{name}.{len(sent)}")
            await sender.push(push_of(sent[-1], size=HOLD_BYTES // 4, partition=str(name)))
        return sent

    senders = [asyncio.create_task(press(name)) for name in range(1, 9)]
    await until_direct(sender)
    is_over = True
    sent = [f"0.{number}" for number in range(20)]
    for texts in await asyncio.gather(*senders):
        sent += texts
    await until_direct(sender)
    assert sorted(await stored(store)) == sorted(sent)
    await sender.failover.close()


@pytest.mark.parametrize("seed", range(5))
async def test_every_sender_is_stored_in_order_and_once_whatever_the_store_does(
    seed: int, store: Store, tmp_path: Path
) -> None:
    """The store goes and comes, and loses answers to calls that it carried out."""
    buffer = await PushBuffer.open(tmp_path, file_bytes=3_000)
    sender = Sender(store, buffer, retry_seconds=0.001, batch_max=5)
    chance = random.Random(seed)
    statuses: dict[PushStatus, int] = defaultdict(int)

    async def send(name: int) -> None:
        for number in range(150):
            # Without an id every other time: then only the mark can tell a repeat.
            text = f"{name}.{number}"
            push = push_of(text, partition=f"p{name}")
            if number % 2:
                item = PushItem("q", push.items[0].payload, f"p{name}")
                push = Push([item])
            statuses[await sender.push(push)] += 1
            if chance.random() < 0.1:
                await asyncio.sleep(0.001)

    async def disturb() -> None:
        sender.is_down = True
        while True:
            await asyncio.sleep(chance.uniform(0, 0.02))
            sender.is_down = chance.random() < 0.4
            sender.loses_answers = chance.choice([0.0, 0.0, 0.3])

    # How much gets through before the next trouble is up to the machine; one of each does.
    statuses[await sender.push(push_of("6.0", partition="p6"))] += 1
    trouble = asyncio.create_task(disturb())
    await asyncio.sleep(0)
    await asyncio.gather(*(send(name) for name in range(6)))
    trouble.cancel()
    sender.is_down, sender.loses_answers = False, 0.0
    await until_direct(sender)
    assert set(statuses) == {PushStatus.QUEUED, PushStatus.BUFFERED}
    by_sender: dict[str, list[int]] = defaultdict(list)
    for text in await stored(store):
        name, _, number = text.partition(".")
        by_sender[name].append(int(number))
    assert by_sender == {"6": [0]} | {str(name): list(range(150)) for name in range(6)}
    assert buffer.state.set_aside == []
    await sender.failover.close()
