"""Runs of pipelines and the state of archives, as they are kept beside the queues for those who
show them. Touches nothing itself.
"""

from __future__ import annotations

from msgspec import Struct

from monarq.record_values import Micros

RUN_KIND = "pipeline-run"
ARCHIVE_KIND = "pipeline-archive"
STORE_KIND = "pipeline-store"
"""One record, `id`: tells this store from others."""

#: How many runs are kept.
RUNS_KEPT = 200
#: A run says that often that it is still there.
BEAT_SECONDS = 15.0
#: A run that has not said so for this long was killed.
LOST_SECONDS = 90.0


class Run(Struct, frozen=True, kw_only=True, rename="camel"):
    """One run of a pipeline. Times are microseconds since the epoch."""

    id: str
    """Ids sort by start."""
    pipeline: str
    started: Micros
    updated: Micros
    outcome: str
    """running, succeeded, failed, stopped (by a signal) or killed."""
    ended: Micros | None = None
    rows: int = 0
    lake: str | None = None
    queues: list[str] = []
    """Which were asked for; all, if empty."""
    error: str | None = None
    host: str = ""

    @property
    def seconds(self) -> float:
        return ((self.ended or self.updated) - self.started) / 1_000_000


class ArchivedQueue(Struct, frozen=True, kw_only=True, rename="camel"):
    queue: str
    rows: int
    """Messages of it in the lake."""
    behind: int
    """Messages that were not in the lake when it was last looked."""
    archived_at: Micros


class Archive(Struct, frozen=True, kw_only=True, rename="camel"):
    """How far the archive in a lake has come; kept under the lake's id."""

    lake: str
    at: Micros
    queues: list[ArchivedQueue]


def as_seen(run: Run, now: int) -> Run:
    """A run that is said to be running and has long not been heard of was killed."""
    import msgspec

    if run.outcome == "running" and now - run.updated > LOST_SECONDS * 1_000_000:
        return msgspec.structs.replace(run, outcome="killed", ended=run.updated)
    return run
