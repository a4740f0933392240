"""Archive: every row is in the lake once, whatever is repeated, interrupted or removed."""

import asyncio
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from monarq.clock import ManualClock, SystemClock
from monarq.errors import ConflictError, InvalidRequestError, MonarqError, NotFoundError
from monarq.model import Ack, Pop, PushItem
from monarq.spark.access import SeqRange
from monarq.spark.lake import Lake, read
from monarq.spark.lake.commits import LakeState
from monarq.spark.pipelines import archive_plan
from monarq.spark.pipelines.archive import ArchiveOptions, write_task
from monarq.spark.pipelines.archive_plan import make_plan
from monarq.spark.pipelines.place import Place
from monarq.store import open_store
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.archiving import (
    archive,
    archiver,
    expect_all,
    expect_messages,
    fill_everything,
    rows_in_lake,
)
from tests.spark.seeding import Urls, fill, in_store, make_queue, numbered


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open_or_make(tmp_path / "lake", store="s")


@pytest.mark.slow
def test_all_tables_are_in_once_however_often_they_are_archived(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill_everything(store_url)
    assert archive(spark, lake, store_url) > 0
    expect_all(spark, lake, store_url)
    assert archive(spark, lake, store_url) == 0
    fill(store_url, numbered("orders", 100, partitions=9, first=500))
    fill(store_url, numbered("new", 10))
    in_store(store_url, answer_more)
    assert archive(spark, lake, store_url) > 110
    expect_all(spark, lake, store_url)


async def answer_more(store: Store) -> None:
    [popped] = await store.pop([Pop(queue="orders", group="other", batch=5)])
    assert not isinstance(popped, Exception)
    await store.ack([Ack(lease_id=popped.lease_id, group="other")])


@pytest.mark.slow
def test_a_broker_and_its_store_fill_the_same_lake(
    spark: SparkSession, lake: Lake, postgres_urls: Urls
) -> None:
    fill_everything(postgres_urls.store)
    archive(spark, lake, postgres_urls.broker)
    expect_all(spark, lake, postgres_urls.store)
    fill(postgres_urls.store, numbered("orders", 50, partitions=7, first=500))
    in_store(postgres_urls.store, answer_more)
    assert archive(spark, lake, postgres_urls.store) == 51
    assert archive(spark, lake, postgres_urls.broker) == 0
    expect_all(spark, lake, postgres_urls.store)


@pytest.mark.slow
def test_queues_archived_at_different_times_end_up_whole(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill_everything(store_url)
    archive(spark, lake, store_url, queues=["mäil*"])
    assert {row[0] for row in rows_in_lake(spark, lake, "messages")} == {"mäil/out"}
    assert rows_in_lake(spark, lake, "deliveries") == []
    archive(spark, lake, store_url, queues=["orders"], tables=["messages"])
    archive(spark, lake, store_url)
    expect_all(spark, lake, store_url)


def no_spark() -> SparkSession:
    pytest.fail("Spark was asked for")


def test_nothing_new_needs_no_spark(lake: Lake, store_url: str) -> None:
    make_queue(store_url, "empty")
    with lake.archiving():
        assert archiver(no_spark, lake, store_url).once() == 0
    assert lake.state().number == 0


def test_small_commits_and_small_tasks_add_up(
    spark: SparkSession, lake: Lake, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_plan, "TASK_MESSAGES", 40)
    fill(store_url, numbered("orders", 203, partitions=3))
    archive(spark, lake, store_url, batch_messages=100)
    assert lake.state().number == 3
    expect_messages(lake.root, store_url)


def test_a_million_messages_in_one_partition_are_cut_into_tasks_without_loss() -> None:
    whole = SeqRange("q", 1, "p", 11, 1_000_010)
    parts = [one for part in archive_plan._cut([whole], 300_000) for one in part]
    assert (parts[0].first_seq, parts[-1].last_seq) == (11, 1_000_010)
    assert all(a.last_seq + 1 == b.first_seq for a, b in itertools.pairwise(parts))
    assert max(one.last_seq - one.first_seq + 1 for one in parts) == 300_000


# --- two at a time -----------------------------------------------------------------------------


def test_two_archives_at_once_by_mistake_double_nothing(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    """On one machine the lock keeps the second one out. Here it does not, as between machines."""
    fill_everything(store_url)
    together = threading.Barrier(2, timeout=60)

    def run() -> Exception | None:
        together.wait()
        try:
            archiver(spark, Lake.open(lake.root), store_url, batch_messages=100).once()
        except MonarqError as error:
            return error
        return None

    with ThreadPoolExecutor(2) as pool:
        outcomes = [each.result() for each in [pool.submit(run), pool.submit(run)]]
    failed = [each for each in outcomes if each is not None]
    assert all(isinstance(each, ConflictError) for each in failed), failed
    archive(spark, lake, store_url)
    expect_all(spark, lake, store_url)


def test_a_batch_that_another_archive_has_overtaken_is_dropped_whole(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill_everything(store_url)
    slow = archiver(spark, lake, store_url)
    plan = make_plan(
        Place(store_url).access(),
        LakeState(),
        patterns=(),
        tables=ArchiveOptions().tables,
        batch_messages=1000,
    )
    archive(spark, lake, store_url)
    for batch in plan.batches:
        with pytest.raises(ConflictError, match="another archive"):
            slow._copy(batch)
    expect_all(spark, lake, store_url)
    assert not list(lake.stray_files())


def test_a_gap_that_another_archive_has_passed_is_not_noted_again(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    """Else the lake would go back to where the gap ends, and take in what follows once more."""
    fill(store_url, numbered("orders", 10))
    archive(spark, lake, store_url)
    fill(store_url, numbered("orders", 10, first=10))
    in_store(store_url, remove_all)
    fill(store_url, numbered("orders", 5, first=20))
    slow = archiver(spark, lake, store_url, allow_gaps=True)
    plan = make_plan(
        Place(store_url).access(),
        lake.state(),
        patterns=(),
        tables=["messages"],
        batch_messages=99,
    )
    archive(spark, lake, store_url, allow_gaps=True)
    assert len(plan.batches) == 2
    for batch in plan.batches:
        with pytest.raises(ConflictError, match="another archive"):
            slow._copy(batch)
    assert len(lake.state().gaps) == 1
    assert read(spark, lake).count() == 15


# --- what is gone ------------------------------------------------------------------------------


async def remove_all(store: Store) -> None:
    await store.clear_queue("orders")


def test_messages_removed_before_they_were_archived_are_told_and_not_passed_over(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    archive(spark, lake, store_url)
    fill(store_url, numbered("orders", 10, first=10))
    in_store(store_url, remove_all)
    fill(store_url, numbered("orders", 5, first=20))
    before = lake.state().number
    with pytest.raises(MonarqError, match=r"messages 11 to 20 of 'orders'.*retainUntilArchived"):
        archive(spark, lake, store_url)
    assert lake.state().number == before
    assert archive(spark, lake, store_url, allow_gaps=True) == 5
    [gap] = lake.state().gaps
    assert (gap.queue, gap.first_seq, gap.last_seq) == ("orders", 11, 20)
    assert archive(spark, lake, store_url) == 0
    assert read(spark, lake).count() == 15


def test_messages_removed_while_they_are_copied_are_told(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    running = archiver(spark, lake, store_url)
    plan = make_plan(
        Place(store_url).access(), LakeState(), patterns=(), tables=["messages"], batch_messages=99
    )
    in_store(store_url, remove_all)
    with pytest.raises(MonarqError, match="messages 1 to 10 of 'orders'"):
        running._copy(plan.batches[0])
    assert lake.state().number == 0


async def let_partitions_go(url: str) -> None:
    clock = ManualClock(SystemClock().now())
    async with await open_store(url, clock=clock) as store:
        await store.clear_queue("orders")
        for _ in range(2):
            clock.advance(8 * 86_400)
            await store.lifecycle()
        assert await store.export_plan("orders") == []


@pytest.mark.parametrize("allow_gaps", [False, True])
def test_a_partition_that_goes_while_it_is_copied_is_told_whole(
    spark: SparkSession,
    lake: Lake,
    store_url: str,
    monkeypatch: pytest.MonkeyPatch,
    allow_gaps: bool,
) -> None:
    monkeypatch.setattr(archive_plan, "TASK_MESSAGES", 4)
    fill(store_url, numbered("orders", 10))
    running = archiver(spark, lake, store_url, allow_gaps=allow_gaps)
    plan = make_plan(
        Place(store_url).access(), LakeState(), patterns=(), tables=["messages"], batch_messages=99
    )
    asyncio.run(let_partitions_go(store_url))
    if allow_gaps:
        running._copy(plan.batches[0])
        [gap] = lake.state().gaps
        assert (gap.partition, gap.first_seq, gap.last_seq) == ("p-0", 1, 10)
    else:
        with pytest.raises(MonarqError, match="messages 1 to 10 of 'orders'"):
            running._copy(plan.batches[0])
        assert lake.state().number == 0


def test_what_was_gone_before_the_first_archive_is_no_loss(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    in_store(store_url, remove_all)
    fill(store_url, numbered("orders", 3, first=10))
    assert archive(spark, lake, store_url) == 3


def test_retention_waits_until_messages_are_archived(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    make_queue(store_url, "orders", retainUntilArchived=True, retentionSeconds=0.001)

    async def kept_after_retention(store: Store) -> int:
        await store.lifecycle()
        [partition] = await store.export_plan("orders")
        return partition.last_seq - partition.first_seq + 1

    fill(store_url, numbered("orders", 10))
    assert in_store(store_url, kept_after_retention) == 10
    archive(spark, lake, store_url)
    assert in_store(store_url, kept_after_retention) == 0
    assert read(spark, lake).count() == 10


# --- continuous, and wrong ---------------------------------------------------------------------


def test_a_continuous_archive_takes_in_what_comes_until_it_is_stopped(
    spark: SparkSession, lake: Lake, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    running = archiver(spark, lake, store_url, tables=["messages"])
    stop = threading.Event()
    arrived = threading.Semaphore(0)
    running._watcher.committed = lambda report: arrived.release()  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(running.follow, stop, 0.05)
        try:
            for first in (10, 20):
                assert arrived.acquire(timeout=120)
                fill(store_url, numbered("orders", 10, first=first))
            assert arrived.acquire(timeout=120)
        finally:
            stop.set()
        done.result(timeout=120)
    expect_messages(lake.root, store_url)


def test_what_cannot_be_archived_is_told_before_anything_is_done(
    store_url: str, lake: Lake
) -> None:
    with pytest.raises(InvalidRequestError, match="table 'queues' is not archived"):
        ArchiveOptions(tables=["queues"])
    make_queue(store_url, "orders")
    with pytest.raises(NotFoundError, match="there is no queue 'oders'"):
        archiver(
            lambda: pytest.fail("Spark was asked for"), lake, store_url, queues=["oders"]
        ).once()


def test_an_error_in_a_worker_is_told_in_one_line(
    spark: SparkSession, lake: Lake, broker: ServerProcess, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10))
    running = archiver(spark, lake, broker.url, tables=["messages"])
    plan = make_plan(
        Place(broker.url).access(), LakeState(), patterns=(), tables=["messages"], batch_messages=9
    )
    broker.kill()
    with pytest.raises(MonarqError) as told:
        running._copy(plan.batches[0])
    assert "\n" not in str(told.value)
    assert broker.url in str(told.value) or "reach" in str(told.value)
    assert not list(lake.stray_files())


def test_a_worker_writes_a_task_of_an_empty_range(tmp_path: Path, store_url: str) -> None:
    fill(store_url, [PushItem("orders", b"1")])
    task = archive_plan.MessageTask([SeqRange("orders", 1, "Default", 5, 9)])
    assert write_task(Place(store_url), tmp_path, "b", task, "0") == []
