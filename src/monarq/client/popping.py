"""One pop, of a queue or across queues."""

from __future__ import annotations

import math
from typing import TypeVar

from msgspec import structs

from monarq.client.link import Link
from monarq.client.payloads import PayloadType
from monarq.client.received import Batch
from monarq.client.times import Duration, Moment, to_seconds, to_start
from monarq.errors import InvalidRequestError
from monarq.model import Pop, StartFrom

T = TypeVar("T")


async def pop_from(
    link: Link,
    pop: Pop,
    kind: PayloadType[T],
    *,
    wait: float,
    lease: Duration | None,
    start: StartFrom | Moment,
) -> Batch[T]:
    """`pop` says all but how long to wait, for how long to lease, and where a new group begins."""
    if not 0 <= wait < math.inf:
        raise InvalidRequestError(f"wait must be a number of seconds from 0 on, not {wait}")
    asked = structs.replace(pop, lease_seconds=to_seconds(lease), start=to_start(start))
    return Batch(link, await link.pop(asked, wait), kind, pop.group)
