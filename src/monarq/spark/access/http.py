"""Reading through a broker, as Arrow IPC streams: no credentials of a database are needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec
import pyarrow as pa

from monarq.errors import StoreUnavailableError
from monarq.spark.access.connections import Connections
from monarq.spark.access.contract import QueueInfo, SeqRange
from monarq.spark.access.requests import archived_parts, check_kind
from monarq.tables import TableKind
from monarq.times import iso
from monarq.wire.export import ArchivedAnswer, LogEndAnswer

_EXPORT = "/api/v1/export"


class HttpAccess:
    """See `contract.Access`."""

    def __init__(self, url: str, token: str | None) -> None:
        self._broker = Connections(url, token)

    @property
    def is_closed(self) -> bool:
        return self._broker.is_closed

    def close(self) -> None:
        self._broker.close()

    def queues(self) -> list[QueueInfo]:
        batches = self.rows("queues", ["queue", "kind", "options"])
        return [
            QueueInfo(name, kind, bool(msgspec.json.decode(options)["encryptionEnabled"]))
            for batch in batches
            for name, kind, options in zip(
                *(column.to_pylist() for column in batch.columns), strict=True
            )
        ]

    def plan(
        self, queue: str, *, created_from: int | None = None, created_to: int | None = None
    ) -> pa.Table:
        query = {"queue": queue}
        if created_from is not None:
            query["createdFrom"] = iso(created_from)
        if created_to is not None:
            query["createdTo"] = iso(created_to)
        target = f"{_EXPORT}/partitions?{urlencode(query)}"
        with self._broker.stream("GET", target) as response, _opened(response) as reader:
            return reader.read_all()

    def messages(
        self, ranges: Sequence[SeqRange], columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        spans = [(part.partition_id, part.first_seq, part.last_seq) for part in ranges]
        return self._batches("messages", {"ranges": spans, "columns": list(columns)})

    def log_end(self, table: str) -> str:
        target = f"{_EXPORT}/log-end?{urlencode({'table': table})}"
        return msgspec.json.decode(self._broker.call("GET", target), type=LogEndAnswer).position

    def log_rows(
        self,
        table: str,
        after: str | None,
        until: str | None,
        columns: Sequence[str],
        *,
        queues: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        check_kind(table, TableKind.LOG)
        wanted = {"table": table, "columns": list(columns), "after": after, "until": until}
        return self._batches("rows", wanted | _only(queues))

    def rows(
        self, table: str, columns: Sequence[str], *, queues: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        check_kind(table, TableKind.STATE)
        return self._batches("rows", {"table": table, "columns": list(columns)} | _only(queues))

    def archived(self, queue: str) -> dict[int, int]:
        content = self._broker.call("GET", f"{_EXPORT}/archived?{urlencode({'queue': queue})}")
        answer = msgspec.json.decode(content, type=ArchivedAnswer)
        return {int(number): seq for number, seq in answer.positions.items()}

    def set_archived(self, queue: str, positions: Mapping[int, int]) -> None:
        for part in archived_parts(positions):
            body = {"queue": queue, "positions": {str(n): seq for n, seq in part.items()}}
            self._broker.call("POST", f"{_EXPORT}/archived", msgspec.json.encode(body))

    def _batches(self, what: str, body: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        content = msgspec.json.encode(body)
        with (
            self._broker.stream("POST", f"{_EXPORT}/{what}", content) as response,
            _opened(response) as reader,
        ):
            yield from reader


def _only(queues: Sequence[str] | None) -> dict[str, Any]:
    return {} if queues is None else {"queues": list(queues)}


def _opened(response: Any) -> pa.RecordBatchStreamReader:
    try:
        return pa.ipc.open_stream(response)
    except pa.ArrowInvalid as error:
        raise StoreUnavailableError(f"the answer is no Arrow stream: {error}") from error
