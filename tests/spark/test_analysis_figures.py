"""The figures of an analysis against the same figures in plain Python, on the same rows."""

from collections import defaultdict
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from monarq.spark.pipelines.analyse.figures import Analysis, Spread
from monarq.spark.pipelines.analyse.running import Result
from tests.spark.analysis_chaos import chaos, run
from tests.spark.analysis_history import Rows, make_lake, shop
from tests.spark.analysis_reference import Reference, bucket_by, group_of, queue_of
from tests.spark.analysis_reference import micros as micros_of


@pytest.fixture(scope="module", params=["shop", "chaos"])
def analysed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Rows, Result]:
    rows = (shop() if request.param == "shop" else chaos(3)).rows
    lake = make_lake(tmp_path_factory.mktemp("lake") / "lake", rows)
    return rows, run(spark, lake)


def same(found: Spread | None, expected: Spread | None) -> bool:
    if found is None or expected is None:
        return found is expected
    values = [msgspec.structs.astuple(each) for each in (found, expected)]
    return values[0] == pytest.approx(values[1], abs=2e-6)


def expect_spreads(found: dict[Any, Spread | None], expected: dict[Any, Spread | None]) -> None:
    measured = {key for key, spread in expected.items() if spread is not None}
    assert {key for key, spread in found.items() if spread is not None} == measured
    wrong = {key: (found[key], expected[key]) for key in measured
             if not same(found[key], expected[key])}  # fmt: skip
    assert not wrong


# Slow as it waits for Spark; each of these is one look at the two analyses above.
pytestmark = pytest.mark.slow


def test_messages_bytes_and_partitions_are_counted(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    found = {
        queue.queue: (queue.messages, queue.payload_bytes, queue.partitions)
        for queue in result.analysis.queues
        if queue.partitions
    }
    expected: dict[str, tuple[int, int, int]] = {}
    for name in {row["queue"] for row in rows["messages"]}:
        mine = [row for row in rows["messages"] if row["queue"] == name]
        size = sum(len(row["payload"].encode()) for row in mine)
        expected[name] = (len(mine), size, len({row["partition"] for row in mine}))
    assert found == expected


def test_pushes_are_counted_in_their_bucket(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    window = result.analysis.window
    assert window is not None
    expected = Reference(rows).pushed(window.start, window.bucket)
    found = {
        (series.queue, place): count
        for series in result.analysis.pushes
        for place, count in enumerate(series.pushed)
        if count
    }
    assert found == dict(expected)


def test_answers_are_counted_by_queue_and_group(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    reference = Reference(rows)
    groups = {(group.queue, group.group): group.answers for group in result.analysis.groups}
    assert groups == reference.counts(group_of)
    queues = {(queue.queue,): queue.answers for queue in result.analysis.queues}
    expected = reference.counts(queue_of)
    assert {key: queues[key] for key in expected} == expected
    everything = reference.counts(lambda _: ())
    assert result.analysis.totals.answers == everything[()]


def test_answers_are_counted_in_their_bucket(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    window = result.analysis.window
    assert window is not None
    expected = Reference(rows).counts(bucket_by("ended", window.start, window.bucket))
    found = {
        (series.queue, series.group, place): tuple(values)
        for series in result.analysis.deliveries
        for place, values in enumerate(
            zip(series.completed, series.failed, series.dead, series.expired, strict=True)
        )
        if any(values)
    }
    assert found == {
        key: counts
        for key, each in expected.items()
        if any(counts := (each.completed, each.failed, each.dead, each.expired))
    }


def test_processing_times_are_those_of_the_reference(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    analysis, reference = result.analysis, Reference(rows)
    expect_spreads(
        {(group.queue, group.group): group.processing for group in analysis.groups},
        reference.processing(group_of),
    )
    expect_spreads(
        {(queue.queue,): queue.processing for queue in analysis.queues},
        reference.processing(queue_of),
    )
    assert same(analysis.totals.processing, reference.processing(lambda _: ())[()])
    expect_spreads(
        {(each.queue, each.group, each.consumer): each.processing for each in analysis.consumers},
        {
            key: spread
            for key, spread in reference.processing(
                lambda row: (row["queue"], row["group"], row["consumer"] or "")
            ).items()
            if key[2]
        },
    )


def test_waiting_times_are_those_of_the_reference(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    analysis, reference = result.analysis, Reference(rows)
    expect_spreads(
        {(group.queue, group.group): group.waiting for group in analysis.groups},
        reference.waiting(group_of),
    )
    expect_spreads(
        {(queue.queue,): queue.waiting for queue in analysis.queues}, reference.waiting(queue_of)
    )
    assert same(analysis.totals.waiting, reference.waiting(lambda _: ())[()])


@pytest.mark.parametrize("what", ["waiting", "processing"])
def test_times_in_their_bucket_are_those_of_the_reference(
    analysed: tuple[Rows, Result], what: str
) -> None:
    rows, result = analysed
    window = result.analysis.window
    assert window is not None
    reference = Reference(rows)
    if what == "waiting":
        spreads = reference.waiting(bucket_by("leased", window.start, window.bucket))
    else:
        spreads = reference.processing(bucket_by("ended", window.start, window.bucket))
    for point in ("p50", "p95", "p99"):
        found = {
            (series.queue, series.group, place): value
            for series in result.analysis.deliveries
            for place, value in enumerate(getattr(series, f"{what}_{point}"))
            if value is not None
        }
        expected = {key: getattr(each, point) for key, each in spreads.items() if each}
        assert found == pytest.approx(expected, abs=2e-6)


def test_the_backlog_is_what_the_reference_finds_waiting(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    waiting = Reference(rows).backlog()
    expected: dict[tuple[str, str], list[int]] = defaultdict(list)
    holes = _deleted(rows)
    for (queue, group, _), pushed in waiting.items():
        expected[queue, group] += pushed
    for each in result.analysis.groups:
        pushed = expected[each.queue, each.group]
        # What was deleted is told from what waits only where the whole partition waits.
        assert len(pushed) <= each.backlog <= len(pushed) + holes
        assert each.oldest_at == (min(pushed) if pushed else None)


def _deleted(rows: Rows) -> int:
    last: dict[str, int] = defaultdict(int)
    for row in rows["messages"]:
        partition, _, seq = row["message_id"].partition("-")
        last[partition] = max(last[partition], int(seq))
    return sum(last.values()) - len(rows["messages"])


def test_the_backlog_over_time_ends_at_what_was_pushed_and_not_delivered(
    analysed: tuple[Rows, Result],
) -> None:
    rows, result = analysed
    reference = Reference(rows)
    pushed: dict[str, int] = defaultdict(int)
    for row in rows["messages"]:
        pushed[row["queue"]] += 1
    given: dict[tuple[str, str], int] = defaultdict(int)
    for row in reference.first_deliveries():
        given[row["queue"], row["group"]] += 1
    for series in result.analysis.deliveries:
        if series.group and series.backlog:
            key = (series.queue, series.group)
            assert series.backlog[-1] == pushed[series.queue] - given[key]


def test_errors_are_those_of_the_reference(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    found = {
        (error.queue, str(error.source), error.error): error.count
        for error in result.analysis.errors
    }
    expected = Reference(rows).errors()
    assert found == dict(expected)
    for error in result.analysis.errors:
        whole = sum(
            count
            for (queue, source, _), count in expected.items()
            if (queue, source) == (error.queue, error.source)
        )
        assert error.share == pytest.approx(error.count / whole)
        assert error.first_at <= error.last_at


def test_job_costs_are_those_of_the_reference(analysed: tuple[Rows, Result]) -> None:
    rows, result = analysed
    assert {job.queue for job in result.analysis.jobs} == {row["queue"] for row in rows["attempts"]}
    for job in result.analysis.jobs:
        mine = [row for row in rows["attempts"] if row["queue"] == job.queue]
        took = {
            row["id"]: (micros_of(row["ended_at"]) - micros_of(row["started_at"])) / 1e6
            for row in mine
        }
        lost = sum(took[row["id"]] for row in mine if row["outcome"] != "completed")
        assert job.attempts == len(mine)
        assert job.items == len({row["item_id"] for row in mine})
        assert job.completed == sum(row["outcome"] == "completed" for row in mine)
        assert job.seconds == pytest.approx(sum(took.values()))
        assert job.wasted_seconds == pytest.approx(lost)


def test_the_json_and_the_parquet_say_the_same(analysed: tuple[Rows, Result]) -> None:
    _, result = analysed
    read = msgspec.json.decode((result.folder / "analysis.json").read_bytes(), type=Analysis)
    assert read == result.analysis
    assert result.report_file.read_text() == result.report
    queues = pq.read_table(result.folder / "queues.parquet").to_pylist()
    assert [(row["queue"], row["messages"], row["completed"]) for row in queues] == [
        (queue.queue, queue.messages, queue.answers.completed) for queue in read.queues
    ]
    assert [row["waiting_p99"] for row in queues] == [
        queue.waiting.p99 if queue.waiting else None for queue in read.queues
    ]
    window = read.window
    assert window is not None
    pushes = pq.read_table(result.folder / "pushes.parquet")
    assert pushes.num_rows == len(read.pushes) * window.buckets
    assert sum(pushes["pushed"].to_pylist()) == sum(sum(each.pushed) for each in read.pushes)
    found = pq.read_table(result.folder / "findings.parquet").to_pylist()
    assert [row["text"] for row in found] == [finding.text for finding in read.findings]
