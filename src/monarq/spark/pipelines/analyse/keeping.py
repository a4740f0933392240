"""Where analyses are in a lake: `analysis/<run>/` with the figures as JSON and Parquet, and the
report. One appears whole or not at all."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pyarrow.parquet as pq

from monarq.errors import MonarqError
from monarq.spark.lake.commits import sync_folder, write_durably
from monarq.spark.lake.lake import Lake
from monarq.spark.lake.layout import ANALYSIS
from monarq.spark.pipelines.analyse.arrow_tables import arrow_tables
from monarq.spark.pipelines.analyse.figures import Analysis

JSON_FILE = "analysis.json"
REPORT_FILE = "report.html"


def keep(lake: Lake, analysis: Analysis, report: str) -> Path:
    """The folder that it is in now."""
    folder = lake.root / ANALYSIS / analysis.id
    hidden = folder.with_name(f".{analysis.id}")
    try:
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        for name, table in arrow_tables(analysis).items():
            pq.write_table(table, hidden / f"{name}.parquet", compression="zstd")
        write_durably(hidden / JSON_FILE, msgspec.json.encode(analysis))
        write_durably(hidden / REPORT_FILE, report.encode())
        hidden.rename(folder)
        sync_folder(folder.parent)
    except OSError as error:
        shutil.rmtree(hidden, ignore_errors=True)
        raise MonarqError(f"cannot write the analysis to {folder}: {error.strerror}") from error
    return folder


def last_before(lake: Lake, run: str, scope: list[str]) -> Analysis | None:
    """The newest analysis of the same queues that is older than this run. One that another
    version wrote differently is no use for a comparison, and passed over."""
    parent = lake.root / ANALYSIS
    if not parent.is_dir():
        return None
    names = sorted((path.name for path in parent.iterdir() if path.name < run), reverse=True)
    for name in names:
        if name.startswith("."):
            continue
        try:
            found = msgspec.json.decode((parent / name / JSON_FILE).read_bytes(), type=Analysis)
        except (OSError, msgspec.DecodeError):
            continue
        if found.scope == scope:
            return found
    return None
