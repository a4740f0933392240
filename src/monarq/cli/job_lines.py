"""A line in a worker's log for each job that begins, and one when it has ended."""

from __future__ import annotations

import logging
import time
from typing import Any

from monarq.cli.formats import duration
from monarq.cli.tables import printable
from monarq.jobs.presence import Presence, RunningJob

log = logging.getLogger("monarq.worker")

_LONGEST = 200
_ENDS = {True: "completed", False: "failed", None: "was given back"}


class ToldPresence(Presence):
    """Knows when jobs begin and end anyway; this one says so."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._begun: dict[str, tuple[RunningJob, float]] = {}

    def began(self, job: RunningJob) -> None:
        super().began(job)
        self._begun[job.id] = (job, time.monotonic())
        again = f", attempt {job.attempt}" if job.attempt > 1 else ""
        log.info("%s began on %s%s: %s", job.job, job.queue, again, printable(job.what)[:_LONGEST])

    def ended(self, job_id: str, *, succeeded: bool | None) -> None:
        super().ended(job_id, succeeded=succeeded)
        begun = self._begun.pop(job_id, None)
        if begun is not None:
            job, at = begun
            level = logging.WARNING if succeeded is False else logging.INFO
            log.log(level, "%s %s after %s", job.job, _ENDS[succeeded], _since(at))


def _since(at: float) -> str:
    return duration(time.monotonic() - at)
