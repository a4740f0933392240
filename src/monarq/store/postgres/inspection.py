"""Looking at messages, one by one or page by page, and taking single ones away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from monarq.crypto import Cipher, has_seal
from monarq.errors import ConflictError, NotFoundError
from monarq.ids import message_id, parse_message_id
from monarq.model import MessageDetail, Page, Queue, QueueKind, Segment, StoredMessage
from monarq.operations.messages import DeleteMessage, GetMessage, ListMessages
from monarq.store import kept_messages, paging, sealing, segments
from monarq.store.postgres import dead_letters, items
from monarq.store.postgres.catalog import Catalog, PartitionFacts
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.postgres.queues import get_queue
from monarq.store.queries.items import find_item
from monarq.store.validation import check_may_work

# Of so many partitions, and of these as many segments as are needed for so many messages.
_SEGMENTS = """
    select * from (
        select p.id, p.name, p.last_seq, p.start, s.*, sum(s.first_seq + s.count
                - greatest(s.first_seq, p.start)) over (order by p.id, s.first_seq
                rows between unbounded preceding and 1 preceding) as before
        from (
            select id, name, last_seq, greatest(first_seq, $5::bigint,
                case when id = $3 then $4::bigint end,
                case when $6::bigint is not null then monarq.seq_before(id, $6) + 1 end) as start
            from monarq.partitions
            where queue_id = $1 and ($2::text is null or name = $2) and id >= $3
                and last_seq >= first_seq
            order by id limit $7
        ) as p
        left join lateral (
            select * from monarq.segments
            where partition_id = p.id and first_seq <= p.last_seq and p.start <= p.last_seq
                and first_seq >= coalesce((
                    select max(first_seq) from monarq.segments
                    where partition_id = p.id and first_seq <= p.start), 0)
            order by first_seq limit $7
        ) as s on true
    ) as found where before is null or before < $7 order by id, first_seq
"""
# The index of segments that are not for everybody finds the deleted messages.
_EXTENTS = """
    select p.id, p.first_seq, p.last_seq,
        greatest(p.first_seq, $6::bigint, case when p.id = $4 then $5::bigint end) as start,
        (
            select coalesce(sum(s.deleted), 0)::bigint from monarq.segments s
            where s.partition_id = p.id and (s.deleted > 0 or s.for_group is not null)
        ) as deleted
    from monarq.partitions p
    where p.queue_id = $1 and ($2::text is null or p.name = $2) and p.id >= $3
        and p.last_seq >= p.first_seq
    order by p.id limit 1000
"""
_EXTENT = ("id", "first_seq", "start", "last_seq", "deleted")
_GROUP_STATES = """
    select x.place, g.name, case
        when x.seq <= c.position or u.acked then case when exists (
            select from monarq.dead_letters d
            where d.partition_id = x.partition_id and d.seq = x.seq and d.group_name = g.name
        ) then 'dead' else 'done' end
        when c.lease_until > monarq.time($3) and x.seq <= c.lease_to
            and u.answered_lease_no is distinct from c.lease_no then 'leased'
        else 'pending' end as state
    from unnest($1::bigint[], $2::bigint[]) with ordinality as x (partition_id, seq, place)
    join monarq.cursors c on c.partition_id = x.partition_id
    join monarq.groups g on g.id = c.group_id
    left join monarq.unresolved u
        on u.partition_id = c.partition_id and u.group_id = c.group_id and u.seq = x.seq
    order by g.name
"""
# Large payloads are read only of the rows that are wanted: their sizes are known without.
_SEGMENTS_WITHIN = """
    select * from (
        select s.*, sum(octet_length(s.data)) over (order by s.first_seq rows unbounded preceding)
            - octet_length(s.data) as before
        from monarq.segments s
        where partition_id = $1 and first_seq <= $3 and first_seq >= coalesce((
            select max(first_seq) from monarq.segments
            where partition_id = $1 and first_seq <= $2), 0)
        order by first_seq limit 64
    ) as found where before < $4 order by first_seq
"""


@handles(ListMessages)
async def list_messages(tools: Tools, request: ListMessages) -> Page[StoredMessage]:
    queue = await get_queue(tools.database, request.queue)
    if queue.kind is QueueKind.WORK:
        wanted = kept_messages.as_items(request)
        found = Page([]) if wanted is None else await items.find_items(tools, wanted)
        return kept_messages.items_as_messages(found)
    if request.status == "dead_letter":
        letters = await dead_letters.list_dead_letters(
            tools.database, tools.cipher, request.which_dead, request.limit, request.after
        )
        return kept_messages.letters_as_messages(letters)
    page = await _list_ordered(tools, queue, request)
    states = await _group_states(tools.database, [(m.partition_id, m.seq) for m in page.rows])
    rows = [
        kept_messages.with_states(message, groups, request.group)
        for message, groups in zip(page.rows, states, strict=True)
    ]
    return Page(rows, page.next)


async def _list_ordered(tools: Tools, queue: Queue, request: ListMessages) -> Page[StoredMessage]:
    last_id, last_seq = paging.position(request.after, "messages", tuple[int, int]) or (0, 0)
    next_id, next_seq = last_id, last_seq + 1
    messages: list[StoredMessage] = []
    while len(messages) <= request.limit:
        rows = await tools.database.fetch(
            _SEGMENTS,
            queue.id,
            request.partition,
            next_id,
            next_seq,
            request.first_seq,
            request.created_from,
            request.limit + 1 - len(messages),
        )
        if not rows:
            break
        for row in rows:
            next_id, next_seq = row["id"] + 1, 1
            if row["count"] is not None:
                messages += _messages_from(row, queue.name, tools.cipher)
                if row["first_seq"] + row["count"] <= row["last_seq"]:
                    next_id, next_seq = row["id"], row["first_seq"] + row["count"]
    return paging.page(messages, request.limit, "messages", lambda m: (m.partition_id, m.seq))


async def pass_messages(database: Database, request: ListMessages) -> ListMessages:
    queue = await get_queue(database, request.queue)
    if queue.kind is QueueKind.WORK:
        return request
    last_id, last_seq = paging.position(request.after, "messages", tuple[int, int]) or (0, 0)
    passed = paging.PassedOver(request.offset, request.after)
    next_id = last_id
    at_end = False
    while not passed.done and not at_end:
        rows = await database.fetch(
            _EXTENTS, queue.id, request.partition, next_id, last_id, last_seq + 1, request.first_seq
        )
        for row in rows:
            if not passed.done:
                passed.partition(*(row[name] for name in _EXTENT))
            next_id = row["id"] + 1
        at_end = not rows
    after, left = passed.result(at_end=at_end)
    return structs.replace(request, after=after, offset=left)


@handles(GetMessage)
async def get_message(tools: Tools, request: GetMessage) -> MessageDetail:
    partition_id, transaction_id = request.partition_id, request.transaction_id
    facts = (await tools.catalog.facts([partition_id])).get(partition_id)
    if facts is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    options = (await get_queue(tools.database, facts.queue)).options
    if facts.kind is QueueKind.WORK:
        item = await find_item(tools, facts.queue, partition_id, transaction_id)
        return kept_messages.detail_of(kept_messages.item_as_message(item), options)
    message = await ordered_message(tools, partition_id, transaction_id)
    [states] = await _group_states(tools.database, [(partition_id, message.seq)])
    return kept_messages.detail_of(kept_messages.with_states(message, states), options)


async def ordered_message(tools: Tools, partition_id: int, transaction_id: str) -> StoredMessage:
    """Return a message without its states; raise `NotFoundError`, or `ConflictError` of an item."""
    facts, seq = await find_message(tools.database, tools.catalog, partition_id, transaction_id)
    if facts.kind is not QueueKind.ORDERED:
        raise ConflictError(f"{facts.queue!r} is a work queue: it has items, not messages")
    row: Any = await tools.database.fetchrow(
        "select * from monarq.message_at($1, $2)", partition_id, seq
    )
    if row is None or not row["payload"]:
        raise _no_message(partition_id, transaction_id)
    own, headers = row["transaction_id"], row["headers"]
    payload = sealing.open_payload(
        row["payload"], tools.cipher, facts.queue, facts.name, own, headers
    )
    return kept_messages.stored_message(
        queue=facts.queue,
        partition=facts.name,
        partition_id=partition_id,
        seq=seq,
        transaction_id=own,
        payload=payload,
        headers=headers and sealing.open_headers(headers.encode(), tools.cipher),
        created_at=row["created_at"],
        trace_id=row["trace_id"],
        producer=row["producer"],
    )


async def _group_states(
    database: Database, places: Sequence[tuple[int, int]]
) -> list[dict[str, str]]:
    """Return the state of each (partition id, seq) in each group."""
    rows = await database.fetch(
        _GROUP_STATES,
        [partition_id for partition_id, _ in places],
        [seq for _, seq in places],
        database.now(),
    )
    states: list[dict[str, str]] = [{} for _ in places]
    for row in rows:
        states[row["place"] - 1][row["name"]] = row["state"]
    return states


@handles(DeleteMessage)
async def delete_message(tools: Tools, request: DeleteMessage) -> None:
    partition_id, transaction_id = request.partition_id, request.transaction_id
    facts, seq = await find_message(tools.database, tools.catalog, partition_id, transaction_id)
    check_may_work(facts.runs_commands, facts.queue, tools.commands)
    procedure = "delete_message" if facts.kind is QueueKind.ORDERED else "delete_item"
    problem = await tools.database.fetchval(
        f"select monarq.{procedure}($1, $2, $3)", tools.database.now(), partition_id, seq
    )
    if problem == "not_found":
        raise _no_message(partition_id, transaction_id)
    if problem == "conflict":
        if facts.kind is QueueKind.WORK:
            number = message_id(partition_id, seq)
            raise ConflictError(f"item {number} is leased: cancel it first")
        raise ConflictError(f"message {transaction_id!r} is leased: ack it, or wait")


async def find_message(
    database: Database, catalog: Catalog, partition_id: int, transaction_id: str
) -> tuple[PartitionFacts, int]:
    """Where the message is, by its transaction id or its id."""
    facts = (await catalog.facts([partition_id])).get(partition_id)
    if facts is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    own = parse_message_id(transaction_id)
    if own is not None and own[0] == partition_id:
        return facts, own[1]
    seq = await database.fetchval(
        "select seq from monarq.transaction_ids where partition_id = $1 and transaction_id = $2",
        partition_id,
        transaction_id,
    )
    if seq is None:
        raise _no_message(partition_id, transaction_id)
    return facts, seq


def _no_message(partition_id: int, transaction_id: str) -> NotFoundError:
    return NotFoundError(f"partition {partition_id} has no message {transaction_id!r}")


def _messages_from(row: Any, queue: str, cipher: Cipher | None) -> list[StoredMessage]:
    """Return the messages of a row of `_SEGMENTS`."""
    payloads = segments.unpack(row["data"], segments.from_bytes(row["offsets"]))
    ids, traces, producers, headers = (
        row[column] or [None] * row["count"]
        for column in ("transaction_ids", "trace_ids", "producers", "headers")
    )
    payloads = sealing.open_payloads(payloads, cipher, queue, row["name"], ids, headers)
    return [
        kept_messages.stored_message(
            queue=queue,
            partition=row["name"],
            partition_id=row["id"],
            seq=seq,
            transaction_id=ids[n],
            payload=payload,
            headers=headers[n] and sealing.open_headers(headers[n].encode(), cipher),
            created_at=row["created_at"],
            trace_id=traces[n],
            producer=producers[n],
        )
        for n, (seq, payload) in enumerate(enumerate(payloads, row["first_seq"]))
        if seq >= row["start"] and payload
    ]


async def export_read(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    partition_id: int,
    first_seq: int,
    last_seq: int,
    max_bytes: int,
) -> list[Segment]:
    place = (await catalog.facts([partition_id])).get(partition_id)
    if place is None:
        raise NotFoundError(f"there is no partition {partition_id}")
    found: list[Segment] = []
    size = 0
    while first_seq <= last_seq and size < max_bytes:
        rows = await database.fetch(
            _SEGMENTS_WITHIN, partition_id, first_seq, last_seq, max_bytes - size
        )
        if not rows or rows[-1]["first_seq"] + rows[-1]["count"] <= first_seq:
            break
        for row in rows:
            segment = segments.cut(_segment_from(row), first_seq, last_seq)
            if segment is not None:
                found.append(_opened(segment, cipher, place))
                size += len(segment.data)
            first_seq = max(first_seq, row["first_seq"] + row["count"])
    return found


def _opened(segment: Segment, cipher: Cipher | None, place: PartitionFacts) -> Segment:
    """The segment with payloads and headers as they were pushed."""
    if segment.headers is not None:
        opened = [sealing.open_headers(one, cipher) for one in segment.headers]
    if not has_seal(segment.data):
        return segment if segment.headers is None else structs.replace(segment, headers=opened)
    data, offsets = sealing.open_segment(
        segment.data,
        segment.offsets,
        cipher,
        place.queue,
        place.name,
        segment.transaction_ids,
        segment.headers,
    )
    headers = None if segment.headers is None else opened
    return structs.replace(segment, data=data, offsets=offsets, headers=headers)


def _segment_from(row: Any) -> Segment:
    headers = row["headers"]
    return Segment(
        partition_id=row["partition_id"],
        first_seq=row["first_seq"],
        count=row["count"],
        created_at=row["created_at"],
        data=row["data"],
        offsets=row["offsets"],
        transaction_ids=row["transaction_ids"],
        trace_ids=row["trace_ids"],
        producers=row["producers"],
        headers=headers and [h.encode() if h is not None else None for h in headers],
    )
