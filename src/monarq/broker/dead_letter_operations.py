"""Lists dead letters with their total, composed of several calls of the store."""

from __future__ import annotations

from typing import NamedTuple

from monarq.broker.operations import Composition, handles
from monarq.model import DeadLetterFilter
from monarq.model.pages import MOST_ROWS
from monarq.operations.dead_letters import DeadLetterPage, ListDeadLetters
from monarq.store.collecting import collect
from monarq.store.contract import Store


class _Query(NamedTuple):
    limit: int
    offset: int
    after: str | None


@handles(ListDeadLetters)
async def list_dead_letters(broker: Composition, request: ListDeadLetters) -> DeadLetterPage:
    store, which = broker.store, request.which
    # Cut and not refused, since Queen's clients take a refusal for an empty list.
    query = _Query(min(request.limit, MOST_ROWS), request.offset, request.after)
    page = await collect(
        lambda limit, after: store.list_dead_letters(which, limit=limit, after=after),
        query,
        size=lambda letter: len(letter.payload) + len(letter.error) + 400,
    )
    return DeadLetterPage(page.rows, page.next, await _total(store, which))


async def _total(store: Store, which: DeadLetterFilter) -> int:
    """Count the matching dead letters, from the queue's counters where they tell."""
    if which.queue is not None and which == DeadLetterFilter(queue=which.queue):
        return sum(
            queue.counts.dead_letters for queue in await store.describe_queues([which.queue])
        )
    return await store.count_dead_letters(which)
