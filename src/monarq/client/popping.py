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
from monarq.store.validation import check_pop

T = TypeVar("T")


def with_terms(pop: Pop, *, lease: Duration | None, start: StartFrom | Moment) -> Pop:
    """`pop` says all but for how long to lease, and where a new group begins."""
    asked = structs.replace(pop, lease_seconds=to_seconds(lease), start=to_start(start))
    check_pop(asked)
    return asked


async def pop_from(link: Link, pop: Pop, kind: PayloadType[T], *, wait: float) -> Batch[T]:
    if not 0 <= wait < math.inf:
        raise InvalidRequestError(f"wait must be a number of seconds from 0 on, not {wait}")
    return Batch(link, await link.pop(pop, wait), kind, pop.group)
