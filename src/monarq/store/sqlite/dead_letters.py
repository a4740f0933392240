"""Dead letters: listing, counting, redriving and purging them.

The dead letter of an item keeps the item's row, in state dead, and goes with it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from monarq.clock import micros
from monarq.crypto import is_sealed, is_sealed_text
from monarq.model import (
    DEFAULT_PARTITION,
    ERROR_KEY_LENGTH,
    DeadLetter,
    DeadLetterFilter,
    Page,
    Queue,
    QueueKind,
)
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.store import paging, sealing, validation
from monarq.store.queries.dead_letters import COLUMNS, StoredLetter
from monarq.store.sqlite import items, segment_log
from monarq.store.sqlite.appending import Appender, Lane, NewItem, NewMessage
from monarq.store.sqlite.deaths import with_headers
from monarq.store.sqlite.handlers import handles
from monarq.store.sqlite.items import WorkItem
from monarq.store.sqlite.session import Session

_SELECT = f"select {COLUMNS} from dead_letters d cross join queues q on q.id = d.queue_id"


ERROR_KEY = f"""
substr(d.error, 1, min({ERROR_KEY_LENGTH}, instr(d.error || char(10), char(10)) - 1))
"""


def matching(session: Session, which: DeadLetterFilter) -> tuple[str, list[Any]]:
    """The condition and its values."""
    terms: dict[str, Any] = {}
    if which.queue is not None:
        queue = session.find_queue(which.queue)
        terms["d.queue_id = ?"] = queue.id if queue else 0
    if which.group is not None:
        terms["d.group_name = ?"] = which.group
    if which.partition is not None:
        terms["d.partition_name = ?"] = which.partition
    if which.failed_from is not None:
        terms["d.failed_at >= ?"] = which.failed_from
    if which.failed_to is not None:
        terms["d.failed_at <= ?"] = which.failed_to
    if which.error is not None:
        lines = sealing.error_lines(which.error, session.cipher)
        texts = msgspec.json.encode(lines).decode()
        terms[f"{ERROR_KEY} in (select value from json_each(?))"] = texts
    if which.ids is not None:
        ids = msgspec.json.encode([int(number) for number in which.ids]).decode()
        terms["d.id in (select value from json_each(?))"] = ids
    return " and ".join(terms) or "true", list(terms.values())


def list_dead_letters(
    session: Session, which: DeadLetterFilter, limit: int, after: str | None
) -> Page[DeadLetter]:
    last = paging.position(after, "dead letters", int)
    condition, values = matching(session, which)
    rows = session.db.execute(
        f"{_SELECT} where {condition} and d.id < ? order by d.id desc limit ?",
        (*values, 1 << 62 if last is None else last, limit + 1),
    )
    letters = [StoredLetter(*row).opened(session.cipher) for row in rows]
    return paging.page(letters, limit, "dead letters", lambda letter: int(letter.id))


def count_dead_letters(session: Session, which: DeadLetterFilter) -> int:
    if which == DeadLetterFilter(queue=which.queue):
        return _count_all(session, which.queue)
    condition, values = matching(session, which)
    [count] = session.db.execute(
        f"select count(*) from dead_letters d where {condition}", values
    ).fetchone()
    return int(count)


def _count_all(session: Session, name: str | None) -> int:
    if name is not None:
        queue = session.find_queue(name)
        return session.counters.read(queue.id)["dead_letters"] if queue else 0
    [count] = session.db.execute(
        "select coalesce(sum(dead_letters), 0) from counters where group_id = 0"
    ).fetchone()
    return int(count)


def opened_key(session: Session, queue: str, key: str, newest_id: int) -> str:
    """The first line of an error, as it was given; `newest_id` is one of its dead letters."""
    if not is_sealed_text(key):
        return key
    [error] = session.db.execute(
        "select error from dead_letters where id = ?", (newest_id,)
    ).fetchone()
    return sealing.first_line(sealing.open_error(error, session.cipher, queue))


@handles(PurgeDeadLetters)
def purge_dead_letters(session: Session, request: PurgeDeadLetters) -> int:
    condition, values = matching(session, request.which)
    if not session.commands:
        _check_no_command(session, condition, values)
    of_items = session.db.execute(
        f"""select d.partition_id, d.seq from dead_letters d
        where {condition} and d.priority is not null""",
        values,
    ).fetchall()
    for partition_id, seq in of_items:
        _remove_item_of(session, partition_id, seq)
    by_queue = session.db.execute(
        f"select d.queue_id, count(*) from dead_letters d where {condition} group by d.queue_id",
        values,
    ).fetchall()
    session.db.execute(f"delete from dead_letters as d where {condition}", values)
    for queue_id, count in by_queue:
        session.counters.add(queue_id, dead_letters=-count)
    return sum(count for _, count in by_queue)


def _check_no_command(session: Session, condition: str, values: list[Any]) -> None:
    """Raise `ForbiddenError` if one of these dead letters is of a queue that runs commands."""
    row = session.db.execute(
        "select q.name from dead_letters d cross join queues q on q.id = d.queue_id "
        f"where {condition} and q.runs_commands = 1 limit 1",
        values,
    ).fetchone()
    if row is not None:
        validation.check_may_work(True, row[0], False)


def _remove_item_of(session: Session, partition_id: int, seq: int) -> None:
    """An item stays as long as its dead letter, and no longer."""
    item = items.find_item(session, partition_id, seq)
    assert item is not None
    items.remove(session, item, item.state)


def forget_letter_of(session: Session, item: WorkItem) -> None:
    """Of an item that is no longer dead."""
    gone = session.db.execute(
        "delete from dead_letters where partition_id = ? and seq = ?",
        (item.partition_id, item.seq),
    )
    session.counters.add(item.queue_id, dead_letters=-gone.rowcount)


# --- redrive -------------------------------------------------------------------------------


@handles(Redrive)
def redrive(session: Session, request: Redrive) -> int:
    which = request.which
    target = None if request.to_queue is None else session.queue(request.to_queue)
    if target is not None:
        source = None if which.queue is None else session.find_queue(which.queue)
        validation.check_redrive_of_commands(target, source)
    condition, values = matching(session, which)
    if not session.commands:
        _check_no_command(session, condition, values)
    rows = session.db.execute(
        f"{_SELECT} where {condition} order by d.id limit ?", (*values, request.limit)
    ).fetchall()
    redriving = _Redriving(session)
    for row in rows:
        redriving.carry_out(StoredLetter(*row), target)
    redriving.finish()
    return len(rows)


class _Redriving:
    def __init__(self, session: Session) -> None:
        self._session = session
        self._appender = Appender(session)
        self._run: tuple[Lane, str] | None = None
        """The partition, and the group for which alone the messages at hand are."""

    def carry_out(self, letter: StoredLetter, target: Queue | None) -> None:
        session = self._session
        own = session.queue(letter.queue)
        session.db.execute("delete from dead_letters where id = ?", (letter.id,))
        session.counters.add(own.id, dead_letters=-1)
        if target is not None and target.id != own.id:
            self._push(letter, target)
            if own.kind is QueueKind.WORK:
                _remove_item_of(session, letter.partition_id, letter.seq)
        elif own.kind is QueueKind.WORK:
            self._revive(letter, own)
        else:
            self._put_back(letter, own)

    def finish(self) -> None:
        """Write the messages at hand, and hide them from the groups that did not fail on them."""
        self._appender.flush()
        if self._run is None:
            return
        session = self._session
        lane, group = self._run
        self._run = None
        segment_log.reserve(session.db, lane.id, lane.base + 1, lane.last_seq, group)
        others = session.db.execute(
            "select id from groups where queue_id = ? and name <> ?", (lane.queue.id, group)
        ).fetchall()
        for (group_id,) in others:
            cursor = session.cursor(lane.id, group_id)
            for seq in range(lane.base + 1, lane.last_seq + 1):
                cursor.withhold(session, seq)

    def _put_back(self, letter: StoredLetter, queue: Queue) -> None:
        """To the end of its partition, in segments of its group's own."""
        if self._run is not None:
            lane, group = self._run
            if (lane.queue.id, lane.name, group) != (queue.id, letter.partition, letter.group):
                self.finish()
        if self._run is None:
            self._appender.flush()
            self._run = (self._appender.lane(queue, letter.partition), letter.group)
        self._appender.append(self._run[0], self._message(letter, queue))

    def _push(self, letter: StoredLetter, target: Queue) -> None:
        if target.options.encryption_enabled and self._session.cipher is None:
            raise sealing.no_key(target.name)
        if self._run is not None:
            self.finish()
        message = self._message(letter, target)
        if target.kind is QueueKind.ORDERED:
            self._appender.append(self._appender.lane(target, letter.partition), message)
        else:
            lane = self._appender.lane(target, DEFAULT_PARTITION)
            item = items.find_item(self._session, letter.partition_id, letter.seq)
            new = NewItem(message)
            if item is not None:
                new = NewItem(message, item.priority, is_command=bool(item.is_command))
            self._appender.append_item(lane, new)

    def _message(self, letter: StoredLetter, target: Queue) -> NewMessage:
        return NewMessage(
            payload=self._sealed(letter, target),
            trace_id=letter.trace_id,
            producer=letter.producer,
            headers=with_headers(letter.headers, monarqRedrivenFrom=letter.transaction_id),
        )

    def _sealed(self, letter: StoredLetter, target: Queue) -> bytes:
        """The payload for its new place, sealed if it was or if the target is encrypted."""
        cipher = self._session.cipher
        if not is_sealed(letter.payload) and not target.options.encryption_enabled:
            return letter.payload
        payload = letter.plain_payload(cipher)
        if cipher is None:
            raise sealing.no_key(target.name)
        is_work = target.kind is QueueKind.WORK
        partition = DEFAULT_PARTITION if is_work else letter.partition
        return cipher.seal(payload, sealing.payload_context(target.name, partition, None))

    def _revive(self, letter: StoredLetter, queue: Queue) -> None:
        item = items.find_item(self._session, letter.partition_id, letter.seq)
        assert item is not None
        start_over(self._session, queue, item)


def start_over(session: Session, queue: Queue, item: WorkItem) -> None:
    """Make an item ready at the tail, as if it had never been tried."""
    was = item.state
    items.go_to_tail(session, item)
    items.make_ready(item, items.last_seq(session, item.partition_id))
    item.attempts = 0
    item.error = None
    item.expires_at = None
    if queue.options.expire_timeout:
        item.expires_at = session.now + micros(queue.options.expire_timeout)
    items.save(session, item, was)
