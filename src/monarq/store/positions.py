"""Positions in the logs that are exported, and pages of their rows.

A position is a number with leading zeros, so that positions sort as texts; within a page's
`next` a second number may follow it, where several rows share the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from monarq.crypto import SEALED_TEXT, SEALS, Cipher
from monarq.errors import InvalidRequestError
from monarq.ids import message_id
from monarq.store import sealing
from monarq.store.exported import MOST_ROWS, MOST_SPANS, STORED_TABLES, ExportedRows, Span
from monarq.store.validation import check_int, check_limit, check_name, check_time
from monarq.tables import get_table

LogPlace: TypeAlias = tuple[int, ...]

KEYS: dict[str, tuple[str, ...]] = {
    "deliveries": ("id",),
    "dead_letters": ("id",),
    "attempts": ("id",),
    "metrics": ("at", "queue_id"),
    "items": ("partition_id", "seq"),
}
"""The columns that a table is read in the order of; the first one is its position."""
_SEALED_COLUMNS = frozenset({"payload", "error", "result"})
_SEALED_BEGINNINGS = frozenset({SEALED_TEXT, *(bytes([byte]) for byte in SEALS)})
_DIGITS = 19
_LAST = 2**63 - 1


def position(number: int) -> str:
    return f"{number:0{_DIGITS}}"


def place(table: str, text: str | None, field: str) -> LogPlace:
    """Behind all rows at that position; of None, before all rows."""
    keys = KEYS[table]
    if text is None:
        return (-1,) * len(keys)
    numbers = str(text).split(".")
    if not 1 <= len(numbers) <= len(keys) or not all(
        len(one) == _DIGITS and one.isascii() and one.isdigit() and int(one) <= _LAST
        for one in numbers
    ):
        raise InvalidRequestError(f"{field} is not a position of {table}")
    return (*map(int, numbers), *(_LAST,) * (len(keys) - len(numbers)))


def page(
    table: str, columns: Sequence[str], rows: Sequence[Any], limit: int, cipher: Cipher | None
) -> ExportedRows:
    """A page of rows that begin with their keys and end with their `binding`, at most `limit`."""
    keys = len(KEYS[table])
    after = None
    if len(rows) == limit:
        after = ".".join(map(position, rows[-1][:keys]))
    if not _SEALED_COLUMNS.isdisjoint(columns):
        sealed = [(at, name) for at, name in enumerate(columns) if name in _SEALED_COLUMNS]
        count = len(columns)
        opened = [_opened(tuple(row[keys:]), sealed, count, cipher) for row in rows]
        return ExportedRows(opened, after)
    return ExportedRows([row[keys:] for row in rows], after)


def binding(table: str, columns: Sequence[str]) -> tuple[str, ...]:
    """SQL for the values that sealed columns among these are bound to, see `sealing`; `d` is the
    table, `q` its queue, `p` the partition of an item."""
    if _SEALED_COLUMNS.isdisjoint(columns):
        return ()
    if "payload" not in columns:
        return ("q.name",)
    partition = "p.name" if table == "items" else "d.partition_name"
    return ("q.name", partition, "d.transaction_id", "d.headers", "d.partition_id", "d.seq")


def _opened(
    row: tuple[Any, ...], sealed: Sequence[tuple[int, str]], count: int, cipher: Cipher | None
) -> tuple[Any, ...]:
    """The first values of a row, `count` of them, with the sealed ones as they were given."""
    values: list[Any] | None = None
    for at, name in sealed:
        if row[at] is not None and row[at][:1] in _SEALED_BEGINNINGS:
            values = values or list(row[:count])
            values[at] = _open(name, row[at], row[count:], cipher)
    return row[:count] if values is None else tuple(values)


def _open(name: str, value: Any, bound: tuple[Any, ...], cipher: Cipher | None) -> Any:
    queue = _text(bound[0])
    if name == "error":
        return sealing.open_error(_text(value), cipher, queue)
    if name == "result":
        return sealing.open_result(bytes(value), cipher, queue)
    _, partition, own, headers, *number = bound
    if own is not None and _text(own) == message_id(*number):
        own = None
    own = None if own is None else _text(own)
    return sealing.open_payload(bytes(value), cipher, queue, _text(partition), own, headers)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode()


def check_export_rows(
    table: str,
    columns: Sequence[str],
    until: str | None,
    queues: Sequence[str] | None,
    limit: int,
) -> None:
    check_stored(table)
    check_columns(table, columns)
    if until is not None and table == "items":
        raise InvalidRequestError("items are read as they are now: until is for logs")
    check_limit(limit, MOST_ROWS)
    for queue in queues or ():
        check_name(queue, "queue")


def check_stored(table: str) -> None:
    if table not in STORED_TABLES:
        raise InvalidRequestError(
            f"{table!r} cannot be exported by rows: use one of {', '.join(STORED_TABLES)}"
        )


def check_log(table: str) -> None:
    if table not in STORED_TABLES or table == "items":
        logs = ", ".join(name for name in STORED_TABLES if name != "items")
        raise InvalidRequestError(f"{table!r} is not a log: use one of {logs}")


def check_times(created_from: int | None, created_to: int | None) -> None:
    for time, field in ((created_from, "createdFrom"), (created_to, "createdTo")):
        if time is not None:
            check_time(time, field)


def check_columns(table: str, columns: Sequence[str]) -> None:
    known = get_table(table)
    if not columns:
        raise InvalidRequestError("columns must name at least one")
    for name in columns:
        known.column(name)
    if len(set(columns)) < len(columns):
        raise InvalidRequestError("a column is named twice")


def check_spans(spans: Sequence[Span]) -> None:
    check_int(len(spans), "ranges", 0, MOST_SPANS)
    for partition_id, first_seq, last_seq in spans:
        check_int(partition_id, "partitionId", 1, 2**62)
        check_int(first_seq, "from", 1, 2**62)
        check_int(last_seq, "to", 0, 2**62)


def check_archived(archived: Mapping[int, int]) -> None:
    check_int(len(archived), "partitions", 0, MOST_SPANS)
    for partition_id, seq in archived.items():
        check_int(partition_id, "partitionId", 1, 2**62)
        check_int(seq, "seq", 0, 2**62)


def not_there_yet(partition_id: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"partition {partition_id} has no such seq yet: it cannot be archived up to there"
    )
