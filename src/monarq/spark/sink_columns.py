"""Says what each column of a DataFrame means to the sink, before the first row is written.

A column that the message would silently lose is refused. It looks at types, never at rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
    UserDefinedType,
    VariantType,
)

from monarq.errors import InvalidRequestError
from monarq.spark.sink_options import SinkOptions

_PLACE = ("queue", "partition", "seq")
_MESSAGE_ID = "message_id"
#: Columns of the source that a message does not carry on.
_SOURCE_COLUMNS = frozenset(
    {*_PLACE, _MESSAGE_ID, "transaction_id", "trace_id", "producer", "created_at"}
    | {"priority", "state", "attempts", "run_at", "max_attempts"}
)
_WHOLE = (ByteType, ShortType, IntegerType, LongType)


class SinkColumns(Struct, frozen=True, kw_only=True):
    """Names of columns; "" where there is none."""

    payload: str
    fields: tuple[str, ...]
    """The columns that make the payload, if no column is it."""
    queue: str
    partition: str
    trace_id: str
    priority: str
    run_at: str
    max_attempts: str
    id_rule: str
    """`column`, `identity`, `hash` or `position`."""
    identity: tuple[str, ...]
    """The columns that say which message a row was made from, if they do."""
    transaction_id: str


def resolve_columns(schema: StructType, options: SinkOptions, *, is_work: bool) -> SinkColumns:
    """`is_work`: whether the option `queue` names a work queue."""
    types = {field.name: field.dataType for field in schema.fields}
    if len(types) < len(schema.fields):
        raise InvalidRequestError("two columns have the same name; rename or drop one")
    for name, kind in types.items():
        _check_type(name, kind)
    has_payload = "payload" in types
    identity = _identity(types)
    has_identity = bool(identity)
    used = {
        "queue": _named(types, "queueColumn", options.queue_column, StringType),
        "partition": _partition(types, options, has_payload or has_identity, is_work),
        "trace_id": _named(types, "traceIdColumn", options.trace_id_column, StringType)
        or _implied(types, "trace_id", has_payload, StringType),
        "priority": _named(types, "priorityColumn", options.priority_column, *_WHOLE)
        or _implied(types, "priority", has_payload and is_work, *_WHOLE),
        "run_at": _named(types, "runAtColumn", options.run_at_column, TimestampType)
        or _implied(types, "run_at", has_payload and is_work, TimestampType),
        "max_attempts": _named(types, "maxAttemptsColumn", options.max_attempts_column, *_WHOLE),
        "transaction_id": _named(
            types, "transactionIdColumn", options.transaction_id_column, StringType
        ),
    }
    taken = set(used.values()) | ({*_PLACE, *identity} if has_identity else set())
    others = [name for name in types if name != "payload" and name not in taken]
    if has_payload:
        _refuse_lost(others)
    elif not others:
        raise InvalidRequestError("no column is left for the payload")
    return SinkColumns(
        payload="payload" if has_payload else "",
        fields=() if has_payload else tuple(others),
        id_rule=_id_rule(options, has_identity),
        identity=identity,
        **used,
    )


def _check_type(name: str, kind: DataType) -> None:
    """Refuse what reaches Python as something else than it is."""
    if isinstance(kind, StructType):
        for field in kind.fields:
            _check_type(f"{name}.{field.name}", field.dataType)
    elif isinstance(kind, ArrayType):
        _check_type(name, kind.elementType)
    elif isinstance(kind, MapType):
        _check_type(name, kind.keyType)
        _check_type(name, kind.valueType)
    elif isinstance(kind, VariantType | UserDefinedType):
        raise InvalidRequestError(
            f"column {name!r} is of type {kind.simpleString()}: make it JSON with to_json first"
        )


def _partition(
    types: dict[str, DataType], options: SinkOptions, may_imply: bool, is_work: bool
) -> str:
    named = _named(types, "partitionColumn", options.partition_column, StringType)
    if named or options.partition is not None:
        return named
    return _implied(types, "partition", may_imply and not is_work, StringType)


def _named(
    types: dict[str, DataType], option: str, name: str | None, *kinds: type[DataType]
) -> str:
    if name is None:
        return ""
    if name not in types:
        columns = ", ".join(types)
        raise InvalidRequestError(f"option {option!r} names {name!r}; the columns are {columns}")
    if not isinstance(types[name], kinds):
        wanted = " or ".join(kind.typeName() for kind in kinds)
        raise InvalidRequestError(
            f"option {option!r}: column {name!r} must be {wanted}, not {types[name].simpleString()}"
        )
    return name


def _implied(types: dict[str, DataType], name: str, may: bool, *kinds: type[DataType]) -> str:
    return name if may and isinstance(types.get(name), kinds) else ""


def _identity(types: dict[str, DataType]) -> tuple[str, ...]:
    queue, partition, seq = (types.get(name) for name in _PLACE)
    if not (
        isinstance(queue, StringType)
        and isinstance(partition, StringType)
        and isinstance(seq, LongType)
    ):
        return ()
    # A partition that was removed and comes back counts from 1 again, with new message ids.
    return ("queue", _MESSAGE_ID) if isinstance(types.get(_MESSAGE_ID), StringType) else _PLACE


def _id_rule(options: SinkOptions, has_identity: bool) -> str:
    rule = options.transaction_ids
    if rule == "identity" and not has_identity:
        raise InvalidRequestError(
            "option 'transactionIds' is identity, which needs the columns queue (string), "
            "partition (string) and seq (bigint)"
        )
    if rule != "auto":
        return rule
    if options.transaction_id_column:
        return "column"
    return "identity" if has_identity else "hash"


def _refuse_lost(others: Sequence[str]) -> None:
    lost = [name for name in others if name not in _SOURCE_COLUMNS]
    if lost:
        raise InvalidRequestError(
            f"beside the column payload, {', '.join(map(repr, lost))} would be lost: drop them, "
            "or put all into one payload with to_json(struct(...))"
        )
