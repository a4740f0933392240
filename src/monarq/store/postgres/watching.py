"""The contract's calls for those who watch the store."""

from __future__ import annotations

from monarq.crypto import is_sealed_text
from monarq.model import (
    DeadLetterError,
    DeadLetterFilter,
    Delivery,
    GroupFlow,
    Item,
    ItemState,
    Latency,
    Page,
    QueueFlow,
    SeekPreview,
)
from monarq.operations.groups import Seek
from monarq.store import sealing
from monarq.store.contract.watching import MOST_LETTERS, MOST_LOGGED, MOST_PARTITIONS, Watching
from monarq.store.postgres import dead_letters, flows, items, queues, standings
from monarq.store.postgres.calls import Calls
from monarq.store.postgres.logs import DELIVERIES
from monarq.store.queries.items import newest_items
from monarq.store.queries.logs import delivery

_ERRORS = f"""
    select d.queue, d.group_name, d.error, count(*) as count, min(d.failed_at) as oldest_at,
        max(d.failed_at) as newest_at, max(d.id) as newest_id
    from (select d.id, q.name as queue, d.group_name, d.failed_at,
            {dead_letters.ERROR_KEY} as error
        {dead_letters.MATCHING} order by d.id desc limit $8) as d
    group by d.queue, d.group_name, d.error order by count(*) desc, max(d.id) desc limit $9
"""
_DELIVERIES = f"""
    {DELIVERIES}
    where d.id in (
        select id from (
            (select id, partition_id, first_seq, last_seq from monarq.deliveries
            where id >= (select monarq.first_logged(coalesce((
                select s.created_at from monarq.segments s
                where s.partition_id = $1 and s.first_seq <= $2
                order by s.first_seq desc limit 1), 0)))
            order by id limit $3)
            union
            (select id, partition_id, first_seq, last_seq from monarq.deliveries
            order by id desc limit $3)) as near
        where near.partition_id = $1 and near.first_seq <= $2 and near.last_seq >= $2)
    order by d.id desc limit $4
"""
_FIND = """
    select t.partition_id, t.seq from (
        select id from monarq.partitions where queue_id = $1 order by id limit $2) p
    join monarq.transaction_ids t on t.partition_id = p.id and t.transaction_id = $3
    order by t.partition_id limit 100
"""


class WatchingCalls(Calls, Watching):
    async def queue_flows(
        self,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[QueueFlow]:
        return await flows.queue_flows(self._database, queue, namespace, task, limit, after)

    async def group_flows(
        self, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[GroupFlow]:
        return await flows.group_flows(self._database, queue, limit, after)

    async def deliveries_of(
        self, partition_id: int, seq: int, *, limit: int = 100
    ) -> list[Delivery]:
        rows = await self._tools.fetch(_DELIVERIES, partition_id, seq, MOST_LOGGED, limit)
        return [delivery(self._tools, row) for row in rows]

    async def preview_seek(self, request: Seek) -> SeekPreview:
        return await standings.preview_seek(self._database, self._catalog, request)

    async def skip(self, queue: str, group: str, partition: str, seq: int, error: str) -> int:
        return await standings.skip(
            self._database, self._catalog, self._cipher, queue, group, partition, seq, error
        )

    async def dead_letter_errors(
        self, which: DeadLetterFilter, *, limit: int = 100
    ) -> list[DeadLetterError]:
        rows = await self._database.fetch(
            _ERRORS, *dead_letters.arguments(which, self._cipher), MOST_LETTERS, limit
        )
        ids = [row["newest_id"] for row in rows if is_sealed_text(row["error"])]
        opened = await dead_letters.opened_keys(self._database, self._cipher, ids)
        found = [
            DeadLetterError(
                queue=row["queue"],
                group=row["group_name"],
                error=opened.get(row["newest_id"], row["error"]),
                count=row["count"],
                oldest_at=row["oldest_at"],
                newest_at=row["newest_at"],
                newest_id=row["newest_id"],
            )
            for row in rows
        ]
        return sealing.merge_errors(found)

    async def latencies(
        self, since: int, until: int, *, queue: str | None = None, samples: int = 1000
    ) -> list[Latency]:
        return await flows.latencies(self._database, since, until, queue, samples)

    async def find_messages(self, queue: str, transaction_id: str) -> list[tuple[int, int]]:
        found = await queues.get_queue(self._database, queue)
        rows = await self._database.fetch(_FIND, found.id, MOST_PARTITIONS, transaction_id)
        return [(row["partition_id"], row["seq"]) for row in rows]

    async def newest_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        select = items.items_by_seq(state, newest_first=True)
        queue_id = await items.work_queue(self._database, queue)
        return await newest_items(self._tools, queue_id, select, limit, after)
