"""Exporting messages as they are stored, and the logs and items row by row. Nothing here writes."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from monarq.crypto import Cipher, has_seal
from monarq.errors import StoreUnavailableError
from monarq.model import PartitionRange, QueueKind
from monarq.store import positions, sealing
from monarq.store.exported import (
    ExportedMessages,
    ExportedRows,
    ExportedSegment,
    Span,
    cut_spans,
)
from monarq.store.postgres.database import Database
from monarq.store.postgres.queues import get_queue_of

# Partitions that are wholly inside or outside are not searched.
_PLAN = """
    select id, name, case when $2::bigint is null then first_seq when last_at < $2 then last_seq + 1
            else monarq.seq_before(id, $2) + 1 end,
        case when $3::bigint is null or last_at < $3 then last_seq
            else monarq.seq_before(id, $3) end
    from monarq.partitions where queue_id = $1 order by id
"""
_KEPT = """
    select p.id, p.first_seq, p.last_seq from unnest($1::bigint[]) as wanted (id)
    cross join lateral (
        select id, queue_id, first_seq, last_seq from monarq.partitions
        where id = wanted.id offset 0
    ) as p
    cross join lateral (select kind from monarq.queues where id = p.queue_id offset 0) as q
    where q.kind = 'ordered'
"""
# Sizes are known without reading what is large, so that only rows that are wanted are read: they
# are chosen by key first. Everything is looked up by key, whatever is known of the tables: by
# statistics from before a queue had many partitions, all of them would be read for each piece.
_MESSAGES = """
    select q.name as queue, p.name as partition, s.partition_id, s.first_seq, s.created_at,
        greatest(w.first - s.first_seq, 0)::integer as start,
        least(w.last - s.first_seq + 1, s.count)::integer as "end",
        {data} as data, {offsets} as offsets, {lists}, w.place, w.found
    from (
        select r.partition_id, r.first, r.last, r.place, s.first_seq,
            sum(s.size) over before - s.size as before, count(*) over () as found
        from unnest($1::bigint[], $2::bigint[], $3::bigint[])
            with ordinality as r (partition_id, first, last, place)
        cross join lateral (
            select first_seq, octet_length(data) as size from monarq.segments s
            where s.partition_id = r.partition_id and s.first_seq <= r.last
                and s.first_seq + s.count > r.first
                and s.first_seq >= coalesce((
                    select max(b.first_seq) from monarq.segments b
                    where b.partition_id = r.partition_id and b.first_seq <= r.first), 0)
        ) as s
        window before as (order by r.place, s.first_seq rows unbounded preceding)
    ) as w
    cross join lateral (
        select * from monarq.segments s
        where s.partition_id = w.partition_id and s.first_seq = w.first_seq offset 0
    ) as s
    cross join lateral (
        select queue_id, name from monarq.partitions where id = w.partition_id offset 0
    ) as p
    cross join lateral (select name from monarq.queues where id = p.queue_id offset 0) as q
    where w.before <= $4 order by w.place, w.first_seq
"""
_BINDING = """
    select s.transaction_ids, s.headers
    from unnest($1::bigint[], $2::bigint[]) with ordinality as r (partition_id, first_seq, place)
    left join monarq.segments s
        on s.partition_id = r.partition_id and s.first_seq = r.first_seq
    order by r.place
"""
_LISTS = {"transaction_id": "transaction_ids", "trace_id": "trace_ids", "producer": "producers"}

_ID = "d.partition_id || '-' || d.seq"
_EXPRESSIONS: dict[str, dict[str, str]] = {
    "deliveries": {
        "partition": "coalesce(p.name, '')",
        "consumer_group": "coalesce(g.name, gone.name, '')",
        "lease_number": "d.lease_no",
    },
    "dead_letters": {
        "message_id": _ID,
        "partition": "d.partition_name",
        "consumer_group": "d.group_name",
    },
    "attempts": {"item_id": _ID},
    "metrics": {},
    "items": {
        "partition": "p.name",
        "message_id": _ID,
        "transaction_id": f"coalesce(d.transaction_id, {_ID})",
        "run_at": "case when d.state = 'scheduled' then d.due_at end",
    },
}
_JOINS = {
    "deliveries": """
        left join monarq.partitions p on p.id = d.partition_id
        left join monarq.groups g on g.id = d.group_id
        left join monarq.deleted_groups gone on gone.id = d.group_id
    """,
    "items": "join monarq.partitions p on p.id = d.partition_id",
}

_WRITERS = """
    select virtualtransaction from pg_locks
    where locktype = 'relation' and mode = 'RowExclusiveLock'
        and database = (select oid from pg_database where datname = current_database())
        and relation = 'monarq.{table}'::regclass
"""
_PATIENCE_SECONDS = 20.0


async def export_plan(
    database: Database, queue: str, created_from: int | None, created_to: int | None
) -> list[PartitionRange]:
    found = await get_queue_of(database, queue, QueueKind.ORDERED)
    rows = await database.fetch(_PLAN, found.id, created_from, created_to)
    return [
        PartitionRange(partition_id=number, partition=name, first_seq=first, last_seq=last)
        for number, name, first, last in rows
    ]


async def kept_spans(database: Database, spans: Sequence[Span]) -> list[Span]:
    wanted = sorted({partition_id for partition_id, _, _ in spans})
    return cut_spans(spans, map(tuple, await database.fetch(_KEPT, wanted)))


async def export_messages(
    database: Database,
    cipher: Cipher | None,
    spans: Sequence[Span],
    columns: Collection[str],
    max_bytes: int,
) -> ExportedMessages:
    sql = _MESSAGES.format(
        data="data" if "payload" in columns else "null::bytea",
        offsets="offsets" if "payload" in columns else "case when deleted > 0 then offsets end",
        lists=", ".join(
            name if column in columns else f"null::text[] as {name}"
            for column, name in _LISTS.items()
        ),
    )
    # Without payloads there is nothing large.
    most = max_bytes if "payload" in columns else 1 << 62
    rows = await database.fetch(sql, *_columns_of(spans), most)
    found = [ExportedSegment(*row[:12]) for row in rows]
    sealed = [n for n, one in enumerate(found) if one.data is not None and has_seal(one.data)]
    if sealed:
        opened = await _opened(database, cipher, [found[n] for n in sealed])
        for n, segment in zip(sealed, opened, strict=True):
            found[n] = segment
    if not rows or len(rows) == rows[0]["found"]:
        return ExportedMessages(found)
    return ExportedMessages(found, (rows[-1]["place"] - 1, found[-1].first_seq + found[-1].end))


def _columns_of(spans: Sequence[Span]) -> list[list[int]]:
    return [list(values) for values in zip(*spans, strict=True)] or [[], [], []]


async def _opened(
    database: Database, cipher: Cipher | None, found: Sequence[ExportedSegment]
) -> list[ExportedSegment]:
    """Segments with their payloads as they were pushed. Sealed payloads are bound to transaction
    ids and headers, which nobody may have asked for."""
    rows = await database.fetch(
        _BINDING, [one.partition_id for one in found], [one.first_seq for one in found]
    )
    opened = []
    for segment, (ids, headers) in zip(found, rows, strict=True):
        assert segment.data is not None
        assert segment.offsets is not None
        data, offsets = sealing.open_segment(
            segment.data,
            segment.offsets,
            cipher,
            segment.queue,
            segment.partition,
            ids,
            headers,
        )
        opened.append(segment._replace(data=data, offsets=offsets))
    return opened


# --- rows ----------------------------------------------------------------------------------


async def export_rows(
    database: Database,
    cipher: Cipher | None,
    table: str,
    columns: Sequence[str],
    after: str | None,
    until: str | None,
    queues: Sequence[str] | None,
    limit: int,
) -> ExportedRows:
    start = positions.place(table, after, "after")
    end = None if until is None else positions.place(table, until, "until")[0]
    expressions = _EXPRESSIONS[table]
    bound = positions.binding(table, columns)
    keys = [f"d.{name}" for name in positions.KEYS[table]]
    chosen = [
        "q.name" if name == "queue" else expressions.get(name, f"d.{name}") for name in columns
    ]
    numbers = ", ".join(f"${n}" for n in range(4, 4 + len(keys)))
    rows = await database.fetch(
        f"select {', '.join((*keys, *chosen, *bound))} from monarq.{table} d "
        f"join monarq.queues q on q.id = d.queue_id {_JOINS.get(table, '')} "
        f"where ({', '.join(keys)}) > ({numbers}) "
        f"and ($1::bigint is null or {keys[0]} <= $1) "
        "and ($2::text[] is null or q.name = any ($2)) "
        f"order by {', '.join(keys)} limit $3",
        end,
        None if queues is None else list(queues),
        limit,
        *start,
    )
    return positions.page(table, columns, rows, limit, cipher)


async def log_end(database: Database, table: str) -> str:
    if table == "metrics":
        # Each minute's points are written by one transaction, and the next only after it.
        return positions.position(
            await database.fetchval("select max(at) from monarq.metrics") or 0
        )
    # An id is taken before its row can be seen, and rows are committed in any order. Whoever has
    # taken one holds the table's lock until everybody sees the row: so all ids up to the last
    # one are settled once those who hold the lock now no longer do. The order of these statements
    # matters. (Who takes one later takes a higher one.)
    last = await database.fetchval(
        f"select pg_sequence_last_value(pg_get_serial_sequence('monarq.{table}', 'id')::regclass)"
    )
    writers = [row[0] for row in await database.fetch(_WRITERS.format(table=table))]
    pause, waited = 0.001, 0.0
    while writers:
        if waited > _PATIENCE_SECONDS:
            raise StoreUnavailableError(
                f"a transaction has been writing to {table} for more than "
                f"{_PATIENCE_SECONDS:.0f} s: what comes before it is not known yet"
            )
        await asyncio.sleep(pause)
        waited += pause
        pause = min(2 * pause, 0.1)
        rows = await database.fetch(
            f"{_WRITERS.format(table=table)} and virtualtransaction = any ($1)", writers
        )
        writers = [row[0] for row in rows]
    return positions.position(last or 0)
