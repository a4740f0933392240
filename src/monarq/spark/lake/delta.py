"""A lake whose tables are Delta tables too: their logs follow the lake's commits.

Each commit of the lake is one transaction of each Delta table that it touches, marked with the
commit's number, so that it is made once however often it is tried. The lake's own commits stay the
truth. Needs deltalake (the extra `delta`).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from monarq.errors import SettingsError
from monarq.spark.lake.commits import Commit
from monarq.spark.lake.layout import TABLES, table_of
from monarq.tables import arrow_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from monarq.spark.lake.lake import Lake


def check_installed() -> None:
    if find_spec("deltalake") is None:
        raise SettingsError("the format delta needs an extra: pip install 'monarq[delta]'")


def follow(lake: Lake, commits: Sequence[Commit]) -> None:
    """Make the tables' logs say what these commits say."""
    check_installed()
    for table in TABLES:
        touched = [
            commit
            for commit in commits
            if any(
                table_of(path) == table
                for path in (*commit.removed, *(each.path for each in commit.added))
            )
        ]
        if touched:
            _follow(lake, table, touched)


def _follow(lake: Lake, table: str, commits: Sequence[Commit]) -> None:
    schema = arrow_schema(table).append(pa.field("date", pa.date32()))
    delta = _open(lake.root / table, schema, lake.info.id)
    done = delta.transaction_version(lake.info.id) or 0
    for commit in commits:
        if commit.number > done:
            _commit(delta, schema, lake.info.id, table, commit)


def _open(path: Path, schema: pa.Schema, name: str) -> DeltaTable:
    from deltalake import DeltaTable

    return DeltaTable.create(
        str(path), schema, mode="ignore", partition_by=["queue", "date"], name=f"{path.name}-{name}"
    )


def _commit(delta: DeltaTable, schema: pa.Schema, lake: str, table: str, commit: Commit) -> None:
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    is_new = not commit.removed
    actions: list[Any] = [
        AddAction(
            path=_within(each.path),
            size=each.bytes,
            partition_values={"queue": each.queue, "date": each.date.isoformat()},
            modification_time=commit.at // 1000,
            data_change=is_new,
            stats=msgspec.json.encode({"numRecords": each.rows}).decode(),
        )
        for each in commit.added
        if each.table == table
    ]
    actions += [
        RemoveAction(_within(path), False, commit.at // 1000)
        for path in commit.removed
        if table_of(path) == table
    ]
    delta.create_write_transaction(
        actions,
        "append",
        schema,
        partition_by=["queue", "date"],
        commit_properties=CommitProperties(
            app_transactions=[Transaction(lake, commit.number, commit.at // 1000)]
        ),
    )


def _within(path: str) -> str:
    """Relative to its table. deltalake escapes it, as its log wants it."""
    return path.partition("/")[2]
