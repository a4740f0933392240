"""Tells the store how an archive comes on, for those who look from outside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from monarq.clock import Clock, SystemClock
from monarq.pipeline_runs import Archive, ArchivedQueue
from monarq.spark.lake.lake import Lake
from monarq.spark.pipelines.archive import ArchiveReport, Watcher
from monarq.spark.pipelines.registry import RunningRun, RunRegistry

#: A record holds no more; the biggest ones are told.
_MOST_QUEUES = 2_000


class ArchiveNotes(Watcher):
    def __init__(
        self, registry: RunRegistry, run: RunningRun, lake: Lake, clock: Clock | None = None
    ) -> None:
        self._registry = registry
        self._run = run
        self._lake = lake
        self._clock = clock or SystemClock()
        self._told: Mapping[str, int] | None = None

    def looked(self, behind: Mapping[str, int]) -> None:
        # An idle archive looks often, and there is nothing new to tell.
        if behind != self._told:
            self._told = dict(behind)
            self._registry.note_archive(self._lake.info.id, self._state(behind))

    def committed(self, report: ArchiveReport) -> None:
        self._run.reached(report.total)

    def _state(self, behind: Mapping[str, int]) -> Archive:
        now = self._clock.now()
        rows: Counter[str] = Counter(dict.fromkeys(behind, 0))
        for each in self._lake.state().files_of("messages"):
            rows[each.queue] += each.rows
        return Archive(
            lake=str(self._lake.root),
            at=now,
            queues=[
                ArchivedQueue(queue=queue, rows=count, behind=behind.get(queue, 0), archived_at=now)
                for queue, count in rows.most_common(_MOST_QUEUES)
            ],
        )
