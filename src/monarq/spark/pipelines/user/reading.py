"""Reads the file of a pipeline and checks all of it that can be checked without Spark.

Every error names the file and the place in it. Starts nothing, and imports nothing of Spark.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from monarq.errors import InvalidRequestError, MonarqError
from monarq.spark.pipelines.user.definition import (
    OWN_TABLES,
    Pipeline,
    Sink,
    Source,
    Step,
    plain_options,
    sink_options,
    source_options,
)
from monarq.spark.pipelines.user.python_steps import check_function

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DURATION = re.compile(r"[1-9][0-9]* ?(ms|s|m|h|seconds?|minutes?|hours?)")
_PATH = re.compile(r" - at `\$\.?([^`]*)`$")


class _Head(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    name: str
    mode: Literal["batch", "stream"] = "batch"
    checkpoint: str | None = None
    every: str | None = None
    spark: dict[str, str | int | float | bool] = {}


def read_pipeline(path: Path) -> Pipeline:
    """Errors: `InvalidRequestError`."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequestError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{path} is not TOML: {error}") from None
    try:
        return _Reader(path.absolute()).read(content)
    except _MisplacedError as error:
        raise InvalidRequestError(f"{path}: {error}") from None


class _MisplacedError(Exception):
    def __init__(self, place: str, wrong: str) -> None:
        super().__init__(f"{place}: {wrong}" if place else wrong)


class _Reader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: list[str] = []

    def read(self, content: dict[str, Any]) -> Pipeline:
        tables = {name: content.pop(name, None) for name in ("sources", "steps", "sinks")}
        head = _converted(content, _Head, "")
        self._check_head(head)
        sources = {
            name: self._source(name, one, head.mode == "stream")
            for name, one in _named(tables["sources"], "sources").items()
        }
        steps = [self._step(number, one) for number, one in enumerate(_listed(tables["steps"]))]
        sinks = {
            name: self._sink(name, one, head.mode == "stream")
            for name, one in _named(tables["sinks"], "sinks").items()
        }
        if head.mode == "stream" and not any(source.stream for source in sources.values()):
            raise _MisplacedError("sources", "none of them is a stream, but the mode is stream")
        return Pipeline(
            path=self._path,
            name=head.name,
            is_stream=head.mode == "stream",
            checkpoint=None if head.checkpoint is None else self._located(head.checkpoint),
            every=head.every,
            spark=plain_options(head.spark),
            sources=sources,
            steps=steps,
            sinks=sinks,
        )

    def _check_head(self, head: _Head) -> None:
        if not re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", head.name):
            raise _MisplacedError("name", "must be 1 to 100 letters, digits, _, - and .")
        for name in head.spark:
            if not name.startswith("spark."):
                raise _MisplacedError(f"spark.{name}", "settings of Spark begin with spark.")
        if head.mode == "batch":
            for name, value in (("checkpoint", head.checkpoint), ("every", head.every)):
                if value is not None:
                    raise _MisplacedError(name, 'is for mode = "stream"')
            return
        if head.checkpoint is None:
            raise _MisplacedError("checkpoint", "a stream needs a folder for its checkpoints")
        if head.every is not None and not _DURATION.fullmatch(head.every):
            raise _MisplacedError("every", f"must be a time such as 10s, not {head.every!r}")

    def _source(self, name: str, given: Any, is_stream: bool) -> Source:
        place = f"sources.{name}"
        source = _converted(given, Source, place)
        kind = _only(place, queue=source.queue, files=source.files, lake=source.lake)
        self._add(place, name)
        allowed = {
            "queue": {"table", "url", "payload_schema", "stream", "decrypt", "options"},
            "files": {"format", "schema", "stream", "options"},
            "lake": {"table"},
        }[kind]
        _check_fields(place, source, allowed | {kind})
        if kind == "lake" and source.table is None:
            raise _MisplacedError(f"{place}.table", "say which table of the lake")
        followed = kind == "queue" if source.stream is None else source.stream
        if followed and not is_stream and source.stream:
            raise _MisplacedError(f"{place}.stream", 'is for a pipeline with mode = "stream"')
        if followed and is_stream and kind == "files" and source.schema is None:
            raise _MisplacedError(f"{place}.schema", "files that are followed need a schema")
        if kind == "queue":
            self._check_read_options(place, source, is_stream and followed)
        source = msgspec.structs.replace(
            source,
            files=None if source.files is None else self._located(source.files),
            lake=None if source.lake is None else self._located(source.lake),
            stream=followed and is_stream,
        )
        _check_is_there(place, source)
        return source

    def _check_read_options(self, place: str, source: Source, is_stream: bool) -> None:
        from monarq.spark.options import read_options

        try:
            read_options(source_options(source, {"url": "http://localhost"}), stream=is_stream)
        except MonarqError as error:
            raise _MisplacedError(place, str(error)) from None

    def _step(self, number: int, given: Any) -> Step:
        place = f"steps[{number}]"
        step = _converted(given, Step, place)
        place = f"{place} ({step.name})"
        kind = _only(place, sql=step.sql, sql_file=step.sql_file, python=step.python)
        if kind == "sql_file":
            assert step.sql_file is not None
            try:
                sql = Path(self._located(step.sql_file)).read_text(encoding="utf-8")
            except OSError as error:
                wrong = f"{step.sql_file} cannot be read: {error.strerror}"
                raise _MisplacedError(f"{place}.sql_file", wrong) from None
            step = msgspec.structs.replace(step, sql=sql, sql_file=None)
        if step.sql is not None and not step.sql.strip():
            raise _MisplacedError(f"{place}.{kind}", "is empty")
        if step.python is not None:
            try:
                python = check_function(step.python, self._path.parent, self._known)
            except InvalidRequestError as error:
                raise _MisplacedError(f"{place}.python", str(error)) from None
            step = msgspec.structs.replace(step, python=python)
        self._add(place, step.name)
        return step

    def _sink(self, name: str, given: Any, is_stream: bool) -> Sink:
        place = f"sinks.{name}"
        sink = _converted(given, Sink, place)
        if not _NAME.fullmatch(name):
            raise _MisplacedError(place, "names are letters, digits and _")
        if sink.of not in self._known:
            raise _MisplacedError(
                f"{place}.from", f"there is no {sink.of!r}; there are {', '.join(self._known)}"
            )
        table = sink.table if sink.lake is None else None
        kind = _only(
            place,
            queue=sink.queue,
            queue_column=sink.queue_column,
            files=sink.files,
            lake=sink.lake,
            table=table,
        )
        allowed = {
            "queue": {"url", "options"},
            "queue_column": {"url", "options"},
            "files": {"format", "mode", "partition_by", "options"},
            "lake": {"table", "mode", "partition_by"},
            "table": {"format", "mode", "partition_by"},
        }[kind]
        _check_fields(place, sink, allowed | {kind, "of", "output"})
        if is_stream and sink.mode != "overwrite":
            raise _MisplacedError(f"{place}.mode", 'is for mode = "batch"')
        if not is_stream and sink.output != "append":
            raise _MisplacedError(f"{place}.output", 'is for mode = "stream"')
        if kind == "lake":
            self._check_lake_table(place, sink)
        if kind in ("queue", "queue_column"):
            if sink.output == "complete":
                raise _MisplacedError(f"{place}.output", "a queue takes append or update")
            self._check_write_options(place, sink)
        return msgspec.structs.replace(
            sink,
            files=None if sink.files is None else self._located(sink.files),
            lake=None if sink.lake is None else self._located(sink.lake),
        )

    def _check_lake_table(self, place: str, sink: Sink) -> None:
        from monarq.spark.lake.layout import TABLES

        if sink.table is None or not _NAME.fullmatch(sink.table):
            raise _MisplacedError(f"{place}.table", "name the table: letters, digits and _")
        if sink.table in TABLES:
            raise _MisplacedError(f"{place}.table", f"{sink.table} is the archive's own")

    def _check_write_options(self, place: str, sink: Sink) -> None:
        from monarq.spark.sink_options import read_sink_options

        try:
            read_sink_options(sink_options(sink, {"url": "http://localhost"}))
        except MonarqError as error:
            raise _MisplacedError(place, str(error)) from None

    def _add(self, place: str, name: str) -> None:
        if not _NAME.fullmatch(name):
            raise _MisplacedError(place, "names are letters, digits and _")
        if name.lower() in (known.lower() for known in self._known):
            raise _MisplacedError(place, f"there is a {name!r} already")
        self._known.append(name)

    def _located(self, path: str) -> str:
        """Relative paths count from the file's folder; URLs stay."""
        return path if "://" in path else str(self._path.parent / path)


def _check_is_there(place: str, source: Source) -> None:
    if source.lake is not None:
        from monarq.spark.lake import Lake
        from monarq.spark.lake.layout import TABLES

        try:
            lake = Lake.open(source.lake)
        except MonarqError as error:
            raise _MisplacedError(f"{place}.lake", str(error)) from None
        if source.table not in TABLES and not (lake.root / OWN_TABLES / str(source.table)).exists():
            raise _MisplacedError(f"{place}.table", f"the lake has no table {source.table!r}")
    files = source.files
    is_plain = files is not None and "://" not in files and not set(files) & set("*?[{")
    if is_plain and not Path(str(files)).exists():
        raise _MisplacedError(f"{place}.files", f"there is no {files}")


def _converted(given: Any, kind: type[T], place: str) -> T:
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        found = _PATH.search(text)
        inner = found[1] if found else ""
        wrong = text[: found.start()] if found else text
        raise _MisplacedError(".".join(part for part in (place, inner) if part), wrong) from None


def _named(given: Any, place: str) -> dict[str, Any]:
    if not isinstance(given, dict) or not given:
        raise _MisplacedError(place, f"there must be at least one [{place}.NAME]")
    return given


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    if not isinstance(given, list):
        raise _MisplacedError("steps", "write each step as [[steps]]")
    return given


def _only(place: str, **kinds: str | None) -> str:
    """Which one of them is given."""
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        raise _MisplacedError(place, f"give one of {', '.join(kinds)}")
    return given[0]


def _check_fields(place: str, what: Struct, allowed: Iterable[str]) -> None:
    for info in msgspec.structs.fields(what):
        value = getattr(what, info.name)
        default = info.default_factory() if callable(info.default_factory) else info.default
        if info.name not in allowed and value != default:
            raise _MisplacedError(f"{place}.{info.encode_name}", "is not for this kind")
