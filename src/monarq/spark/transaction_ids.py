"""Makes the transaction ids of rows, so that a write that is repeated stores nothing twice.

In this order: a column that the user names; the message that a row came from; a hash of what is
pushed and its occurrence number. A repeat may have its rows in another order and in other tasks:
only positional ids mind, which are made on request. Pushes nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from monarq.errors import InvalidRequestError
from monarq.model import MAX_NAME_LENGTH

DIGEST_BYTES = 16


def identity_ids(columns: Sequence[pa.Array]) -> pa.Array:
    """`queue/message_id` or `queue/partition/seq`, with the names' own slashes escaped; short also
    for long names."""
    if any(column.null_count for column in columns):
        raise InvalidRequestError(
            "a row has no queue, partition, seq or message_id: drop these columns, or name a "
            "column with the option transactionIdColumn"
        )
    names = [_escaped(column.cast(pa.string())) for column in columns]
    ids = pc.binary_join_element_wise(*names, "/")
    longest = pc.max(pc.utf8_length(ids)).as_py()
    if longest is not None and longest > MAX_NAME_LENGTH:
        ids = pa.array([_shortened(one) for one in ids.to_pylist()], pa.string())
    return ids


def _escaped(names: pa.Array) -> pa.Array:
    for letter, code in (("%", "%25"), ("/", "%2F")):
        if pc.any(pc.match_substring(names, letter)).as_py():
            names = pc.replace_substring(names, letter, code)
    return names


def _shortened(text: str) -> str:
    if len(text) <= MAX_NAME_LENGTH:
        return text
    return "#" + blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


class Identities:
    """Those of one task's rows. Refuses one that several rows carry, as after an explode: all but
    one would be lost."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def check(self, ids: pa.Array) -> None:
        seen = self._seen
        for one in ids.to_pylist():
            digest = blake2b(one.encode(), digest_size=DIGEST_BYTES).digest()
            if digest in seen:
                raise InvalidRequestError(
                    f"several rows carry the identity {one}: name a column that tells them apart "
                    "with the option transactionIdColumn, or drop queue, partition or seq"
                )
            seen.add(digest)


class Digests(Struct, frozen=True):
    """What a task has hashed, for the driver: few bytes a row."""

    digests: bytes
    """Each once, one behind the other."""
    repeated: dict[bytes, int]
    """How often those occurred that did more than once."""
    places: list[tuple[str, str]]
    """Queues and partitions."""
    codes: bytes
    """Which of them each digest's rows went to, four bytes each; empty if there is one place."""

    def place_of(self, index: int) -> tuple[str, str]:
        return self.places[memoryview(self.codes).cast("i")[index] if self.codes else 0]


class HashedIds:
    """Ids of the rows of one task: a digest of the scope and of what is pushed, and a number that
    tells equal rows apart. The scope tells apart what may be equal on purpose: one batch of a
    stream from another."""

    def __init__(self, scope: str) -> None:
        own = blake2b(scope.encode(), digest_size=DIGEST_BYTES).digest()
        self._seed = blake2b(own, digest_size=DIGEST_BYTES)
        self._seen: dict[bytes, int] = {}
        self._places: dict[tuple[str, str], int] = {}
        self._codes = array("i")

    def ids(
        self,
        queue: str | pa.Array,
        partition: str | pa.Array,
        payload: pa.Array,
        others: Sequence[pa.Array],
    ) -> pa.Array:
        """`others`: what is pushed besides, as text, null where there is nothing."""
        names = [name for name in (queue, partition) if not isinstance(name, str)]
        digests = list(map(self._digest, _rows(payload, [*names, *others])))
        self._note_places(queue, partition, digests)
        return pa.array(map(self._numbered, digests), pa.string(), size=len(digests))

    def _digest(self, row: bytes) -> bytes:
        state = self._seed.copy()
        state.update(row)
        return state.digest()

    def _numbered(self, digest: bytes) -> str:
        number = self._seen.get(digest, 0)
        self._seen[digest] = number + 1
        return occurrence_id(digest, number)

    def _note_places(
        self, queue: str | pa.Array, partition: str | pa.Array, digests: list[bytes]
    ) -> None:
        places = self._places
        if isinstance(queue, str) and isinstance(partition, str):
            places.setdefault((queue, partition), 0)
            return
        count = len(digests)
        queues = repeat(queue, count) if isinstance(queue, str) else queue.to_pylist()
        partitions = (
            repeat(partition, count) if isinstance(partition, str) else partition.to_pylist()
        )
        seen = self._seen
        new: set[bytes] = set()
        for digest, place in zip(digests, zip(queues, partitions, strict=True), strict=True):
            if digest not in seen and digest not in new:
                new.add(digest)
                self._codes.append(places.setdefault(place, len(places)))

    def told(self) -> Digests:
        repeated = {digest: count for digest, count in self._seen.items() if count > 1}
        return Digests(b"".join(self._seen), repeated, list(self._places), self._codes.tobytes())


def _rows(payload: pa.Array, others: Sequence[pa.Array]) -> list[bytes]:
    """All that is pushed of each row in one text. Lengths keep ("ab", "c") and ("a", "bc")
    apart; no length is no value."""
    parts: list[pa.Array] = []
    for column in others:
        text = column.cast(pa.binary())
        size = pc.fill_null(pc.binary_length(text), -1).cast(pa.string())
        parts += [size.cast(pa.binary()), pc.fill_null(text, b"")]
    rows = payload.cast(pa.binary())
    if parts:
        rows = pc.binary_join_element_wise(*parts, rows, b"\x00")
    listed: list[bytes] = rows.to_pylist()
    return listed


def occurrence_id(digest: bytes, number: int) -> str:
    return f"{digest.hex()}-{number}"


def positional_ids(scope: str, task: int, first: int, count: int) -> pa.Array:
    """By the place of a row in its task: on request only, as a repeat after a shuffle may have its
    rows in another order."""
    numbers = pa.array(range(first, first + count), pa.int64()).cast(pa.string())
    return pc.binary_join_element_wise(f"{scope}@{task}", numbers, "/")
