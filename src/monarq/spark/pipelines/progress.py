"""How far a pipeline has come, on stderr: a bar at a terminal, else a line now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import rich.progress

_LINE_SECONDS = 5.0


class Progress:
    """Says nothing itself; see below for those that do."""

    def __init__(self) -> None:
        self.total = 0
        self.rows = 0

    @contextmanager
    def stage(self, total: int) -> Iterator[None]:
        """While that many more rows are worked on."""
        self.total += total
        self.rows_before = self.rows
        self._begin()
        try:
            yield
        finally:
            self._end()

    @contextmanager
    def part(self, rows: int) -> Iterator[Part]:
        """While one part of them is; done, it counts whole."""
        part = Part(self, self.rows, rows)
        yield part
        part.reached(rows)

    def move(self, rows: int) -> None:
        if rows > self.rows:
            self.rows = rows
            self._show()

    def _begin(self) -> None: ...

    def _show(self) -> None: ...

    def _end(self) -> None: ...


class Part:
    def __init__(self, progress: Progress, start: int, rows: int) -> None:
        self._progress = progress
        self._start = start
        self._rows = rows

    def reached(self, rows: int) -> None:
        self._progress.move(self._start + min(rows, self._rows))


class Lines(Progress):
    """A line at most every few seconds; nothing about what is done sooner."""

    def __init__(self, what: str, stream: TextIO | None = None) -> None:
        super().__init__()
        self._what = what
        self._stream = stream or sys.stderr
        self._started = self._said = 0.0

    def _begin(self) -> None:
        self._started = self._said = time.monotonic()

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._said >= _LINE_SECONDS:
            self._said = now
            seconds = now - self._started
            rate = (self.rows - self.rows_before) / seconds
            left = (self.total - self.rows) / rate
            self._stream.write(
                f"{self.rows:,} of {self.total:,} rows {self._what}, {rate:,.0f}/s, "
                f"{left:,.0f} s left\n"
            )
            self._stream.flush()


class Bar(Progress):
    """For people at a terminal."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what = what
        self._bar: rich.progress.Progress | None = None
        self._task: rich.progress.TaskID | None = None

    def _begin(self) -> None:
        if self.total == self.rows:
            return
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(
            f"rows {self._what}", total=self.total, completed=self.rows, rate=""
        )
        self._bar.start()

    def _show(self) -> None:
        if self._bar is not None and self._task is not None:
            speed = self._bar.tasks[self._task].speed
            rate = f"{speed:,.0f}/s" if speed else ""
            self._bar.update(self._task, completed=self.rows, rate=rate)

    def _end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def progress_for_people(what: str) -> Progress:
    return Bar(what) if sys.stderr.isatty() else Lines(what)
