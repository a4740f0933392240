"""The lifecycle: bounded steps, a next time that strands nobody, safe from many processes."""

import asyncio

import pytest

from monarq.clock import SECOND, ManualClock
from monarq.errors import StoreUnavailableError
from monarq.model import ItemState, StartFrom
from monarq.store import Store
from tests.store.calls import ack_all, next_items, pop, pop_one, push, push_many, seqs
from tests.store.conftest import OpenStore
from tests.store.scenarios import (
    FAILED,
    WORK,
    dead_letters,
    drain,
    every,
    let_time_work,
    stats,
    visible_state,
)

pytestmark = pytest.mark.smoke


async def test_an_empty_store_has_nothing_to_do_and_says_when_at_most(
    store: Store, clock: ManualClock
) -> None:
    report = await store.lifecycle()
    assert (report.expired, report.promoted, report.buried, report.removed) == (0, 0, 0, 0)
    assert report.wake == []
    assert report.next_at is None or report.next_at > clock.now()


async def test_a_store_at_rest_is_not_changed_and_not_asked_for_again_at_once(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    await push_many(store, "q", 3)
    await push_many(store, "w", 3)
    await pop(store, "q")
    await pop(store, "w")
    await let_time_work(store)
    before = await visible_state(store)
    for _ in range(3):
        report = await store.lifecycle()
        assert report.next_at is None or report.next_at > clock.now()
        assert report.wake == []
    assert await visible_state(store) == before


async def test_the_next_time_is_never_behind_what_is_due(store: Store, clock: ManualClock) -> None:
    """Whoever sleeps until `next_at` and steps, again and again, strands nothing."""
    await store.configure("q", options={"retryLimit": 0, "leaseTime": 7})
    await store.configure(
        "w", kind=WORK, options={"maxAttempts": 1, "leaseTime": 11, "expireTimeout": 40}
    )
    await push(store, "q")
    await pop(store, "q")
    await push(store, "w", b"1")
    await pop(store, "w")
    await push(store, "w", b"2", delay_seconds=23)
    await push(store, "w", b"3", delay_seconds=60)
    start, seen = clock.now(), []
    for _ in range(100):
        report = await store.lifecycle()
        if report.expired or report.promoted or report.buried:
            seen.append(((clock.now() - start) // SECOND, report))
        if report.next_at is None or report.next_at > start + 100 * SECOND:
            break
        clock.advance(max(0, report.next_at - clock.now()) / SECOND)
    assert [letter.queue for letter in reversed(await dead_letters(store))] == [
        "q",
        "w",
        "w",
        "w",
    ]
    assert sum(report.promoted for _, report in seen) >= 1
    failed = [(letter.failed_at - start) / SECOND for letter in await dead_letters(store)]
    assert sorted(failed)[:2] == [7, 11]
    assert max(failed) == pytest.approx(40, abs=1)


@pytest.mark.parametrize("kind", ["ordered", "work"])
async def test_a_step_asks_for_the_next_before_what_is_pushed_meanwhile_is_too_old(
    store: Store, clock: ManualClock, kind: str
) -> None:
    if kind == "work":
        await store.configure("q", kind=WORK, options={"expireTimeout": 2})
    else:
        await store.configure("q", options={"maxWaitTimeSeconds": 2})
        await store.subscribe("g", StartFrom.ALL, queue="q")
    report = (await let_time_work(store))[-1]
    assert report.next_at == clock.now() + 2 * SECOND
    clock.advance(0.5)
    await push(store, "q")
    clock.advance(1.5)
    report = (await let_time_work(store))[-1]
    assert report.next_at == clock.now() + SECOND // 2
    clock.advance(0.5)
    await let_time_work(store)
    assert len(await dead_letters(store)) == 1


@pytest.mark.parametrize("seconds", [0.001, 0.1])
async def test_however_soon_something_is_too_old_steps_are_a_tenth_of_a_second_apart(
    store: Store, clock: ManualClock, seconds: float
) -> None:
    await store.configure("q", options={"maxWaitTimeSeconds": seconds})
    report = await store.lifecycle()
    assert report.next_at == clock.now() + SECOND // 10


async def test_a_step_promotes_no_more_than_about_its_limit_and_asks_for_the_next_at_once(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK)
    for _ in range(5):
        await push_many(store, "w", 10, delay_seconds=5)
    clock.advance(5)
    steps = []
    while True:
        report = await store.lifecycle(limit=10)
        if not report.promoted:
            break
        steps.append(report.promoted)
        assert report.wake == ["w"]
        if sum(steps) < 50:
            assert report.next_at is not None
            assert report.next_at <= clock.now()
    assert sum(steps) == 50
    assert max(steps) <= 20
    assert [row.seq for row in await next_items(store, "w")] == list(range(1, 51))


async def test_a_step_expires_no_more_than_about_its_limit(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"leaseTime": 5})
    await push_many(store, "w", 30)
    await pop(store, "w", 30)
    for n in range(30):
        await push(store, "q", partition=f"p{n}")
    for _ in range(30):
        await pop(store, "q", lease_seconds=5)
    clock.advance(5)
    total = 0
    for _ in range(20):
        report = await store.lifecycle(limit=5)
        assert report.expired <= 20
        total += report.expired
        if not report.expired:
            break
    assert total == 60
    assert (await stats(store, "w")).states["ready"] == 30
    assert len(await drain(store, "q", partitions=30)) == 30


async def test_lifecycles_of_two_stores_at_once_do_each_thing_once(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await store.configure("w", kind=WORK, options={"maxAttempts": 1, "leaseTime": 5})
    await store.configure("q", options={"retryLimit": 0, "leaseTime": 5})
    await push_many(store, "w", 10)
    await pop(store, "w", 10)
    await push_many(store, "w", 10, delay_seconds=5)
    for n in range(10):
        await push(store, "q", partition=f"p{n}")
    for _ in range(10):
        await pop(store, "q")
    clock.advance(5)
    reports = await asyncio.gather(*(through.lifecycle(limit=8) for through in (store, other) * 4))
    reports += await let_time_work(store)
    assert sum(report.promoted for report in reports) == 10
    assert len(await dead_letters(store, queue="w")) == 10
    assert len(await dead_letters(store, queue="q")) == 10
    row = await stats(store, "w")
    assert (row.dead, row.states["ready"]) == (10, 10)
    assert len(await every(store.list_attempts)) == 10


async def test_a_lifecycle_beside_pops_and_acks_of_another_store_loses_nothing(
    store: Store, open_another: OpenStore, clock: ManualClock
) -> None:
    other = await open_another()
    await store.configure("q", options={"retryLimit": 1000, "retryDelay": 0})
    await push_many(store, "q", 20)
    got: list[int] = []

    async def consumer() -> None:
        while len(got) < 20:
            popped = await pop(other, "q", 2, lease_seconds=5)
            if not popped.messages:
                clock.advance(1)
            elif len(got) % 3 == 0 and popped.messages[0].attempts == 1:
                clock.advance(5)
            else:
                await ack_all(other, popped)
                got.extend(message.seq for message in popped.messages)

    async def cleaner() -> None:
        while len(got) < 20:
            await store.lifecycle()

    await asyncio.wait_for(asyncio.gather(consumer(), cleaner()), 60)
    assert got == list(range(1, 21))
    assert await drain(store, "q") == []


async def test_waiting_for_a_retry_needs_no_lifecycle(store: Store, clock: ManualClock) -> None:
    await store.configure("q", options={"retryDelay": 5000})
    await push(store, "q")
    await ack_all(store, await pop(store, "q"), FAILED)
    clock.advance(5)
    assert await seqs(store, "q") == [1]


async def test_the_lifecycle_wakes_nobody_for_what_only_died(
    store: Store, clock: ManualClock
) -> None:
    await store.configure("w", kind=WORK, options={"expireTimeout": 5})
    await push(store, "w")
    clock.advance(5)
    report = await store.lifecycle()
    assert (report.buried, report.wake) == (1, [])


async def test_the_lifecycle_does_not_touch_a_live_lease(store: Store, clock: ManualClock) -> None:
    await store.configure("w", kind=WORK)
    await push(store, "q")
    await push(store, "w")
    popped = await pop(store, "q", lease_seconds=10)
    item, _ = await pop_one(store, "w", lease_seconds=10)
    clock.advance(9.999999)
    await let_time_work(store)
    assert (await store.get_item(item.id)).state is ItemState.LEASED
    assert (await ack_all(store, popped)).lease_released


# --- the store itself ---


async def test_everything_is_there_after_a_restart(store: Store, open_another: OpenStore) -> None:
    await store.configure("w", kind=WORK)
    for queue in ("q", "w"):
        await push_many(store, queue, 5)
        await ack_all(store, await pop(store, queue, 2))
        await pop(store, queue)
    await store.subscribe("g", StartFrom.NEW, queue="q")
    await store.set_setting("key", "value")
    before = await visible_state(store)
    await store.close()
    restarted = await open_another()
    assert await visible_state(restarted) == before


async def test_closing_twice_is_harmless_and_calls_after_it_say_so(store: Store) -> None:
    await store.ping()
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError):
        await push(store, "q")
    with pytest.raises(StoreUnavailableError):
        await store.ping()


async def test_calls_under_way_are_finished_before_a_close(
    store: Store, open_another: OpenStore
) -> None:
    tasks = [asyncio.create_task(push_many(store, "q", 10)) for _ in range(10)]
    await asyncio.sleep(0)
    await store.close()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    done = sum(10 for outcome in outcomes if not isinstance(outcome, BaseException))
    for outcome in outcomes:
        assert not isinstance(outcome, BaseException) or isinstance(outcome, StoreUnavailableError)
    reopened = await open_another()
    await push(reopened, "q")
    assert (await stats(reopened, "q")).stored == done + 1


async def test_writes_of_another_store_are_noticed(store: Store, open_another: OpenStore) -> None:
    other = await open_another()
    await push(other, "q")
    assert await store.changed()
    await store.changed()
    await push(other, "q")
    assert await store.changed()
    await pop(other, "q")
    assert await store.changed()


async def test_settings_are_shared_changed_and_removed(
    store: Store, open_another: OpenStore
) -> None:
    other = await open_another()
    assert await store.get_settings() == {}
    await store.set_setting("a", "1")
    await other.set_setting("b", "ünï 'quoted' 🎉")
    assert await store.get_settings() == {"a": "1", "b": "ünï 'quoted' 🎉"}
    await other.set_setting("a", "2")
    await store.set_setting("b", None)
    await store.set_setting("never was", None)
    assert await other.get_settings() == {"a": "2"}
