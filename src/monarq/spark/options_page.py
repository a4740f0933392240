"""The page about options and tables, written from the code, so that it cannot drift from it.

python -m monarq.spark.options_page > docs/spark-options.md
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from monarq.spark.option_table import reference
from monarq.spark.options import READ_OPTIONS
from monarq.spark.sink_options import WRITE_OPTIONS
from monarq.tables import TABLES, ColumnType, Table, TableKind

_TYPES = {
    ColumnType.TEXT: "string",
    ColumnType.INT: "int",
    ColumnType.LONG: "bigint",
    ColumnType.REAL: "double",
    ColumnType.BOOL: "boolean",
    ColumnType.TIME: "timestamp",
}

_KINDS = {
    TableKind.MESSAGES: "Batch and stream.",
    TableKind.LOG: "Batch and stream; offsets are `earliest`, `latest` or a time, here",
    TableKind.STATE: "Batch only: as it is when it is read.",
}


def options_page() -> str:
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield "# Spark: options and tables"
    yield ""
    yield "Written by `python -m monarq.spark.options_page`. The [guide](guide/spark.md) shows how"
    yield "they are used. Names of options may be written in any case; an option that is not listed"
    yield "here, or a value that is not allowed, is refused."
    yield ""
    yield "## Reading"
    yield ""
    yield reference(READ_OPTIONS)
    yield "## Writing"
    yield ""
    yield reference(WRITE_OPTIONS)
    yield "## Tables"
    yield ""
    for table in TABLES.values():
        yield from _table(table)


def _table(table: Table) -> Iterator[str]:
    yield f"### `{table.name}`: {table.meaning}"
    yield ""
    kind = _KINDS[table.kind]
    yield f"{kind} of `{table.time_column}`." if table.kind is TableKind.LOG else kind
    yield ""
    yield "| column | type | what |"
    yield "|---|---|---|"
    for column in table.columns:
        may_be_null = ", may be null" if column.nullable else ""
        yield f"| `{column.name}` | {_TYPES[column.type]}{may_be_null} | {column.meaning} |"
    yield ""


if __name__ == "__main__":
    sys.stdout.write(options_page())
