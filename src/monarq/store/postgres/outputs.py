"""What running attempts print."""

from __future__ import annotations

from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES
from monarq.operations.items import AppendOutput
from monarq.store import sealing
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.validation import (
    check_item_id,
    refuse_more_output,
)

_HAS_TO_BE_SEALED = -1


@handles(AppendOutput)
async def append_output(tools: Tools, request: AppendOutput) -> int:
    place = (*check_item_id(request.item_id), request.attempt)
    await tools.catalog.check_may_work(place[0], tools.commands)
    size = await _append(tools.database, place, request.data, None)
    if size == _HAS_TO_BE_SEALED:
        sealed = sealing.stored_output(request.data, tools.cipher, place)
        size = await _append(tools.database, place, request.data, sealed)
    if size is None:
        raise NotFoundError(f"there is no item {request.item_id}")
    if size > MAX_OUTPUT_BYTES:
        raise refuse_more_output(request.item_id, request.attempt)
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
