"""What every benchmark needs: sides measured in turns, ratios, a table, and a record of the run.

Figures of a shared machine mean little by themselves. Sides that are compared are measured one
after the other in each round, in an order that rotates, and what counts is the median of the
rounds' ratios. Knows nothing of what is measured.
"""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

RESULTS = Path(__file__).parent / "results"

Side = Callable[[], Awaitable[Mapping[str, float]]]
"""Measures once; the seconds that each of its parts took."""


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Rounds:
    """Seconds by name, round by round."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, float]] = []

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, seconds: Mapping[str, float]) -> None:
        self._rounds.append(dict(seconds))

    def seconds(self, *names: str) -> float:
        """What these parts took together, in the median round."""
        return statistics.median(self._sums(names))

    def times_faster(self, names: Sequence[str], than: Sequence[str]) -> float:
        """How many times faster one side is than the other: the median of the rounds' ratios."""
        pairs = zip(self._sums(names), self._sums(than), strict=True)
        return statistics.median(slow / fast for fast, slow in pairs)

    def as_json(self) -> list[dict[str, float]]:
        return [{name: round(value, 6) for name, value in row.items()} for row in self._rounds]

    def _sums(self, names: Sequence[str]) -> list[float]:
        return [sum(row[name] for name in names) for row in self._rounds]


async def take_turns(
    sides: Sequence[Side], *, rounds: int, seconds: float | None = None, warm_up: int = 1
) -> Rounds:
    """Measure the sides in turns: ABC, BCA, CAB … `seconds` goes on until they have passed,
    for at least three rounds.

    Python's garbage collector runs between the sides, not within them: a full collection takes as
    long as a third of a short side, and falls into whichever side makes one object too many."""
    result = Rounds()
    started = time.perf_counter()
    for number in _numbers(rounds, seconds, started, warm_up):
        if number == warm_up:
            started = time.perf_counter()
        measured: dict[str, float] = {}
        for place in range(len(sides)):
            measured |= await _without_collector(sides[(place + number) % len(sides)])
        if number >= warm_up:
            result.add(measured)
    return result


async def _without_collector(side: Side) -> Mapping[str, float]:
    gc.collect()
    gc.disable()
    try:
        return await side()
    finally:
        gc.enable()


def _numbers(rounds: int, seconds: float | None, started: float, warm_up: int) -> Iterator[int]:
    number = 0
    while (
        number < warm_up + rounds
        if seconds is None
        else (number < warm_up + 3 or time.perf_counter() - started < seconds)
    ):
        yield number
        number += 1


class Stopwatch:
    """Adds up the time spent in `with` blocks."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._started = 0.0

    def __enter__(self) -> None:
        self._started = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._started


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Plain text; the first column to the left, the others to the right."""
    lines = [tuple(headings), *(tuple(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]

    def drawn(line: Sequence[str]) -> str:
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        return "  ".join(cells).rstrip()

    return "\n".join(
        [drawn(lines[0]), "  ".join("-" * width for width in widths)]
        + [drawn(line) for line in lines[1:]]
    )


def rate(count: float, seconds: float) -> str:
    return f"{count / seconds:,.0f}"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def machine(packages: Sequence[str]) -> dict[str, Any]:
    """What a reader needs to judge the figures; nothing that says whose machine it is."""
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load_average": [round(value, 2) for value in os.getloadavg()],
        "fsync_ms": round(_fsync_ms(), 3),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in packages},
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _fsync_ms() -> float:
    """What it costs to make a page durable where the stores' files are."""
    took: list[float] = []
    with tempfile.NamedTemporaryFile() as file:
        for _ in range(30):
            file.write(bytes(8192))
            file.flush()
            started = time.perf_counter()
            os.fdatasync(file.fileno()) if hasattr(os, "fdatasync") else os.fsync(file.fileno())
            took.append(time.perf_counter() - started)
    return statistics.median(took) * 1000


def write_json(name: str, content: Mapping[str, Any], path: Path | None = None) -> Path:
    """Write to bench/results/<name>-<date>.json, or to `path`."""
    at = datetime.now(UTC)
    target = path or RESULTS / f"{name}-{at:%Y-%m-%d}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    record = {"benchmark": name, "at": at.isoformat(timespec="seconds"), **content}
    target.write_text(json.dumps(record, indent=2) + "\n")
    return target
