"""No message dies for another one: the expiry of a lease over several counts for none of them, and
a message that stops its consumer every time is found and dies."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

import asyncpg
import pytest

from monarq.clock import ManualClock
from monarq.model import AckStatus, Message, Pop, Popped, SeekTo
from monarq.operations.groups import Seek
from monarq.store import Store
from tests.shared_postgres import POSTGRES_NAMES
from tests.store.calls import ack, ack_all, ack_of, pop, pop_one, push, push_many, renew
from tests.store.conftest import Place
from tests.store.scenarios import (
    DEAD,
    FAILED,
    dead_letters,
    let_time_work,
    ordered,
    seqs_of,
    stats,
)

pytestmark = pytest.mark.smoke

LEASE_SECONDS = 10
GROUP = "g"


class Worker:
    """A consumer that some messages stop: it answers what it has handled before."""

    def __init__(self, store: Store, clock: ManualClock, culprits: Iterable[bytes]) -> None:
        self.store = store
        self.clock = clock
        self.culprits = set(culprits)
        self.handled: list[bytes] = []
        self.leases: list[list[bytes]] = []
        self.attempts: Counter[bytes] = Counter()
        """As told with the latest delivery of each culprit."""

    async def work(
        self, handle: Callable[[Popped], list[Message]], batch: int = 100, partitions: int = 1
    ) -> None:
        """Until nothing is left. `handle` says what is answered before the lease expires."""
        for _ in range(200):
            popped = await pop(
                self.store, "q", batch, group=GROUP, partitions=partitions,
                lease_seconds=LEASE_SECONDS,
            )  # fmt: skip
            if not popped.messages:
                return
            self.leases.append([message.payload for message in popped.messages])
            answered = handle(popped)
            for message in answered:
                await ack(self.store, message, popped.lease_id, group=GROUP)
                self.handled.append(message.payload)
            if len(answered) < len(popped.messages):
                self.attempts.update(
                    {
                        m.payload: 1
                        for m in popped.messages
                        if self.stops(m) and len(popped.messages) == 1
                    }
                )
                self.clock.advance(LEASE_SECONDS)
        raise AssertionError(f"the messages never end: {self.leases[-5:]}")

    def stops(self, message: Message) -> bool:
        return message.payload in self.culprits

    # --- ways to work ---

    def one_by_one(self, popped: Popped) -> list[Message]:
        done: list[Message] = []
        for message in popped.messages:
            if self.stops(message):
                break
            done.append(message)
        return done

    def all_or_nothing(self, popped: Popped) -> list[Message]:
        return [] if any(map(self.stops, popped.messages)) else list(popped.messages)

    def in_parallel(self, popped: Popped) -> list[Message]:
        """Two of the handlers that run at once are done before the culprit ends the process."""
        done = [message for message in reversed(popped.messages) if not self.stops(message)]
        return done[:2] if any(map(self.stops, popped.messages)) else done

    def partitions_in_parallel(self, popped: Popped) -> list[Message]:
        """A partition's messages one by one, and the partitions at the same time."""
        done: list[Message] = []
        for name in dict.fromkeys(message.partition for message in popped.messages):
            own = [message for message in popped.messages if message.partition == name]
            done += self.one_by_one(Popped(messages=own))
        return done

    def four_at_most(self, popped: Popped) -> list[Message]:
        return self.one_by_one(popped)[:4]

    def one_at_most(self, popped: Popped) -> list[Message]:
        return self.one_by_one(popped)[:1]


WAYS = [
    Worker.one_by_one,
    Worker.all_or_nothing,
    Worker.in_parallel,
    Worker.partitions_in_parallel,
    Worker.four_at_most,
    Worker.one_at_most,
]


@pytest.mark.parametrize("handle", WAYS)
@pytest.mark.parametrize("culprits", [(), (1,), (5,), (10,), (2, 3), (1, 9)], ids=str)
@pytest.mark.parametrize("retry_limit", [0, 3])
async def test_whatever_stops_a_consumer_dies_and_nothing_else_does(
    store: Store,
    clock: ManualClock,
    handle: Callable[[Worker, Popped], list[Message]],
    culprits: tuple[int, ...],
    retry_limit: int,
) -> None:
    await store.configure("q", options={"retryLimit": retry_limit})
    await push_many(store, "q", 10)
    worker = Worker(store, clock, [b"%d" % n for n in culprits])
    await worker.work(lambda popped: handle(worker, popped))
    letters = await dead_letters(store)
    assert [(letter.seq, letter.attempts) for letter in letters[::-1]] == [
        (culprit, retry_limit + 1) for culprit in culprits
    ]
    innocent = [b"%d" % n for n in range(1, 11) if n not in culprits]
    assert sorted(worker.handled) == sorted(innocent)
    assert worker.attempts == dict.fromkeys(worker.culprits, retry_limit + 1)
    row = await stats(store, "q")
    assert (row.completed, row.dead) == (len(innocent), len(culprits))


@pytest.mark.parametrize("handle", WAYS)
@pytest.mark.parametrize("partitions", [2, 3, 10])
async def test_a_culprit_in_one_of_several_partitions_under_a_lease_dies_alone(
    store: Store,
    clock: ManualClock,
    handle: Callable[[Worker, Popped], list[Message]],
    partitions: int,
) -> None:
    await store.configure("q", options={"retryLimit": 1})
    for name, count in (("a", 3), ("b", 3), ("c", 1), ("d", 4)):
        for n in range(count):
            await push(store, "q", b'"%b%d"' % (name.encode(), n), partition=name)
    worker = Worker(store, clock, [b'"b1"', b'"c0"'])
    await worker.work(lambda popped: handle(worker, popped), partitions=partitions)
    letters = await dead_letters(store)
    assert sorted((x.partition, x.seq, x.attempts) for x in letters) == [("b", 2, 2), ("c", 1, 2)]
    assert len(worker.handled) == 9


@pytest.mark.parametrize("handle", [Worker.one_by_one, Worker.all_or_nothing])
async def test_a_consumer_of_a_label_dies_of_no_more_than_the_culprit(
    store: Store, clock: ManualClock, handle: Callable[[Worker, Popped], list[Message]]
) -> None:
    for queue in ("q1", "q2"):
        await store.configure(queue, namespace="n", options={"retryLimit": 1})
        for n in range(3):
            await push(store, queue, b'"%b%d"' % (queue.encode(), n))
    worker = Worker(store, clock, [b'"q11"'])
    for _ in range(50):
        popped = await pop(store, None, 10, namespace="n", partitions=2, lease_seconds=10)
        if not popped.messages:
            break
        for message in handle(worker, popped):
            await ack(store, message, popped.lease_id)
            worker.handled.append(message.payload)
        clock.advance(10)
    assert [(x.queue, x.seq, x.attempts) for x in await dead_letters(store)] == [("q1", 2, 2)]
    assert len(worker.handled) == 5


async def test_batches_are_halved_until_the_culprit_is_alone_and_are_as_before_behind_the_suspects(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 1})
    await push_many(store, "q", 40)
    worker = Worker(store, clock, [b"3"])
    await worker.work(worker.all_or_nothing, batch=20)
    sizes = [len(lease) for lease in worker.leases]
    # [1 … 20] is halved down to [1, 2], which is completed, and [3, 4]; [3] is alone.
    assert sizes[:7] == [20, 10, 5, 2, 2, 1, 1]
    assert [lease[0] for lease in worker.leases[:7]] == [b"1", b"1", b"1", b"1", b"3", b"3", b"3"]
    # 4 was under the lease of two, 5 under that of five, 6 … 10 under that of ten, the rest under
    # the first: the limits grow again, and 22 was under none.
    assert sizes[7:] == [1, 2, 5, 10, 19]


async def test_a_consumer_that_is_killed_once_goes_on_with_halves(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 11, leaseTime=10)
    await pop(store, "q", 8)
    clock.advance(10)
    for expected in ([1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]):
        popped = await pop(store, "q", 8)
        assert seqs_of(popped) == expected
        await ack_all(store, popped)


async def test_a_failing_message_takes_none_of_those_behind_it_along(
    store: Store, clock: ManualClock
) -> None:
    """A consumer that stops at the first failure, and leaves the rest to the lease."""
    await ordered(store, 10, retryLimit=3, retryDelay=0, leaseTime=10)
    handled: list[int] = []
    for _ in range(100):
        popped = await pop(store, "q", 10)
        if not popped.messages:
            break
        for message in popped.messages:
            if message.seq == 3:
                await ack(store, message, popped.lease_id, FAILED)
                clock.advance(10)
                break
            await ack(store, message, popped.lease_id)
            handled.append(message.seq)
    assert handled == [1, 2, 4, 5, 6, 7, 8, 9, 10]
    assert [(x.seq, x.attempts) for x in await dead_letters(store)] == [(3, 4)]


async def test_what_a_consumer_never_reaches_is_delivered_in_the_end(
    store: Store, clock: ManualClock
) -> None:
    """Eight are popped, four handled, and the consumer stops without a word: for ever."""
    await ordered(store, 8, retryLimit=0, leaseTime=10)
    handled: list[int] = []
    for _ in range(8):
        left = 4
        while left and (popped := await pop(store, "q", 8)).messages:
            for message in popped.messages[:left]:
                await ack(store, message, popped.lease_id)
                handled.append(message.seq)
            left -= min(left, len(popped.messages))
        clock.advance(10)
    assert handled == list(range(1, 9))
    assert await dead_letters(store) == []


async def test_one_left_of_several_has_not_been_alone(store: Store, clock: ManualClock) -> None:
    await ordered(store, 3, retryLimit=0, leaseTime=10)
    popped = await pop(store, "q", 3)
    for message in (popped.messages[0], popped.messages[2]):
        await ack(store, message, popped.lease_id)
    clock.advance(10)
    message, _ = await pop_one(store, "q")
    assert (message.seq, message.attempts) == (2, 1)
    clock.advance(10)
    await let_time_work(store)
    assert [letter.seq for letter in await dead_letters(store)] == [2]


async def test_one_message_each_of_two_partitions_is_a_lease_over_several(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("q", options={"retryLimit": 0})
    for partition in "ab":
        await push(store, "q", partition=partition)
    popped = await pop(store, "q", 10, partitions=2, lease_seconds=10)
    assert len(popped.messages) == 2
    clock.advance(10)
    await let_time_work(store)
    assert await dead_letters(store) == []
    for partition in "ab":
        # The leases expire one after the other, so that the dead letters have an order.
        clock.advance(1)
        popped = await pop(store, "q", 10, partitions=2, lease_seconds=10)
        assert [m.partition for m in popped.messages] == [partition]
    clock.advance(10)
    await let_time_work(store)
    assert [x.partition for x in (await dead_letters(store))[::-1]] == ["a", "b"]


async def test_a_partition_with_suspects_waits_for_a_pop_of_its_own(
    store: Store, clock: ManualClock
) -> None:
    await push_many(store, "q", 4, partition="b")
    await pop(store, "q", 4, lease_seconds=10)
    clock.advance(5)
    await push(store, "q", partition="a")
    await push(store, "q", partition="c")
    clock.advance(10)
    wide = {"partitions": 3, "lease_seconds": 10}
    first = await pop(store, "q", 10, **wide)
    second = await pop(store, "q", 10, **wide)
    third = await pop(store, "q", 10, **wide)
    taken = [[(m.partition, m.seq) for m in one.messages] for one in (first, second, third)]
    assert taken == [[("a", 1), ("c", 1)], [("b", 1), ("b", 2)], []]


HOW_LEASED = [
    "alone",
    "by name",
    "with others",
    "partitions",
    "after an ack",
    "after a whole lease",
]


@pytest.mark.parametrize("how", HOW_LEASED)
@pytest.mark.parametrize("count", [1, 2])
async def test_only_the_expiry_of_a_lease_over_one_message_counts(
    store: Store, clock: ManualClock, how: str, count: int
) -> None:
    await store.configure("q", options={"retryLimit": 0, "leaseTime": 10})
    partitions = ["a", "b"] if how == "with others" else ["a"]
    for partition in partitions:
        await push_many(store, "q", 1 if how.startswith("after") else count, partition=partition)
    match how:
        case "by name":
            await pop(store, "q", 2, partition="a")
        case "with others":
            await store.pop([Pop(queue="q", batch=2)] * 2)
        case "partitions":
            await pop(store, "q", 2, partitions=5)
        case "after an ack" | "after a whole lease":
            done = await pop(store, "q", 1)
            await push_many(store, "q", count, partition="a")
            one = ack_of(done.messages[0], done.lease_id)
            if how == "after a whole lease":
                one = one.__class__(lease_id=done.lease_id)
            await store.ack_and_pop([one], [Pop(queue="q", batch=2)])
        case _:
            await pop(store, "q", 2)
    clock.advance(10)
    await let_time_work(store)
    dead = await dead_letters(store)
    assert len(dead) == (len(partitions) if count == 1 else 0)


async def test_a_suspect_that_is_alone_stays_so_until_it_is_resolved(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 6, retryLimit=5, retryDelay=0, leaseTime=10)
    await pop(store, "q", 2)
    clock.advance(10)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, AckStatus.RELEASE)
    message, lease = await pop_one(store, "q")
    await ack(store, message, lease, FAILED)
    popped = await pop(store, "q", 6)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 2)]
    assert popped.lease_id
    await renew(store, popped.lease_id, 20)
    clock.advance(20)
    popped = await pop(store, "q", 6)
    assert [(m.seq, m.attempts) for m in popped.messages] == [(1, 3)]
    await ack_all(store, popped, DEAD)
    for expected in ([2], [3, 4, 5, 6]):
        popped = await pop(store, "q", 6)
        assert seqs_of(popped) == expected
        await ack_all(store, popped)


@pytest.mark.parametrize("how", ["seek", "delete group", "clear", "skip", "retention"])
async def test_suspects_end_with_what_ends_their_deliveries(
    store: Store, clock: ManualClock, how: str
) -> None:
    await store.configure("q", options={"leaseTime": 10, "retentionSeconds": 60})
    await push_many(store, "q", 4)
    await pop(store, "q", 4, group=GROUP)
    clock.advance(10)
    assert seqs_of(await pop(store, "q", 4, group=GROUP)) == [1, 2]
    first = 1
    match how:
        case "seek":
            await store.call(Seek(group=GROUP, queue="q", to=SeekTo.START))
        case "delete group":
            await store.delete_group(GROUP, queue="q")
        case "clear":
            await store.clear_queue("q")
            await push_many(store, "q", 4)
            first = 5
        case "skip":
            for seq in (1, 2, 3, 4):
                await store.skip("q", GROUP, "Default", seq, "not wanted")
            await push_many(store, "q", 4)
            first = 5
        case _:
            clock.advance(50)
            await let_time_work(store)
            await push_many(store, "q", 4)
            first = 5
    popped = await pop(store, "q", 4, group=GROUP)
    assert seqs_of(popped) == list(range(first, first + 4))
    assert {message.attempts for message in popped.messages} == {1}


async def test_with_dead_lettering_off_a_culprit_is_retried_for_ever_alone(
    store: Store, clock: ManualClock
) -> None:
    await ordered(store, 2, retryLimit=0, dlqAfterMaxRetries=False, leaseTime=10)
    await pop(store, "q", 2)
    for attempt in (1, 2, 3, 4):
        clock.advance(10)
        popped = await pop(store, "q", 2)
        assert [(m.seq, m.attempts) for m in popped.messages] == [(1, attempt)]


async def test_only_what_counts_is_counted_as_failed(store: Store, clock: ManualClock) -> None:
    await ordered(store, 3, leaseTime=10)
    for failed in (0, 0, 1, 2):
        assert (await stats(store, "q")).failed == failed
        await pop(store, "q", 3 if not failed else 1)
        clock.advance(10)
        await let_time_work(store)


@pytest.mark.parametrize("place", POSTGRES_NAMES[-1:], indirect=True)
async def test_a_pop_of_suspects_does_not_go_through_the_backlog(
    place: Place, store: Store, clock: ManualClock
) -> None:
    await ordered(store, 4, leaseTime=10)
    await pop(store, "q", 4)
    clock.advance(10)
    connection = await asyncpg.connect(place.address)
    try:
        # To go through so many would take minutes.
        await connection.execute(f"update {place.schema}.partitions set last_seq = 1000000000")
    finally:
        await connection.close()
    async with asyncio.timeout(10):
        assert seqs_of(await pop(store, "q", 4)) == [1, 2]
