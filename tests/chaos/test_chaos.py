"""A short chaos run on each store; `./dev chaos` runs as long as asked."""

from pathlib import Path

import pytest

from tests.chaos.running import ChaosRun

SECONDS = {"postgresql": 15, "sqlite": 8}


@pytest.mark.slow
@pytest.mark.parametrize("store", SECONDS)
async def test_all_promises_are_kept_whatever_is_killed_or_frozen(
    store: str, tmp_path: Path
) -> None:
    run = ChaosRun(tmp_path, is_postgres=store == "postgresql", seed=20)
    report = await run.run(SECONDS[store])
    assert report.violations == []
    assert sum(report.faults.values()) >= 2
    assert report.pushes["queued"] > 100
    assert report.delivered > 100
