"""The figures of an analysis against the same figures in plain Python, on the same rows."""

import random
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from monarq.errors import InvalidRequestError, NotFoundError
from monarq.spark.lake import Lake
from monarq.spark.pipelines.analyse.figures import Analysis, Spread
from monarq.spark.pipelines.analyse.keeping import last_before
from monarq.spark.pipelines.analyse.running import Result, analyse
from monarq.spark.pipelines.analyse.sources import Scope, select
from tests.spark.analysis_history import History, Rows, add_rows, make_lake, micros, shop
from tests.spark.analysis_reference import Reference, bucket_by, group_of, queue_of
from tests.spark.analysis_reference import micros as micros_of

NOW = micros(3 * 3_600)

#: What a name may hold, and what would hurt where it is not escaped.
HOSTILE = (
    "<script>alert(1)</script>",
    'it\'s "quoted" & `ticked`',
    "naïve/ключ%2F=ü 🦋",
    "[a-z]*?{x}",
    "../../etc",
    "\u202egnirts",
)


def run(
    spark: SparkSession, lake: Lake, *, name: str = "r1", scope: Scope | None = None, **more: Any
) -> Result:
    selection = select(lake, scope or Scope())
    return analyse(spark, selection, run=name, now=NOW, progress=lambda *_: None, **more)


def chaos(seed: int) -> History:
    """Everything that a log may hold, in no good order: batches answered in pieces, leases that
    ran out, deliveries of what is no longer there, groups that begin late, messages that nobody
    gets, errors of all kinds, names of all kinds."""
    chance = random.Random(seed)
    history = History()
    queues = ["orders", *HOSTILE]
    pushed: dict[tuple[str, str], int] = {}
    for at in sorted(chance.uniform(0, 5_000) for _ in range(700)):
        queue = chance.choice(queues)
        partition = chance.choice(["Default", "c-1", HOSTILE[chance.randrange(len(HOSTILE))]])
        seq = history.push(queue, at, partition, chance.randint(2, 400))
        pushed[queue, partition] = seq
    for row in chance.sample(history.rows["messages"], 40):
        # Deleted by hand, or by retention before the archive came.
        history.rows["messages"].remove(row)
    for _ in range(500):
        queue, partition = chance.choice(sorted(pushed))
        last = pushed[queue, partition]
        first = chance.randint(1, last)
        until = min(last, first + chance.choice([0, 0, 1, 7]))
        number = until - first + 1
        completed = chance.randint(0, number)
        rest = number - completed
        counts = {"completed": completed, chance.choice(["failed", "dead", "released"]): rest}
        if chance.random() < 0.1:
            counts = {"expired": number}
        history.deliver(
            queue,
            chance.uniform(0, 5_400),
            chance.choice([0.0, chance.uniform(0, 3), chance.lognormvariate(0, 2)]),
            (first, until),
            partition=partition,
            group=chance.choice(["billing", "__QUEUE_MODE__", HOSTILE[0]]),
            consumer=chance.choice([None, "w1", HOSTILE[1]]),
            error=None if completed == number else _error(chance),
            **counts,
        )
    for _ in range(60):
        queue, partition = chance.choice(sorted(pushed))
        history.bury(
            queue,
            chance.uniform(100, 5_400),
            chance.randint(1, pushed[queue, partition] + 3),
            _error(chance) or "",
            partition=partition,
            group=chance.choice(["billing", HOSTILE[0]]),
        )
    for item in range(200):
        outcome = chance.choice(["completed", "failed", "retry", "dead", "expired", "cancelled"])
        history.attempt(
            chance.choice(["reports", HOSTILE[3]]),
            item // 2,
            chance.uniform(0, 5_000),
            chance.uniform(0, 50),
            attempt=item % 2 + 1,
            outcome=outcome,
            error=None if outcome == "completed" else _error(chance),
            consumer=chance.choice([None, "w1", "w2"]),
        )
    return history


def _error(chance: random.Random) -> str | None:
    return chance.choice(
        [
            None,
            "",
            f"TimeoutError: order {chance.randint(1, 9_999)} took {chance.uniform(1, 9):.1f} s",
            f"KeyError: '{uuid.UUID(int=chance.getrandbits(128))}'",
            f'Traceback (most recent call last):\n  File "x.py"\nValueError: {chance.random()}',
            "exit code 137",
            "<img src=x onerror=alert(1)>",
            "the lease expired without an answer",
            f"naïve ключ {chance.randint(1, 99)}\nmore",
        ]
    )


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


# --- few rows, many rows, other rows -----------------------------------------------------------


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
