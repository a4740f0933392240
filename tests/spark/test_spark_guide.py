"""The guide's programs run as they stand, one after the other."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.documented import runnable


@pytest.mark.slow
def test_the_guide_runs(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Workers of the shared session have a directory of their own, so the file is named in full.
    monkeypatch.chdir(tmp_path)
    file = f"sqlite:///{tmp_path / 'shop.db'}"
    names: dict[str, object] = {}
    for code in runnable("docs/guide/spark.md", "python"):
        placed = code.replace("sqlite:///shop.db", file)
        placed = placed.replace('"orders-checkpoint"', repr(str(tmp_path / "checkpoint")))
        placed = placed.replace('"path", "orders"', f'"path", {str(tmp_path / "orders")!r}')
        exec(placed, names)
    printed = capsys.readouterr().out
    for line in (
        r'\|ada +\|1 +\|{"item":"tea","cups":2} *\|20',
        r"\| *tea\| *5\|",
        r"^3$",
        r"\| *orders\| *ordered\| *3\| *3\|",
    ):
        assert re.search(line, printed, re.MULTILINE), printed
    some, query = names["some"], names["query"]
    assert some.count() == 3  # type: ignore[attr-defined]
    assert query.exception() is None  # type: ignore[attr-defined]
    assert spark.read.parquet(str(tmp_path / "orders")).count() == 3
