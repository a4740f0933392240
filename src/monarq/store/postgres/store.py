"""The PostgreSQL store: the contract, carried out by the modules beside this one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from monarq.clock import Clock
from monarq.crypto import Cipher
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
from monarq.store.contract import Outcome, Store
from monarq.store.exported import ExportedMessages, ExportedRows, Span
from monarq.store.postgres import (
    acks,
    archiving,
    dead_letters,
    exporting,
    figures,
    groups,
    inspection,
    items,
    logs,
    push,
    queues,
    records,
    transactions,
)
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.postgres.pop import Popper
from monarq.store.postgres.watching import WatchingCalls
from monarq.store.validation import check_limit, check_max_bytes


class PostgresStore(WatchingCalls, Store):
    def __init__(self, database: Database, cipher: Cipher | None) -> None:
        self._database = database
        self._cipher = cipher
        self._catalog = Catalog(database)
        self._popper = Popper(database, self._catalog, cipher)
        self._seen = ""

    @classmethod
    async def open(
        cls,
        dsn: str,
        *,
        clock: Clock,
        cipher: Cipher | None,
        schema: str = "monarq",
        connections: int = 10,
        timeout_seconds: float | None = None,
    ) -> PostgresStore:
        database = await Database.connect(
            dsn,
            clock=clock,
            schema=schema,
            connections=connections,
            timeout_seconds=timeout_seconds,
        )
        store = cls(database, cipher)
        try:
            store._seen = await database.snapshot()
        except BaseException:
            await database.close()
            raise
        return store

    async def close(self) -> None:
        await self._database.close()

    async def ping(self) -> None:
        await self._database.fetch("select 1 from monarq.queues limit 1")

    async def changed(self) -> bool:
        snapshot = await self._database.snapshot()
        was, self._seen = self._seen, snapshot
        return snapshot != was

    # --- the hot path ------------------------------------------------------------------

    async def push(
        self, requests: Sequence[Push], *, mark: str | None = None
    ) -> list[Outcome[list[Pushed]]]:
        return await push.push(self._database, self._catalog, self._cipher, requests, mark)

    async def pop(
        self, requests: Sequence[Pop], *, max_bytes: int = POP_MAX_BYTES
    ) -> list[Outcome[Popped]]:
        check_max_bytes(max_bytes)
        return await self._popper.pop(requests, max_bytes)

    async def ack(self, requests: Sequence[Ack]) -> list[Outcome[Acked]]:
        return await acks.ack(self._database, self._catalog, requests)

    async def renew(self, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
        return await acks.renew(self._database, requests)

    async def transaction(self, requests: Sequence[Transaction]) -> list[Outcome[TransactionDone]]:
        return [
            await transactions.run(self._database, self._catalog, self._cipher, request)
            for request in requests
        ]

    # --- queues ------------------------------------------------------------------------

    async def configure(
        self,
        name: str,
        *,
        kind: QueueKind | None = None,
        namespace: str | None = None,
        task: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> Queue:
        return await queues.configure(
            self._database,
            self._catalog,
            name,
            kind=kind,
            namespace=namespace,
            task=task,
            options=options,
            has_key=self._cipher is not None,
        )

    async def get_queue(self, name: str) -> Queue:
        return await queues.get_queue(self._database, name)

    async def list_queues(
        self,
        *,
        namespace: str | None = None,
        task: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Queue]:
        return await queues.list_queues(self._database, namespace, task, limit, after)

    async def delete_queue(self, name: str) -> bool:
        return await queues.delete_queue(self._database, self._catalog, name)

    async def clear_queue(self, name: str) -> int:
        return await queues.clear_queue(self._database, name)

    async def set_paused(self, name: str, paused: bool) -> Queue:
        return await queues.set_paused(self._database, self._catalog, name, paused)

    async def queue_stats(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[QueueStats]:
        return await queues.queue_stats(self._database, queue, limit, after)

    # --- groups ------------------------------------------------------------------------

    async def list_groups(
        self,
        *,
        queue: str | None = None,
        group: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Group]:
        return await groups.list_groups(self._database, queue, group, limit, after)

    async def list_cursors(
        self, queue: str, group: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Cursor]:
        return await groups.list_cursors(self._database, self._catalog, queue, group, limit, after)

    async def subscribe(
        self,
        group: str,
        start: StartFrom | int,
        *,
        queue: str | None = None,
        namespace: str | None = None,
        task: str | None = None,
    ) -> int:
        return await groups.subscribe(self._database, group, start, queue, namespace, task)

    async def seek(self, request: Seek) -> int:
        return await groups.seek(self._database, self._catalog, request)

    async def delete_group(
        self, group: str, *, queue: str | None = None, forget_start: bool = True
    ) -> int:
        return await groups.delete_group(self._database, self._catalog, group, queue, forget_start)

    # --- dead letters --------------------------------------------------------------------

    async def list_dead_letters(
        self, which: DeadLetterFilter, *, limit: int = 100, after: str | None = None
    ) -> Page[DeadLetter]:
        return await dead_letters.list_dead_letters(
            self._database, self._cipher, which, limit, after
        )

    async def count_dead_letters(self, which: DeadLetterFilter) -> int:
        return await dead_letters.count_dead_letters(self._database, which)

    async def redrive(
        self, which: DeadLetterFilter, *, to: str | None = None, limit: int = 1000
    ) -> int:
        return await dead_letters.redrive(self._database, self._cipher, which, to, limit)

    async def purge_dead_letters(self, which: DeadLetterFilter) -> int:
        return await dead_letters.purge_dead_letters(self._database, which)

    # --- messages, items, logs -------------------------------------------------------------

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
        return await inspection.list_messages(
            self._database,
            self._cipher,
            queue,
            partition=partition,
            first_seq=first_seq,
            created_from=created_from,
            limit=limit,
            after=after,
        )

    async def get_message(self, partition_id: int, transaction_id: str) -> StoredMessage:
        return await inspection.get_message(
            self._database, self._catalog, self._cipher, partition_id, transaction_id
        )

    async def delete_message(self, partition_id: int, transaction_id: str) -> None:
        await inspection.delete_message(self._database, self._catalog, partition_id, transaction_id)

    async def list_items(
        self,
        queue: str,
        *,
        state: ItemState | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Item]:
        return await items.list_items(self._database, self._cipher, queue, state, limit, after)

    async def next_items(self, queue: str, *, limit: int = 100) -> list[Item]:
        return await items.next_items(self._database, self._cipher, queue, limit)

    async def get_item(self, item_id: str) -> Item:
        return await items.get_item(self._database, self._cipher, item_id)

    async def find_item(self, queue: str, transaction_id: str) -> Item:
        return await items.find_item(self._database, self._cipher, queue, transaction_id)

    async def item_attempts(self, item_id: str) -> list[Attempt]:
        return await items.item_attempts(self._database, item_id)

    async def cancel_item(self, item_id: str) -> Item:
        return await items.cancel_item(self._database, self._cipher, item_id)

    async def retry_item(self, item_id: str) -> Item:
        return await items.retry_item(self._database, self._cipher, item_id)

    async def list_deliveries(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Delivery]:
        return await logs.list_deliveries(self._database, queue, limit, after)

    async def list_attempts(
        self, *, queue: str | None = None, limit: int = 100, after: str | None = None
    ) -> Page[Attempt]:
        return await items.list_attempts(self._database, queue, limit, after)

    async def add_trace(self, trace: Trace) -> Trace:
        return await logs.add_trace(self._database, trace)

    async def list_traces(
        self,
        *,
        partition_id: int | None = None,
        transaction_id: str | None = None,
        name: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> Page[Trace]:
        return await logs.list_traces(
            self._database, partition_id, transaction_id, name, limit, after
        )

    async def list_trace_names(self, *, limit: int = 100, after: str | None = None) -> Page[str]:
        return await logs.list_trace_names(self._database, limit, after)

    async def metrics(
        self,
        *,
        queue: str | None = None,
        since: int | None = None,
        until: int | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> Page[MetricPoint]:
        return await logs.metrics(self._database, queue, since, until, limit, after)

    # --- figures ---------------------------------------------------------------------------

    async def stats_of(self, queues: Sequence[str]) -> list[QueueStats]:
        return await figures.stats_of(self._database, queues)

    async def list_partitions(
        self, queue: str, *, limit: int = 100, after: str | None = None
    ) -> Page[PartitionStats]:
        return await figures.list_partitions(self._database, queue, limit, after)

    async def get_partition(self, partition_id: int) -> PartitionStats:
        return await figures.get_partition(self._database, partition_id)

    async def group_states(self, places: Sequence[tuple[int, int]]) -> list[dict[str, str]]:
        return await figures.group_states(self._database, places)

    async def metrics_before(
        self, at: int, *, queue: str | None = None, limit: int = 1000, after: str | None = None
    ) -> Page[MetricPoint]:
        return await figures.metrics_before(self._database, at, queue, limit, after)

    async def health_figures(self) -> dict[str, Any]:
        return await figures.health_figures(self._database)

    # --- output of attempts, records -------------------------------------------------------

    async def append_output(self, item_id: str, attempt: int, data: bytes) -> int:
        return await records.append_output(self._database, item_id, attempt, data)

    async def read_output(
        self, item_id: str, attempt: int, *, start: int = 0, max_bytes: int = 1 << 20
    ) -> OutputPart:
        return await records.read_output(self._database, item_id, attempt, start, max_bytes)

    async def put_record(
        self, kind: str, key: str, value: bytes, *, keep_seconds: float | None = None
    ) -> Record:
        return await records.put_record(self._database, kind, key, value, keep_seconds)

    async def get_record(self, kind: str, key: str) -> Record:
        return await records.get_record(self._database, kind, key)

    async def list_records(
        self, kind: str, *, limit: int = 100, after: str | None = None
    ) -> Page[Record]:
        return await records.list_records(self._database, kind, limit, after)

    async def delete_record(self, kind: str, key: str) -> bool:
        return await records.delete_record(self._database, kind, key)

    # --- export ----------------------------------------------------------------------------

    async def export_plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> list[PartitionRange]:
        return await exporting.export_plan(self._database, queue, created_from, created_to)

    async def export_read(
        self, partition_id: int, first_seq: int, last_seq: int, *, max_bytes: int = 32 << 20
    ) -> list[Segment]:
        return await inspection.export_read(
            self._database,
            self._catalog,
            self._cipher,
            partition_id,
            first_seq,
            last_seq,
            max_bytes,
        )

    async def export_messages(
        self, spans: Sequence[Span], columns: Collection[str], *, max_bytes: int = 16 << 20
    ) -> ExportedMessages:
        return await exporting.export_messages(
            self._database, self._cipher, spans, columns, max_bytes
        )

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
        return await exporting.export_rows(
            self._database, self._cipher, table, columns, after, until, queues, limit
        )

    async def log_end(self, table: str) -> str:
        return await exporting.log_end(self._database, table)

    async def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        await archiving.set_archived(self._database, queue, positions)

    async def archived(self, queue: str) -> dict[int, int]:
        return await archiving.archived(self._database, queue)

    # --- the broker's own ------------------------------------------------------------------

    async def lifecycle(self, *, limit: int = 1000) -> LifecycleReport:
        check_limit(limit, 1_000_000)
        row = await self._database.fetchrow(
            "select * from monarq.lifecycle($1, $2)", self._database.now(), limit
        )
        assert row is not None
        return LifecycleReport(
            next_at=row["next_at"],
            expired=row["expired"],
            promoted=row["promoted"],
            buried=row["buried"],
            removed=row["removed"],
            wake=row["wake"],
        )

    async def get_settings(self) -> dict[str, str]:
        return await logs.get_settings(self._database)

    async def set_setting(self, key: str, value: str | None) -> None:
        await logs.set_setting(self._database, key, value)
