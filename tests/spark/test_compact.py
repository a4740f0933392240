"""Compact: fewer files, the same rows, for those who read meanwhile as well."""

import os
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from monarq.clock import ManualClock
from monarq.errors import ConflictError, InvalidRequestError, MonarqError
from monarq.spark.lake import Lake, read
from monarq.spark.lake.lake import ORPHAN_SECONDS
from monarq.spark.lake.writing import FileWriter
from monarq.spark.pipelines import compact
from monarq.spark.pipelines.compact import Compactor, CompactReport
from tests.spark.lake_rows import (
    START,
    add,
    batches,
    ids_by_duckdb,
    ids_by_pyarrow,
    ids_of,
    message,
    messages,
)

FILES = 6


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """With many small files of one day, and a single one of another."""
    made = Lake.open_or_make(tmp_path / "lake [1]", store="s")
    for number in range(FILES):
        add(made, messages("orders", range(number * 10 + 1, number * 10 + 11)), seqs={1: number})
    add(made, [message("orders", 100, START + timedelta(days=1))])
    return made


ALL = ids_of([*messages("orders", range(1, FILES * 10 + 1)), message("orders", 100)])


def run(spark: SparkSession, lake: Lake, **options: object) -> CompactReport:
    return Compactor(lambda: spark, lake, run="test", **options).run()  # type: ignore[arg-type]


def ids_by_spark(spark: SparkSession, lake: Lake) -> list[tuple[str, str]]:
    return sorted(tuple(row) for row in read(spark, lake).select("queue", "message_id").collect())


def no_spark() -> SparkSession:
    pytest.fail("Spark was asked for")


def test_small_files_become_one_with_the_same_rows(spark: SparkSession, lake: Lake) -> None:
    before = read(spark, lake).orderBy("seq").collect()
    report = run(spark, lake)
    assert (report.files_before, report.files_after, report.rows) == (FILES, 1, FILES * 10)
    assert read(spark, lake).orderBy("seq").collect() == before
    assert ids_by_pyarrow(lake.root) == ids_by_duckdb(lake.root) == ALL
    assert len(list((lake.root / "messages").rglob("*.parquet"))) == 2
    assert lake.state().seqs == {1: FILES - 1}
    # Nothing is left to do, or to read from older commits.
    assert Compactor(no_spark, lake, run="test").run().files_before == 0
    assert len(lake.log.numbers()) == 1


def test_a_reader_that_began_before_ends_with_all_rows(spark: SparkSession, lake: Lake) -> None:
    rows = read(spark, lake).select("queue", "message_id").toLocalIterator()
    seen = [tuple(next(rows))]
    planned = read(spark, lake).select("queue", "message_id")
    add(lake, messages("orders", range(1000, 1010)))
    run(spark, lake)
    assert sorted([*seen, *(tuple(row) for row in rows)]) == ALL
    assert sorted(tuple(row) for row in planned.collect()) == ALL


def test_replaced_files_go_when_they_were_kept_long_enough(spark: SparkSession, lake: Lake) -> None:
    clock = ManualClock()
    run(spark, lake, clock=clock, keep_seconds=100)
    assert len(list(lake.files_root.rglob("*.parquet"))) == FILES + 2
    clock.advance(99)
    assert run(spark, lake, clock=clock, keep_seconds=100).deleted == 0
    clock.advance(1)
    assert run(spark, lake, clock=clock, keep_seconds=100).deleted == FILES
    assert len(list(lake.files_root.rglob("*.parquet"))) == 2
    assert lake.state().removed == {}
    assert ids_by_spark(spark, lake) == ids_by_pyarrow(lake.root) == ALL


def test_archiving_goes_on_while_files_are_put_together(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compact.run_tasks
    new = messages("orders", range(500, 510))

    def meanwhile(*arguments: object, **options: object) -> list[object]:
        done: list[object] = real(*arguments, **options)  # type: ignore[arg-type]
        with lake.archiving():
            add(lake, new, seqs={1: 99})
        return done

    monkeypatch.setattr(compact, "run_tasks", meanwhile)
    run(spark, lake)
    assert ids_by_spark(spark, lake) == ids_by_pyarrow(lake.root) == sorted([*ALL, *ids_of(new)])
    assert lake.state().seqs == {1: 99}


def test_of_two_compactions_at_once_one_is_dropped_whole(
    spark: SparkSession, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = compact.run_tasks

    def overtaken(*arguments: object, **options: object) -> list[object]:
        monkeypatch.setattr(compact, "run_tasks", real)
        run(spark, lake)
        return real(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(compact, "run_tasks", overtaken)
    with pytest.raises(ConflictError, match="another compaction"):
        run(spark, lake)
    assert ids_by_spark(spark, lake) == ids_by_pyarrow(lake.root) == ALL
    assert not list(lake.stray_files())


def test_a_damaged_file_stops_the_compaction_and_changes_nothing(
    spark: SparkSession, lake: Lake
) -> None:
    [path] = [each.path for each in lake.state().files.values() if each.path.endswith("parquet")][
        :1
    ]
    number = lake.state().number
    data = (lake.files_root / path).read_bytes()
    (lake.files_root / path).write_bytes(data[:-20])
    with pytest.raises(MonarqError) as told:
        run(spark, lake)
    assert "\n" not in str(told.value)
    assert lake.state().number == number
    assert not list(lake.stray_files())


def test_orphans_go_when_they_are_old(spark: SparkSession, lake: Lake) -> None:
    writer = FileWriter(lake.files_root, "messages", "20200101T000000-00000000-0")
    files = writer.write(batches(messages("orders", [7])))
    path = lake.files_root / files[0].path
    assert run(spark, lake).orphans == 0
    long_ago = path.stat().st_mtime - ORPHAN_SECONDS - 60
    os.utime(path, (long_ago, long_ago))
    assert run(spark, lake).orphans == 1
    assert not path.exists()


def test_an_orphan_that_its_writer_removes_meanwhile_is_passed_over(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake, "stray_files", lambda: [lake.files_root / "gone.parquet"])
    running = Compactor(no_spark, lake, run="test")
    running._delete_orphans()
    assert running.report.orphans == 0


def test_wrong_options_are_told(lake: Lake) -> None:
    with pytest.raises(InvalidRequestError, match="no table 'items'"):
        Compactor(no_spark, lake, run="test", tables=["items"])
    with pytest.raises(InvalidRequestError, match="less than no time"):
        Compactor(no_spark, lake, run="test", keep_seconds=-1)
