"""Whole queues as ranges of seq, and what a way gives of ranges."""

from collections.abc import Sequence

import pyarrow as pa

from monarq.spark.access import Access, SeqRange
from monarq.tables import TABLES, arrow_schema

COLUMNS = TABLES["messages"].column_names


def whole(access: Access, queue: str) -> list[SeqRange]:
    return [
        SeqRange(queue, row["partition_id"], row["partition"], row["first_seq"], row["last_seq"])
        for row in access.plan(queue).to_pylist()
    ]


def read(access: Access, ranges: Sequence[SeqRange], columns: Sequence[str] = COLUMNS) -> pa.Table:
    table = pa.Table.from_batches(
        access.messages(ranges, columns), arrow_schema("messages", columns)
    )
    table.validate(full=True)
    return table
