"""What may be said of a write: the sink's options, checked before anything is pushed.

One table, from which the reference is made. It opens nothing and knows no DataFrame.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from monarq.crypto import parse_key
from monarq.errors import InvalidRequestError, MonarqError
from monarq.model import DEFAULT_PARTITION, MAX_BATCH
from monarq.spark.option_table import Option, one_of, option_values, text, whole_number
from monarq.spark.options import CONNECTION_OPTIONS, chosen_token, required_url
from monarq.store.validation import check_name

ID_RULES = ("auto", "column", "identity", "hash", "position")
#: What Spark itself passes on with a write.
_OF_SPARK = frozenset({"checkpointlocation", "outputmode", "queryname"})


def _name(value: str) -> str:
    check_name(value, "it")
    return value


_COLUMN = "the name of a column"

WRITE_OPTIONS: tuple[Option, ...] = (
    *CONNECTION_OPTIONS,
    Option("queue", _name, "the name of a queue", "where all rows go"),
    Option("queueColumn", text, _COLUMN, "text: the queue of each row"),
    Option(
        "partition",
        _name,
        "the name of a partition",
        "where all rows go in their queue",
        shown_default=f"the column `partition` beside `payload`, else `{DEFAULT_PARTITION}`",
    ),
    Option("partitionColumn", text, _COLUMN, "text: the partition of each row"),
    Option("transactionIdColumn", text, _COLUMN, "text: the transaction id of each row"),
    Option(
        "transactionIds",
        one_of(ID_RULES),
        ", ".join(f"`{rule}`" for rule in ID_RULES),
        "how rows get their transaction ids",
        "auto",
        "`auto`",
    ),
    Option(
        "writeId",
        _name,
        "a name",
        "part of hashed and positional ids: another name makes other ids",
    ),
    Option(
        "traceIdColumn",
        text,
        _COLUMN,
        "text: the trace id of each row",
        shown_default="`trace_id` beside `payload`",
    ),
    Option(
        "priorityColumn",
        text,
        _COLUMN,
        "a whole number: the priority of each item (work queues)",
        shown_default="`priority` beside `payload`",
    ),
    Option(
        "runAtColumn",
        text,
        _COLUMN,
        "a timestamp: when each item is due (work queues)",
        shown_default="`run_at` beside `payload`",
    ),
    Option(
        "maxAttemptsColumn",
        text,
        _COLUMN,
        "a whole number: the most attempts of each item (work queues)",
    ),
    Option(
        "messagesPerRequest",
        whole_number(1, MAX_BATCH),
        f"a number from 1 to {MAX_BATCH}",
        "messages in one push, at most",
        5000,
        "`5000`",
    ),
    Option(
        "requestsInFlight",
        whole_number(1, 32),
        "a number from 1 to 32",
        "pushes of one task at the same time; of one partition they are stored one after another",
        2,
        "`2`",
    ),
    Option(
        "retrySeconds",
        whole_number(0, 3600),
        "a number from 0 to 3600",
        "how long a push is repeated while nobody can take it",
        60,
        "`60`",
    ),
    Option(
        "reportFile",
        text,
        "a path on the driver",
        'a file to be written when all is: `{"rows":…,"duplicates":…}`, of a stream for each batch',
    ),
)


class SinkOptions(Struct, frozen=True, kw_only=True):
    """All of them, checked. None is what was not said."""

    url: str
    token: str | None
    encryption_keys: tuple[bytes, ...]
    queue: str | None
    queue_column: str | None
    partition: str | None
    partition_column: str | None
    transaction_id_column: str | None
    transaction_ids: str
    write_id: str
    trace_id_column: str | None
    priority_column: str | None
    run_at_column: str | None
    max_attempts_column: str | None
    messages_per_request: int
    requests_in_flight: int
    retry_seconds: int
    report_file: str | None

    @property
    def is_http(self) -> bool:
        return self.url.startswith("http")

    def __repr__(self) -> str:
        return f"SinkOptions(queue={self.queue!r}, queue_column={self.queue_column!r})"


def read_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Errors: `InvalidRequestError`, which names the option and what it may be."""
    named = {name: value for name, value in given.items() if name.lower() not in _OF_SPARK}
    values = option_values(named, WRITE_OPTIONS)
    url = required_url(values)
    options = SinkOptions(
        url=url.rstrip("/") if url.startswith("http") else url,
        token=chosen_token(url, values["token"]),
        encryption_keys=_keys(values["encryptionKey"]),
        queue=values["queue"],
        queue_column=values["queueColumn"],
        partition=values["partition"],
        partition_column=values["partitionColumn"],
        transaction_id_column=values["transactionIdColumn"],
        transaction_ids=values["transactionIds"],
        write_id=values["writeId"] or "",
        trace_id_column=values["traceIdColumn"],
        priority_column=values["priorityColumn"],
        run_at_column=values["runAtColumn"],
        max_attempts_column=values["maxAttemptsColumn"],
        messages_per_request=values["messagesPerRequest"],
        requests_in_flight=values["requestsInFlight"],
        retry_seconds=values["retrySeconds"],
        report_file=values["reportFile"],
    )
    _check_together(options)
    return options


def _keys(text: str | None) -> tuple[bytes, ...]:
    """Several with commas between, the one to encrypt with first."""
    try:
        return () if text is None else tuple(map(parse_key, text.split(",")))
    except MonarqError as error:
        raise InvalidRequestError(f"option 'encryptionKey': {error}") from None


def _check_together(options: SinkOptions) -> None:
    if (options.queue is None) == (options.queue_column is None):
        raise InvalidRequestError("give one of the options 'queue' and 'queueColumn'")
    if options.partition is not None and options.partition_column is not None:
        raise InvalidRequestError("give only one of the options 'partition' and 'partitionColumn'")
    if options.encryption_keys and options.is_http:
        raise InvalidRequestError("option 'encryptionKey' is for a store; a broker has its own")
    rule, column = options.transaction_ids, options.transaction_id_column
    if rule == "column" and column is None:
        raise InvalidRequestError("option 'transactionIds' is column: give 'transactionIdColumn'")
    if column is not None and rule not in ("auto", "column"):
        raise InvalidRequestError(
            f"option 'transactionIdColumn' is given, but 'transactionIds' is {rule}"
        )
