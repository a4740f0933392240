"""What a pipeline of the user's is: its sources, steps and sinks, as its file says them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from msgspec import Struct

#: Where in a lake tables are that pipelines of users have made.
OWN_TABLES = "tables"

FileFormat = Literal["parquet", "json", "csv", "text", "orc"]


class Source(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of `queue` (with `table` another table of it), `files` and `lake`."""

    queue: str | None = None
    files: str | None = None
    lake: str | None = None
    table: str | None = None
    url: str | None = None
    payload_schema: str | None = None
    format: FileFormat = "parquet"
    schema: str | None = None
    stream: bool | None = None
    """Whether it is followed in a pipeline that streams; queues are, other sources are not."""
    decrypt: bool = False
    """Whether encrypted queues may be read, whose messages the pipeline has in the clear."""
    options: dict[str, str | int | float | bool] = {}


class Step(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One of `sql`, `sql_file` and `python` (`file.py:function`)."""

    name: str
    sql: str | None = None
    sql_file: str | None = None
    python: str | None = None


class Sink(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, rename={"of": "from"}):
    """One of `queue` (or `queue_column`), `files`, `table` and `lake` with `table`."""

    of: str
    queue: str | None = None
    queue_column: str | None = None
    files: str | None = None
    table: str | None = None
    lake: str | None = None
    url: str | None = None
    format: FileFormat = "parquet"
    mode: Literal["overwrite", "append", "error"] = "overwrite"
    partition_by: list[str] = []
    output: Literal["append", "update", "complete"] = "append"
    options: dict[str, str | int | float | bool] = {}


class Pipeline(Struct, frozen=True, kw_only=True):
    """Checked. Paths in it are absolute."""

    path: Path
    name: str
    is_stream: bool
    checkpoint: str | None
    every: str | None
    spark: dict[str, str]
    sources: dict[str, Source]
    steps: list[Step]
    sinks: dict[str, Sink]


def source_options(source: Source, place: Mapping[str, str]) -> dict[str, str]:
    """Of the data source, for a queue."""
    named = {"table": source.table, "payloadSchema": source.payload_schema, "url": source.url}
    several = source.queue is not None and any(mark in source.queue for mark in "*?[")
    named["queuePattern" if several else "queue"] = source.queue
    return _options(place, named, source.options)


def sink_options(sink: Sink, place: Mapping[str, str]) -> dict[str, str]:
    named = {"queue": sink.queue, "queueColumn": sink.queue_column, "url": sink.url}
    return _options(place, named, sink.options)


def _options(
    place: Mapping[str, str], named: Mapping[str, str | None], given: Mapping[str, Any]
) -> dict[str, str]:
    # Whoever names another place does not send it this one's token.
    base = {} if named["url"] is not None else dict(place)
    return base | {name: v for name, v in named.items() if v is not None} | plain_options(given)


def plain_options(options: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in options.items()}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
