"""What every store promises.

The calls of the hot path take many requests and answer each in its place: an answer, or the
error that belongs to this request alone. A call that fails as a whole raises
`StoreUnavailableError`: all of it took effect or nothing did, and where the connection was lost
on the way nobody knows which, so whoever repeats a push gives it a mark, or transaction ids.
Once a call has answered, its effect is durable. Requests of one call that are about the same
thing (a partition in a push, a partition and group or an item in an ack, a queue, group and
partition in a pop) are carried out in their order, others in any.

All calls validate what they are given before they touch the store. The rules that they
keep are written down in `docs/model.md`; `tests/store` holds every store to them.
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias, TypeVar

from monarq.errors import MonarqError
from monarq.model import (
    POP_MAX_BYTES,
    Ack,
    Acked,
    Attempt,
    Cursor,
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    Group,
    Item,
    ItemState,
    LifecycleReport,
    MetricPoint,
    OutputPart,
    Page,
    PartitionRange,
    PartitionStats,
    Pop,
    Popped,
    Push,
    Pushed,
    Queue,
    QueueKind,
    QueueStats,
    Record,
    Renew,
    Renewed,
    Seek,
    Segment,
    StartFrom,
    StoredMessage,
    Trace,
    Transaction,
    TransactionDone,
)
from monarq.store.exported import ExportedMessages, ExportedRows, Span
from monarq.store.watching import Watching

T = TypeVar("T")
Outcome: TypeAlias = T | MonarqError


class Store(Watching):
    """See the module. Made by `open_store`; use it with `async with`, or `close` it."""

    concurrent: ClassVar[bool] = True
    """Whether calls made at the same time are carried out at the same time, or in turn."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @abc.abstractmethod
    async def close(self) -> None:
        """Give back all resources. Calls under way are finished first; twice is harmless."""

    @abc.abstractmethod
    async def ping(self) -> None:
        """Return if the store can serve, raise `StoreUnavailableError` otherwise."""

    @abc.abstractmethod
    async def changed(self) -> bool:
        """Whether anybody may have written since this was last asked, or since it was opened.

        False: no other process has, and what a pop would find is as it was, but for what time
        does. True may be because of one's own writes, or of others that concern nobody here.
        Costs a look at one number, never a table.
        """

    # --- the hot path ------------------------------------------------------------------

    @abc.abstractmethod
    async def push(
        self, requests: Sequence[Push], *, mark: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        """Store each request's items, all or none of them; one `Pushed` an item, in order.

        A queue that does not exist is made, as an ordered one. Within a partition commit
        order is seq order, without a hole. A transaction id that the partition already has
        is not stored again: `duplicate`, with the seq of the first.

        `mark` makes a call safe to repeat when nobody knows what became of it: text of up to 64
        printable ASCII characters, another one for every call that is not such a repeat. If
        anything of a call was stored, its mark is, in the same transaction, for a day. A call
        whose mark is there stores nothing and raises `AlreadyPushedError`, whatever it holds;
        the error says which requests of the first were refused. Of calls with one mark at the
        same time, one is stored.

        Errors: `InvalidRequestError`, `QueueFullError`, `EncryptionKeyError`.
        """

    @abc.abstractmethod
    async def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        """Lease what is available to each request; no messages where there is nothing.

        Ordered: up to `partitions` partitions that were available longest, up to `batch`
        messages in all, under one lease id. Work: up to `batch` items by effective priority;
        requests of one call for the same queue share what is there, dealt one at a time.
        Each request gets at most `max_bytes` of payloads as they are stored, or one message that
        is larger: what would pass it stays for the next pop.

        Errors: `InvalidRequestError`, `EncryptionKeyError` (then nothing stays leased).
        """

    @abc.abstractmethod
    async def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        """Answer messages or items under a live lease.

        Errors, each leaving things as they were: the `LeaseError`s, `NotFoundError`,
        `InvalidRequestError`.
        """

    @abc.abstractmethod
    async def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        """Move the deadline of live leases to `seconds` from now, never nearer than it was."""

    @abc.abstractmethod
    async def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        """Carry out each transaction's pushes and acks, all or none of them.

        Every lease in `required_leases` must be live. A failure is a
        `TransactionFailedError` that names the operation and holds its error.
        """

    # --- queues ------------------------------------------------------------------------

    @abc.abstractmethod
    async def configure(
        self,
        name: str,
        *,
        kind: QueueKind | None = None,
        namespace: str | None = None,
        task: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Queue:
        """Make the queue, or change what is named; what is not keeps its value.

        `options` by their Python or their camelCase names. Errors: `InvalidRequestError`
        (unknown option, out of range, dead-queue rules), `ConflictError` (exists as another
        kind), `EncryptionKeyError` (encryption without a key).
        """

    @abc.abstractmethod
    async def get_queue(self, name: str) -> Queue:
        """The queue, or `NotFoundError`."""

    @abc.abstractmethod
    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        """By name."""

    @abc.abstractmethod
    async def delete_queue(self, name: str) -> bool:
        """Remove the queue with all that belongs to it, its dead letters too.

        Whether there was one. `ConflictError` if it is another queue's dead queue.
        """

    @abc.abstractmethod
    async def clear_queue(self, name: str) -> int:
        """Remove what is stored (messages, items), not the queue or its dead letters.

        Leases end; groups stay, at the end. Answers how many messages or items went.
        """

    @abc.abstractmethod
    async def set_paused(self, name: str, paused: bool) -> Queue:
        """A paused queue takes pushes and acks; its pops find nothing."""

    @abc.abstractmethod
    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        """Counters of one queue, or of all by name. Costs the same at any backlog."""

    # --- groups ------------------------------------------------------------------------

    @abc.abstractmethod
    async def list_groups(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Group]:
        """One row a group and queue, by queue and group name, with its lag."""

    @abc.abstractmethod
    async def list_cursors(
        self, queue: str, group: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Cursor]:
        """The group's place in each partition of the queue, by partition id."""

    @abc.abstractmethod
    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        """Say where a group begins before it first pops; as a first pop does.

        Answers the point in time from which messages are for the group (0: from the
        beginning). What was said first holds, until the group is deleted.
        """

    @abc.abstractmethod
    async def seek(self, request: Seek) -> int:
        """Move a group's cursors; its leases there end, and what was acked is forgotten.

        Answers how many messages are before the group now, in the partitions it moved.
        `NotFoundError` if the queue, partition or group does not exist.
        """

    @abc.abstractmethod
    async def delete_group(
        self, group: str, *, queue: str | None = None, forget_start: bool = True
    ) -> int:
        """Remove the group from one queue, or everywhere; from how many queues it went.

        With `forget_start` its next pop says anew where it begins; otherwise it begins
        again where it first began.
        """

    # --- dead letters --------------------------------------------------------------------

    @abc.abstractmethod
    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        """Newest first."""

    @abc.abstractmethod
    async def count_dead_letters(self, which: DeadLetterFilter) -> int: ...

    @abc.abstractmethod
    async def redrive(
        self, which: DeadLetterFilter, *, to: str | None = None, limit: int = 1000
    ) -> int:
        """Put dead letters back into their queue, or into the queue `to`; how many.

        Back in its own queue a message goes to the end of its partition, for the group that
        had failed on it alone, and an item starts over with its attempts forgotten. In
        another queue it is a new push. Oldest first, each atomically: gone from the dead
        letters exactly when it is back in a queue.
        """

    @abc.abstractmethod
    async def purge_dead_letters(self, which: DeadLetterFilter) -> int: ...

    # --- messages, items, logs -------------------------------------------------------------

    @abc.abstractmethod
    async def list_messages(
        self,
        queue: str,
        *,
        partition: str | None = None,
        first_seq: int | None = None,
        created_from: int | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[StoredMessage]:
        """By partition id and seq."""

    @abc.abstractmethod
    async def get_message(self, partition_id: int, transaction_id: str) -> StoredMessage:
        """The message, with its state in each group, or `NotFoundError`."""

    @abc.abstractmethod
    async def delete_message(self, partition_id: int, transaction_id: str) -> None:
        """Remove its payload and keep it from every group. Its seq and its transaction id
        stay taken. Of a work queue: remove the item. `ConflictError` if it is leased."""

    @abc.abstractmethod
    async def list_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        """By seq, that is in the order in which they were pushed."""

    @abc.abstractmethod
    async def next_items(self, queue: str, *, limit: int = 100) -> list[Item]:
        """Ready items in the order in which they will be leased."""

    @abc.abstractmethod
    async def get_item(self, item_id: str) -> Item:
        """By its id, or `NotFoundError`."""

    @abc.abstractmethod
    async def find_item(self, queue: str, transaction_id: str) -> Item:
        """By the transaction id it was pushed with, or `NotFoundError`."""

    @abc.abstractmethod
    async def item_attempts(self, item_id: str) -> list[Attempt]:
        """Its finished attempts, oldest first."""

    @abc.abstractmethod
    async def cancel_item(self, item_id: str) -> Item:
        """Take it out of the queue; a lease on it ends. `ConflictError` if it is finished."""

    @abc.abstractmethod
    async def retry_item(self, item_id: str) -> Item:
        """Make it ready at the tail with its attempts forgotten. `ConflictError` if leased."""

    @abc.abstractmethod
    async def list_deliveries(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Delivery]:
        """The delivery log of ordered queues, by id."""

    @abc.abstractmethod
    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Attempt]:
        """The finished attempts of work queues, by the order in which they ended."""

    @abc.abstractmethod
    async def add_trace(self, trace: Trace) -> Trace:
        """Note something about a message; it need not exist any more."""

    @abc.abstractmethod
    async def list_traces(
        self,
        *,
        partition_id: int | None = None,
        transaction_id: str | None = None,
        name: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Trace]:
        """Of one message, or under one name; oldest first."""

    @abc.abstractmethod
    async def list_trace_names(
        self, *, limit: int = 100, after: str | None = None
    ) -> Page[str]: ...

    @abc.abstractmethod
    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        """The counters' history, one point a queue and minute in which something changed."""

    # --- figures ---------------------------------------------------------------------------

    @abc.abstractmethod
    async def stats_of(self, queues: Sequence[str]) -> list[QueueStats]:
        """As `queue_stats`, of these queues in one call; those that do not exist are left out.
        At most 1000."""

    @abc.abstractmethod
    async def list_partitions(
        self, queue: str, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        """The queue's partitions, by partition id."""

    @abc.abstractmethod
    async def get_partition(self, partition_id: int) -> PartitionStats:
        """The partition, or `NotFoundError`."""

    @abc.abstractmethod
    async def group_states(self, places: Sequence[tuple[int, int]]) -> list[dict[str, str]]:
        """For each (partition id, seq) of ordered queues, its state in every group as in
        `StoredMessage.groups`; at most 1000 of them."""

    @abc.abstractmethod
    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        """The last point before a time of each queue that has one, by queue id: what the first
        points from then on are differences to."""

    @abc.abstractmethod
    async def health_figures(self) -> dict[str, Any]:
        """How the database itself fares, by names that differ between stores; always `store`,
        its kind, and `databaseBytes`. Reads statistics, never a queue's tables."""

    # --- output of attempts, records -------------------------------------------------------

    @abc.abstractmethod
    async def append_output(self, item_id: str, attempt: int, data: bytes) -> int:
        """Note what a running attempt of an item printed; answers how many bytes that makes.

        For those who watch it run: what is to stay belongs in the ack's `result`. Refused past
        `MAX_OUTPUT_BYTES`; removed after 7 days.
        """

    @abc.abstractmethod
    async def read_output(
        self, item_id: str, attempt: int, *, start: int = 0, max_bytes: int = 1 << 20
    ) -> OutputPart:
        """From that byte on; nothing, if there is nothing (yet)."""

    @abc.abstractmethod
    async def put_record(
        self, kind: str, key: str, value: bytes, *, keep_seconds: float | None = None
    ) -> Record:
        """Make or replace it. With `keep_seconds` it is gone that long after."""

    @abc.abstractmethod
    async def get_record(self, kind: str, key: str) -> Record:
        """The record, or `NotFoundError`."""

    @abc.abstractmethod
    async def list_records(
        self, kind: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        """By key."""

    @abc.abstractmethod
    async def delete_record(self, kind: str, key: str) -> bool:
        """Whether there was one."""

    # --- export ----------------------------------------------------------------------------

    @abc.abstractmethod
    async def export_plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> list[PartitionRange]:
        """All partitions of an ordered queue with what is kept of each, by id; with bounds, of
        what was pushed from the one time on and before the other."""

    @abc.abstractmethod
    async def export_read(
        self, partition_id: int, first_seq: int, last_seq: int, *, max_bytes: int = 32 << 20
    ) -> list[Segment]:
        """The kept messages with these seqs, both ends included, as (cut) segments.

        Stops after the segment that passes `max_bytes`; go on behind its last seq. Payloads
        are as they were pushed, never encrypted.
        """

    @abc.abstractmethod
    async def export_messages(
        self, spans: Sequence[Span], columns: Collection[str], *, max_bytes: int = 16 << 20
    ) -> ExportedMessages:
        """The kept messages of these spans of ordered queues, span by span, as stored segments.

        Reads what `columns` (of the table `messages`) need and nothing else: payloads only where
        they are asked for. Spans of partitions that do not exist are empty. A deleted message has
        an empty payload; a segment with one always has its `offsets`. Stops after the segment
        that passes `max_bytes`. Payloads are never encrypted. At most `MOST_SPANS` spans.
        """

    @abc.abstractmethod
    async def export_rows(
        self,
        table: str,
        columns: Sequence[str],
        *,
        after: str | None = None,
        until: str | None = None,
        queues: Sequence[str] | None = None,
        limit: int = 10_000,
    ) -> ExportedRows:
        """Rows of one of the `STORED_TABLES`, of all queues or of these.

        Of a log: those behind the position `after` up to the position `until` (see `log_end`),
        in the order of positions. Of `items`: as they are now, by partition and seq; `after` is
        what the last call gave as `next`, and `until` is not for them.
        """

    @abc.abstractmethod
    async def log_end(self, table: str) -> str:
        """A position of this log: text that sorts as positions do.

        Every row that is ever seen at or before it can be seen now: whoever reads up to it and
        later on from it misses none and gets none twice, whatever transactions were under way.
        """

    @abc.abstractmethod
    async def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        """Say up to which seq partitions of an ordered queue, by their ids, are archived.

        Never moves back. Partitions that have gone are passed over; `InvalidRequestError` if one
        has no such seq yet, and then nothing is noted. At most `MOST_SPANS` partitions.
        """

    @abc.abstractmethod
    async def archived(self, queue: str) -> dict[int, int]:
        """What was said, of the partitions for which something was."""

    # --- the broker's own ------------------------------------------------------------------

    @abc.abstractmethod
    async def lifecycle(self, *, limit: int = 1000) -> LifecycleReport:
        """One step: expire leases, promote scheduled items, bury the dead, evict, retain,
        remove empty partitions, roll up metrics; at most about `limit` rows of each.

        Safe to run from many processes at once: what one works on, the others pass over.
        """

    @abc.abstractmethod
    async def get_settings(self) -> dict[str, str]:
        """Settings that all processes on this store share."""

    @abc.abstractmethod
    async def set_setting(self, key: str, value: str | None) -> None:
        """Set, or with None remove."""
