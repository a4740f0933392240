"""Leases on SQLite run out on time, though the note of when to look is not kept up with each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from monarq.clock import ManualClock
from monarq.store.sqlite import SqliteStore
from tests.store.calls import ack_all, pop, push, push_many, renew


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def open_file(path: Path, clock: ManualClock) -> SqliteStore:
    return await SqliteStore.open(str(path), clock=clock, cipher=None)


@pytest.fixture
async def store(path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    async with await open_file(path, clock) as opened:
        yield opened


async def notes(store: SqliteStore) -> list[int | None]:
    def read() -> list[int | None]:
        db = store._connection.db
        rows = db.execute("select check_at, lease_until from cursors order by partition_id")
        return [_checked(*row) for row in rows.fetchall()]

    return await store._connection.run(read)


def _checked(check_at: int | None, lease_until: int | None) -> int | None:
    if lease_until is not None:
        assert check_at is not None
        assert check_at <= lease_until
    return check_at


async def expired(store: SqliteStore) -> int:
    return (await store.lifecycle(limit=100)).expired


async def test_a_partition_that_is_popped_all_the_time_moves_its_note_once(
    store: SqliteStore, clock: ManualClock
) -> None:
    await push_many(store, "q", 20)
    first_until = clock.now() + 60_000_000
    for _ in range(10):
        popped = await pop(store, "q", lease_seconds=60.0)
        assert await notes(store) == [first_until]
        await ack_all(store, popped)
        assert await notes(store) == [first_until]
        clock.advance(1)


async def test_a_lease_behind_an_answered_one_runs_out_at_its_own_time(
    store: SqliteStore, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    await ack_all(store, await pop(store, "q", lease_seconds=10.0))
    clock.advance(9)
    await pop(store, "q", lease_seconds=10.0)
    clock.advance(9)
    assert await expired(store) == 0
    assert await notes(store) == [clock.now() + 1_000_000]
    clock.advance(1)
    assert await expired(store) == 1
    assert await notes(store) == [None]


async def test_a_shorter_lease_than_the_last_one_runs_out_sooner(
    store: SqliteStore, clock: ManualClock
) -> None:
    await push_many(store, "q", 2)
    await ack_all(store, await pop(store, "q", lease_seconds=3600.0))
    await pop(store, "q", lease_seconds=5.0)
    assert (await store.lifecycle(limit=100)).next_at == clock.now() + 5_000_000
    clock.advance(5)
    assert await expired(store) == 1


async def test_a_renewed_lease_is_looked_at_and_left_until_its_new_end(
    store: SqliteStore, clock: ManualClock
) -> None:
    await push(store, "q")
    popped = await pop(store, "q", lease_seconds=5.0)
    await renew(store, popped.lease_id or "", 60.0)
    clock.advance(30)
    report = await store.lifecycle(limit=100)
    assert (report.expired, report.next_at) == (0, clock.now() + 30_000_000)
    clock.advance(30)
    assert await expired(store) == 1


async def done_with_five_partitions(store: SqliteStore) -> None:
    """Each was leased once, and its note is still there."""
    for number in range(5):
        await push(store, "q", partition=f"p{number}")
    for _ in range(5):
        await ack_all(store, await pop(store, "q", lease_seconds=5.0))


async def test_partitions_without_a_lease_are_looked_at_once(
    store: SqliteStore, clock: ManualClock
) -> None:
    await done_with_five_partitions(store)
    clock.advance(5)
    assert (await store.lifecycle(limit=3)).next_at == clock.now()
    await store.lifecycle(limit=3)
    assert await notes(store) == [None] * 5


async def test_what_is_looked_at_in_vain_keeps_no_lease_from_running_out(
    store: SqliteStore, clock: ManualClock
) -> None:
    await done_with_five_partitions(store)
    await push(store, "q", partition="p9")
    await pop(store, "q", lease_seconds=5.0)
    clock.advance(5)
    assert [(await store.lifecycle(limit=2)).expired for _ in range(4)] == [0, 0, 1, 0]
