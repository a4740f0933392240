"""What is different from the analysis before: the same figures, side by side."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator

from monarq.spark.pipelines.analyse.figures import Analysis, Change, QueueFigures, Spread
from monarq.spark.pipelines.analyse.levels import LEAST_FACTOR


class _Measure:
    """A figure of a queue; below `floor`, differences mean nothing."""

    def __init__(
        self, name: str, unit: str, floor: float, of: Callable[[QueueFigures], float | None]
    ) -> None:
        self.name, self.unit, self.floor, self.of = name, unit, floor, of


def _p99(spread: Spread | None) -> float | None:
    return spread.p99 if spread else None


def _letters_per_message(queue: QueueFigures) -> float | None:
    return queue.dead_letters / queue.messages if queue.messages else None


MEASURES = (
    _Measure("p99 waiting", "s", 0.1, lambda queue: _p99(queue.waiting)),
    _Measure("p99 processing", "s", 0.1, lambda queue: _p99(queue.processing)),
    _Measure("failure rate", "share", 0.02, lambda queue: queue.answers.failure_rate),
    _Measure("dead letters per message", "share", 0.005, _letters_per_message),
    _Measure("pushes", "per second", 1 / 3_600, lambda queue: queue.per_second),
)

#: A queue that one of the two does not have.
PRESENCE = "messages"


def compare(now: Analysis, before: Analysis) -> list[Change]:
    """Everything that has at least doubled or halved, and queues that came or went."""
    earlier = {queue.queue: queue for queue in before.queues}
    later = {queue.queue: queue for queue in now.queues}
    return [
        change
        for queue in sorted({*earlier, *later})
        for change in _of_queue(queue, earlier.get(queue), later.get(queue))
    ]


def _of_queue(
    queue: str, before: QueueFigures | None, now: QueueFigures | None
) -> Iterator[Change]:
    if before is None or now is None:
        yield Change(
            queue=queue,
            measure=PRESENCE,
            unit="messages",
            before=before.messages if before else None,
            now=now.messages if now else None,
        )
        return
    for measure in MEASURES:
        was, is_now = measure.of(before), measure.of(now)
        if was is None or is_now is None:
            continue
        low, high = sorted((max(was, measure.floor), max(is_now, measure.floor)))
        if high >= low * LEAST_FACTOR:
            yield Change(
                queue=queue, measure=measure.name, unit=measure.unit, before=was, now=is_now
            )


def new_errors(now: Analysis, before: Analysis) -> dict[str, list[tuple[str, int]]]:
    """By queue that both have: kinds of errors that it did not have before, the commonest first."""
    known = {(error.queue, error.kind) for error in before.errors}
    queues = {queue.queue for queue in before.queues}
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for error in now.errors:
        if error.queue in queues and (error.queue, error.kind) not in known:
            # A failed delivery may be a dead letter later: not twice as often for that.
            counted = found[error.queue]
            counted[error.kind] = max(counted.get(error.kind, 0), error.count)
    return {
        queue: sorted(kinds.items(), key=lambda kind: (-kind[1], kind[0]))
        for queue, kinds in found.items()
    }
