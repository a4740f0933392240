"""Figures of an analysis, good ones where a test names none."""

from typing import Any

from monarq.clock import SECOND
from monarq.spark.pipelines.analyse.figures import (
    Analysis,
    Answers,
    AnswerSeries,
    ConsumerFigures,
    ErrorFigures,
    ErrorSource,
    GroupFigures,
    PartitionFigures,
    PushSeries,
    QueueFigures,
    Spread,
    Window,
)
from tests.spark.analysis_history import micros

BUCKETS = 60
MINUTE = 60 * SECOND
START = micros(0)
WINDOW = Window(
    start=START, end=START + BUCKETS * MINUTE, bucket=MINUTE, first=START,
    last=START + BUCKETS * MINUTE - 1,
)  # fmt: skip


def spread(p99: float, count: int = 1_000) -> Spread:
    return Spread(count=count, p50=p99 / 4, p95=p99 / 2, p99=p99, most=p99 * 2)


def queue(name: str = "orders", **more: Any) -> QueueFigures:
    values: dict[str, Any] = {
        "queue": name, "kind": "ordered", "messages": 1_000, "payload_bytes": 1, "partitions": 1,
        "per_second": 1.0, "answers": Answers(completed=1_000), "dead_letters": 0,
        "waiting": spread(1.0), "processing": spread(0.1), "first_at": START, "last_at": START,
    }  # fmt: skip
    return QueueFigures(**(values | more))


def group(name: str = "orders", of: str = "billing", **more: Any) -> GroupFigures:
    values: dict[str, Any] = {
        "queue": name, "group": of, "answers": Answers(completed=1_000), "waiting": spread(1.0),
        "processing": spread(0.1), "consumers": 1, "dead_letters": 0,
    }  # fmt: skip
    return GroupFigures(**(values | more))


def series(name: str = "orders", of: str = "billing", **more: Any) -> AnswerSeries:
    still: list[float] = [0.1] * BUCKETS
    none: list[int] = [0] * BUCKETS
    values: dict[str, Any] = {
        "queue": name, "group": of, "completed": [10] * BUCKETS, "failed": none, "dead": none,
        "expired": none, "backlog": none,
        **{f"{what}_{point}": still for what in ("waiting", "processing")
           for point in ("p50", "p95", "p99")},
    }  # fmt: skip
    return AnswerSeries(**(values | more))


def error(kind: str, count: int, share: float, source: ErrorSource) -> ErrorFigures:
    return ErrorFigures(
        queue="orders", source=source, error=f"{kind}: <n>", kind=kind, count=count, share=share,
        example=kind, first_at=START, last_at=START,
    )  # fmt: skip


def analysis(**more: Any) -> Analysis:
    values: dict[str, Any] = {
        "id": "r2", "lake": "lake", "generated_at": START, "window": WINDOW, "percentiles": "exact",
        "queues": [queue()], "groups": [group()], "deliveries": [series()],
    }  # fmt: skip
    return Analysis(**(values | more))


def stepped(*levels: tuple[int, float]) -> list[float]:
    return [value for length, value in levels for _ in range(length)]


def pushes(*levels: tuple[int, int]) -> PushSeries:
    values = [value for length, value in levels for _ in range(length)]
    return PushSeries(queue="orders", pushed=values, payload_bytes=values)


def waiting_group(backlog: int, minutes: float) -> GroupFigures:
    return group(
        backlog=backlog, backlog_partitions=3, oldest_at=WINDOW.last - round(minutes * MINUTE)
    )


def partition(name: str, backlog: int, share: float, messages: int = 10) -> PartitionFigures:
    return PartitionFigures(
        queue="orders", partition=name, messages=messages, payload_bytes=1, share=messages / 1_000,
        backlog=backlog, backlog_share=share, backlog_group="billing",
    )  # fmt: skip


def consumers(*medians: float, count: int = 100) -> list[ConsumerFigures]:
    return [
        ConsumerFigures(
            queue="orders", group="billing", consumer=f"w{number}", answers=Answers(completed=9),
            processing=spread(median * 4, count),
        )
        for number, median in enumerate(medians)
    ]  # fmt: skip
