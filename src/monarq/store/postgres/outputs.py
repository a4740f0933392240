"""What running attempts print."""

from __future__ import annotations

from monarq.crypto import OVERHEAD
from monarq.errors import NotFoundError
from monarq.model import MAX_OUTPUT_BYTES, OutputPart
from monarq.operations.items import AppendOutput, ReadOutput
from monarq.store import sealing
from monarq.store.postgres.database import Database
from monarq.store.postgres.handlers import Tools, handles
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


@handles(ReadOutput)
async def read_output(tools: Tools, request: ReadOutput) -> OutputPart:
    start, end = request.start, request.start + request.max_bytes
    place = (*check_item_id(request.item_id), request.attempt)
    parts = [
        (first, sealing.open_output(part, tools.cipher, place) if is_sealed else part)
        for first, part, is_sealed in await tools.database.fetch(_OUTPUT, *place, start, end)
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[: request.max_bytes]
    return OutputPart(
        id=request.item_id, attempt=request.attempt, data=data, next=start + len(data)
    )
