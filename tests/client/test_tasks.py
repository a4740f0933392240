"""Tasks that are enqueued many at a time, over every way to a store."""

from typing import Any

import msgspec
import pytest

from monarq.client.async_client import AsyncClient
from monarq.model import QueueKind


@pytest.mark.parametrize("options", [{}, {"priority": 7}, {"unique_for": 10 * 365 * 86_400}])
async def test_each_of_many_jobs_is_the_one_that_its_arguments_made(
    mq: AsyncClient, options: dict[str, Any]
) -> None:
    await mq.queue("notes").configure(kind=QueueKind.WORK, completed_retention_seconds=0)

    @mq.task(name="note", queue="notes", **options)
    def note(text: str) -> None: ...

    texts = [letter * size for size, letter in enumerate("abcdefgh")]
    await note.enqueue("before")
    for _ in range(2):
        jobs = await note.enqueue_many([(text,) for text in texts])
        payloads = [msgspec.json.decode((await job.item()).payload) for job in jobs]
        assert [payload["args"] for payload in payloads] == [[text] for text in texts]


async def test_jobs_that_were_there_already_are_told_from_new_ones(mq: AsyncClient) -> None:
    await mq.queue("notes").configure(kind=QueueKind.WORK, completed_retention_seconds=0)

    @mq.task(name="note", queue="notes", unique_for=10 * 365 * 86_400)
    def note(number: int) -> None: ...

    first = await note.enqueue_many([(1,), (2,)])
    again = await note.enqueue_many([(2,), (3,), (1,)])
    assert [job.is_new for job in first + again] == [True, True, False, True, False]
    assert [again[0].id, again[2].id] == [first[1].id, first[0].id]
