"""Many pushers at once, also of several stores: no hole in any partition, nothing passed over."""

import asyncio
import random
from collections import defaultdict

import msgspec

from monarq.model import Push, Pushed, PushItem, PushStatus
from monarq.store import Store
from tests.store.calls import push, push_many, unwrap
from tests.store.conftest import OpenStore
from tests.store.scenarios import drain, every, stats


def crossing_requests(pushers: int, rounds: int) -> list[list[Push]]:
    """Each pusher goes through many partitions in an order of its own: made for deadlocks."""
    chance = random.Random(7)
    partitions = [f"p{n}" for n in range(8)]
    work: list[list[Push]] = []
    for pusher in range(pushers):
        requests = []
        for turn in range(rounds):
            chosen = chance.sample(partitions, 5) * 2
            chance.shuffle(chosen)
            requests.append(
                Push([
                    PushItem(f"q{chance.randrange(2)}", b"[%d,%d,%d]" % (pusher, turn, n), name)
                    for n, name in enumerate(chosen)
                ])
            )  # fmt: skip
        work.append(requests)
    return work


async def check_no_hole_and_each_pusher_in_order(
    store: Store, answers: list[Pushed], requests: list[list[Push]]
) -> None:
    seen: dict[int, list[int]] = defaultdict(list)
    for answer in answers:
        assert answer.status is PushStatus.QUEUED
        seen[answer.partition_id].append(answer.seq)
    for given in seen.values():
        assert sorted(given) == list(range(1, len(given) + 1))
    sent = sum(len(request.items) for each in requests for request in each)
    rows = [*await every(store.list_messages, "q0"), *await every(store.list_messages, "q1")]
    assert len(rows) == len(answers) == sent
    assert len({row.payload for row in rows}) == sent
    orders: dict[tuple[int, int], list[list[int]]] = defaultdict(list)
    for row in rows:
        pusher, *rest = msgspec.json.decode(row.payload)
        orders[row.partition_id, pusher].append(rest)
    for order in orders.values():
        assert order == sorted(order)
    for queue in ("q0", "q1"):
        assert (await stats(store, queue)).stored == sum(row.queue == queue for row in rows)


async def test_many_pushers_over_many_partitions_in_crossing_orders_leave_no_hole(
    store: Store,
) -> None:
    requests = crossing_requests(pushers=8, rounds=6)

    async def pusher(mine: list[Push]) -> list[Pushed]:
        answers: list[Pushed] = []
        for request in mine:
            answers += unwrap(await store.push([request]))
        return answers

    answered = await asyncio.gather(*(pusher(mine) for mine in requests))
    await check_no_hole_and_each_pusher_in_order(
        store, [answer for answers in answered for answer in answers], requests
    )


async def test_pushers_of_two_stores_in_crossing_orders_leave_no_hole(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    requests = crossing_requests(pushers=6, rounds=5)

    async def pusher(through: Store, mine: list[Push]) -> list[Pushed]:
        answers: list[Pushed] = []
        for request in mine:
            answers += unwrap(await through.push([request]))
        return answers

    answered = await asyncio.gather(
        *(pusher(stores[n % 2], mine) for n, mine in enumerate(requests))
    )
    await check_no_hole_and_each_pusher_in_order(
        store, [answer for answers in answered for answer in answers], requests
    )


async def test_two_stores_that_make_the_same_new_queue_at_once_make_one(
    store: Store, open_another: OpenStore
) -> None:
    stores = [store, await open_another()]
    for n in range(5):
        answers = await asyncio.gather(
            *(push(stores[k % 2], f"q{n}", partition=f"p{k % 3}") for k in range(6))
        )
        assert len({answer.partition_id for answer in answers}) == 3
        assert sorted(answer.seq for answer in answers) == [1, 1, 1, 2, 2, 2]
    assert len((await store.list_queues()).rows) == 5


async def test_a_reader_that_follows_a_cursor_while_pushes_commit_sees_each_message_once_in_order(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    total = 120
    pushed: list[int] = []

    async def pusher(through: Store, me: int) -> None:
        for n in range(total // 4):
            answer = await push(through, "q", b"[%d,%d]" % (me, n))
            pushed.append(answer.seq)

    async def reader(through: Store) -> list[bytes]:
        got: list[bytes] = []
        while len(got) < total:
            for message in await drain(through, "q", 5, group="follower"):
                assert message.seq == len(got) + 1
                got.append(message.payload)
            await asyncio.sleep(0)
        return got

    got, *_ = await asyncio.wait_for(
        asyncio.gather(reader(store), *(pusher([store, other][n % 2], n) for n in range(4))), 60
    )
    assert sorted(pushed) == list(range(1, total + 1))
    assert len(set(got)) == total
    for me in range(4):
        mine = [payload for payload in got if payload.startswith(b"[%d," % me)]
        assert mine == [b"[%d,%d]" % (me, n) for n in range(total // 4)]
    assert await drain(store, "q", group="follower") == []


async def test_readers_of_two_groups_both_see_everything_while_several_push(
    store: Store,
) -> None:
    async def pusher(partition: str) -> None:
        for _ in range(10):
            await push_many(store, "q", 3, partition=partition)

    async def reader(group: str) -> dict[int, list[int]]:
        got: dict[int, list[int]] = defaultdict(list)
        while sum(map(len, got.values())) < 90:
            for message in await drain(store, "q", 4, group=group):
                got[message.partition_id].append(message.seq)
            await asyncio.sleep(0)
        return got

    results = await asyncio.wait_for(
        asyncio.gather(reader("g1"), reader("g2"), *(pusher(name) for name in "abc")), 60
    )
    for got in results[:2]:
        assert got is not None
        assert [order for _, order in sorted(got.items())] == [list(range(1, 31))] * 3
