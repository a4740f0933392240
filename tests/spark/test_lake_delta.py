"""A lake in the format delta: Delta's readers see what the commits say, once."""

from datetime import date
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from monarq.clock import ManualClock
from monarq.spark.lake import Lake
from monarq.spark.lake import delta as delta_module
from monarq.spark.pipelines.compact import Compactor
from tests.spark.lake_rows import add, ids_of, messages, one_a_day

NAMES = ["orders", "a/b=c%", "ü — 😀", "n" * 255]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.open_or_make(tmp_path / "lake", store="s", file_format="delta")


def ids_by_delta(lake: Lake) -> list[tuple[str, str]]:
    table = DeltaTable(lake.root / "messages").to_pyarrow_table(
        columns=["queue", "message_id", "date"]
    )
    assert all(isinstance(row, date) for row in table["date"].to_pylist())
    return ids_of(table.to_pylist())


def test_delta_sees_every_commit_once(lake: Lake) -> None:
    rows = []
    for number, name in enumerate(NAMES):
        new = one_a_day(name, 2)
        rows += new
        add(lake, new)
        assert ids_by_delta(lake) == ids_of(rows), number
    assert DeltaTable(lake.root / "messages").transaction_version(lake.info.id) == len(NAMES)


@pytest.mark.parametrize("after", [False, True])
def test_a_commit_that_delta_did_not_get_is_made_up_for_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    rows = one_a_day("orders", 2)
    add(lake, rows)
    real = delta_module._commit

    def crash(*arguments: object) -> None:
        if after:
            real(*arguments)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    monkeypatch.setattr(delta_module, "_commit", crash)
    new = messages("orders", [100])
    with pytest.raises(KeyboardInterrupt):
        add(lake, new)
    monkeypatch.undo()
    Lake.open(lake.root).repair()
    assert ids_by_delta(lake) == ids_of([*rows, *new])
    Lake.open(lake.root).repair()
    assert ids_by_delta(lake) == ids_of([*rows, *new])


def test_an_older_version_can_be_read_until_replaced_files_are_deleted(
    spark: SparkSession, lake: Lake
) -> None:
    for number in range(4):
        add(lake, messages("a/b ü", range(number * 5, number * 5 + 5)))
    rows = ids_of(messages("a/b ü", range(20)))
    before = DeltaTable(lake.root / "messages")
    clock = ManualClock()
    Compactor(lambda: spark, lake, run="test", clock=clock).run()
    assert ids_of(before.to_pyarrow_table().to_pylist()) == rows
    assert ids_by_delta(lake) == rows
    assert len(DeltaTable(lake.root / "messages").file_uris()) == 1
    clock.advance(100_000)
    assert Compactor(lambda: spark, lake, run="test", clock=clock).run().deleted == 4
    assert ids_by_delta(lake) == rows
    assert len(list((lake.root / "messages").rglob("*.parquet"))) == 1
