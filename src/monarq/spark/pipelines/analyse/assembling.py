"""Puts the rows that Spark found together into figures. Plain Python over small lists."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import msgspec

from monarq.spark.pipelines.analyse.answering import answers_of
from monarq.spark.pipelines.analyse.error_kinds import kind_of
from monarq.spark.pipelines.analyse.figures import (
    WORKERS,
    Analysis,
    Answers,
    AnswerSeries,
    ConsumerFigures,
    ErrorFigures,
    ErrorSource,
    GroupFigures,
    JobFigures,
    PartitionFigures,
    PushSeries,
    QueueFigures,
    Spread,
    Totals,
    Window,
)
from monarq.spark.pipelines.analyse.measuring import Measured
from monarq.spark.pipelines.analyse.spreads import spread_of

if TYPE_CHECKING:
    from pyspark.sql import Row

Key = tuple[str, str]


def assemble(measured: Measured, empty: Analysis) -> Analysis:
    """The figures of an analysis that has none yet; findings are made from them."""
    groups = _groups(measured)
    queues = _queues(measured)
    pushes = _pushes(measured)
    return msgspec.structs.replace(
        empty,
        window=measured.window,
        percentiles=measured.percentiler.in_words,
        totals=_totals(measured, queues, groups),
        queues=queues,
        groups=groups,
        pushes=pushes,
        deliveries=_deliveries(measured, pushes),
        errors=_errors(measured),
        partitions=_partitions(measured, queues, groups),
        consumers=[
            ConsumerFigures(
                queue=row.queue,
                group=row.group,
                consumer=row.consumer,
                answers=answers_of(row),
                processing=spread_of(row, "processing"),
            )
            for row in measured.answering.by_consumer
        ],
        jobs=sorted(map(_job, measured.jobs), key=lambda job: (-job.seconds, job.queue)),
    )


def _queues(measured: Measured) -> list[QueueFigures]:
    pushed = {row.queue: row for row in measured.traffic.by_queue}
    answered = {row.queue: row for row in measured.answering.by_queue}
    waited = {row.queue: spread_of(row, "waiting") for row in measured.waiting.by_queue}
    attempted = {row.queue: row["items"] for row in measured.jobs}
    letters: dict[str, int] = defaultdict(int)
    for row in measured.failures.dead_letters:
        letters[row.queue] += row.dead_letters
    seconds = (measured.window.end - measured.window.start) / 1e6

    def queue(name: str) -> QueueFigures:
        traffic, answers = pushed.get(name), answered.get(name)
        is_work = bool(answers and answers.is_work)
        messages = traffic.messages if traffic else attempted.get(name, 0)
        return QueueFigures(
            queue=name,
            kind="work" if is_work else "ordered",
            messages=messages,
            payload_bytes=traffic.bytes if traffic else 0,
            partitions=traffic.partitions if traffic else 0,
            per_second=messages / seconds,
            answers=answers_of(answers) if answers else Answers(),
            dead_letters=letters[name],
            waiting=waited.get(name),
            processing=spread_of(answers, "processing") if answers else None,
            first_at=traffic.first_at if traffic else None,
            last_at=traffic.last_at if traffic else None,
        )

    names = {*pushed, *answered, *letters}
    return sorted(map(queue, names), key=lambda row: (-row.messages, row.queue))


def _groups(measured: Measured) -> list[GroupFigures]:
    waited = {(row.queue, row.group): row for row in measured.waiting.by_group}
    behind = {(row.queue, row.group): row for row in measured.backlog.by_group}
    letters: dict[Key, int] = defaultdict(int)
    work = {row.queue for row in measured.answering.by_group if row.group == WORKERS}
    for row in measured.failures.dead_letters:
        # Items die without a group; their dead letters have the default one's name.
        letters[row.queue, WORKERS if row.queue in work else row.group] += row.dead_letters

    def group(row: Row) -> GroupFigures:
        key: Key = (row.queue, row.group)
        lag, wait = behind.get(key), waited.get(key)
        return GroupFigures(
            queue=row.queue,
            group=row.group,
            answers=answers_of(row),
            waiting=spread_of(wait, "waiting") if wait else None,
            processing=spread_of(row, "processing"),
            consumers=measured.answering.consumers.get(key, 0),
            dead_letters=letters[key],
            backlog=lag.backlog if lag else 0,
            backlog_partitions=lag.backlog_partitions if lag else 0,
            oldest_at=measured.backlog.oldest.get(key),
        )

    found = map(group, measured.answering.by_group)
    return sorted(found, key=lambda row: (-row.answers.answered, row.queue, row.group))


def _totals(measured: Measured, queues: list[QueueFigures], groups: list[GroupFigures]) -> Totals:
    backlog: dict[str, int] = defaultdict(int)
    for group in groups:
        backlog[group.queue] = max(backlog[group.queue], group.backlog)
    overall = measured.answering.overall
    return Totals(
        queues=len(queues),
        messages=sum(queue.messages for queue in queues),
        payload_bytes=sum(queue.payload_bytes for queue in queues),
        answers=answers_of(overall[0]) if overall else Answers(),
        dead_letters=sum(queue.dead_letters for queue in queues),
        attempts=sum(row.attempts for row in measured.jobs),
        backlog=sum(backlog.values()),
        waiting=_first_spread(measured.waiting.overall, "waiting"),
        processing=_first_spread(overall, "processing"),
    )


def _first_spread(rows: list[Row], value: str) -> Spread | None:
    return spread_of(rows[0], value) if rows else None


def _pushes(measured: Measured) -> list[PushSeries]:
    window = measured.window
    rows: dict[str, list[Row]] = defaultdict(list)
    for row in measured.traffic.by_bucket:
        rows[row.queue].append(row)
    return [
        PushSeries(
            queue=queue,
            pushed=_counts(window, found, "messages"),
            payload_bytes=_counts(window, found, "bytes"),
        )
        for queue, found in sorted(rows.items())
    ]


def _deliveries(measured: Measured, pushes: list[PushSeries]) -> list[AnswerSeries]:
    window = measured.window
    answered: dict[Key, list[Row]] = defaultdict(list)
    waited: dict[Key, list[Row]] = defaultdict(list)
    for row in measured.answering.by_bucket:
        answered[row.queue, row.group].append(row)
    for row in measured.waiting.by_bucket:
        waited[row.queue, row.group].append(row)
    pushed = {series.queue: series.pushed for series in pushes}

    def series(key: Key) -> AnswerSeries:
        queue, group = key
        processing = _spreads(window, answered[key], "processing")
        waiting = _spreads(window, waited[key], "waiting")
        given = [spread.count if spread else 0 for spread in waiting]
        return AnswerSeries(
            queue=queue,
            group=group,
            completed=_counts(window, answered[key], "completed"),
            failed=_counts(window, answered[key], "failed"),
            dead=_counts(window, answered[key], "dead"),
            expired=_counts(window, answered[key], "expired"),
            waiting_p50=_points(waiting, "p50"),
            waiting_p95=_points(waiting, "p95"),
            waiting_p99=_points(waiting, "p99"),
            processing_p50=_points(processing, "p50"),
            processing_p95=_points(processing, "p95"),
            processing_p99=_points(processing, "p99"),
            backlog=[] if group == WORKERS else _left(pushed.get(queue, []), given),
        )

    return [series(key) for key in sorted({*answered, *waited})]


def _points(spreads: list[Spread | None], name: str) -> list[float | None]:
    return [getattr(spread, name) if spread else None for spread in spreads]


def _left(pushed: list[int], given: list[int]) -> list[int]:
    """What was there and not yet given, at the end of each bucket."""
    return [
        max(there - gone, 0)
        for there, gone in zip(accumulate(pushed), accumulate(given), strict=False)
    ]


def _errors(measured: Measured) -> list[ErrorFigures]:
    found = [
        ErrorFigures(
            queue=row.queue,
            source=ErrorSource(row.source),
            error=row.error,
            kind=kind_of(row.error),
            count=row["count"],
            share=row["count"] / row.total,
            example=row.example,
            first_at=row.first_at,
            last_at=row.last_at,
        )
        for row in measured.failures.errors
    ]
    return sorted(found, key=lambda row: (-row.count, row.queue, row.source, row.error))


def _partitions(
    measured: Measured, queues: list[QueueFigures], groups: list[GroupFigures]
) -> list[PartitionFigures]:
    """Each once, with the group that is furthest behind in it."""
    messages = {queue.queue: queue.messages for queue in queues}
    backlog = {(group.queue, group.group): group.backlog for group in groups}
    worst: dict[int, Row] = {}
    for row in measured.backlog.partitions:
        known = worst.get(row.partition_id)
        if known is None or (row.backlog, row.group) > (known.backlog, known.group):
            worst[row.partition_id] = row
    found = [
        PartitionFigures(
            queue=row.queue,
            partition=row.partition,
            messages=row.messages,
            payload_bytes=row.bytes,
            share=row.messages / messages[row.queue],
            backlog=row.backlog,
            backlog_share=row.backlog / backlog[row.queue, row.group] if row.backlog else 0.0,
            backlog_group=row.group if row.backlog else None,
        )
        for row in worst.values()
    ]
    return sorted(found, key=lambda row: (-row.messages, row.queue, row.partition))


def _job(row: Row) -> JobFigures:
    return JobFigures(
        queue=row.queue,
        items=row["items"],
        attempts=row.attempts,
        completed=row.completed,
        seconds=row.seconds,
        wasted_seconds=row.wasted,
        duration=spread_of(row, "duration"),
    )


def _counts(window: Window, rows: Iterable[Row], column: str) -> list[int]:
    values = [0] * window.buckets
    for row in rows:
        values[_place(window, row)] += row[column] or 0
    return values


def _spreads(window: Window, rows: Iterable[Any], value: str) -> list[Spread | None]:
    found: list[Spread | None] = [None] * window.buckets
    for row in rows:
        found[_place(window, row)] = spread_of(row, value)
    return found


def _place(window: Window, row: Row) -> int:
    """A clock that is a little off must not put a row outside."""
    bucket: int = row.bucket
    return min(max(bucket, 0), window.buckets - 1)
