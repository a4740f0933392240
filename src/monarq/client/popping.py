"""One pop, of a queue or across queues."""

from __future__ import annotations

from typing import TypeVar

from msgspec import structs

from monarq.client.link import Link
from monarq.client.payloads import PayloadType
from monarq.client.received import Batch
from monarq.client.times import Duration, Moment, to_seconds, to_start
from monarq.model import Pop, StartFrom
from monarq.store.validation import check_seconds

T = TypeVar("T")

_LONGEST_WAIT_SECONDS = 1e9


def with_terms(pop: Pop, *, lease: Duration | None, start: StartFrom | Moment) -> Pop:
    """`pop` says all but for how long to lease, and where a new group begins."""
    return structs.replace(pop, lease_seconds=to_seconds(lease), start=to_start(start))


async def pop_from(link: Link, pop: Pop, kind: PayloadType[T], *, wait: float) -> Batch[T]:
    check_seconds(wait, "wait", low=0, high=_LONGEST_WAIT_SECONDS)
    return Batch(link, await link.pop(pop, wait), kind, pop.group)
