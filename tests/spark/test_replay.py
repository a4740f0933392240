"""Replay: messages of a lake are pushed once, in order, and only those that were asked for."""

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from monarq.errors import InvalidRequestError, MonarqError
from monarq.model import Pop, QueueKind, StoredMessage
from monarq.spark.lake import Lake
from monarq.spark.pipelines import replay
from monarq.spark.pipelines.place import Place
from monarq.spark.pipelines.replay import Replayer, ReplayOptions
from monarq.store.contract import Store
from tests.server.serving import ServerProcess
from tests.spark.archiving import archive
from tests.spark.lake_rows import START, add, message, messages
from tests.spark.seeding import fill, in_store, make_queue, numbered


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake.open_or_make(tmp_path / "lake", store="s")
    for partition_id in (1, 2):
        # In two files, the later one first.
        add(made, messages("orders", range(6, 11), partition_id=partition_id))
        add(made, messages("orders", range(1, 6), partition_id=partition_id))
    add(made, [message("mail", 1, START + timedelta(days=1), partition_id=3)])
    return made


def push(spark: SparkSession, lake: Lake, url: str, **options: Any) -> int:
    """How many were new."""
    replayer = Replayer(lambda: spark, lake, Place(url), ReplayOptions(**options))
    total = sum(each.messages for each in replayer.count())
    already = replayer.push(total)
    assert already <= total
    return total - already


def stored(url: str, queue: str) -> list[StoredMessage]:
    async def listed(store: Store) -> list[StoredMessage]:
        return (await store.list_messages(queue, limit=1000)).rows

    found: list[StoredMessage] = in_store(url, listed)
    return found


def numbers(url: str, queue: str) -> dict[str, list[int]]:
    """What each partition has, in its order."""
    found: dict[str, list[int]] = {}
    for one in sorted(stored(url, queue), key=lambda row: (row.partition_id, row.seq)):
        found.setdefault(one.partition, []).append(json.loads(one.payload)["n"])
    return found


@pytest.mark.slow
def test_a_replay_keeps_partitions_and_their_order_and_repeated_pushes_nothing(
    spark: SparkSession, lake: Lake, broker: ServerProcess, store_url: str
) -> None:
    expected = {"p1": list(range(1, 11)), "p2": list(range(1, 11))}
    assert push(spark, lake, broker.url, to="again", queues=["orders"]) == 20
    assert numbers(store_url, "again") == expected
    assert push(spark, lake, broker.url, to="again", queues=["orders"]) == 0
    assert push(spark, lake, store_url, to="again", queues=["orders"], rate=1e6) == 0
    assert numbers(store_url, "again") == expected
    push(spark, lake, broker.url, to="again", queues=["orders"], label="once more")
    assert numbers(store_url, "again") == {name: 2 * of for name, of in expected.items()}


def test_what_a_killed_replay_has_not_pushed_is_pushed_by_the_next(
    spark: SparkSession, lake: Lake, store_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = replay._paced

    def killed(rows: Any, rate: float) -> Any:
        yield from itertools.islice(real(rows, rate), 7)
        raise KeyboardInterrupt

    monkeypatch.setattr(replay, "_paced", killed)
    with pytest.raises(KeyboardInterrupt):
        push(spark, lake, store_url, to="again", queues=["orders"], rate=10.0)
    assert len(stored(store_url, "again")) == 7
    push(spark, lake, store_url, to="again", queues=["orders"])
    assert numbers(store_url, "again") == {"p1": list(range(1, 11)), "p2": list(range(1, 11))}


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({"where": "get_json_object(payload, '$.n') > 8"}, {"p1": [9, 10], "p2": [9, 10]}),
        ({"partitions": ["p2"], "where": "seq < 3"}, {"p2": [1, 2]}),
        ({"since": START + timedelta(seconds=1)}, {"p3": [1]}),
        ({"since": START, "until": START + timedelta(days=1), "where": "seq = 4"},
         {"p1": [4], "p2": [4]}),
        ({"queues": ["mail"]}, {"p3": [1]}),
        ({"queues": ["none"]}, {}),
    ],
)  # fmt: skip
def test_only_what_was_asked_for_is_replayed(
    spark: SparkSession,
    lake: Lake,
    store_url: str,
    chosen: dict[str, Any],
    expected: dict[str, list[int]],
) -> None:
    make_queue(store_url, "again")
    total = push(spark, lake, store_url, to="again", **chosen)
    assert total == sum(map(len, expected.values()))
    assert numbers(store_url, "again") == expected


def test_without_a_target_each_goes_to_the_queue_it_came_from(
    spark: SparkSession, tmp_path: Path, store_url: str
) -> None:
    fill(store_url, numbered("orders", 10, partitions=2))
    fill(store_url, numbered("mail", 3))
    lake = Lake.open_or_make(tmp_path / "lake", store="s")
    archive(spark, lake, store_url)
    for _ in range(2):
        push(spark, lake, store_url)
    assert numbers(store_url, "mail") == {"p-0": [0, 1, 2, 0, 1, 2]}
    assert numbers(store_url, "orders") == {
        "p-0": [0, 2, 4, 6, 8] * 2,
        "p-1": [1, 3, 5, 7, 9] * 2,
    }


def test_a_copy_that_is_archived_and_replayed_again_stores_nothing_new(
    spark: SparkSession, tmp_path: Path, store_url: str
) -> None:
    fill(store_url, numbered("orders", 4, partitions=2))
    lake = Lake.open_or_make(tmp_path / "lake", store="s")
    archive(spark, lake, store_url)
    assert push(spark, lake, store_url) == 4
    assert push(spark, lake, store_url, label="trial") == 4
    for _ in range(2):
        archive(spark, lake, store_url)
        assert push(spark, lake, store_url) == 0
        assert push(spark, lake, store_url, label="trial") == 0
    assert numbers(store_url, "orders") == {"p-0": [0, 2] * 3, "p-1": [1, 3] * 3}


def test_copies_replayed_to_another_queue_are_one_message_there(
    spark: SparkSession, tmp_path: Path, store_url: str
) -> None:
    fill(store_url, numbered("orders", 3))
    lake = Lake.open_or_make(tmp_path / "lake", store="s")
    archive(spark, lake, store_url)
    push(spark, lake, store_url)
    archive(spark, lake, store_url)
    assert push(spark, lake, store_url, to="again") == 3
    assert numbers(store_url, "again") == {"p-0": [0, 1, 2]}


def test_a_work_queue_gets_items(spark: SparkSession, lake: Lake, store_url: str) -> None:
    make_queue(store_url, "jobs", QueueKind.WORK)
    for _ in range(2):
        push(spark, lake, store_url, to="jobs", queues=["orders"])

    async def count(store: Store) -> int:
        return len((await store.list_items("jobs", limit=1000)).rows)

    assert in_store(store_url, count) == 20


@pytest.mark.parametrize("rate", [None, 1000.0])
def test_messages_of_a_lake_never_become_commands(
    spark: SparkSession, lake: Lake, store_url: str, rate: float | None
) -> None:
    make_queue(store_url, "run", QueueKind.WORK, runsCommands=True)
    with pytest.raises(MonarqError, match="runs commands"):
        push(spark, lake, store_url, to="run", rate=rate)
    make_queue(store_url, "work", QueueKind.WORK)
    push(spark, lake, store_url, to="work", queues=["mail"], rate=rate)

    async def marks(store: Store) -> list[bool]:
        popped = await store.pop([Pop(queue="run", batch=100), Pop(queue="work", batch=100)])
        assert not any(isinstance(one, MonarqError) for one in popped)
        return [message.is_command for one in popped for message in one.messages]

    assert in_store(store_url, marks) == [False]


def test_counting_pushes_nothing(spark: SparkSession, lake: Lake, store_url: str) -> None:
    make_queue(store_url, "again")
    counts = Replayer(lambda: spark, lake, Place(store_url), ReplayOptions(to="again")).count()
    assert [(each.queue, each.to, each.messages, each.partitions) for each in counts] == [
        ("mail", "again", 1, 1),
        ("orders", "again", 20, 2),
    ]
    assert stored(store_url, "again") == []


def test_a_rate_is_kept() -> None:
    waited: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> None:
            waited.append(seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay.threading, "Event", Pause)
        patch.setattr(replay.time, "monotonic", lambda: 0.0)
        pieces = list(replay._paced(iter(range(25)), 100.0))
    assert [len(piece) for piece in pieces] == [10, 10, 5]
    assert waited == [0.1, 0.2]


@pytest.mark.parametrize("where", ["no_such_column = 1", "seq >", "no_such_function(seq)"])
def test_a_condition_that_cannot_be_used_is_told_in_one_line(
    spark: SparkSession, lake: Lake, store_url: str, where: str
) -> None:
    make_queue(store_url, "again")
    with pytest.raises(InvalidRequestError) as told:
        push(spark, lake, store_url, to="again", where=where)
    assert where in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    "options",
    [{"rate": 0.0}, {"rate": -1.0}, {"since": START, "until": START}, {"label": "x" * 65}],
)
def test_wrong_options_are_told(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        ReplayOptions(**options)
