"""One transaction: the time it happens at, and what it has read and not yet written.

Cursors and counters are changed in memory and written by `flush` and `finish`, so that a call
with a thousand acks writes each cursor once. A request that fails leaves nothing: it either
fails before it changes anything or runs in a `savepoint`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from monarq.crypto import Cipher
from monarq.errors import NotFoundError
from monarq.model import Queue
from monarq.store.sqlite import deaths, making
from monarq.store.sqlite.counters import Counters
from monarq.store.sqlite.cursors import Cursor, find_cursor
from monarq.store.sqlite.deaths import Death
from monarq.store.sqlite.lease_numbers import LeaseNumbers
from monarq.store.sqlite.queue_rows import QueueCache
from monarq.store.sqlite.segment_log import SegmentCache


class Caches:
    """What is kept between transactions."""

    def __init__(self) -> None:
        self.queues = QueueCache()
        self.segments = SegmentCache()
        self.lease_numbers = LeaseNumbers()
        self.stepped_at: int | None = None
        """When the lifecycle last took a step, by the clock of then."""

    def clear(self) -> None:
        self.queues.clear()
        self.segments.clear()
        self.lease_numbers.clear()


class Session:
    def __init__(
        self, db: sqlite3.Connection, now: int, cipher: Cipher | None, caches: Caches
    ) -> None:
        self.db = db
        self.now = now
        self.cipher = cipher
        self.caches = caches
        self.commands = True
        """Whether the caller may work on shell commands."""
        self.counters = Counters(db)
        self.deaths: list[Death] = []
        """Of messages, to be buried by `flush`."""
        self.died = 0
        """How many messages and items died in this transaction."""
        self._cursors: dict[tuple[int, int], Cursor] = {}
        self._by_name: dict[str, Queue] = {}
        self._by_id: dict[int, Queue] = {}
        self._gave_leases = False
        self.group_ids: dict[tuple[int, str], int] = {}
        """Of groups that were found; by queue and name."""
        self.being_made: dict[int, int] = {}
        """Groups that do not have all their cursors yet, of those that were found; since when."""
        self.steps_left = making.MOST_STEPS

    # --- queues ------------------------------------------------------------------------

    def find_queue(self, name: str) -> Queue | None:
        queue = self._by_name.get(name)
        if queue is None:
            queue = self.caches.queues.named(self.db, name)
            if queue is not None:
                self._by_name[name] = self._by_id[queue.id] = queue
        return queue

    def queue(self, name: str) -> Queue:
        queue = self.find_queue(name)
        if queue is None:
            raise NotFoundError(f"there is no queue {name!r}")
        return queue

    def queue_by_id(self, queue_id: int) -> Queue:
        queue = self._by_id.get(queue_id)
        if queue is None:
            queue = self.caches.queues.numbered(self.db, queue_id)
            assert queue is not None
            self._by_name[queue.name] = self._by_id[queue_id] = queue
        return queue

    def forget_queues(self) -> None:
        """After a queue was changed in this transaction."""
        self._by_name.clear()
        self._by_id.clear()

    # --- cursors and leases --------------------------------------------------------------

    def cursor(self, partition_id: int, group_id: int) -> Cursor:
        """The cursor, which must exist; changes to it are written by `flush`."""
        cursor = self.find_cursor(partition_id, group_id)
        if cursor is None:
            making.make_in_group(self, partition_id, group_id)
            cursor = self.find_cursor(partition_id, group_id)
        assert cursor is not None
        return cursor

    def find_cursor(self, partition_id: int, group_id: int) -> Cursor | None:
        key = (partition_id, group_id)
        cursor = self._cursors.get(key)
        if cursor is None:
            cursor = find_cursor(self, partition_id, group_id)
            if cursor is not None:
                self._cursors[key] = cursor
        return cursor

    def new_lease_number(self) -> int:
        if not self._gave_leases:
            self.caches.lease_numbers.check(self.db)
            self._gave_leases = True
        return self.caches.lease_numbers.give(self.db)

    def release_partition(self, partition_id: int) -> None:
        """Write and drop the cursors of a partition that is about to change in the tables."""
        for key in [key for key in self._cursors if key[0] == partition_id]:
            self._cursors.pop(key).write(self)

    # --- writing -------------------------------------------------------------------------

    def flush(self) -> None:
        """Bury the dead and write the cursors; what is read later is read anew."""
        deaths.bury_all(self)
        for cursor in self._cursors.values():
            cursor.write(self)
        self._cursors.clear()

    def finish(self) -> None:
        self.flush()
        self.counters.flush()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """What happens inside is undone if it raises."""
        self.flush()
        counters = self.counters.snapshot()
        self.db.execute("savepoint request")
        try:
            yield
            self.flush()
        except BaseException:
            self._undo()
            self.counters.restore(counters)
            raise
        self.db.execute("release request")

    def _undo(self) -> None:
        self._cursors.clear()
        self.deaths.clear()
        self.group_ids.clear()
        self.being_made.clear()
        self.forget_queues()
        self.caches.clear()
        # Some errors, a full disk for one, end the whole transaction.
        if self.db.in_transaction:
            self.db.execute("rollback to request")
            self.db.execute("release request")
