"""The order of a work queue: against a literal "every push ages all waiting items by one"."""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import MonarqError
from monarq.model import Message, Pop, PushItem
from monarq.store import Store
from tests.store.calls import ack, ack_all, next_items, pop, pop_one, push, push_items, push_many
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    COMPLETED,
    FAILED,
    RELEASE,
    RETRY,
    WORK,
    drain,
    every,
    let_time_work,
    numbers,
)


@dataclass
class Waiting:
    name: int
    priority: int
    turn: int
    state: str = "ready"
    waited: int = 0
    until: int = 0
    attempts: int = 0

    @property
    def effective(self) -> int:
        return self.priority + self.waited


@dataclass
class LiteralQueue:
    """Ages every ready item on every push, as QueueCTL does."""

    items: dict[int, Waiting] = field(default_factory=dict)
    turns: int = 0

    def next_turn(self) -> int:
        self.turns += 1
        return self.turns

    def push(self, name: int, priority: int, until: int | None) -> None:
        for item in self.items.values():
            if item.state == "ready":
                item.waited += 1
        made = Waiting(name, priority, self.next_turn())
        if until is not None:
            made.state, made.until = "scheduled", until
        self.items[name] = made

    def settle(self, now: int) -> None:
        for item in self.items.values():
            if item.state in ("scheduled", "leased") and item.until <= now:
                item.state = "ready"

    def order(self) -> list[Waiting]:
        ready = [item for item in self.items.values() if item.state == "ready"]
        return sorted(ready, key=lambda item: (-item.effective, item.turn))

    def lease(self, count: int, until: int) -> list[Waiting]:
        taken = self.order()[:count]
        for item in taken:
            item.state, item.until = "leased", until
            item.attempts += 1
        return taken

    def to_tail(self, item: Waiting) -> None:
        item.waited, item.turn = 0, self.next_turn()


async def check_order(store: Store, literal: LiteralQueue) -> None:
    expected = [(item.name, item.effective) for item in literal.order()]
    actual = await next_items(store, "w", 1000)
    assert [(int(item.payload), item.effective_priority) for item in actual] == expected


@pytest.mark.parametrize("seed", range(8))
async def test_the_order_is_that_of_aging_every_waiting_item_on_every_push(
    store: Store, clock: ManualClock, seed: int
) -> None:
    await store.configure(
        "w",
        kind=WORK,
        options={"maxAttempts": 1000, "backoffBase": 1, "backoffCap": 3, "leaseTime": 4},
    )
    chance = random.Random(seed)
    literal = LiteralQueue()
    leased: dict[int, tuple[Message, str]] = {}
    names = 0
    for _ in range(60):
        action = chance.choices(
            ["push", "pop", "answer", "time", "retry item"], weights=[5, 4, 5, 2, 1]
        )[0]
        if action == "push":
            items = []
            for _ in range(chance.randrange(1, 4)):
                names += 1
                priority = chance.randrange(-3, 4)
                run_at = clock.now() + 2 * SECOND if chance.random() < 0.2 else None
                items.append(PushItem("w", b"%d" % names, priority=priority, run_at=run_at))
                literal.push(names, priority, run_at)
            await push_items(store, *items)
        elif action == "pop":
            count = chance.randrange(1, 4)
            popped = await pop(store, "w", count)
            taken = literal.lease(count, clock.now() + 4 * SECOND)
            assert numbers(popped) == [item.name for item in taken]
            assert [m.attempts for m in popped.messages] == [item.attempts for item in taken]
            for message in popped.messages:
                assert popped.lease_id
                leased[int(message.payload)] = (message, popped.lease_id)
        elif action == "answer" and leased:
            name = chance.choice(sorted(leased))
            message, lease = leased.pop(name)
            item = literal.items[name]
            status = chance.choice([COMPLETED, FAILED, RETRY, RETRY, RELEASE])
            later = clock.now() + SECOND if status is RETRY and chance.random() < 0.4 else None
            await ack(store, message, lease, status, retry_at=later)
            if status is COMPLETED:
                item.state = "done"
            elif status is FAILED:
                item.state, item.until = "scheduled", clock.now() + SECOND
            elif status is RETRY:
                literal.to_tail(item)
                item.state = "scheduled" if later else "ready"
                item.until = later or 0
            else:
                item.state = "ready"
                item.attempts -= 1
        elif action == "time":
            clock.advance(chance.choice([1, 2, 4]))
            await let_time_work(store)
            literal.settle(clock.now())
            for name in [n for n in leased if literal.items[n].state != "leased"]:
                del leased[name]
        elif action == "retry item":
            done = [item for item in literal.items.values() if item.state == "done"]
            if done:
                item = chance.choice(done)
                rows = await every(store.list_items, "w")
                [item_id] = [row.id for row in rows if int(row.payload) == item.name]
                await store.retry_item(item_id)
                literal.to_tail(item)
                item.state, item.attempts = "ready", 0
        await check_order(store, literal)


async def test_with_equal_priorities_it_is_first_in_first_out(store: Store) -> None:
    await store.configure("w", kind=WORK)
    for _ in range(5):
        await push_many(store, "w", 4)
    assert numbers(await drain(store, "w", 3)) == [1, 2, 3, 4] * 5


async def test_a_higher_priority_goes_first_until_a_lower_one_has_waited_long_enough(
    store: Store,
) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w", b"1", priority=0)
    for n in range(2, 8):
        await push(store, "w", b"%d" % n, priority=3)
    # The first has aged by 6, the second by 5, and so on: 6, 8, 7, 6, 5, 4, 3.
    order = [(int(i.payload), i.effective_priority) for i in await next_items(store, "w")]
    assert order == [(2, 8), (3, 7), (1, 6), (4, 6), (5, 5), (6, 4), (7, 3)]
    assert numbers(await drain(store, "w")) == [2, 3, 1, 4, 5, 6, 7]


async def test_the_priority_of_an_item_without_one_is_the_queues_default(store: Store) -> None:
    await store.configure("w", kind=WORK, options={"defaultPriority": 2})
    await push_items(
        store,
        PushItem("w", b"1", priority=0),
        PushItem("w", b"2"),
        PushItem("w", b"3", priority=9),
    )
    popped = await pop(store, "w", 3)
    assert [(int(m.payload), m.priority) for m in popped.messages] == [(3, 9), (2, 2), (1, 0)]


async def test_an_item_does_not_age_while_it_is_leased(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "w", b"1", priority=0)
    await push_many(store, "w", 2, priority=-1000)
    item, lease = await pop_one(store, "w")
    assert item.payload == b"1"
    await push_many(store, "w", 7, priority=-1000)
    await ack(store, item, lease, RELEASE)
    [first, *_] = await next_items(store, "w")
    assert (first.payload, first.effective_priority) == (b"1", 2)
    await push(store, "w", priority=-1000)
    [first, *_] = await next_items(store, "w")
    assert (first.payload, first.effective_priority) == (b"1", 3)


async def test_an_item_does_not_age_while_it_is_scheduled(store: Store, clock: ManualClock) -> None:
    await store.configure("w", kind=WORK)
    answer = await push(store, "w", b"1", priority=0, delay_seconds=10)
    await push_many(store, "w", 5, priority=-1000)
    clock.advance(10)
    await let_time_work(store)
    assert (await store.get_item(answer.message_id)).effective_priority == 0
    await push(store, "w", priority=-1000)
    assert (await store.get_item(answer.message_id)).effective_priority == 1


async def test_duplicates_and_pushes_to_other_queues_age_nobody(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await store.configure("other", kind=WORK)
    answer = await push(store, "w", transaction_id="a", priority=0)
    await push(store, "w", transaction_id="a")
    await push_many(store, "other", 5)
    await push_many(store, "ordered", 5)
    assert (await store.get_item(answer.message_id)).effective_priority == 0
    await push(store, "w", transaction_id="b")
    assert (await store.get_item(answer.message_id)).effective_priority == 1


async def test_a_refused_push_ages_nobody(store: Store) -> None:
    await store.configure("w", kind=WORK, options={"maxSize": 2})
    answer = await push(store, "w", priority=0)
    for _ in range(3):
        with pytest.raises(MonarqError):
            await push_many(store, "w", 2)
    assert (await store.get_item(answer.message_id)).effective_priority == 0


async def test_retry_goes_to_the_tail_behind_all_of_its_priority(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 4)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, RETRY)
    assert numbers(await drain(store, "w", 1)) == [2, 3, 4, 1]


async def test_two_retried_items_keep_the_order_of_their_retries(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 3)
    popped = await pop(store, "w", 3)
    for n in (2, 0, 1):
        await ack(store, popped.messages[n], popped.lease_id, RETRY)
    assert numbers(await drain(store, "w", 1)) == [3, 1, 2]


async def test_released_and_expired_items_keep_their_place(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"leaseTime": 10})
    await push_many(store, "w", 4)
    popped = await pop(store, "w", 3)
    await ack(store, popped.messages[1], popped.lease_id, RELEASE)
    assert [int(item.payload) for item in await next_items(store, "w")] == [2, 4]
    clock.advance(10)
    await let_time_work(store)
    assert [int(item.payload) for item in await next_items(store, "w")] == [1, 2, 3, 4]


async def test_a_failed_item_keeps_its_place_when_its_backoff_is_over(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"backoffBase": 2})
    await push_many(store, "w", 3)
    item, lease = await pop_one(store, "w")
    await ack(store, item, lease, FAILED)
    assert [int(row.payload) for row in await next_items(store, "w")] == [2, 3]
    clock.advance(2)
    await let_time_work(store)
    assert [int(row.payload) for row in await next_items(store, "w")] == [1, 2, 3]


async def test_scheduled_items_that_are_due_together_come_in_the_order_of_their_pushes(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    at = clock.now() + 10 * SECOND
    for n in range(1, 6):
        await push(store, "w", b"%d" % n, run_at=at)
        clock.advance(0.5)
    clock.advance(8)
    assert numbers(await drain(store, "w", 2)) == [1, 2, 3, 4, 5]


async def test_next_items_shows_the_order_without_touching_it(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_items(store, *(PushItem("w", b"%d" % n, priority=n % 3) for n in range(9)))
    shown = [item.payload for item in await next_items(store, "w")]
    assert [item.payload for item in await next_items(store, "w", 4)] == shown[:4]
    assert [message.payload for message in await drain(store, "w", 1)] == shown


# --- sharing ---


async def test_23_items_for_20_and_6_and_1_are_dealt_16_and_6_and_1(store: Store) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 23)
    outcomes = await store.pop([Pop(queue="w", batch=batch) for batch in (20, 6, 1)])
    dealt = []
    for outcome in outcomes:
        assert not isinstance(outcome, MonarqError)
        dealt.append(numbers(outcome))
    assert dealt == [
        [1, 4, 6, 8, 10, 12, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23],
        [2, 5, 7, 9, 11, 13],
        [3],
    ]
    leases = {outcome.lease_id for outcome in outcomes if not isinstance(outcome, MonarqError)}
    assert len(leases) == 3


@pytest.mark.parametrize("seed", range(5))
async def test_any_number_of_requests_share_as_if_dealt_one_at_a_time(
    store: Store, seed: int
) -> None:
    chance = random.Random(seed)
    await store.configure("w", kind=WORK)
    await store.configure("other", kind=WORK)
    items = chance.randrange(1, 40)
    wants = [chance.randrange(1, 12) for _ in range(chance.randrange(1, 7))]
    await push_many(store, "w", items)
    await push_many(store, "other", 2)
    requests = [Pop(queue="w", batch=want) for want in wants]
    at = chance.randrange(len(requests) + 1)
    requests.insert(at, Pop(queue="other", batch=5))
    outcomes = await store.pop(requests)
    other = outcomes.pop(at)
    assert not isinstance(other, MonarqError)
    assert numbers(other) == [1, 2]
    hands: list[list[int]] = [[] for _ in wants]
    deck = list(range(1, items + 1))
    while deck and any(len(hand) < want for hand, want in zip(hands, wants, strict=True)):
        for hand, want in zip(hands, wants, strict=True):
            if deck and len(hand) < want:
                hand.append(deck.pop(0))
    for outcome, hand in zip(outcomes, hands, strict=True):
        assert not isinstance(outcome, MonarqError)
        assert numbers(outcome) == hand
        assert (outcome.lease_id is None) == (not hand)


async def test_each_share_has_a_lease_of_its_own(store: Store, clock: ManualClock) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 4)
    one, two = await store.pop(
        [Pop(queue="w", batch=2, lease_seconds=10), Pop(queue="w", batch=2, lease_seconds=99)]
    )
    assert not isinstance(one, MonarqError)
    assert not isinstance(two, MonarqError)
    assert (one.lease_until, two.lease_until) == (
        clock.now() + 10 * SECOND,
        clock.now() + 99 * SECOND,
    )
    clock.advance(10)
    again = await pop(store, "w", 4)
    assert numbers(again) == numbers(one)
    assert (await ack_all(store, two)).count == 2


async def test_consumers_of_two_stores_never_get_the_same_item(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    await store.configure("w", kind=WORK)
    await push_many(store, "w", 60)

    async def consumer(through: Store) -> list[int]:
        return [int(message.payload) for message in await drain(through, "w", 3)]

    got = await asyncio.gather(*(consumer(through) for through in (store, other) * 2))
    assert sorted(n for each in got for n in each) == list(range(1, 61))
