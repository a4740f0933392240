"""Re-encryption: every sealed value of a store under the first key, bound to its place.

A pass goes through all tables that hold sealed values, in steps of so many rows and bytes each by
their keys. A step opens what is sealed with another key, or not bound to its place, seals it anew
and writes it back in one transaction, only if the row is still what was read. So a pass may be
killed anywhere and begun again: what it has done stays, and is found done.

While a pass goes on, others push, and move values that it has not reached to places where it has
been. So there are at least two passes, and another one as long as the last found something to do,
or the one before it missed a row. A value that neither of the last two has seen must have moved
during both: its message must have died in one and, in the dead queue, again in the other (redrive
seals with the first key). The counts of the last pass say under which key each value is.

Sealed values of all keys and formats have the same length, so that offsets stay as they are.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from monarq.crypto import BOUND, Cipher, is_sealed, is_sealed_text, key_of, sealed_bytes
from monarq.errors import ConflictError, EncryptionKeyError
from monarq.ids import message_id
from monarq.model import DEFAULT_PARTITION
from monarq.store import paging, sealing, segments

if TYPE_CHECKING:
    from monarq.store.contract import Store

MOST_PASSES = 20
MOST_BYTES = 8 << 20
"""What the rows of one step hold at most; one row may hold more."""
_KIND = "rekey"
_LONGEST_PAUSE_SECONDS = 1.0


class SealedTable(NamedTuple):
    name: str
    keys: tuple[str, ...]
    """Its rows are gone through in their order."""
    columns: tuple[str, ...]
    """That may hold sealed values."""
    bound: tuple[str, ...] = ()
    """Further columns, to which these values are bound or that are needed to read them."""
    by_partition: bool = False
    """Whether its rows name their queue by the partition alone."""

    @property
    def size(self) -> str | None:
        """A row's bytes in SQL, if it may have many."""
        large = [name for name in self.columns if name in ("data", "payload", "result")]
        return " + ".join(f"coalesce(length({name}), 0)" for name in large) or None


def tables(segment_key: str) -> tuple[SealedTable, ...]:
    """All tables with sealed values; `segment_key` is the seq by which a store finds segments."""
    return (
        SealedTable(
            "segments",
            ("partition_id", segment_key),
            ("data", "headers"),
            ("offsets", "transaction_ids"),
            by_partition=True,
        ),
        SealedTable(
            "items",
            ("partition_id", "seq"),
            ("payload", "error", "headers"),
            ("transaction_id",),
        ),
        SealedTable(
            "dead_letters",
            ("id",),
            ("payload", "error", "headers"),
            ("partition_name", "transaction_id", "partition_id", "seq"),
        ),
        SealedTable(
            "unresolved", ("partition_id", "group_id", "seq"), ("error",), by_partition=True
        ),
        SealedTable("deliveries", ("id",), ("error",)),
        SealedTable("attempts", ("id",), ("error", "result")),
        SealedTable(
            "outputs",
            ("partition_id", "seq", "attempt", "start"),
            ("data",),
            ("sealed",),
            by_partition=True,
        ),
        SealedTable("traces", ("id",), ("data",), ("partition_id", "transaction_id")),
    )


class RekeyStep(msgspec.Struct):
    """What one step has seen and done."""

    table: str
    rows: int = 0
    keys: dict[str, int] = {}
    """How many values are sealed with each key now, by the key's fingerprint."""
    changed: int = 0
    """Values that were sealed anew."""
    unreadable: int = 0
    """Values under another key than the first that could not be opened."""
    missed: int = 0
    """Rows that changed meanwhile: the next pass finds them."""
    next: str | None = None
    """Pass as `after` to go on; None at the end."""


class RekeyReport(msgspec.Struct):
    first_key: str
    passes: int = 0
    rows: int = 0
    changed: int = 0
    keys: dict[str, int] = {}
    """As in `RekeyStep`, of the last pass."""
    unreadable: int = 0

    @property
    def is_done(self) -> bool:
        """Whether every sealed value is under the first key."""
        return not self.unreadable and set(self.keys) <= {self.first_key}


async def rekey(
    store: Store,
    cipher: Cipher,
    *,
    limit: int = 100,
    told: Callable[[RekeyReport, RekeyStep], None] = lambda report, step: None,
) -> RekeyReport:
    """Seal everything anew under the first key of the store, whose keys `cipher` has."""
    report = RekeyReport(first_key=cipher.current.hex())
    has_missed = True
    for _ in range(MOST_PASSES):
        report.passes += 1
        report.keys, report.unreadable = {}, 0
        has_found, had_missed, has_missed = False, has_missed, False
        after: str | None = None
        while True:
            begun = time.monotonic()
            step = await store.rekey_step(limit=limit, after=after)
            report.rows += step.rows
            report.changed += step.changed
            report.unreadable += step.unreadable
            for key, count in step.keys.items():
                report.keys[key] = report.keys.get(key, 0) + count
            has_found = has_found or bool(step.changed or step.missed)
            has_missed = has_missed or bool(step.missed)
            told(report, step)
            if step.changed:
                # As much time for those who use the store as this step took from them.
                await asyncio.sleep(min(time.monotonic() - begun, _LONGEST_PAUSE_SECONDS))
            after = step.next
            if after is None:
                break
        if not (has_found or had_missed):
            return report
    raise ConflictError(
        f"values are still sealed with other keys than the first, after {MOST_PASSES} passes: "
        "give all brokers of this store the same first key, then run this again"
    )


def no_key() -> EncryptionKeyError:
    return EncryptionKeyError("to seal anew needs the keys, and this store was given none")


# --- where a step is -------------------------------------------------------------------


class Place(NamedTuple):
    table: SealedTable
    number: int
    after: tuple[int, ...]


def place(after: str | None, known: Sequence[SealedTable]) -> Place:
    """Where the step after this token begins."""
    key = paging.position(after, _KIND, tuple[int, ...]) or (0,)
    number, rest = key[0], key[1:]
    if not 0 <= number < len(known) or (rest and len(rest) != len(known[number].keys)):
        raise paging.not_a_token(after)
    return Place(known[number], number, rest or (-1,) * len(known[number].keys))


def fitting(limit: int, sizes: Sequence[int]) -> int:
    """Return how many of the next rows, which have these sizes, to read in one step."""
    total = 0
    for n, size in enumerate(sizes):
        total += size
        if n and total > MOST_BYTES:
            return n
    return limit


def finish(
    step: RekeyStep, at: Place, known: Sequence[SealedTable], keys: Sequence[Any], limit: int
) -> RekeyStep:
    """Say where to go on, behind rows with these keys."""
    step.rows = len(keys)
    if len(keys) == limit:
        step.next = paging.token(_KIND, (at.number, *keys[-1]))
    elif at.number + 1 < len(known):
        step.next = paging.token(_KIND, (at.number + 1,))
    return step


# --- rows ------------------------------------------------------------------------------


class Resealing:
    """Seals the values of rows anew, and counts them in a step."""

    def __init__(self, cipher: Cipher, step: RekeyStep) -> None:
        self._cipher = cipher
        self._step = step

    def row(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        """The columns of a row that have to change, with their new values. `queue` and `partition`
        in the row are names."""
        if table == "segments":
            found = self._segment(row)
        elif table == "outputs":
            number = (row["partition_id"], row["seq"], row["attempt"])
            context = sealing.output_context(*number)
            found = {"data": self._value(row["data"], context)} if row["sealed"] else {}
        elif table == "traces":
            context = sealing.trace_context(row["partition_id"], row["transaction_id"])
            found = {"data": self._value(row["data"], context)}
        else:
            found = self._texts(row)
            if "payload" in row:
                found["payload"] = self._value(row["payload"], *self._contexts(table, row))
        return {name: value for name, value in found.items() if value is not None}

    def _contexts(self, table: str, row: Mapping[str, Any]) -> tuple[bytes, ...]:
        own, partition = row["transaction_id"], DEFAULT_PARTITION
        if table == "dead_letters":
            partition = row["partition_name"]
            own = None if own == message_id(row["partition_id"], row["seq"]) else own
        return sealing.payload_contexts(row["queue"], partition, own, row["headers"])

    def _texts(self, row: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if row.get("error") is not None:
            found["error"] = self._text(row["error"], sealing.error_context(row["queue"]))
        if row.get("result") is not None:
            found["result"] = self._value(row["result"], sealing.result_context(row["queue"]))
        if row.get("headers") is not None:
            found["headers"] = self._headers(row["headers"])
        return found

    def _segment(self, row: Mapping[str, Any]) -> dict[str, Any]:
        payloads = segments.unpack(row["data"], segments.from_bytes(row["offsets"]))
        ids, headers = row["transaction_ids"], row["headers"]
        found: dict[str, Any] = {}
        changed = False
        for n, payload in enumerate(payloads):
            if not is_sealed(payload):
                continue
            contexts = sealing.payload_contexts(
                row["queue"],
                row["partition"],
                ids[n] if ids else None,
                headers[n] if headers else None,
            )
            sealed = self._value(payload, *contexts)
            if sealed is not None:
                payloads[n], changed = sealed, True
        if changed:
            found["data"] = b"".join(payloads)
        if headers:
            made = [None if one is None else self._headers(one) for one in headers]
            if any(one is not None for one in made):
                found["headers"] = [
                    old if new is None else new for new, old in zip(made, headers, strict=True)
                ]
        return found

    def _headers(self, headers: bytes | str) -> bytes | str | None:
        """With the error of a dead message sealed anew; None if nothing has to change."""
        stored = headers.encode() if isinstance(headers, str) else headers
        found = sealing.sealed_header(stored)
        if found is None:
            return None
        queue, error = found
        sealed = self._text(error, sealing.error_context(queue))
        if sealed is None:
            return None
        made = sealing.with_dead_error(stored, sealed)
        return made.decode() if isinstance(headers, str) else made

    def _value(self, stored: bytes, *contexts: bytes) -> bytes | None:
        if not is_sealed(stored) or self._is_fine(stored):
            return None
        try:
            value = self._cipher.open(stored, *contexts)
        except EncryptionKeyError:
            self._count(stored, unreadable=1)
            return None
        sealed = self._cipher.seal(value, contexts[0])
        self._count(sealed, changed=1)
        return sealed

    def _text(self, stored: str, context: bytes) -> str | None:
        if not is_sealed_text(stored):
            return None
        try:
            sealed = sealed_bytes(stored)
        except EncryptionKeyError:
            self._step.unreadable += 1
            return None
        if self._is_fine(sealed):
            return None
        try:
            made = self._cipher.seal_text(self._cipher.open_text(stored, context), context)
        except EncryptionKeyError:
            self._count(sealed, unreadable=1)
            return None
        self._count(sealed_bytes(made), changed=1)
        return made

    def _is_fine(self, sealed: bytes) -> bool:
        """Count a value that is bound and under the first key already."""
        if sealed[0] != BOUND or key_of(sealed) != self._cipher.current:
            return False
        self._count(sealed)
        return True

    def _count(self, sealed: bytes, *, changed: int = 0, unreadable: int = 0) -> None:
        key = key_of(sealed).hex()
        self._step.keys[key] = self._step.keys.get(key, 0) + 1
        self._step.changed += changed
        self._step.unreadable += unreadable
