"""The lake without Spark: what is committed is in, once, for every reader; nothing else is."""

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from monarq.errors import ConflictError, InvalidRequestError, MonarqError, NotFoundError
from monarq.spark.lake import Lake, committed_files
from monarq.spark.lake import lake as lake_module
from monarq.spark.lake.commits import Commit, Gap, Kind, LakeState, LogStep
from monarq.spark.lake.layout import folder_value, is_cut
from monarq.spark.lake.writing import FileWriter
from tests.spark.lake_rows import (
    START,
    add,
    batches,
    ids_by_duckdb,
    ids_by_pyarrow,
    ids_of,
    message,
    messages,
    one_a_day,
)

HOSTILE = [
    "a/b",
    "..",
    "ü — 😀",
    "100%",
    "a=b",
    "a+b c",
    "007",
    "[x]{y}*?",
    "__HIVE_DEFAULT_PARTITION__",
    "n" * 255,
    "ü" * 255,
    "%" * 255,
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open_or_make(tmp_path / "lake", store="s")


def own_ids(lake: Lake) -> list[tuple[str, str]]:
    """What our own readers see."""
    return sorted(
        (each.queue, row)
        for each in lake.state().files_of("messages")
        for row in pq.read_table(
            lake.files_root / each.path, columns=["message_id"], partitioning=None
        )["message_id"].to_pylist()
    )


def expect(lake: Lake, rows: list[dict[str, object]]) -> None:
    """Every reader sees exactly these."""
    assert own_ids(lake) == ids_of(rows)
    assert ids_by_pyarrow(lake.root) == ids_of(rows)
    assert ids_by_duckdb(lake.root) == ids_of(rows)


def test_every_reader_sees_what_is_committed(lake: Lake) -> None:
    expect(lake, [])
    first = [*one_a_day("orders", 5), *messages("mail", range(1, 1001), partition_id=2)]
    add(lake, first)
    expect(lake, first)
    second = messages("orders", range(6, 300))
    add(lake, second)
    expect(lake, [*first, *second])
    assert {path.parent.name for path in committed_files(lake, queues=["mail"])} == {
        "date=2026-01-31"
    }


def test_a_batch_without_commit_is_in_for_nobody(lake: Lake) -> None:
    rows = messages("orders", range(1, 10))
    add(lake, rows)
    with lake.batch() as batch:
        FileWriter(lake.files_root, "messages", f"{batch}-0").write(
            batches(messages("orders", range(10, 20)))
        )
        expect(lake, rows)


def test_a_failed_batch_leaves_no_file(lake: Lake) -> None:
    def fail() -> None:
        with lake.batch() as batch:
            FileWriter(lake.files_root, "messages", f"{batch}-0").write(batches(one_a_day("q", 3)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not list(lake.files_root.rglob("*.parquet"))
    assert not list((lake.root / "_batches").iterdir())


def test_a_writer_that_fails_removes_what_it_wrote(lake: Lake) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield from batches(one_a_day("q", 100))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        FileWriter(lake.files_root, "messages", "x").write(failing())
    assert not list(lake.files_root.rglob("*.parquet"))


def test_rows_of_more_days_than_files_may_be_open_are_all_written(lake: Lake) -> None:
    rows = one_a_day("q", 150)
    add(lake, [*rows, *(message("r", row["seq"], row["created_at"]) for row in rows)])
    expect(lake, [*rows, *(message("r", row["seq"], row["created_at"]) for row in rows)])


def test_a_row_is_filed_under_its_day_in_utc(lake: Lake) -> None:
    midnight = START.replace(hour=0)
    add(lake, [message("q", 1, midnight - timedelta(microseconds=1)), message("q", 2, midnight)])
    assert [each.date.isoformat() for each in lake.state().files.values()] == [
        "2026-01-30",
        "2026-01-31",
    ]


@pytest.mark.parametrize("queue", HOSTILE, ids=range(len(HOSTILE)))
def test_any_queue_name_becomes_a_folder_of_its_own(lake: Lake, queue: str) -> None:
    add(lake, [message(queue, 1)])
    assert own_ids(lake) == [(queue, "1-1")]
    [path] = (lake.root / "messages").iterdir()
    assert path.parent == lake.root / "messages"
    if not is_cut(queue):
        assert ids_by_pyarrow(lake.root) == [(queue, "1-1")]
        assert ids_by_duckdb(lake.root) == [(queue, "1-1")]


def test_folders_of_different_queues_differ() -> None:
    names = [*HOSTILE, "n" * 254, "n" * 254 + "m", "a%2Fb", "%" * 254]
    assert len({folder_value(name) for name in names}) == len(names)
    assert all(len(folder_value(name).encode()) <= 249 for name in names)


# --- the commits -----------------------------------------------------------------------------


def test_two_who_want_the_same_commit_do_not_both_get_it(lake: Lake) -> None:
    commit = Commit(number=1, kind=Kind.ARCHIVE, at=1, run="r", batch="b", seqs={1: 5})
    lake.log.make(commit)
    with pytest.raises(ConflictError):
        lake.log.make(commit)
    assert lake.log.numbers() == [1]
    assert len(list((lake.root / "_commits").iterdir())) == 1


def test_a_commit_is_built_anew_if_somebody_else_was_quicker(lake: Lake) -> None:
    seen: list[int] = []

    def build(state: LakeState) -> Commit:
        seen.append(state.number)
        if len(seen) == 1:
            add(lake, messages("q", [1]))
        return Commit(
            number=state.number + 1, kind=Kind.ARCHIVE, at=1, run="r", batch="b", seqs={9: 1}
        )

    assert lake.commit(build).number == 2
    assert seen == [0, 1]


def with_base(state: LakeState) -> Commit:
    number = state.number + 1
    return Commit(number=number, kind=Kind.COMPACT, at=2, run="r", batch="b", base=state.as_base())


def test_the_state_is_that_of_all_commits_with_or_without_a_base(lake: Lake) -> None:
    steps = [LogStep(table="deliveries", until="7", queues=["q", "r"])]
    add(lake, messages("q", [1]), seqs={1: 1}, logs=steps)
    before = lake.state()
    lake.commit(with_base)
    assert lake.drop_superfluous() == 1
    after = lake.state()
    assert (after.files, after.seqs, after.logs) == (before.files, before.seqs, before.logs)
    add(lake, messages("q", [2]), seqs={1: 2})
    assert lake.state().seqs == {1: 2}
    assert lake.state().logs == {("deliveries", "q"): "7", ("deliveries", "r"): "7"}


def test_gaps_are_known_however_often_a_lake_is_compacted(lake: Lake) -> None:
    gap = Gap(queue="q", partition="p", partition_id=1, first_seq=2, last_seq=3)
    add(lake, messages("q", [4]), gaps=[gap])
    for _ in range(2):
        lake.commit(with_base)
        lake.drop_superfluous()
        assert lake.state().gaps == [gap]


def test_a_commit_is_not_dropped_before_it_is_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = messages("q", [1])
    with monkeypatch.context() as patch:
        patch.setattr(lake, "publish", lambda: None)
        add(lake, rows)
        lake.commit(with_base)
    assert lake.drop_superfluous() == 0
    lake.publish()
    expect(lake, rows)
    assert lake.drop_superfluous() == 1


def test_a_missing_or_damaged_commit_is_told_and_not_passed_over(lake: Lake) -> None:
    for seq in (1, 2, 3):
        add(lake, messages("q", [seq]))
    second = lake.root / "_commits" / "000000000002.json"
    text = second.read_text()
    second.write_text(text[: len(text) // 2])
    with pytest.raises(MonarqError, match=r"the commit .* is damaged"):
        lake.state()
    second.unlink()
    with pytest.raises(MonarqError, match="commit 2 is missing"):
        lake.state()


def test_a_lake_has_one_archiver_at_a_time(lake: Lake) -> None:
    with lake.archiving():
        other = Lake.open(lake.root)
        with (
            pytest.raises(ConflictError, match=r"another archive into .* is running"),
            other.archiving(),
        ):
            pytest.fail("two of them")
    with lake.archiving():
        pass


def test_a_lake_is_of_one_store_and_one_format(lake: Lake) -> None:
    with pytest.raises(ConflictError, match="archive of another store"):
        Lake.open_or_make(lake.root, store="other")
    with pytest.raises(ConflictError, match="in the format parquet"):
        Lake.open_or_make(lake.root, store="s", file_format="delta")
    assert Lake.open_or_make(lake.root, store="s").info == lake.info


def test_what_is_no_lake_is_told(tmp_path: Path, lake: Lake) -> None:
    with pytest.raises(NotFoundError, match="there is no lake at"):
        Lake.open(tmp_path / "nothing")
    with pytest.raises(InvalidRequestError, match="a lake is a folder"):
        Lake.open("s3://bucket/lake")
    info = json.loads((lake.root / "_lake.json").read_text())
    (lake.root / "_lake.json").write_text(json.dumps(info | {"version": 2}))
    with pytest.raises(InvalidRequestError, match="newer Monarq"):
        Lake.open(lake.root)
    (lake.root / "_lake.json").write_text("{")
    with pytest.raises(InvalidRequestError, match="damaged"):
        Lake.open(lake.root)


# --- after a crash ---------------------------------------------------------------------------


def archive_and_die(root: Path, at: str) -> None:
    """Kill this process at one of the steps of a batch."""

    def die(*_: object, **__: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    lake = Lake.open(root)
    if at == "written":
        lake.log.make = die  # type: ignore[method-assign]
    elif at == "committed":
        lake.publish = die  # type: ignore[method-assign]
    elif at == "half published":
        links = iter([os.link, os.link, die])  # The commit, the first file, the second.
        os.link = lambda *paths: next(links)(*paths)  # type: ignore[assignment]
    elif at == "published":
        lake_module.write_durably = die  # type: ignore[assignment]
    add(lake, one_a_day("new", 4))


@pytest.mark.parametrize(
    ("at", "is_in"),
    [("written", False), ("committed", True), ("half published", True), ("published", True)],
)
def test_killed_anywhere_a_batch_is_in_whole_or_not_at_all(
    lake: Lake, at: str, is_in: bool
) -> None:
    rows = messages("old", range(1, 50))
    add(lake, rows)
    process = multiprocessing.get_context("spawn").Process(
        target=archive_and_die, args=(lake.root, at)
    )
    process.start()
    process.join(120)
    assert process.exitcode == -signal.SIGKILL
    expected = [*rows, *(one_a_day("new", 4) if is_in else [])]
    assert own_ids(lake) == ids_of(expected)
    seen = ids_by_pyarrow(lake.root)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= set(ids_of(expected))
    Lake.open(lake.root).repair()
    expect(lake, expected)
    assert len(list(lake.files_root.rglob("*.parquet"))) == len(lake.state().files)
    assert not list((lake.root / "_batches").iterdir())


def test_repair_leaves_alone_what_is_being_written(lake: Lake) -> None:
    with lake.batch() as batch:
        files = FileWriter(lake.files_root, "messages", f"{batch}-0").write(
            batches(messages("q", [1]))
        )
        Lake.open(lake.root).repair()
        assert [(lake.files_root / each.path).exists() for each in files] == [True]
