"""Logs with everything in them that a log may hold, and an analysis of a lake."""

import random
import uuid
from typing import Any

from pyspark.sql import SparkSession

from monarq.spark.lake import Lake
from monarq.spark.pipelines.analyse.running import Result, analyse
from monarq.spark.pipelines.analyse.sources import Scope, select
from tests.spark.analysis_history import History, micros

NOW = micros(3 * 3_600)
#: What a name may hold, and what would hurt where it is not escaped.
HOSTILE = (
    "<script>alert(1)</script>",
    'it\'s "quoted" & `ticked`',
    "naïve/ключ%2F=ü 🦋",
    "[a-z]*?{x}",
    "../../etc",
    "\u202egnirts",
)


def run(
    spark: SparkSession, lake: Lake, *, name: str = "r1", scope: Scope | None = None, **more: Any
) -> Result:
    selection = select(lake, scope or Scope())
    return analyse(spark, selection, run=name, now=NOW, progress=lambda *_: None, **more)


def chaos(seed: int) -> History:
    """Everything that a log may hold, in no good order: batches answered in pieces, leases that
    ran out, deliveries of what is no longer there, groups that begin late, messages that nobody
    gets, errors of all kinds, names of all kinds."""
    chance = random.Random(seed)
    history = History()
    queues = ["orders", *HOSTILE]
    pushed: dict[tuple[str, str], int] = {}
    for at in sorted(chance.uniform(0, 5_000) for _ in range(700)):
        queue = chance.choice(queues)
        partition = chance.choice(["Default", "c-1", HOSTILE[chance.randrange(len(HOSTILE))]])
        seq = history.push(queue, at, partition, chance.randint(2, 400))
        pushed[queue, partition] = seq
    for row in chance.sample(history.rows["messages"], 40):
        # Deleted by hand, or by retention before the archive came.
        history.rows["messages"].remove(row)
    for _ in range(500):
        queue, partition = chance.choice(sorted(pushed))
        last = pushed[queue, partition]
        first = chance.randint(1, last)
        until = min(last, first + chance.choice([0, 0, 1, 7]))
        number = until - first + 1
        completed = chance.randint(0, number)
        rest = number - completed
        counts = {"completed": completed, chance.choice(["failed", "dead", "released"]): rest}
        if chance.random() < 0.1:
            counts = {"expired": number}
        history.deliver(
            queue,
            chance.uniform(0, 5_400),
            chance.choice([0.0, chance.uniform(0, 3), chance.lognormvariate(0, 2)]),
            (first, until),
            partition=partition,
            group=chance.choice(["billing", "__QUEUE_MODE__", HOSTILE[0]]),
            consumer=chance.choice([None, "w1", HOSTILE[1]]),
            error=None if completed == number else _error(chance),
            **counts,
        )
    for _ in range(60):
        queue, partition = chance.choice(sorted(pushed))
        history.bury(
            queue,
            chance.uniform(100, 5_400),
            chance.randint(1, pushed[queue, partition] + 3),
            _error(chance) or "",
            partition=partition,
            group=chance.choice(["billing", HOSTILE[0]]),
        )
    for item in range(200):
        outcome = chance.choice(["completed", "failed", "retry", "dead", "expired", "cancelled"])
        history.attempt(
            chance.choice(["reports", HOSTILE[3]]),
            item // 2,
            chance.uniform(0, 5_000),
            chance.uniform(0, 50),
            attempt=item % 2 + 1,
            outcome=outcome,
            error=None if outcome == "completed" else _error(chance),
            consumer=chance.choice([None, "w1", "w2"]),
        )
    return history


def _error(chance: random.Random) -> str | None:
    return chance.choice(
        [
            None,
            "",
            f"TimeoutError: order {chance.randint(1, 9_999)} took {chance.uniform(1, 9):.1f} s",
            f"KeyError: '{uuid.UUID(int=chance.getrandbits(128))}'",
            f'Traceback (most recent call last):\n  File "x.py"\nValueError: {chance.random()}',
            "exit code 137",
            "<img src=x onerror=alert(1)>",
            "the lease expired without an answer",
            f"naïve ключ {chance.randint(1, 99)}\nmore",
        ]
    )
