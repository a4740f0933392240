"""Which tables are read how."""

from __future__ import annotations

from monarq.errors import InvalidRequestError
from monarq.tables import TABLES, TableKind, get_table

_CALLS = {
    TableKind.LOG: "from position to position",
    TableKind.STATE: "as it is now",
    TableKind.MESSAGES: "by ranges",
}


def check_kind(table: str, kind: TableKind) -> None:
    found = get_table(table)
    if found.kind is not kind:
        fitting = ", ".join(name for name, each in TABLES.items() if each.kind is kind)
        raise InvalidRequestError(
            f"table {table!r} is read {_CALLS[found.kind]}, not {_CALLS[kind]}, as {fitting} are"
        )
