"""The output of running attempts, on both engines."""

from __future__ import annotations

from monarq.crypto import OVERHEAD
from monarq.model import OutputPart
from monarq.operations.items import ReadOutput
from monarq.store import sealing, validation
from monarq.store.queries.database import Queries, handles

PLAIN_SIZE = f"length(data) - case when sealed then {OVERHEAD} else 0 end"
"""The bytes of a part of the output. The column `sealed` says whether it is sealed, since output
may begin with any byte."""
_PARTS = f"""
select start, data, sealed from monarq.outputs
where partition_id = $1 and seq = $2 and attempt = $3 and start < $5 and start + {PLAIN_SIZE} > $4
order by start
"""


@handles(ReadOutput)
async def read_output(db: Queries, request: ReadOutput) -> OutputPart:
    start, end = request.start, request.start + request.max_bytes
    place = (*validation.check_item_id(request.item_id), request.attempt)
    parts = [
        (first, sealing.open_output(part, db.cipher, place) if is_sealed else part)
        for first, part, is_sealed in await db.fetch(_PARTS, *place, start, end)
    ]
    data = b"".join(part[max(0, start - first) :] for first, part in parts)[: request.max_bytes]
    return OutputPart(
        id=request.item_id, attempt=request.attempt, data=data, next=start + len(data)
    )
