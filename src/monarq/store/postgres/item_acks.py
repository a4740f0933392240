"""Acks as a worker gives them: many items of one lease, all completed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

from monarq.errors import MonarqError
from monarq.ids import parse_lease_id
from monarq.model import Ack, AckStatus, QueueKind
from monarq.store.postgres.catalog import Catalog, PartitionFacts
from monarq.store.validation.fields import check_bytes, check_common_name

_FEW = 2
_KIND = attrgetter("status", "partition_id", "lease_id", "group", "error", "retry_at")


class CompletedItems(NamedTuple):
    facts: PartitionFacts
    lease: tuple[int, str]
    names: list[str]
    seqs: list[int]
    results: list[bytes | None]


def completed_items(catalog: Catalog, requests: Sequence[Ack]) -> CompletedItems | None:
    """All of the call as that; None if it is not, or something in it is malformed."""
    if len(requests) < _FEW:
        return None
    kinds = [kind for kind, _ in groupby(requests, _KIND)]
    if len(kinds) > 1:
        return None
    status, partition_id, lease, group, error, retry_at = kinds[0]
    facts = catalog.known_facts(partition_id) if type(partition_id) is int else None
    if (
        facts is None
        or facts.kind is not QueueKind.WORK
        or status is not AckStatus.COMPLETED
        or not (error is None and retry_at is None)
    ):
        return None
    names = [request.transaction_id for request in requests]
    results = [request.result for request in requests]
    prefix = f"{partition_id}-"
    try:
        check_common_name(group, "consumerGroup")
        check_common_name(lease, "leaseId")
        number = parse_lease_id(lease)
        for result in results:
            if result is not None:
                check_bytes(result, "result")
        seqs = [int(name.removeprefix(prefix)) for name in names if type(name) is str]
    except (MonarqError, ValueError):
        return None
    own = [f"{prefix}{seq}" for seq in seqs]
    # Those that are named otherwise have to be looked up.
    if own != names or min(seqs) < 1 or max(seqs) >= 10**18:
        return None
    return CompletedItems(facts, number, own, seqs, results)
