"""Reads the counters for all open pages of the dashboard, and only while a page is open.

However many pages are open, the store is asked once; and however many queues it has, asking takes
at most a small part of the time. Whoever asks gets what was seen last, if it is not old.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from monarq.broker.broker import Broker
from monarq.clock import SECOND
from monarq.errors import MonarqError
from monarq.model import Latency, QueueKind
from monarq.record_values import decode_value
from monarq.server.paging import few_records
from monarq.server.snapshot import EMPTY, Snapshots
from monarq.server.watch.attention import Findings
from monarq.server.watch.views import View, next_view
from monarq.server.watch.workers import read_workers
from monarq.store.contract import Store

logger = logging.getLogger("monarq.watch")

INTERVAL_SECONDS = 2.0
IDLE_INTERVAL_SECONDS = 5.0
"""Between looks, while nothing changes."""
FRESH_SECONDS = 0.5
"""The greatest age of the counters, while no page watches."""
MOST_OF_TIME = 0.1
"""The part of the time that looking may take while pages watch."""
LONGEST_SECONDS = 8.0
"""Between looks, also where each takes long: the machine may only be busy with something else."""
RATE_WINDOW = 6 * SECOND
LATENCY_WINDOW = 300 * SECOND
_FIRST_LOOK_SECONDS = 0.25
_FIGURES_SECONDS = 30.0
_FINDINGS_SECONDS = 5.0
_MOST_ASKED = 20
"""Groups and work queues that are asked about one by one, the worst of them."""
PIPELINE_RUN_KIND = "pipeline-run"


@dataclass(slots=True)
class Sight:
    """All that is known at a moment."""

    view: View = field(default_factory=lambda: View(EMPTY))
    findings: Findings = field(default_factory=Findings)
    latencies: list[Latency] = field(default_factory=list)
    store_bytes: int | None = None
    pipeline_mark: tuple[int, int] = (0, 0)
    """Changes when a run of the pipeline begins or ends."""


class Sampler:
    def __init__(self, broker: Broker, snapshots: Snapshots) -> None:
        self._broker = broker
        self._snapshots = snapshots
        self.sight = Sight()
        self.watchers = 0
        self._task: asyncio.Task[None] | None = None
        self._reading = asyncio.Lock()
        self._changed = asyncio.Event()
        self._took = 0.0
        self._findings_at = float("-inf")

    # --- for those who ask -------------------------------------------------------------------

    async def current(self, *, anew: bool = False) -> Sight:
        """What was seen last, if that was lately; otherwise, or `anew`, it is looked at now."""
        async with self._reading:
            looked = await self._look(anew=anew)
            is_first = looked and not self.sight.view.before.at
            if is_first and self._took < _FIRST_LOOK_SECONDS:
                await asyncio.sleep(_FIRST_LOOK_SECONDS)
                await self._look(anew=True)
        return self.sight

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Keep the sampler reading the store while this block runs."""
        self.watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            self.watchers -= 1
            if not self.watchers and self._task is not None:
                self._task.cancel()
                self._task = None

    async def next_sight(self, seen: int) -> Sight:
        """A later one than the version that was seen; for those who are `watching`."""
        while self.sight.view.version <= seen:
            await self._changed.wait()
        return self.sight

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None

    # --- looking -----------------------------------------------------------------------------

    async def _run(self) -> None:
        interval = INTERVAL_SECONDS
        while True:
            version = self.sight.view.version
            try:
                async with self._reading:
                    await self._look(anew=True)
            except MonarqError as error:
                logger.debug("nothing to see: %s", error)
                self._see_nothing()
            except Exception:
                logger.exception("looking at the store failed")
            view = self.sight.view
            if view.version == version or view.changed_queues or view.changed_groups:
                interval = INTERVAL_SECONDS
            else:
                interval = min(interval * 1.5, IDLE_INTERVAL_SECONDS)
            await asyncio.sleep(max(interval, self._pause()))

    def _pause(self) -> float:
        """Return the seconds between two looks while pages watch, for what the last one took."""
        return min(self._took / MOST_OF_TIME, LONGEST_SECONDS)

    async def _look(self, *, anew: bool) -> bool:
        """Return whether there was something new to see."""
        begin = self._now()
        store = self._broker.store
        now, last = await self._snapshots.read(FRESH_SECONDS, anew=anew), self.sight.view.now
        if now.queues is last.queues and now.groups is last.groups:
            return False
        view = next_view(self.sight.view, now, RATE_WINDOW)
        sight = dataclasses.replace(self.sight, view=view)
        if begin - self._findings_at >= _FINDINGS_SECONDS:
            sight.findings = await self._find(store, view)
            sight.latencies = await store.latencies(now.at - LATENCY_WINDOW, now.at, samples=300)
            sight.findings.failed_runs, sight.pipeline_mark = await _runs(store)
            self._findings_at = begin
        figures = await self._snapshots.figures.get(_FIGURES_SECONDS)
        sight.store_bytes = int(figures["databaseBytes"])
        sight.findings.oldest_transaction_seconds = float(
            figures.get("oldestTransactionSeconds", 0.0)
        )
        view.stuck_groups = frozenset(sight.findings.failing)
        view.changed_groups |= view.stuck_groups ^ self.sight.view.stuck_groups
        self.sight = sight
        self._took = self._now() - begin
        self._tell()
        return True

    def _see_nothing(self) -> None:
        """The store is down, which is something to tell."""
        last = self.sight.view
        view = View(last.now, last.before, last.version + 1, stuck_groups=last.stuck_groups)
        self.sight = dataclasses.replace(self.sight, view=view)
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _find(self, store: Store, view: View) -> Findings:
        findings = Findings()
        findings.workers = await read_workers(store, view.now.at)
        suspects = [
            group
            for named in view.now.groups.values()
            for group in named.values()
            if group.lag and group.failed
        ]
        suspects.sort(key=lambda group: (group.oldest_at or 0, -group.lag))
        for group in suspects[:_MOST_ASKED]:
            with contextlib.suppress(MonarqError):
                failing = await store.list_failing(group.queue, group.group, limit=1)
                if failing and failing[0].attempts > 1:
                    findings.failing[group.queue, group.group] = failing[0]
        waiting = [
            flow
            for flow in view.now.queues.values()
            if flow.kind is QueueKind.WORK and flow.ready and not flow.leased and not flow.paused
        ]
        waiting.sort(key=lambda flow: -flow.ready)
        for flow in waiting[:_MOST_ASKED]:
            with contextlib.suppress(MonarqError):
                page = await store.list_items(flow.queue, order="next", limit=1)
                for item in page.rows:
                    waited = (view.now.at - item.created_at) / SECOND
                    findings.waiting_jobs[flow.queue] = max(0.0, waited)
        return findings

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _Run(msgspec.Struct, rename="camel"):
    pipeline: str = ""
    outcome: str = ""
    error: str | None = None
    ended: Any = None


async def _runs(store: Store) -> tuple[list[tuple[str, str, str]], tuple[int, int]]:
    """Pipelines whose latest run failed, and a mark that changes with any run."""
    records = await few_records(
        lambda limit, after: store.list_records(PIPELINE_RUN_KIND, limit=limit, after=after),
        most=1000,
    )
    latest: dict[str, _Run] = {}
    for record in records:
        run = decode_value(record, _Run)
        if run is not None:
            latest[run.pipeline] = run
    failed = [
        (run.pipeline, run.error or "", str(run.ended or ""))
        for run in latest.values()
        if run.outcome == "failed"
    ]
    return failed, (len(records), max((record.updated_at for record in records), default=0))
