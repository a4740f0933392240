"""Numbers of leases rise through a SQLite file, whoever gives them and whatever is taken back."""

import sqlite3
from collections.abc import Iterator

import pytest

from monarq.store.sqlite.lease_numbers import LeaseNumbers


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("create table lease_numbers (last integer not null)")
    connection.execute("insert into lease_numbers (last) values (0)")
    yield connection
    connection.close()


def taken(db: sqlite3.Connection, holder: LeaseNumbers, count: int = 1) -> list[int]:
    holder.check(db)
    return [holder.give(db) for _ in range(count)]


def test_numbers_rise_whichever_holder_gives_them(db: sqlite3.Connection) -> None:
    holders = [LeaseNumbers(), LeaseNumbers()]
    numbers: list[int] = []
    for count in (1, 1, 5, 999, 1, 1001, 3000, 2):
        for holder in holders:
            numbers += taken(db, holder, count)
    assert numbers == sorted(set(numbers))


def test_one_holder_alone_leaves_none_out(db: sqlite3.Connection) -> None:
    holder = LeaseNumbers()
    numbers = [number for _ in range(1500) for number in taken(db, holder, 2)]
    assert numbers == list(range(1, 3001))


def test_who_comes_after_a_crash_gives_higher_ones(db: sqlite3.Connection) -> None:
    last = taken(db, LeaseNumbers(), 7)[-1]
    assert taken(db, LeaseNumbers())[0] > last


def test_a_block_that_was_rolled_back_is_nobodys(db: sqlite3.Connection) -> None:
    holder, other = LeaseNumbers(), LeaseNumbers()
    db.execute("begin")
    taken(db, holder)
    db.execute("rollback")
    holder.clear()
    numbers = taken(db, other) + taken(db, holder) + taken(db, other)
    assert numbers == sorted(set(numbers))


def test_numbers_given_before_a_rollback_are_not_given_again_in_the_same_transaction(
    db: sqlite3.Connection,
) -> None:
    holder = LeaseNumbers()
    db.execute("begin")
    numbers = taken(db, holder, 3)
    db.execute("savepoint request")
    holder.give(db)
    db.execute("rollback to request")
    holder.clear()
    numbers += [holder.give(db), holder.give(db)]
    db.execute("commit")
    numbers += taken(db, holder)
    assert numbers == sorted(set(numbers))
