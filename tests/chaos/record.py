"""The record of a chaos run: its seed, its counts and its verdict, by store and round."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from msgspec import to_builtins

from bench.harness import machine
from tests.chaos.running import Report

PACKAGES = ("msgspec", "asyncpg", "uvloop", "httptools")


class Record:
    def __init__(self, seed: int, minutes: float) -> None:
        self.seed = seed
        self.file_name = f"soak-{datetime.now(UTC):%Y-%m-%d}-seed-{seed}.json"
        self._minutes = minutes
        self._machine = machine(PACKAGES)
        self._rounds: list[dict[str, Any]] = []

    def add(self, store: str, report: Report) -> None:
        found = to_builtins(report)
        del found["brokers"]  # logs, which name paths of the machine
        self._rounds.append({"store": store, **found})

    def as_json(self) -> dict[str, Any]:
        counts: Counter[str] = Counter()
        for each in self._rounds:
            counts["faults"] += sum(each["faults"].values())
            counts["pushes"] += sum(each["pushes"].values())
            counts["delivered"] += each["delivered"]
            counts["violations"] += len(each["violations"])
        return {
            "machine": self._machine,
            "seed": self.seed,
            "minutes": self._minutes,
            "verdict": "a promise is broken" if counts["violations"] else "all promises kept",
            "counts": {"rounds": len(self._rounds), **counts},
            "rounds": self._rounds,
        }
