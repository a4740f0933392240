"""What only the SQLite store has: a file, its disk, and other processes that open it."""

import asyncio
import contextlib
import multiprocessing
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from monarq.clock import ManualClock, SystemClock
from monarq.errors import SchemaVersionError, StoreUnavailableError
from monarq.model import Ack, Pop, Push, PushItem
from monarq.store.sqlite import SqliteStore
from monarq.store.sqlite import connection as connection_module
from tests.store.calls import ack_all, pop, push, push_items, push_many
from tests.store.scenarios import drain, stats


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


async def open_file(path: Path | str) -> SqliteStore:
    return await SqliteStore.open(str(path), clock=SystemClock(), cipher=None)


def read(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    async with await open_file(path) as opened:
        yield opened


# --- opening ---------------------------------------------------------------------------------


async def test_the_directory_of_the_file_is_made(tmp_path: Path) -> None:
    path = tmp_path / "not" / "there" / "store.db"
    async with await open_file(path) as store:
        await push(store, "q")
    assert path.is_file()


async def test_a_directory_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreUnavailableError, match="directory"):
        await open_file(tmp_path / "file" / "store.db")


async def test_a_file_that_is_no_database_is_a_clear_error_and_is_left_alone(path: Path) -> None:
    content = b"dear diary " * 1000
    write(path, content)
    with pytest.raises(StoreUnavailableError, match="not a SQLite database"):
        await open_file(path)
    assert read(path) == content


async def test_a_database_of_another_program_is_a_clear_error_and_is_left_alone(
    path: Path,
) -> None:
    with sqlite3.connect(path) as other:
        other.execute("create table recipes (name text)")
    other.close()
    before = read(path)
    with pytest.raises(SchemaVersionError, match="another program"):
        await open_file(path)
    assert read(path) == before


async def test_a_damaged_file_is_a_clear_error(path: Path) -> None:
    async with await open_file(path) as store:
        for _ in range(50):
            await push_many(store, "q", 20)
    content = bytearray(read(path))
    content[4096:] = b"\xff" * (len(content) - 4096)
    write(path, content)
    with pytest.raises(StoreUnavailableError, match=r"damaged|not a SQLite database"):
        async with await open_file(path) as store:
            await store.list_queues()


async def test_what_was_answered_survives_a_restart(path: Path) -> None:
    async with await open_file(path) as store:
        await push_many(store, "q", 5)
        popped = await pop(store, "q", 2)
        await ack_all(store, popped)
    async with await open_file(path) as store:
        assert [message.seq for message in await drain(store, "q")] == [3, 4, 5]


async def test_the_file_is_synced_with_every_commit(store: SqliteStore, path: Path) -> None:
    def settings() -> tuple[object, object]:
        db = store._connection.db
        return (
            db.execute("pragma journal_mode").fetchone()[0],
            db.execute("pragma synchronous").fetchone()[0],
        )

    assert await store._connection.run(settings) == ("wal", 2)


# --- closing ---------------------------------------------------------------------------------


async def test_a_closed_store_says_so_and_closing_twice_is_harmless(path: Path) -> None:
    store = await open_file(path)
    await store.close()
    await store.close()
    with pytest.raises(StoreUnavailableError, match="closed"):
        await store.push([Push([PushItem("q", b"1")])])


async def test_calls_under_way_are_finished_before_it_closes(path: Path) -> None:
    store = await open_file(path)
    pushes = [asyncio.ensure_future(push(store, "q")) for _ in range(20)]
    await asyncio.sleep(0)
    await store.close()
    assert sorted(answer.seq for answer in await asyncio.gather(*pushes)) == list(range(1, 21))


async def test_a_cancelled_call_is_carried_out_whole_or_not_at_all(store: SqliteStore) -> None:
    for _ in range(20):
        call = asyncio.ensure_future(push_many(store, "q", 50))
        await asyncio.sleep(0)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    answer = await push(store, "q")
    assert answer.seq % 50 == 1
    assert [m.seq for m in await drain(store, "q", 1000)] == list(range(1, answer.seq + 1))


# --- trouble with the file -------------------------------------------------------------------


async def test_a_full_disk_is_an_error_that_stores_nothing_and_passes(store: SqliteStore) -> None:
    await push_many(store, "q", 3)

    def limit(pages: int) -> None:
        store._connection.db.execute(f"pragma max_page_count = {pages}")

    [used] = await store._connection.run(
        lambda: store._connection.db.execute("pragma page_count").fetchone()
    )
    await store._connection.run(lambda: limit(used + 1))
    big = [PushItem("q", b'"%s"' % (b"x" * 100_000)) for _ in range(10)]
    with pytest.raises(StoreUnavailableError, match="full"):
        await push_items(store, *big)
    assert (await stats(store, "q")).stored == 3
    await store._connection.run(lambda: limit(1_000_000))
    assert (await push_items(store, *big))[0].seq == 4
    assert [m.seq for m in await drain(store, "q")] == list(range(1, 14))


async def test_a_file_that_others_keep_locked_is_an_error_that_passes(
    store: SqliteStore, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await push(store, "q")
    monkeypatch.setattr(connection_module, "BUSY_SECONDS", 0.05)
    await store._connection.run(lambda: store._connection.db.execute("pragma busy_timeout = 50"))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(StoreUnavailableError, match="locked"):
        await push(store, "q")
    assert len((await store.list_queues()).rows) == 1
    other.execute("rollback")
    other.close()
    assert (await push(store, "q")).seq == 2


def files_of(path: Path) -> list[Path]:
    return [Path(f"{path}{ending}") for ending in ("", "-wal", "-shm")]


def move(path: Path, to: Path) -> None:
    for here, there in zip(files_of(path), files_of(to), strict=True):
        assert not there.exists()
        here.rename(there)


def delete(path: Path) -> None:
    for file in files_of(path):
        file.unlink(missing_ok=True)


def replace_by_a_backup(path: Path) -> None:
    with (
        contextlib.closing(sqlite3.connect(path)) as db,
        contextlib.closing(sqlite3.connect(f"{path}.backup")) as backup,
    ):
        db.backup(backup)
    Path(f"{path}.backup").replace(path)


async def test_a_file_that_is_moved_away_takes_nothing_until_it_is_back(
    store: SqliteStore, path: Path
) -> None:
    """SQLite itself would go on writing to it, and whoever starts next would find nothing."""
    await push(store, "q")
    away = path.with_name("away.db")
    move(path, away)
    for call in (push(store, "q"), pop(store, "q"), store.ping(), store.log_end("deliveries")):
        with pytest.raises(StoreUnavailableError, match="moved"):
            await call
    move(away, path)
    await store.ping()
    assert (await push(store, "q")).seq == 2


@pytest.mark.parametrize(
    "lose",
    [delete, replace_by_a_backup, lambda path: files_of(path)[1].unlink()],
    ids=["deleted", "replaced", "without its log"],
)
async def test_nothing_is_answered_that_goes_to_a_file_which_nobody_can_find(
    path: Path, lose: Callable[[Path], None]
) -> None:
    async with await open_file(path) as store:
        await push(store, "q")
        lose(path)
        with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
            await push(store, "q")
        delete(path)
    async with await open_file(path) as store:
        assert (await push(store, "q")).seq == 1


async def test_a_directory_that_is_left_does_not_part_a_store_from_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with await open_file("store.db") as store:
        monkeypatch.chdir("/")
        await push(store, "q")
        assert [m.seq for m in await drain(store, "q")] == [1]


def test_a_lock_is_waited_for_some_seconds() -> None:
    assert 5 <= connection_module.BUSY_SECONDS <= 60


async def test_the_event_loop_runs_on_while_the_file_is_locked(
    store: SqliteStore, path: Path
) -> None:
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    waiting = asyncio.ensure_future(push(store, "q"))
    turns = 0
    while turns < 100:
        await asyncio.sleep(0)
        turns += 1
    assert not waiting.done()
    other.execute("rollback")
    other.close()
    assert (await asyncio.wait_for(waiting, 30)).seq == 1


# --- other processes -------------------------------------------------------------------------


def _push_from_another_process(path: str, count: int) -> None:
    async def run() -> None:
        async with await open_file(path) as store:
            for _ in range(count):
                await push(store, "q")

    asyncio.run(run())


async def _in_processes(number: int, path: Path, count: int) -> None:
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(target=_push_from_another_process, args=(str(path), count))
        for _ in range(number)
    ]
    for process in processes:
        process.start()
    for process in processes:
        await asyncio.to_thread(process.join, 60)
        assert process.exitcode == 0


@pytest.mark.slow
async def test_several_processes_may_make_the_file_at_once(path: Path) -> None:
    await _in_processes(4, path, 5)
    async with await open_file(path) as store:
        assert [m.seq for m in await drain(store, "q")] == list(range(1, 21))


async def test_it_is_noticed_when_another_process_has_written(path: Path) -> None:
    async with await open_file(path) as store, await open_file(path) as other:
        assert not await store.changed()
        await push(store, "q")
        assert not await store.changed()
        await push(other, "q")
        assert await store.changed()
        assert not await store.changed()
        await store.pop([Pop(queue="q")])
        assert await other.changed()


async def test_settings_changed_by_another_process_hold_at_once(path: Path) -> None:
    async with await open_file(path) as store, await open_file(path) as other:
        await store.configure("q", options={"maxSize": 1})
        await push(other, "q")
        await store.configure("q", options={"maxSize": 2})
        assert (await push(other, "q")).seq == 2
        await store.pause_queue("q")
        assert (await pop(other, "q")).messages == []


async def test_a_memory_store_is_nobody_elses() -> None:
    async with await open_file(":memory:") as one, await open_file(":memory:") as two:
        await push(one, "q")
        assert (await two.list_queues()).rows == []
        assert not await one.changed()


# --- segments --------------------------------------------------------------------------------


async def test_a_batch_for_one_partition_is_one_row_whoever_sent_it(store: SqliteStore) -> None:
    await store.push([Push([PushItem("q", b"%d" % n)]) for n in range(500)])

    def count() -> int:
        [rows] = store._connection.db.execute("select count(*) from segments").fetchone()
        return int(rows)

    assert await store._connection.run(count) == 1
    assert [int(m.payload) for m in await drain(store, "q", 7)] == list(range(500))


async def test_a_consumed_part_of_a_segment_costs_no_rewrite(store: SqliteStore) -> None:
    await push_many(store, "q", 100)

    def contents() -> list[tuple[object, ...]]:
        return store._connection.db.execute("select * from segments").fetchall()

    before = await store._connection.run(contents)
    for _ in range(10):
        popped = await pop(store, "q", 7)
        await store.ack([Ack(lease_id=popped.lease_id)])
    assert await store._connection.run(contents) == before


async def test_time_is_the_callers_clock() -> None:
    clock = ManualClock()
    async with await SqliteStore.open(":memory:", clock=clock, cipher=None) as store:
        await push(store, "q")
        assert [m.created_at for m in await drain(store, "q")] == [clock.now()]


OPENER = """
import asyncio, sys
from monarq.model import Push, PushItem
from monarq.store import open_store

async def main():
    for _ in range(40):
        store = await open_store(sys.argv[1])
        [outcome] = await store.push([Push([PushItem("q", b"1")])])
        await store.list_queues()
        await store.close()
        if isinstance(outcome, Exception):
            raise outcome

asyncio.run(main())
"""


@pytest.mark.slow
def test_processes_that_open_and_close_the_file_all_the_time_do_not_lock_each_other_out(
    tmp_path: Path,
) -> None:
    """The first to open a file and the last to close it have it for themselves for a moment."""
    address = f"sqlite:///{tmp_path / 'mq.db'}"
    processes = [
        subprocess.Popen([sys.executable, "-c", OPENER, address], stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    said = [process.communicate(timeout=120)[1] for process in processes]
    assert said == [""] * 4
