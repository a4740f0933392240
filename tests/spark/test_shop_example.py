"""The example that has all of it, from the first order to the replay."""

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.dataset as ds
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_orders_flow_are_archived_analysed_enriched_and_replayed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples/shop/shop.py"), str(tmp_path / "shop")],
        cwd=tmp_path,
        env=os.environ | {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout
    assert "60 orders taken" in said
    assert "2 orders could not be billed" in said
    assert "58 orders packed" in said
    assert "archived 60 messages" in said
    assert "2 dead letters" in said
    assert "`PaymentError`" in said
    assert "enrich: 60 rows to tiers, 60 rows to kept" in said
    for line in (
        "orders-gold: 30 messages",
        "orders-silver: 15 messages",
        "orders-bronze: 15 messages",
        "orders-to-check: 12 messages",
    ):
        assert line in said
    kept = ds.dataset(tmp_path / "shop/enriched", format="parquet", partitioning="hive").to_table()
    assert sorted(kept.column("number").to_pylist()) == list(range(60))
    [report] = (tmp_path / "shop/lake/analysis").glob("*/report.html")
    assert "orders" in report.read_text(encoding="utf-8")
