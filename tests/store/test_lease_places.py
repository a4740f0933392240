"""How a SQLite store finds what a lease id alone covers: by the place in it, or by its number."""

from pathlib import Path

import pytest

from monarq.clock import SystemClock
from monarq.errors import LeaseUnknownError
from monarq.ids import parse_lease_id, place_of
from monarq.model import Ack
from monarq.store.sqlite import SqliteStore
from tests.store.calls import pop, push, push_many, unwrap


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def open_file(path: Path) -> SqliteStore:
    return await SqliteStore.open(str(path), clock=SystemClock(), cipher=None)


async def leased_by_number(store: SqliteStore) -> int:
    def count() -> int:
        db = store._connection.db
        [rows] = db.execute("select count(*) from cursors where lease_spread = 1").fetchone()
        return int(rows)

    return await store._connection.run(count)


async def test_the_id_of_a_lease_on_one_partition_says_which(path: Path) -> None:
    async with await open_file(path) as store:
        pushed = await push(store, "q")
        popped = await pop(store, "q")
        place = place_of(parse_lease_id(popped.lease_id or "")[1])
        assert place is not None
        assert place[0] == pushed.partition_id
        assert await leased_by_number(store) == 0


async def test_a_lease_that_may_be_on_several_is_found_by_its_number(path: Path) -> None:
    async with await open_file(path) as store:
        for partition in ("a", "b", "c"):
            await push(store, "q", partition=partition)
        popped = await pop(store, "q", 3, partitions=3)
        assert len(popped.messages) == 3
        assert await leased_by_number(store) == 3
    async with await open_file(path) as store:
        assert unwrap(await store.ack([Ack(lease_id=popped.lease_id)])).count == 3


async def test_a_later_lease_on_one_partition_is_not_found_by_number_any_more(path: Path) -> None:
    async with await open_file(path) as store:
        await push_many(store, "q", 2)
        first = await pop(store, "q", 1, partitions=2)
        unwrap(await store.ack([Ack(lease_id=first.lease_id)]))
        second = await pop(store, "q", 1)
        assert await leased_by_number(store) == 0
        assert unwrap(await store.ack([Ack(lease_id=second.lease_id)])).count == 1


async def test_the_place_alone_entitles_nobody(path: Path) -> None:
    async with await open_file(path) as store:
        await push_many(store, "q", 2)
        popped = await pop(store, "q", 2)
        number, token = parse_lease_id(popped.lease_id or "")
        place = token[16:]
        forged = [
            f"{number}-{'0' * 16}{place}",
            f"{number + 1}-{token}",
            f"{number}-{token[:16]}",
            f"{number}-{token[:16]}-999-999",
        ]
        for lease_id in forged:
            with pytest.raises(LeaseUnknownError):
                unwrap(await store.ack([Ack(lease_id=lease_id)]))
        assert unwrap(await store.ack([Ack(lease_id=popped.lease_id)])).count == 2


async def test_a_lease_whose_group_was_deleted_is_not_known(path: Path) -> None:
    async with await open_file(path) as store:
        await push(store, "q")
        popped = await pop(store, "q", group="g", start=0)
        await store.delete_group("g")
        with pytest.raises(LeaseUnknownError):
            unwrap(await store.ack([Ack(lease_id=popped.lease_id, group="g")]))
