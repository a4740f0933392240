"""What every way checks of a request, or cuts it into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

from monarq.errors import InvalidRequestError
from monarq.store.exported import MOST_SPANS
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


def archived_parts(positions: Mapping[int, int]) -> Iterator[dict[int, int]]:
    """As many as a store takes at once."""
    items = iter(positions.items())
    while part := dict(islice(items, MOST_SPANS)):
        yield part
