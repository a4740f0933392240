"""Appends to partitions: messages to logs, items to work sets, one segment a partition and call.

Everything that is stored in a queue, by whatever way, goes through here. Collects in memory
until `flush`; `undo` takes back what was appended since `mark`. Does not know of requests,
and does not check sizes or keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from monarq.clock import micros
from monarq.errors import InvalidRequestError
from monarq.ids import parse_message_id
from monarq.model import ItemState, Queue, QueueKind
from monarq.store.sqlite import segment_log

if TYPE_CHECKING:
    from monarq.store.sqlite.session import Session

_LOAD = """
select id, first_seq, last_seq, last_at, turns, check_at from partitions
where queue_id = ? and name = ?
"""
KNOWN_IDS = """
select t.transaction_id, t.seq from json_each(?) j
cross join transaction_ids t on t.partition_id = ? and t.transaction_id = j.value
"""
_SAVE = """
update partitions set last_seq = ?, last_at = ?, turns = ?, check_at = ?, emptied_at = null
where id = ?
"""
_WAKE = "update cursors set available_at = ? where partition_id = ? and available_at is null"
_INSERT_ID = "insert into transaction_ids (partition_id, transaction_id, seq) values (?, ?, ?)"
_INSERT_ITEM = """
insert into items (partition_id, seq, queue_id, state, priority, rank, turn, due_at, expires_at,
    max_attempts, backoff_base, backoff_cap, backoff_jitter, created_at, transaction_id,
    trace_id, producer, headers, is_command, attempts, payload)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


T = TypeVar("T")
_Row = tuple[int, int, int, int, int, int | None]


class NewMessage(NamedTuple):
    payload: bytes
    """As it is to be kept."""
    transaction_id: str | None = None
    trace_id: str | None = None
    producer: str | None = None
    headers: bytes | None = None


class NewItem(NamedTuple):
    message: NewMessage
    priority: int | None = None
    run_at: int | None = None
    max_attempts: int | None = None
    backoff_base: float | None = None
    is_command: bool = False
    attempts: int = 0


class Lane:
    """A partition that is appended to."""

    __slots__ = ("base", "check_at", "created_at", "explicit", "first_seq", "headers", "id",
                 "item_rows", "last_seq", "name", "payloads", "producers", "queue", "trace_ids",
                 "turns")  # fmt: skip

    def __init__(self, queue: Queue, name: str, now: int, row: _Row) -> None:
        self.queue = queue
        self.name = name
        self.id, self.first_seq, self.last_seq, last_at, self.turns, self.check_at = row
        self.base = self.last_seq
        self.created_at = max(now, last_at)
        self.payloads: list[bytes] = []
        # What few messages have, by seq.
        self.trace_ids: dict[int, str] = {}
        self.producers: dict[int, str] = {}
        self.headers: dict[int, bytes] = {}
        self.item_rows: list[tuple[object, ...]] = []
        self.explicit: dict[str, int] = {}
        """Transaction ids that callers gave and that are not in the table yet."""

    @property
    def is_work(self) -> bool:
        return self.queue.kind is QueueKind.WORK


class Mark(NamedTuple):
    last_seq: int
    turns: int
    explicit: int


class Appender:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._lanes: dict[tuple[int, str], Lane] = {}
        self._added: Counter[int] = Counter()

    # --- lanes -----------------------------------------------------------------------------

    def find_lane(self, queue: Queue, partition: str) -> Lane | None:
        key = (queue.id, partition)
        lane = self._lanes.get(key)
        if lane is None:
            row = self._session.db.execute(_LOAD, key).fetchone()
            if row is not None:
                lane = self._lanes[key] = Lane(queue, partition, self._session.now, row)
        return lane

    def lane(self, queue: Queue, partition: str) -> Lane:
        lane = self.find_lane(queue, partition)
        return self.make_lane(queue, partition) if lane is None else lane

    def make_lane(self, queue: Queue, partition: str) -> Lane:
        session = self._session
        made = session.db.execute(
            "insert into partitions (queue_id, name) values (?, ?)", (queue.id, partition)
        )
        assert made.lastrowid is not None
        session.db.execute(
            """insert into cursors (partition_id, group_id, position)
            select ?, id, 0 from groups where queue_id = ?""",
            (made.lastrowid, queue.id),
        )
        session.counters.add(queue.id, partitions=1)
        lane = Lane(queue, partition, session.now, (made.lastrowid, 1, 0, 0, 0, None))
        self._lanes[queue.id, partition] = lane
        return lane

    def drop_lane(self, lane: Lane) -> None:
        """Of which the making was rolled back."""
        del self._lanes[lane.queue.id, lane.name]

    def added(self, queue_id: int) -> int:
        """How many messages or items for the queue are not flushed yet."""
        return self._added[queue_id]

    # --- transaction ids ---------------------------------------------------------------------

    def known_ids(self, lane: Lane, transaction_ids: Sequence[str]) -> dict[str, int]:
        """Those in the table, with their seqs."""
        if not lane.base or not transaction_ids:
            return {}
        wanted = msgspec.json.encode(transaction_ids).decode()
        return dict(self._session.db.execute(KNOWN_IDS, (wanted, lane.id)))

    def seq_of(
        self, lane: Lane, transaction_id: str, known: dict[str, int] | None = None
    ) -> int | None:
        """The seq of the message that has this id already. `known`: as `known_ids` said."""
        seq = lane.explicit.get(transaction_id)
        if seq is not None:
            return seq
        if known is None:
            known = self.known_ids(lane, [transaction_id])
        seq = known.get(transaction_id)
        if seq is not None:
            return seq
        named = parse_message_id(transaction_id)
        if named is not None and named[0] == lane.id:
            if self._has_own_id(lane, named[1]):
                return named[1]
            raise InvalidRequestError(
                f"transactionId {transaction_id!r} is reserved for a message of partition "
                f"{lane.id}, which has no such message: choose another"
            )
        return None

    def _has_own_id(self, lane: Lane, seq: int) -> bool:
        """Whether a message with this seq is kept and has its id as transaction id."""
        db = self._session.db
        if seq > lane.base:
            return seq <= lane.last_seq and seq not in lane.explicit.values()
        if lane.is_work:
            row = db.execute(
                "select transaction_id from items where partition_id = ? and seq = ?",
                (lane.id, seq),
            ).fetchone()
            return row is not None and row[0] is None
        head = segment_log.head_at(db, lane.id, seq)
        if head is None:
            return False
        ids = self._session.caches.segments.body(db, head).transaction_ids
        return ids is None or ids[seq - head.first_seq] is None

    # --- appending -------------------------------------------------------------------------

    def append(self, lane: Lane, message: NewMessage) -> int:
        """The seq of the message. Its transaction id, if it has one, is not there yet."""
        payload, transaction_id, trace_id, producer, headers = message
        seq = lane.last_seq = lane.last_seq + 1
        self._added[lane.queue.id] += 1
        lane.payloads.append(payload)
        if transaction_id is not None:
            lane.explicit[transaction_id] = seq
        if trace_id is not None:
            lane.trace_ids[seq] = trace_id
        if producer is not None:
            lane.producers[seq] = producer
        if headers is not None:
            lane.headers[seq] = headers
        return seq

    def extend(self, lane: Lane, payloads: Sequence[bytes], producer: str | None) -> range:
        """Append messages that have nothing but a payload; their seqs."""
        seqs = range(lane.last_seq + 1, lane.last_seq + len(payloads) + 1)
        lane.last_seq += len(payloads)
        self._added[lane.queue.id] += len(payloads)
        lane.payloads += payloads
        if producer is not None:
            lane.producers.update(dict.fromkeys(seqs, producer))
        return seqs

    def append_item(self, lane: Lane, item: NewItem) -> int:
        """Append an item; return its seq. Only a queue that runs commands takes the mark of one."""
        now, options = self._session.now, lane.queue.options
        message = item.message
        seq = lane.last_seq = lane.last_seq + 1
        self._added[lane.queue.id] += 1
        lane.turns += 1
        is_scheduled = item.run_at is not None and item.run_at > now
        priority = options.default_priority if item.priority is None else item.priority
        expires_at = None
        if options.expire_timeout:
            expires_at = lane.created_at + micros(options.expire_timeout)
        backoff_base = options.backoff_base if item.backoff_base is None else item.backoff_base
        lane.item_rows.append(
            (lane.id, seq, lane.queue.id,
             ItemState.SCHEDULED if is_scheduled else ItemState.READY,
             priority, seq - priority, lane.turns,
             item.run_at if is_scheduled else None, expires_at,
             item.max_attempts or options.max_attempts, backoff_base,
             options.backoff_cap, options.backoff_jitter, lane.created_at,
             message.transaction_id, message.trace_id, message.producer, message.headers,
             item.is_command and options.runs_commands, item.attempts, message.payload)
        )  # fmt: skip
        if message.transaction_id is not None:
            lane.explicit[message.transaction_id] = seq
        return seq

    def mark(self, lane: Lane) -> Mark:
        return Mark(lane.last_seq, lane.turns, len(lane.explicit))

    def undo(self, lane: Lane, mark: Mark) -> None:
        """Take back what was appended since."""
        count = lane.last_seq - mark.last_seq
        if count:
            self._added[lane.queue.id] -= count
            del lane.payloads[-count:]
            del lane.item_rows[-count:]
        lane.last_seq, lane.turns = mark.last_seq, mark.turns
        while len(lane.explicit) > mark.explicit:
            lane.explicit.popitem()
        for values in (lane.trace_ids, lane.producers, lane.headers):
            while values and next(reversed(values)) > mark.last_seq:
                values.popitem()

    # --- writing ---------------------------------------------------------------------------

    def flush(self) -> None:
        lanes = [lane for lane in self._lanes.values() if lane.last_seq > lane.base]
        self._lanes.clear()
        self._added.clear()
        if not lanes:
            return
        session = self._session
        db = session.db
        for lane in lanes:
            session.release_partition(lane.id)
        ordered = [lane for lane in lanes if lane.payloads]
        if ordered:
            rows = [row for lane in ordered for row in _rows(lane)]
            segment_log.insert_segments(db, rows)
            session.caches.segments.learn(rows)
        items = [row for lane in lanes for row in lane.item_rows]
        if items:
            db.executemany(_INSERT_ITEM, items)
        ids = [(lane.id, name, seq) for lane in lanes for name, seq in lane.explicit.items()]
        if ids:
            db.executemany(_INSERT_ID, ids)
        queues = {lane.queue.id: lane.queue for lane in ordered}
        horizons = {queue_id: check_horizon(queue) for queue_id, queue in queues.items()}
        db.executemany(_SAVE, [_saved(lane, horizons.get(lane.queue.id)) for lane in lanes])
        db.executemany(_WAKE, [(session.now, lane.id) for lane in ordered])
        for lane in lanes:
            self._count(lane)

    def _count(self, lane: Lane) -> None:
        session = self._session
        session.counters.add(lane.queue.id, pushed=lane.last_seq - lane.base)
        if lane.item_rows:
            scheduled = sum(row[3] is ItemState.SCHEDULED for row in lane.item_rows)
            session.counters.move(lane.queue.id, None, "scheduled", scheduled)
            session.counters.move(lane.queue.id, None, "ready", len(lane.item_rows) - scheduled)


def check_horizon(queue: Queue) -> int | None:
    """How long after a push the lifecycle has to look at its partition; None: never."""
    options = queue.options
    times = [options.max_wait_time_seconds]
    if options.retention_enabled:
        times += [options.retention_seconds, options.completed_retention_seconds]
    return min((micros(seconds) for seconds in times if seconds), default=None)


def _saved(lane: Lane, horizon: int | None) -> tuple[object, ...]:
    check_at = lane.check_at
    if horizon is not None:
        due = lane.created_at + horizon
        check_at = due if check_at is None else min(check_at, due)
    return lane.last_seq, lane.created_at, lane.turns, check_at, lane.id


def _rows(lane: Lane) -> list[tuple[object, ...]]:
    ids = {seq: name for name, seq in lane.explicit.items()} if lane.explicit else {}
    return list(
        segment_log.segment_rows(
            lane.id,
            lane.base + 1,
            lane.created_at,
            lane.payloads,
            _in_order(lane, ids),
            _in_order(lane, lane.trace_ids),
            _in_order(lane, lane.producers),
            _in_order(lane, lane.headers),
        )
    )


def _in_order(lane: Lane, values: dict[int, T]) -> list[T | None] | None:
    return [values.get(seq) for seq in range(lane.base + 1, lane.last_seq + 1)] if values else None
