"""The contract's calls for those who watch the store."""

from __future__ import annotations

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
from monarq.store.contract.watching import MOST_LETTERS, MOST_LOGGED, MOST_PARTITIONS
from monarq.store.queries.items import newest_items
from monarq.store.queries.logs import delivery
from monarq.store.sqlite import dead_letters, flows, item_calls, standings
from monarq.store.sqlite.calls import Calls
from monarq.store.sqlite.logs import DELIVERIES
from monarq.store.sqlite.queries import SqliteQueries, finished
from monarq.store.sqlite.session import Session

_ERRORS = """
select q.name, d.group_name, d.error, count(*), min(d.failed_at), max(d.failed_at), max(d.id)
from (select d.id, d.queue_id, d.group_name, d.failed_at, {key} as error from dead_letters d
    where {condition} order by d.id desc limit ?) as d
    join queues q on q.id = d.queue_id
group by q.name, d.group_name, d.error order by count(*) desc, max(d.id) desc limit ?
"""
_OF_MESSAGE = "partition_id = :partition and first_seq <= :seq and last_seq >= :seq"
_DELIVERIES = f"""
select id from (
    select id, partition_id, first_seq, last_seq from (
        select id, partition_id, first_seq, last_seq from deliveries
        where queue_id = :queue and id >= :first order by id limit :most)
    union
    select id, partition_id, first_seq, last_seq from (
        select id, partition_id, first_seq, last_seq from deliveries
        where queue_id = :queue order by id desc limit :most))
where {_OF_MESSAGE} order by id desc limit :limit
"""
_FIND = """
select t.partition_id, t.seq from (
    select id from partitions where queue_id = ? order by id limit ?) p
cross join transaction_ids t on t.partition_id = p.id and t.transaction_id = ?
order by t.partition_id limit 100
"""


class WatchingCalls(Calls):
    async def queue_flows(
        self,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[QueueFlow]:
        return await self._read(
            lambda session: flows.queue_flows(session, queue, namespace, task, limit, after)
        )

    async def group_flows(
        self, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[GroupFlow]:
        return await self._read(lambda session: flows.group_flows(session, queue, limit, after))

    async def deliveries_of(
        self, partition_id: int, seq: int, *, limit: int = 100
    ) -> list[Delivery]:
        return await self._read(lambda session: _deliveries(session, partition_id, seq, limit))

    async def preview_seek(self, request: Seek) -> SeekPreview:
        return await self._read(lambda session: standings.preview_seek(session, request))

    async def skip(self, queue: str, group: str, partition: str, seq: int, error: str) -> int:
        return await self._write(
            lambda session: standings.skip(session, queue, group, partition, seq, error)
        )

    async def dead_letter_errors(
        self, which: DeadLetterFilter, *, limit: int = 100
    ) -> list[DeadLetterError]:
        return await self._read(lambda session: _errors(session, which, limit))

    async def latencies(
        self, since: int, until: int, *, queue: str | None = None, samples: int = 1000
    ) -> list[Latency]:
        return await self._read(
            lambda session: flows.latencies(session, since, until, queue, samples)
        )

    async def find_messages(self, queue: str, transaction_id: str) -> list[tuple[int, int]]:
        return await self._read(
            lambda session: session.db.execute(
                _FIND, (session.queue(queue).id, MOST_PARTITIONS, transaction_id)
            ).fetchall()
        )

    async def newest_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        select = item_calls.items_by_seq(state, newest_first=True)

        def read(session: Session) -> Page[Item]:
            queue_id = item_calls.work_queue(session, queue).id
            return finished(newest_items(SqliteQueries(session), queue_id, select, limit, after))

        return await self._read(read)


def _deliveries(session: Session, partition_id: int, seq: int, limit: int) -> list[Delivery]:
    place = session.db.execute(
        """select p.queue_id, (select s.created_at from segments s
            where s.partition_id = p.id and s.last_seq >= ? order by s.last_seq limit 1)
        from partitions p where p.id = ?""",
        (seq, partition_id),
    ).fetchone()
    if place is None:
        return []
    queue_id, created_at = place
    rows = session.db.execute(
        _DELIVERIES,
        {
            "queue": queue_id,
            "first": flows.first_logged(session, created_at or 0),
            "most": MOST_LOGGED,
            "partition": partition_id,
            "seq": seq,
            "limit": limit,
        },
    ).fetchall()
    db = SqliteQueries(session)
    return [
        delivery(db, row)
        for (number,) in rows
        for row in finished(db.fetch(f"{DELIVERIES} where d.id = $1", number))
    ]


def _errors(session: Session, which: DeadLetterFilter, limit: int) -> list[DeadLetterError]:
    condition, values = dead_letters.matching(session, which)
    rows = session.db.execute(
        _ERRORS.format(key=dead_letters.ERROR_KEY, condition=condition),
        (*values, MOST_LETTERS, limit),
    )
    found = [
        DeadLetterError(
            queue=queue,
            group=group,
            error=dead_letters.opened_key(session, queue, error, newest_id),
            count=count,
            oldest_at=oldest_at,
            newest_at=newest_at,
            newest_id=newest_id,
        )
        for queue, group, error, count, oldest_at, newest_at, newest_id in rows.fetchall()
    ]
    return sealing.merge_errors(found)
