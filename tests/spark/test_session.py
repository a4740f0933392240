"""A session of ours runs the format with the executors' interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.seeding import fill, numbered

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("other_interpreter.py")


@pytest.mark.slow
def test_executors_never_start_the_drivers_interpreter(store_url: str, tmp_path: Path) -> None:
    fill(store_url, numbered("orders", 20, partitions=2))
    done = subprocess.run(
        [sys.executable, SCRIPT, store_url],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYSPARK_DRIVER_PYTHON": str(tmp_path / "absent/python")},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert done.stdout.split() == ["20", "20"]
