"""The figures of an analysis, computed once more in plain Python: slow, plain, and on its own.

Nothing of the pipeline is used here but the names of what it gives back and the rule for error
texts, which has tests of its own.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from monarq.spark.pipelines.analyse.error_kinds import normalise
from monarq.spark.pipelines.analyse.figures import Answers, Spread

Row = dict[str, Any]
Rows = dict[str, list[Row]]
Key = tuple[str, ...]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_OUTCOMES = {"retry": "failed", "cancelled": "released"}
_COUNTS = ("completed", "failed", "released", "dead", "expired")


def micros(time: datetime) -> int:
    return (time - _EPOCH) // timedelta(microseconds=1)


def percentile(values: list[int], part: float) -> float:
    """Linear between neighbours."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low + (high - low) * (place - math.floor(place))


def spread(values: list[int]) -> Spread | None:
    """Of microseconds."""
    if not values:
        return None
    p50, p95, p99 = (percentile(values, part) / 1e6 for part in (0.5, 0.95, 0.99))
    return Spread(count=len(values), p50=p50, p95=p95, p99=p99, most=max(values) / 1e6)


class Reference:
    def __init__(self, rows: Rows) -> None:
        self.messages = rows["messages"]
        self.dead_letters = rows["dead_letters"]
        self.deliveries = rows["deliveries"]
        self.attempts = rows["attempts"]
        self.answers = [*map(_of_delivery, self.deliveries), *map(_of_attempt, self.attempts)]

    # --- answers -----------------------------------------------------------------------------

    def counts(self, key: Callable[[Row], Key]) -> dict[Key, Answers]:
        found: dict[Key, Counter[str]] = defaultdict(Counter)
        for row in self.answers:
            for name in _COUNTS:
                found[key(row)][name] += row[name]
        return {
            place: Answers(**{name: sums[name] for name in _COUNTS})
            for place, sums in found.items()
        }

    def processing(self, key: Callable[[Row], Key]) -> dict[Key, Spread | None]:
        found: dict[Key, list[int]] = defaultdict(list)
        for row in self.answers:
            values = found[key(row)]
            ran_out = row["expired"] or row["error"] == "the lease expired without an answer"
            if not ran_out:
                weight = row["completed"] + row["failed"] + row["dead"]
                values += [row["ended"] - row["leased"]] * weight
        return {place: spread(values) for place, values in found.items()}

    # --- waiting -----------------------------------------------------------------------------

    def first_deliveries(self) -> list[Row]:
        """queue, group, leased, waited: for each message and each group that was given it."""
        first: dict[tuple[int, int, str], int] = {}
        for row in self.deliveries:
            for seq in range(row["first_seq"], row["last_seq"] + 1):
                key = (row["partition_id"], seq, row["consumer_group"])
                first[key] = min(first.get(key, 1 << 62), micros(row["leased_at"]))
        created = {message["message_id"]: message for message in self.messages}
        found = []
        for (partition_id, seq, group), leased in first.items():
            message = created.get(f"{partition_id}-{seq}")
            if message is not None:
                waited = max(leased - micros(message["created_at"]), 0)
                found.append(
                    {"queue": message["queue"], "group": group, "leased": leased, "waited": waited}
                )
        return found

    def waiting(self, key: Callable[[Row], Key]) -> dict[Key, Spread | None]:
        found: dict[Key, list[int]] = defaultdict(list)
        for row in self.first_deliveries():
            found[key(row)].append(row["waited"])
        return {place: spread(values) for place, values in found.items()}

    # --- backlog -----------------------------------------------------------------------------

    def backlog(self) -> dict[tuple[str, str, str], list[int]]:
        """By queue, group and partition: when each message that waits was pushed."""
        groups = {(row["queue"], row["consumer_group"]) for row in self.deliveries}
        reached: dict[tuple[str, str, str], int] = defaultdict(int)
        for row in self.deliveries:
            key = (row["queue"], row["consumer_group"], row["partition"])
            reached[key] = max(reached[key], row["last_seq"])
        for row in self.dead_letters:
            key = (row["queue"], row["consumer_group"], row["partition"])
            reached[key] = max(reached[key], row["seq"])
        found: dict[tuple[str, str, str], list[int]] = defaultdict(list)
        for message in self.messages:
            for queue, group in groups:
                key = (queue, group, message["partition"])
                if message["queue"] == queue and message["seq"] > reached[key]:
                    found[key].append(micros(message["created_at"]))
        return found

    # --- errors ------------------------------------------------------------------------------

    def errors(self) -> Counter[tuple[str, str, str]]:
        """By queue, source and error."""
        found: Counter[tuple[str, str, str]] = Counter()
        for row in self.dead_letters:
            found[row["queue"], "dead letter", normalise(row["error"])] += 1
        for row in self.answers:
            times = row["failed"] + row["dead"] + row["expired"]
            if times:
                source = "attempt" if row["is_work"] else "delivery"
                found[row["queue"], source, normalise(row["error"])] += times
        return found

    def pushed(self, start: int, bucket: int) -> Counter[tuple[str, int]]:
        """By queue and bucket."""
        return Counter(
            (row["queue"], (micros(row["created_at"]) - start) // bucket) for row in self.messages
        )


def group_of(row: Row) -> Key:
    return row["queue"], row["group"]


def queue_of(row: Row) -> Key:
    return (row["queue"],)


def bucket_by(time: str, start: int, bucket: int) -> Callable[[Row], Key]:
    return lambda row: (row["queue"], row["group"], (row[time] - start) // bucket)  # type: ignore[return-value]


def _of_delivery(row: Row) -> Row:
    return {
        **{name: row[name] for name in ("queue", "consumer", "error", *_COUNTS)},
        "group": row["consumer_group"],
        "leased": micros(row["leased_at"]),
        "ended": micros(row["ended_at"]),
        "is_work": False,
    }


def _of_attempt(row: Row) -> Row:
    outcome = _OUTCOMES.get(row["outcome"], row["outcome"])
    return {
        **{name: row[name] for name in ("queue", "consumer", "error")},
        **{name: int(name == outcome) for name in _COUNTS},
        "group": "",
        "leased": micros(row["started_at"]),
        "ended": micros(row["ended_at"]),
        "is_work": True,
    }


def totals(values: Iterable[list[int]]) -> int:
    return sum(len(each) for each in values)
