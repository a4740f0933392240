"""Analyses of few rows, of many, of a part of them, and of what changed since the last."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from monarq.errors import InvalidRequestError, NotFoundError
from monarq.spark.pipelines.analyse.keeping import last_before
from monarq.spark.pipelines.analyse.sources import Scope, select
from tests.spark.analysis_chaos import NOW, chaos, run
from tests.spark.analysis_history import History, Rows, add_rows, make_lake, micros
from tests.spark.analysis_reference import Reference, group_of

# Slow as it waits for Spark; each of these is one look at the two analyses above.
pytestmark = pytest.mark.slow


def test_approximate_percentiles_are_as_right_as_they_say_and_counts_stay_exact(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = chaos(5).rows
    analysis = run(spark, make_lake(tmp_path / "lake", rows), exact_rows=0).analysis
    assert "approximate" in analysis.percentiles
    reference = Reference(rows)
    groups = {(group.queue, group.group): group for group in analysis.groups}
    assert {key: group.answers for key, group in groups.items()} == reference.counts(group_of)
    for key, expected in reference.processing(group_of).items():
        spread = groups[key].processing  # type: ignore[index]
        assert (spread is None) == (expected is None)
        if spread and expected:
            # With so few values, the rank is exact: one of the values, not one between two.
            assert spread.count == expected.count
            assert spread.most == pytest.approx(expected.most)
            values = sorted(_processing_values(rows, key))
            assert spread.p95 in (pytest.approx(value) for value in _about(values, 0.95))


def _processing_values(rows: Rows, key: Any) -> list[float]:
    return [
        (row["ended"] - row["leased"]) / 1e6
        for row in Reference(rows).answers
        if (row["queue"], row["group"]) == key
        and not row["expired"]
        and row["error"] != "the lease expired without an answer"
        for _ in range(row["completed"] + row["failed"] + row["dead"])
    ]


def _about(values: list[float], part: float) -> list[float]:
    place = part * (len(values) - 1)
    return values[max(int(place) - 1, 0) : int(place) + 3]


def test_an_empty_lake_gives_a_report_that_says_so(spark: SparkSession, tmp_path: Path) -> None:
    result = run(spark, make_lake(tmp_path / "lake"))
    assert result.analysis.window is None
    assert result.analysis.findings == []
    assert "There is nothing to look at" in result.report
    assert pq.read_table(result.folder / "queues.parquet").num_rows == 0
    assert "messages" in pq.read_schema(result.folder / "queues.parquet").names


def test_one_message_is_an_analysis(spark: SparkSession, tmp_path: Path) -> None:
    history = History()
    history.push("orders", 0.0)
    analysis = run(spark, make_lake(tmp_path / "lake", history.rows)).analysis
    assert analysis.totals.messages == 1
    assert analysis.findings == []
    assert analysis.window is not None
    assert analysis.window.buckets == 1


def test_only_what_was_asked_for_is_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    history = History()
    for second in range(100):
        history.push("orders", second)
        history.push("shop-a", second)
        history.push("shop-b", second)
        history.deliver("orders", second + 0.5, 0.1, (second + 1, second + 1))
    day = 86_400.0
    history.push("orders", day)
    lake = make_lake(tmp_path / "lake", history.rows)
    scope = Scope(queues=("orders", "shop-?"), start=micros(10), end=micros(50))
    analysis = run(spark, lake, scope=scope).analysis
    assert {queue.queue: queue.messages for queue in analysis.queues} == {
        "orders": 40, "shop-a": 40, "shop-b": 40,
    }  # fmt: skip
    assert analysis.scope == ["orders", "shop-?"]
    [orders] = analysis.groups
    assert orders.answers.completed == 40
    assert orders.backlog == 0
    only = select(lake, Scope(queues=("orders",), start=micros(day - 1)))
    assert only.rows == 1
    assert only.queues == ["orders"]


def test_a_queue_or_time_that_cannot_be_is_refused_before_spark_is_asked(tmp_path: Path) -> None:
    history = History()
    history.push("orders", 0.0)
    lake = make_lake(tmp_path / "lake", history.rows)
    with pytest.raises(NotFoundError, match="the lake has nothing of 'nope'"):
        select(lake, Scope(queues=("nope",)))
    with pytest.raises(InvalidRequestError, match="ends before it begins"):
        select(lake, Scope(start=micros(5), end=micros(5)))


def test_a_queue_that_was_made_anew_is_not_mixed_with_the_old_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    old, new = History(), History()
    old.push("orders", 0.0)
    old.deliver("orders", 1.0, 0.1, (1, 1))
    new._partitions["another", "Default"] = (1, 0)
    new.push("orders", 100.0)
    new.deliver("orders", 107.0, 0.1, (1, 1))
    assert new.rows["messages"][0]["message_id"] == "2-1"
    analysis = run(spark, make_lake(tmp_path / "lake", old.rows, new.rows)).analysis
    [orders] = analysis.groups
    assert orders.waiting is not None
    assert (orders.waiting.count, orders.waiting.p50) == (2, pytest.approx(4.0))
    assert orders.backlog == 0


def test_what_changed_since_the_last_analysis_is_told(spark: SparkSession, tmp_path: Path) -> None:
    before, after = History(), History()
    after._partitions = before._partitions
    for at in range(60):
        seq = before.push("orders", at)
        before.deliver("orders", at + 0.2, 0.1, (seq, seq))
    before.push("old", 0.0)
    lake = make_lake(tmp_path / "lake", before.rows)
    first = run(spark, lake, name="r1").analysis
    assert first.previous is None
    assert not first.changes
    for at in range(60, 400):
        seq = after.push("orders", at)
        if at % 3:
            after.deliver("orders", at + 9.0, 0.1, (seq, seq))
        else:
            after.deliver("orders", at + 9.0, 0.1, (seq, seq), failed=1, error="OSError: no")
    after.push("new", 100.0)
    add_rows(lake, after.rows)
    second = run(spark, lake, name="r2").analysis
    assert (second.previous, second.previous_at) == ("r1", NOW)
    changed = {(change.queue, change.measure) for change in second.changes}
    assert {("orders", "p99 waiting"), ("orders", "failure rate"), ("new", "messages")} <= changed
    assert ("old", "messages") not in changed
    texts = [finding.text for finding in second.findings]
    assert any("p99 waiting 200 ms at the last analysis" in text for text in texts)
    assert any("`OSError` (114)" in text and "did not have" in text for text in texts)
    assert any(text.startswith("`new`: new since the last analysis") for text in texts)
    assert last_before(lake, "r3", ["orders"]) is None
    assert last_before(lake, "r3", []) == second
