"""What is sealed in the rows of encrypted queues, and the place that each sealed value is bound to.

A value is sealed for a *context*: its kind and the place that every reader of it knows.

| kind | place |
|---|---|
| payload | queue, partition, and the transaction id if the caller gave one |
| error | queue |
| result | queue |
| output | item, attempt |
| trace | partition id, transaction id |

A transaction id of the form that Monarq makes itself (`7-12`) is not part of the place, since the
seq of a message is not known when PostgreSQL's client seals it.

A dead queue gets payloads as they are stored, in SQL, without a key: there a payload opens for
the queue in the header `monarqDeadFrom` too. Partition and transaction id stay the same on that
way. A redriven message is sealed anew for its new place. The header `monarqDeadError` of a message
in a dead queue holds the error as it was stored: sealed for the queue in `monarqDeadFrom`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import msgspec

from monarq.crypto import SEALS, Cipher, has_seal, is_sealed_text, open_value
from monarq.errors import EncryptionKeyError
from monarq.ids import parse_message_id
from monarq.model import ERROR_KEY_LENGTH, DeadLetterError
from monarq.store import segments

DEAD_FROM = "monarqDeadFrom"
DEAD_ERROR = "monarqDeadError"
# As JSON writes the first character of a sealed text.
_SEALED_HEADER = b'"\\u0002'
_INSTEAD = "\N{REPLACEMENT CHARACTER}"


# --- contexts ------------------------------------------------------------------------------


def payload_context(queue: str, partition: str, transaction_id: str | None) -> bytes:
    own = transaction_id
    if own is None or parse_message_id(own) is not None:
        own = ""
    # Names have no control characters, so that different places never have the same context.
    return f"payload\0{queue}\0{partition}\0{own}".encode()


def error_context(queue: str) -> bytes:
    return f"error\0{queue}".encode()


def result_context(queue: str) -> bytes:
    return f"result\0{queue}".encode()


def output_context(partition_id: int, seq: int, attempt: int) -> bytes:
    return f"output\0{partition_id}-{seq}\0{attempt}".encode()


def trace_context(partition_id: int, transaction_id: str) -> bytes:
    return f"trace\0{partition_id}\0{transaction_id}".encode()


def payload_contexts(
    queue: str, partition: str, transaction_id: str | None, headers: bytes | str | None
) -> tuple[bytes, ...]:
    """Every context that a payload in this place may have been sealed for."""
    own = payload_context(queue, partition, transaction_id)
    dead_from = _dead_from(headers)
    if dead_from is None:
        return (own,)
    return own, payload_context(dead_from, partition, transaction_id)


# --- payloads ------------------------------------------------------------------------------


def open_payload(
    stored: bytes,
    cipher: Cipher | None,
    queue: str,
    partition: str,
    transaction_id: str | None,
    headers: bytes | str | None,
) -> bytes:
    """The payload as it was pushed."""
    if not stored or stored[0] not in SEALS:
        return stored
    return open_value(stored, cipher, *payload_contexts(queue, partition, transaction_id, headers))


def open_payloads(
    stored: Sequence[bytes],
    cipher: Cipher | None,
    queue: str,
    partition: str,
    transaction_ids: Sequence[str | None] | None,
    headers: Sequence[bytes | None] | Sequence[str | None] | None,
) -> list[bytes]:
    """The same for messages of one partition."""
    return [
        open_payload(
            payload,
            cipher,
            queue,
            partition,
            transaction_ids[n] if transaction_ids else None,
            headers[n] if headers else None,
        )
        for n, payload in enumerate(stored)
    ]


def open_segment(
    data: bytes,
    offsets: bytes,
    cipher: Cipher | None,
    queue: str,
    partition: str,
    transaction_ids: Sequence[str | None] | None,
    headers: Sequence[bytes | None] | Sequence[str | None] | None,
) -> tuple[bytes, bytes]:
    """Payloads and offsets of a stored segment, with the payloads as they were pushed."""
    if not has_seal(data):
        return data, offsets
    stored = segments.unpack(data, segments.from_bytes(offsets))
    opened = open_payloads(stored, cipher, queue, partition, transaction_ids, headers)
    packed, bounds = segments.pack(opened)
    return packed, segments.to_bytes(bounds)


# --- texts and results ---------------------------------------------------------------------


def stored_error(error: str | None, cipher: Cipher | None, queue: str | None) -> str | None:
    """A caller's error as it is to be stored; sealed for a queue that is encrypted, else (None)
    as it is. A plain error that looks sealed loses its first character."""
    if error is None:
        return None
    if queue is not None:
        return _needed(cipher, queue).seal_text(error, error_context(queue))
    return f"{_INSTEAD}{error[1:]}" if is_sealed_text(error) else error


def stored_result(result: bytes | None, cipher: Cipher | None, queue: str) -> bytes | None:
    """A result as it is stored in an encrypted queue."""
    if result is None:
        return None
    return _needed(cipher, queue).seal(result, result_context(queue))


def stored_trace(
    data: bytes, cipher: Cipher | None, partition_id: int, transaction_id: str
) -> bytes:
    """Return the data of a trace as they are stored for a message of an encrypted queue."""
    if cipher is None:
        raise no_key()
    return cipher.seal(data, trace_context(partition_id, transaction_id))


def open_trace(
    stored: bytes, cipher: Cipher | None, partition_id: int, transaction_id: str
) -> bytes:
    return open_value(stored, cipher, trace_context(partition_id, transaction_id))


def stored_output(data: bytes, cipher: Cipher | None, place: tuple[int, int, int]) -> bytes:
    """What an attempt printed, as it is stored for an item of an encrypted queue."""
    if cipher is None:
        raise no_key()
    return cipher.seal(data, output_context(*place))


def open_output(stored: bytes, cipher: Cipher | None, place: tuple[int, int, int]) -> bytes:
    return open_value(stored, cipher, output_context(*place))


def _needed(cipher: Cipher | None, queue: str) -> Cipher:
    if cipher is None:
        raise no_key(queue)
    return cipher


def no_key(queue: str | None = None) -> EncryptionKeyError:
    name = "the queue" if queue is None else f"queue {queue!r}"
    return EncryptionKeyError(f"{name} is encrypted, and this store was given no key")


@overload
def open_error(stored: str, cipher: Cipher | None, queue: str) -> str: ...
@overload
def open_error(stored: str | None, cipher: Cipher | None, queue: str) -> str | None: ...
def open_error(stored: str | None, cipher: Cipher | None, queue: str) -> str | None:
    """The error as it was given. One that cannot be read does not keep the rest of its row from
    its reader: a sentence stands in its place."""
    if stored is None or not is_sealed_text(stored):
        return stored
    if cipher is None:
        return "(encrypted, and this store was given no key)"
    try:
        return cipher.open_text(stored, error_context(queue))
    except EncryptionKeyError as error:
        return f"(encrypted: {error})"


def open_result(stored: bytes | None, cipher: Cipher | None, queue: str) -> bytes | None:
    return None if stored is None else open_value(stored, cipher, result_context(queue))


def error_lines(line: str, cipher: Cipher | None) -> list[str]:
    """The first lines of stored errors whose first line was given as this one."""
    return [line] if cipher is None else [line, *cipher.first_lines(line)]


def first_line(error: str) -> str:
    """What dead letters are grouped by."""
    return error.split("\n", 1)[0][:ERROR_KEY_LENGTH]


def merge_errors(rows: Sequence[DeadLetterError]) -> list[DeadLetterError]:
    """Rows of one error that was sealed under different keys, or lies here plain too, as one."""
    merged: dict[tuple[str, str, str], DeadLetterError] = {}
    for row in rows:
        key = (row.queue, row.group, row.error)
        first = merged.get(key)
        merged[key] = row if first is None else _sum(first, row)
    return sorted(merged.values(), key=lambda row: (-row.count, -row.newest_id))


def _sum(first: DeadLetterError, second: DeadLetterError) -> DeadLetterError:
    return msgspec.structs.replace(
        first,
        count=first.count + second.count,
        oldest_at=min(first.oldest_at, second.oldest_at),
        newest_at=max(first.newest_at, second.newest_at),
        newest_id=max(first.newest_id, second.newest_id),
    )


# --- headers -------------------------------------------------------------------------------


def open_headers(headers: bytes | None, cipher: Cipher | None) -> bytes | None:
    """Headers with the error of a message that died, if it is sealed. Callers may give any
    headers: what cannot be opened stays as it is."""
    if headers is None or _SEALED_HEADER not in headers:
        return headers
    found = sealed_header(headers)
    if cipher is None or found is None:
        return headers
    queue, error = found
    try:
        return with_dead_error(headers, cipher.open_text(error, error_context(queue)))
    except EncryptionKeyError:
        return headers


def sealed_header(headers: bytes) -> tuple[str, str] | None:
    """The queue that a message died in, and its error, if that is sealed."""
    if _SEALED_HEADER not in headers:
        return None
    known = _fields(headers)
    error, queue = _text(known, DEAD_ERROR), _text(known, DEAD_FROM)
    if error is None or queue is None or not is_sealed_text(error):
        return None
    return queue, error


def with_dead_error(headers: bytes, error: str) -> bytes:
    return msgspec.json.encode({**_fields(headers), DEAD_ERROR: error})


def _fields(headers: bytes) -> dict[str, msgspec.Raw]:
    try:
        return msgspec.json.decode(headers, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        return {}


def _text(known: dict[str, msgspec.Raw], name: str) -> str | None:
    try:
        return msgspec.json.decode(known[name], type=str)
    except (KeyError, msgspec.DecodeError):
        return None


def _dead_from(headers: bytes | str | None) -> str | None:
    if headers is None:
        return None
    stored = headers.encode() if isinstance(headers, str) else headers
    return _text(_fields(stored), DEAD_FROM) if DEAD_FROM.encode() in stored else None
