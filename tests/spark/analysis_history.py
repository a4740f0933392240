"""Histories of queues, made by hand: rows of a lake's tables, and a lake with them in it."""

import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from monarq.spark.lake import Lake
from monarq.spark.lake.commits import Commit, DataFile, Kind, LakeState
from monarq.spark.lake.writing import FileWriter
from monarq.tables import arrow_schema

START = datetime(2026, 1, 31, 13, 30, tzinfo=UTC)

Rows = dict[str, list[dict[str, Any]]]


@dataclass
class History:
    """Rows as a broker would have left them. Seconds count from `START`."""

    rows: Rows = field(
        default_factory=lambda: {
            "messages": [],
            "deliveries": [],
            "dead_letters": [],
            "attempts": [],
        }
    )
    _partitions: dict[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    _pushed: dict[int, float] = field(default_factory=dict)
    _leases: int = 0

    def push(self, queue: str, at: float, partition: str = "Default", size: int = 20) -> int:
        """Its seq. As in a store, time never falls within a partition."""
        known = (len(self._partitions) + 1, 0)
        partition_id, last = self._partitions.get((queue, partition), known)
        seq = last + 1
        self._partitions[queue, partition] = (partition_id, seq)
        at = self._pushed[partition_id] = max(at, self._pushed.get(partition_id, at))
        self.rows["messages"].append(
            {
                "queue": queue,
                "partition": partition,
                "seq": seq,
                "message_id": f"{partition_id}-{seq}",
                "transaction_id": f"{partition_id}-{seq}",
                "trace_id": None,
                "payload": '"' + "x" * (size - 2) + '"',
                "producer": None,
                "created_at": time(at),
            }
        )
        return seq

    def deliver(
        self,
        queue: str,
        leased: float,
        took: float,
        seqs: tuple[int, int],
        *,
        partition: str = "Default",
        group: str = "billing",
        consumer: str | None = "worker-1",
        error: str | None = None,
        **counts: int,
    ) -> None:
        """Completed, if no counts are given."""
        self._leases += 1
        answers = counts or {"completed": seqs[1] - seqs[0] + 1}
        self.rows["deliveries"].append(
            {
                "id": len(self.rows["deliveries"]) + 1,
                "queue": queue,
                "partition": partition,
                "partition_id": self._partitions[queue, partition][0],
                "consumer_group": group,
                "consumer": consumer,
                "lease_number": self._leases,
                "leased_at": time(leased),
                "ended_at": time(leased + took),
                "first_seq": seqs[0],
                "last_seq": seqs[1],
                "error": error,
            }
            | dict.fromkeys(("completed", "failed", "released", "dead", "expired"), 0)
            | answers
        )

    def bury(
        self,
        queue: str,
        at: float,
        seq: int,
        error: str,
        *,
        partition: str = "Default",
        group: str = "billing",
    ) -> None:
        partition_id, _ = self._partitions.setdefault(
            (queue, partition), (len(self._partitions) + 1, 0)
        )
        self.rows["dead_letters"].append(
            {
                "id": len(self.rows["dead_letters"]) + 1,
                "queue": queue,
                "partition": partition,
                "partition_id": partition_id,
                "seq": seq,
                "message_id": f"{partition_id}-{seq}",
                "transaction_id": f"{partition_id}-{seq}",
                "consumer_group": group,
                "payload": "{}",
                "error": error,
                "attempts": 4,
                "created_at": time(at - 10),
                "failed_at": time(at),
                "trace_id": None,
                "producer": None,
            }
        )

    def attempt(
        self,
        queue: str,
        item: int,
        started: float,
        took: float,
        *,
        attempt: int = 1,
        outcome: str = "completed",
        error: str | None = None,
        consumer: str | None = "worker-1",
    ) -> None:
        self.rows["attempts"].append(
            {
                "id": len(self.rows["attempts"]) + 1,
                "queue": queue,
                "item_id": f"900-{item}",
                "attempt": attempt,
                "started_at": time(started),
                "ended_at": time(started + took),
                "outcome": outcome,
                "consumer": consumer,
                "error": error,
                "result": None,
            }
        )


def time(seconds: float) -> datetime:
    return START + timedelta(microseconds=round(seconds * 1e6))


def micros(seconds: float) -> int:
    return (time(seconds) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def make_lake(root: Path, *commits: Rows) -> Lake:
    """A lake with these rows, one commit for each."""
    lake = Lake.open_or_make(root, store="test")
    for rows in commits:
        add_rows(lake, rows)
    return lake


def add_rows(lake: Lake, rows: Rows) -> None:
    with lake.batch() as batch:
        files: list[DataFile] = []
        for table, found in rows.items():
            batches = pa.Table.from_pylist(found, arrow_schema(table)).to_batches(5_000)
            files += FileWriter(lake.files_root, table, f"{batch}-{table}").write(batches)

        def build(state: LakeState) -> Commit:
            return Commit(
                number=state.number + 1,
                kind=Kind.ARCHIVE,
                at=1,
                run="r",
                batch=batch,
                added=files,
            )

        lake.commit(build)


def shop(seed: int = 1) -> History:
    """Two hours of a shop with troubles: after 14:05 `orders` waits, one customer's partition
    stands still, most that dies is a `TimeoutError`, a worker is slow, jobs fail."""
    chance = random.Random(seed)
    history = History()
    _orders(history, chance)
    _mails(history, chance)
    _clicks(history, chance)
    _jobs(history, chance)
    return history


def _orders(history: History, chance: random.Random) -> None:
    for minute in range(120):
        late = minute >= 35
        for second in sorted(chance.random() * 60 for _ in range(chance.randint(18, 26))):
            customer = "c-17" if chance.random() < 0.18 else f"c-{chance.randint(18, 40)}"
            at = minute * 60 + second
            seq = history.push("orders", at, customer, chance.randint(120, 260))
            wait = chance.lognormvariate(1.4, 0.4) if late else chance.lognormvariate(-1.0, 0.5)
            history.deliver(
                "orders", at + wait / 9, 0.004, (seq, seq), partition=customer, group="audit",
                consumer="auditor",
            )  # fmt: skip
            if customer == "c-17" and minute >= 80:
                continue
            if minute >= 116 and chance.random() < 0.6:
                continue
            slow = chance.random() < 0.18
            took = chance.lognormvariate(-2.2, 0.5) * (6 if slow else 1)
            consumer = f"worker-{3 if slow else chance.randint(1, 2)}"
            where: dict[str, Any] = {"partition": customer, "consumer": consumer}
            if late and chance.random() < 0.06:
                error = (
                    f"TimeoutError: payment {chance.randint(1000, 99999)} took longer than 30 s"
                    if chance.random() < 0.94
                    else "ValueError: no such currency 'XXX'"
                )
                for turn in range(3):
                    history.deliver(
                        "orders", at + wait + turn, took, (seq, seq), failed=1, error=error, **where
                    )
                history.deliver(
                    "orders", at + wait + 3, took, (seq, seq), dead=1, error=error, **where
                )
                history.bury("orders", at + wait + 4, seq, error, partition=customer)
            else:
                history.deliver("orders", at + wait, took, (seq, seq), **where)


def _mails(history: History, chance: random.Random) -> None:
    for minute in range(120):
        for second in sorted(chance.random() * 60 for _ in range(chance.randint(4, 8))):
            at = minute * 60 + second
            seq = history.push("mails", at, size=chance.randint(300, 900))
            took = chance.lognormvariate(-1.0, 0.3) * (5 if 50 <= minute < 80 else 1)
            history.deliver("mails", at + 0.05, took, (seq, seq), group="sender", consumer="mailer")


def _clicks(history: History, chance: random.Random) -> None:
    for minute in range(120):
        for second in sorted(chance.random() * 55 for _ in range(2 if minute < 70 else 12)):
            at = minute * 60 + second
            first = history.push("clicks", at, size=80)
            last = first
            for _ in range(9):
                last = history.push("clicks", at, size=80)
            history.deliver("clicks", at + 0.5, 0.03, (first, last), group="warehouse")


def _jobs(history: History, chance: random.Random) -> None:
    for item in range(1, 241):
        at = item * 30 + chance.random() * 20
        if item % 5 == 0:
            for attempt in (1, 2, 3):
                history.attempt(
                    "reports", item, at + 5 * attempt, 40 + chance.random() * 9, attempt=attempt,
                    outcome="failed" if attempt < 3 else "dead", error="exit code 137",
                )  # fmt: skip
            history.bury("reports", at + 70, item, "exit code 137", group="__QUEUE_MODE__")
        else:
            history.attempt("reports", item, at, 4 + chance.random() * 3)
