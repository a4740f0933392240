"""The options for reading: one table, from which they are checked and the reference is made."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from monarq.errors import InvalidRequestError
from monarq.model import MAX_NAME_LENGTH
from monarq.spark.bounds import ALLOWED as BOUNDS_ALLOWED
from monarq.spark.bounds import AtSeq, Bound, Earliest, Exact, Latest, Reached, read_bound
from monarq.spark.option_table import (
    Option,
    one_of,
    option_values,
    text,
    whole_number,
    yes_or_no,
)
from monarq.tables import TABLES, TableKind

TOKEN_VARIABLE = "MONARQ_TOKEN"


def _read_url(value: str) -> str:
    scheme, colon, rest = value.partition(":")
    if not colon or scheme not in ("http", "https", "postgresql", "postgres", "sqlite"):
        raise ValueError
    if scheme == "sqlite":
        path = rest.removeprefix("///")
        if path == rest or not path:
            raise ValueError
        # Executors have working directories of their own.
        return f"sqlite:///{Path(path).absolute()}"
    if not rest.startswith("//") or len(rest) < 3:
        raise ValueError
    return value


def _read_names(value: str) -> tuple[str, ...]:
    if value.lstrip().startswith("["):
        names: Any = json.loads(value)
        if not all(isinstance(name, str) for name in names):
            raise ValueError
    else:
        names = [name.strip() for name in value.split(",")]
    if not names or not all(0 < len(name) <= MAX_NAME_LENGTH for name in names):
        raise ValueError
    return tuple(dict.fromkeys(names))


CONNECTION_OPTIONS = (
    Option(
        "url",
        _read_url,
        "`http(s)://…` of a broker, `postgresql://…` or `sqlite:///…` of a store",
        "where the queues are; a broker is the default way, a store the fast one",
        shown_default="required",
    ),
    Option(
        "token",
        text,
        "a token or an API key",
        "for a broker with auth; the role `read` is enough to read, `write` to write",
        shown_default=f"`{TOKEN_VARIABLE}` of the driver's environment",
        secret=True,
    ),
    Option(
        "encryptionKey",
        text,
        "keys as in the setting `encryption_keys`, with commas between",
        "for encrypted queues of a store that is named by `url`: the first one seals, all open; "
        "a broker has its own",
        secret=True,
    ),
)

READ_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option(
        "table",
        one_of(TABLES),
        ", ".join(f"`{name}`" for name in TABLES),
        "what to read",
        shown_default="`messages`, or `items` if `queue` is a work queue",
    ),
    Option("queue", text, "a name", "the queue to read"),
    Option(
        "queues",
        _read_names,
        "names, separated by commas or as a JSON array",
        "several queues to read",
    ),
    Option(
        "queuePattern",
        text,
        "a pattern with `*`, `?` and `[…]`",
        "all queues whose name fits; a stream also takes those that are made later",
    ),
    Option("partition", text, "a name", "read this partition alone (`messages`)"),
    Option(
        "partitions",
        _read_names,
        "names, separated by commas or as a JSON array",
        "read these partitions alone (`messages`)",
    ),
    Option(
        "startingOffsets",
        read_bound,
        BOUNDS_ALLOWED,
        "where to begin; a seq is the first that is read, and partitions that a JSON object does "
        "not name are read from their beginning. A stream that has a checkpoint goes on from there",
        Earliest(),
        "`earliest`",
    ),
    Option(
        "endingOffsets",
        read_bound,
        BOUNDS_ALLOWED,
        "batch only: where to end; a seq is the last that is read, a time is not included, and "
        "partitions that a JSON object or offset does not name are not read",
        Latest(),
        "`latest`",
    ),
    Option(
        "payloadSchema",
        text,
        'a schema as DDL (`id INT, name STRING`) or as JSON (`{"type": "struct", …}`)',
        "parse payloads to this type; those that do not fit are null, and their text is in "
        "the column `_corrupt`",
    ),
    Option(
        "maxMessagesPerTrigger",
        whole_number(1),
        "a number from 1",
        "streams of messages: the most that a batch takes",
        shown_default="no limit",
    ),
    Option(
        "minSplits",
        whole_number(1, 100_000),
        "a number from 1 to 100000",
        "at least so many tasks, if there are that many messages; set it on a cluster to the "
        "number of its cores",
        shown_default="the cores of the driver's machine, less for few messages",
    ),
    Option(
        "messagesPerSplit",
        whole_number(1),
        "a number from 1",
        "the most that one task reads",
        500_000,
        "`500000`",
    ),
    Option(
        "failOnDataLoss",
        yes_or_no,
        "`true`, `false`",
        "whether to fail when retention (or a clear) removed what was still to be read; with "
        "`false` reading goes on with what is left",
        True,
        "`true`",
    ),
    Option(
        "pollIntervalMs",
        whole_number(10, 3_600_000),
        "a number from 10 to 3600000",
        "streams: how often to look for something new while there is nothing",
        250,
        "`250`",
    ),
)


class ReadOptions(Struct, frozen=True, kw_only=True):
    url: str
    token: str | None
    encryption_key: str | None
    table: str | None
    """None: messages, or items if the queue is a work queue."""
    queues: tuple[str, ...] | None
    queue_pattern: str | None
    partitions: tuple[str, ...] | None
    starting: Bound
    ending: Bound
    payload_schema: str | None
    max_messages_per_trigger: int | None
    min_splits: int | None
    messages_per_split: int
    fail_on_data_loss: bool
    poll_interval_ms: int

    def __repr__(self) -> str:
        return f"ReadOptions(table={self.table!r}, queues={self.queues!r})"


def read_options(given: Mapping[str, str], *, stream: bool | None = None) -> ReadOptions:
    """Checked as a whole; nothing is opened. `stream` is None where nobody knows yet."""
    values = option_values(given, READ_OPTIONS)
    url = required_url(values)
    options = ReadOptions(
        url=url,
        token=chosen_token(url, values["token"]),
        encryption_key=values["encryptionKey"],
        table=values["table"],
        queues=_either(values, "queue", "queues"),
        queue_pattern=values["queuePattern"],
        partitions=_either(values, "partition", "partitions"),
        starting=values["startingOffsets"],
        ending=values["endingOffsets"],
        payload_schema=values["payloadSchema"],
        max_messages_per_trigger=values["maxMessagesPerTrigger"],
        min_splits=values["minSplits"],
        messages_per_split=values["messagesPerSplit"],
        fail_on_data_loss=values["failOnDataLoss"],
        poll_interval_ms=values["pollIntervalMs"],
    )
    _check_together(options, {name.lower() for name in given}, stream=stream)
    return options


def chosen_token(url: str, given: str | None) -> str | None:
    """The option, or else the environment's; a store has no use for that one."""
    if given is None and url.startswith("http"):
        return os.environ.get(TOKEN_VARIABLE) or None
    return given


def required_url(values: Mapping[str, Any]) -> str:
    url: str | None = values["url"]
    if url is None:
        raise InvalidRequestError(
            "option 'url' is missing: the http(s)://… of a broker, or the postgresql://… or "
            "sqlite:///… of a store"
        )
    return url


def _either(values: Mapping[str, Any], single: str, several: str) -> tuple[str, ...] | None:
    if values[single] is not None and values[several] is not None:
        raise InvalidRequestError(f"option {single!r} cannot be used together with {several!r}")
    return (values[single],) if values[single] is not None else values[several]


def _check_together(options: ReadOptions, given: set[str], *, stream: bool | None) -> None:
    if options.partitions is not None and isinstance(options.ending, Reached):
        raise InvalidRequestError(
            "option 'endingOffsets': an offset of a stream is of all partitions; it cannot be "
            "used together with 'partition(s)'"
        )
    if options.queues is not None and options.queue_pattern is not None:
        raise InvalidRequestError("option 'queuePattern' cannot be used together with 'queue(s)'")
    kind = TABLES[options.table or "messages"].kind
    if options.queues is None and options.queue_pattern is None and kind is TableKind.MESSAGES:
        raise InvalidRequestError(
            "option 'queue' is missing: the queue to read (or 'queues', or 'queuePattern')"
        )
    if stream:
        _check_stream(options, given, kind)
    elif stream is False and "maxmessagespertrigger" in given:
        raise InvalidRequestError("option 'maxMessagesPerTrigger' is for streams only")
    if kind is not TableKind.MESSAGES:
        _check_not_messages(options, given, kind)


def _check_stream(options: ReadOptions, given: set[str], kind: TableKind) -> None:
    if "endingoffsets" in given:
        raise InvalidRequestError(
            "option 'endingOffsets' is for batch reads only; "
            "to end a stream where the queue ends now, use trigger(availableNow=True)"
        )
    if kind is TableKind.STATE:
        raise InvalidRequestError(
            f"option 'table': {options.table} cannot be read as a stream, since its rows change; "
            "use spark.read"
        )


def _check_not_messages(options: ReadOptions, given: set[str], kind: TableKind) -> None:
    for name in ("partition", "partitions", "maxMessagesPerTrigger"):
        if name.lower() in given:
            raise InvalidRequestError(
                f"option {name!r} is for table messages only, not for {options.table}"
            )
    for name, bound in (("startingOffsets", options.starting), ("endingOffsets", options.ending)):
        if name.lower() not in given:
            continue
        if kind is TableKind.STATE:
            raise InvalidRequestError(
                f"option {name!r} is not for table {options.table}: it is read as it is now"
            )
        if isinstance(bound, AtSeq | Exact | Reached):
            raise InvalidRequestError(
                f"option {name!r} must be earliest, latest or a time for table {options.table}"
            )
