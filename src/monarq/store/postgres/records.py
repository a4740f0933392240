"""What running attempts print."""

from __future__ import annotations

from monarq.crypto import OVERHEAD, Cipher
from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, OutputPart
from monarq.store import sealing
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.validation import (
    check_item_id,
    refuse_more_output,
)

_OUTPUT = f"""
    select start, data, sealed from monarq.outputs
    where partition_id = $1 and seq = $2 and attempt = $3 and start < $5
        and start + length(data) - case when sealed then {OVERHEAD} else 0 end > $4
    order by start
"""
_HAS_TO_BE_SEALED = -1


async def append_output(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    item_id: str,
    attempt: int,
    data: bytes,
    *,
    commands: bool,
) -> int:
    place = (*check_item_id(item_id), attempt)
    await catalog.check_may_work(place[0], commands)
    size = await _append(database, place, data, None)
    if size == _HAS_TO_BE_SEALED:
        size = await _append(database, place, data, sealing.stored_output(data, cipher, place))
    if size is None:
        raise NotFoundError(f"there is no item {item_id}")
    if size > MAX_OUTPUT_BYTES:
        raise refuse_more_output(item_id, attempt)
    return size


async def _append(
    database: Database, place: tuple[int, int, int], data: bytes, sealed: bytes | None
) -> int | None:
    size: int | None = await database.fetchval(
        "select monarq.append_output($1, $2, $3, $4, $5, $6, $7, $8, $9)",
        database.now(),
        *place,
        data if sealed is None else sealed,
        len(data),
        sealed is not None,
        MAX_OUTPUT_BYTES,
        _HAS_TO_BE_SEALED,
    )
    return size


async def read_output(
    database: Database,
    cipher: Cipher | None,
    item_id: str,
    attempt: int,
    start: int,
    max_bytes: int,
) -> OutputPart:
    place = (*check_item_id(item_id), attempt)
    rows = await database.fetch(_OUTPUT, *place, start, start + max_bytes)
    parts = [
        (first, sealing.open_output(part, cipher, place) if is_sealed else part)
        for first, part, is_sealed in rows
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[:max_bytes]
    return OutputPart(data=data, next=start + len(data))
