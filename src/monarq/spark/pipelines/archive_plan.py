"""What an archive has to copy: which ranges of which partitions, which parts of which logs.

Compares what a broker has with what a lake's commits say is in. Reads no payload, writes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import pyarrow as pa
from msgspec import Struct

from monarq.errors import MonarqError, NotFoundError
from monarq.spark.access import Access, QueueInfo, SeqRange
from monarq.spark.lake.commits import Gap, LakeState, LogStep
from monarq.spark.lake.layout import TABLES
from monarq.spark.pipelines.encrypted import refuse_encrypted

LOG_TABLES = tuple(table for table in TABLES if table != "messages")

#: Messages that one task copies into one file.
TASK_MESSAGES = 250_000
#: Ranges of small partitions that one task takes at most.
_TASK_RANGES = 20_000


class MessageTask(Struct, frozen=True, tag="messages"):
    ranges: list[SeqRange]

    @property
    def messages(self) -> int:
        return sum(one.last_seq - one.first_seq + 1 for one in self.ranges)


class LogTask(Struct, frozen=True, tag="log"):
    table: str
    after: str | None
    until: str
    queues: list[str]


ArchiveTask = MessageTask | LogTask


class ArchiveBatch(Struct, frozen=True, kw_only=True):
    """What one commit takes in."""

    tasks: list[ArchiveTask]
    seqs: dict[int, int] = {}
    """By partition id: up to which seq it is in then."""
    gaps: list[Gap] = []

    @property
    def ranges(self) -> Iterator[SeqRange]:
        for task in self.tasks:
            if isinstance(task, MessageTask):
                yield from task.ranges

    @property
    def log_tasks(self) -> Iterator[LogTask]:
        for task in self.tasks:
            if isinstance(task, LogTask):
                yield task

    @property
    def messages(self) -> int:
        return sum(one.last_seq - one.first_seq + 1 for one in self.ranges)

    @property
    def logs(self) -> list[LogStep]:
        return [
            LogStep(table=task.table, until=task.until, queues=task.queues)
            for task in self.log_tasks
        ]


class ArchivePlan(Struct, frozen=True, kw_only=True):
    batches: list[ArchiveBatch]
    behind: dict[str, int]
    """By ordered queue: how many messages are not in the lake."""

    @property
    def messages(self) -> int:
        return sum(self.behind.values())

    @property
    def gaps(self) -> list[Gap]:
        return [gap for batch in self.batches for gap in batch.gaps]


def chosen_queues(access: Access, patterns: Sequence[str]) -> list[QueueInfo]:
    """Those that one of the patterns matches; all, without patterns. A name must exist."""
    known = access.queues()
    if not patterns:
        return known
    names = {queue.name for queue in known}
    for pattern in patterns:
        if pattern not in names and not any(sign in pattern for sign in "*?["):
            raise NotFoundError(f"there is no queue {pattern!r}")
    return [
        queue
        for queue in known
        if any(queue.name == pattern or fnmatchcase(queue.name, pattern) for pattern in patterns)
    ]


def make_plan(
    access: Access,
    state: LakeState,
    *,
    patterns: Sequence[str],
    tables: Sequence[str],
    batch_messages: int,
    decrypt: bool = False,
) -> ArchivePlan:
    """All that is there now and not in the lake."""
    queues = chosen_queues(access, patterns)
    if not decrypt:
        refuse_encrypted(queues, "a lake holds what it copies in the clear", "give --decrypt")
    # Logs first: what is answered later than this belongs to the next plan.
    logs = [
        task
        for table in LOG_TABLES
        if table in tables
        for task in _logs(access, state, table, queues)
    ]
    ranges: list[SeqRange] = []
    gaps: list[Gap] = []
    if "messages" in tables:
        for queue in queues:
            if queue.kind == "ordered":
                found, lost = new_ranges(queue.name, access.plan(queue.name), state.seqs)
                ranges += found
                gaps += lost
    batches = [_messages_batch(part) for part in _cut(ranges, batch_messages)]
    if gaps:
        # Before all: whatever is behind a gap begins where the gap ends.
        ends = {gap.partition_id: gap.last_seq for gap in gaps}
        batches.insert(0, ArchiveBatch(tasks=[], seqs=ends, gaps=gaps))
    if logs:
        batches.append(ArchiveBatch(tasks=list(logs)))
    behind = dict.fromkeys((queue.name for queue in queues if queue.kind == "ordered"), 0)
    for one in ranges:
        behind[one.queue] += one.last_seq - one.first_seq + 1
    return ArchivePlan(batches=batches, behind=behind)


def _logs(
    access: Access, state: LakeState, table: str, queues: Sequence[QueueInfo]
) -> Iterator[LogTask]:
    """One task for all queues that have come equally far."""
    until = access.log_end(table)
    groups: dict[str | None, list[str]] = {}
    for queue in queues:
        groups.setdefault(state.logs.get((table, queue.name)), []).append(queue.name)
    for after, names in groups.items():
        if (after is None or after < until) and _has_rows(access, table, after, until, names):
            yield LogTask(table, after, until, names)


def _has_rows(
    access: Access, table: str, after: str | None, until: str, queues: Sequence[str]
) -> bool:
    """The end of a log moves also where nothing of these queues is in it."""
    batches = access.log_rows(table, after, until, ["queue"], queues=queues)
    return any(batch.num_rows for batch in batches)


def new_ranges(
    queue: str, plan: pa.Table, seqs: dict[int, int]
) -> tuple[list[SeqRange], list[Gap]]:
    """What a queue keeps and the lake has not, and what was lost between the two. What was gone
    before the queue was first archived is not lost: it was never the archive's."""
    ranges: list[SeqRange] = []
    gaps: list[Gap] = []
    names = ("partition_id", "partition", "first_seq", "last_seq")
    columns = [plan[name].to_pylist() for name in names]
    for partition_id, partition, first, last in zip(*columns, strict=True):
        position = seqs.get(partition_id, 0)
        if last <= position:
            continue
        start = max(first, position + 1)
        if position and start > position + 1:
            gaps.append(
                Gap(
                    queue=queue,
                    partition=partition,
                    partition_id=partition_id,
                    first_seq=position + 1,
                    last_seq=min(start - 1, last),
                )
            )
        if start <= last:
            ranges.append(SeqRange(queue, partition_id, partition, start, last))
    return ranges, gaps


def lost_since(plan: pa.Table, wanted: Sequence[SeqRange]) -> list[Gap]:
    """What of these ranges of a queue it does not keep any more: all, where the partition itself
    is gone."""
    ids, kept = (plan[name].to_pylist() for name in ("partition_id", "first_seq"))
    firsts: dict[int, int] = dict(zip(ids, kept, strict=True))
    lost: dict[int, Gap] = {}
    for one in wanted:
        last = min(one.last_seq, firsts.get(one.partition_id, one.last_seq + 1) - 1)
        if last < one.first_seq:
            continue
        # Ranges of one partition follow each other.
        before = lost.get(one.partition_id)
        lost[one.partition_id] = Gap(
            queue=one.queue,
            partition=one.partition,
            partition_id=one.partition_id,
            first_seq=before.first_seq if before else one.first_seq,
            last_seq=last,
        )
    return list(lost.values())


def refuse_gaps(gaps: Sequence[Gap]) -> None:
    """Say what was lost."""
    if not gaps:
        return
    first = gaps[0]
    more = f", and {len(gaps) - 1:,} more such ranges," if len(gaps) > 1 else ""
    raise MonarqError(
        f"messages {first.first_seq} to {first.last_seq} of {first.queue!r}, partition "
        f"{first.partition!r}{more} were removed before they were archived; --allow-gaps goes on "
        "without them, and the queue option retainUntilArchived keeps it from happening again"
    )


def _cut(ranges: Sequence[SeqRange], batch_messages: int) -> Iterator[list[SeqRange]]:
    """Parts of at most that many messages, in order."""
    part: list[SeqRange] = []
    room = batch_messages
    for whole in ranges:
        rest = whole
        while rest.last_seq - rest.first_seq + 1 > room:
            if room:
                part.append(rest._replace(last_seq=rest.first_seq + room - 1))
                rest = rest._replace(first_seq=rest.first_seq + room)
            yield part
            part, room = [], batch_messages
        part.append(rest)
        room -= rest.last_seq - rest.first_seq + 1
    if part:
        yield part


def _messages_batch(ranges: Sequence[SeqRange]) -> ArchiveBatch:
    tasks: list[ArchiveTask] = [
        MessageTask(some) for part in _cut(ranges, TASK_MESSAGES) for some in _few(part)
    ]
    seqs: dict[int, int] = {one.partition_id: one.last_seq for one in ranges}
    return ArchiveBatch(tasks=tasks, seqs=seqs)


def _few(ranges: list[SeqRange]) -> Iterator[list[SeqRange]]:
    for start in range(0, len(ranges), _TASK_RANGES):
        yield ranges[start : start + _TASK_RANGES]
