"""Equal rows of different tasks, with hashed ids: each task counts the occurrences of its own rows
alone, so of rows that several tasks have, some got the same id and were stored once. When all
tasks are done the driver, which sees all their counts, pushes the copies that are missing.

The ids of n equal rows are the occurrences 0 to n - 1 however they are spread over tasks, so a
repeat of this is as harmless as a repeat of a task.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from monarq.client.connecting import open_link
from monarq.client.link import Link
from monarq.errors import MonarqError, NotFoundError, StoreUnavailableError
from monarq.model import MAX_BATCH, Push, PushItem, PushStatus, QueueKind
from monarq.spark.sink_options import SinkOptions
from monarq.spark.transaction_ids import DIGEST_BYTES, Digests, occurrence_id

_TIMEOUT_SECONDS = 30.0
_AT_ONCE = 16
_PUSH_BYTES = 8 << 20
_LONGEST_PAUSE_SECONDS = 2.0


class Missing(Struct, frozen=True):
    """Copies that no task has pushed: occurrences `first` to `total` - 1."""

    digest: bytes
    queue: str
    partition: str
    first: int
    total: int


def missing_copies(tasks: Sequence[Digests]) -> list[Missing]:
    """By what each task has counted."""
    tasks = [task for task in tasks if task.digests]
    if len(tasks) < 2:
        return []
    kind = pa.binary(DIGEST_BYTES)
    columns = [
        pa.Array.from_buffers(
            kind, len(task.digests) // DIGEST_BYTES, [None, pa.py_buffer(task.digests)]
        )
        for task in tasks
    ]
    together = pa.concat_arrays(columns)
    if pc.count_distinct(together).as_py() == len(together):
        return []
    counted = together.value_counts()
    shared = set(counted.field("values").filter(pc.greater(counted.field("counts"), 1)).to_pylist())
    found: dict[bytes, Missing] = {}
    for task, column in zip(tasks, columns, strict=True):
        for index, digest in enumerate(column.to_pylist()):
            if digest in shared:
                count = task.repeated.get(digest, 1)
                before = found.get(digest)
                most, total = (0, 0) if before is None else (before.first, before.total)
                queue, partition = task.place_of(index)
                found[digest] = Missing(digest, queue, partition, max(most, count), total + count)
    return list(found.values())


def push_missing(options: SinkOptions, missing: Sequence[Missing]) -> int:
    """Push each as a copy of its first occurrence, which is in the queue; how many were not there
    already."""
    return asyncio.run(_push_missing(options, missing)) if missing else 0


async def _push_missing(options: SinkOptions, missing: Sequence[Missing]) -> int:
    new = 0
    async with _linked(options) as link:
        places = {(one.queue, one.partition) for one in missing}
        ids = {place: await _partition_id(link, *place) for place in sorted(places)}
        for start in range(0, len(missing), _AT_ONCE):
            some = missing[start : start + _AT_ONCE]
            firsts = await asyncio.gather(
                *(_first(link, one, ids[one.queue, one.partition], options) for one in some)
            )
            for one, first in zip(some, firsts, strict=True):
                new += await _push_copies(link, one, first)
    return new


async def _push_copies(link: Link, one: Missing, first: PushItem) -> int:
    new = 0
    size = max(1, min(MAX_BATCH, _PUSH_BYTES // len(first.payload)))
    for start in range(one.first, one.total, size):
        numbers = range(start, min(start + size, one.total))
        ids = (occurrence_id(one.digest, number) for number in numbers)
        copies = Push([msgspec.structs.replace(first, transaction_id=i) for i in ids])
        pushed = await link.push(copies)
        new += sum(one.status is not PushStatus.DUPLICATE for one in pushed)
    return new


@asynccontextmanager
async def _linked(options: SinkOptions) -> AsyncIterator[Link]:
    link = open_link(
        options.url,
        token=options.token if options.is_http else None,
        keys=options.encryption_keys,
        schema="monarq",
        clock=None,
        timeout=_TIMEOUT_SECONDS,
    )
    await link.open()
    try:
        yield link
    finally:
        await link.close()


async def _partition_id(link: Link, queue: str, partition: str) -> int | None:
    """None for a work queue, whose items are found without."""
    if (await link.admin.get_queue(queue)).kind is QueueKind.WORK:
        return None
    page = await link.admin.list_messages(queue, partition=partition, limit=1)
    if not page.rows:
        raise NotFoundError(_gone(queue))
    return page.rows[0].partition_id


async def _first(
    link: Link, one: Missing, partition_id: int | None, options: SinkOptions
) -> PushItem:
    """The first occurrence; waited for, as it may be in a broker's buffer still."""
    known = occurrence_id(one.digest, 0)
    deadline, pause = time.monotonic() + options.retry_seconds, 0.1
    while True:
        try:
            if partition_id is None:
                items = (await link.admin.list_items(one.queue, transaction_id=known)).rows
                if not items:
                    raise NotFoundError(_gone(one.queue))
                [item] = items
                return PushItem(
                    one.queue,
                    item.payload,
                    trace_id=item.trace_id,
                    priority=item.priority,
                    run_at=None if item.run_at is None else int(item.run_at),
                    max_attempts=item.max_attempts,
                )
            message = await link.admin.get_message(partition_id, known)
            return PushItem(one.queue, message.payload, one.partition, trace_id=message.trace_id)
        except (NotFoundError, StoreUnavailableError) as error:
            if time.monotonic() > deadline:
                raise (
                    MonarqError(_gone(one.queue)) if isinstance(error, NotFoundError) else error
                ) from None
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _gone(queue: str) -> str:
    return (
        f"equal rows of several tasks could not all be pushed, as the first is no longer in queue "
        f"{queue!r}: name a column that tells rows apart with the option transactionIdColumn"
    )
