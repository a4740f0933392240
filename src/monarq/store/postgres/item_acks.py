"""Acks of items: as workers give them, many of one queue and all completed, and any others."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from monarq.crypto import Cipher
from monarq.errors import EncryptionKeyError, MonarqError
from monarq.ids import parse_lease_id
from monarq.model import DEFAULT_PARTITION, Ack, Acked, AckStatus, QueueKind
from monarq.store import sealing
from monarq.store.contract import Outcome
from monarq.store.postgres.ack_parts import STATUS, Part, fault, lease_of, named
from monarq.store.postgres.catalog import Catalog, PartitionFacts
from monarq.store.postgres.database import Database, Work, one_for_all
from monarq.store.postgres.sealed_answers import encrypted_queues
from monarq.store.validation import forbidden
from monarq.store.validation.fields import check_bytes, check_common_name

_ITEMS = "select * from monarq.ack_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_FEW = 2
_KIND = attrgetter("status", "partition_id", "group", "error", "retry_at")
T = TypeVar("T")


class CompletedItems(NamedTuple):
    """Acks of one call that complete items of one queue."""

    facts: PartitionFacts
    leases: list[tuple[int, str]]
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
    status, partition_id, group, error, retry_at = kinds[0]
    facts = catalog.known_facts(partition_id) if type(partition_id) is int else None
    if (
        facts is None
        or facts.kind is not QueueKind.WORK
        or (facts.runs_commands and not all(request.commands for request in requests))
        or status is not AckStatus.COMPLETED
        or not (error is None and retry_at is None)
    ):
        return None
    names = [request.transaction_id for request in requests]
    results = [request.result for request in requests]
    prefix = f"{partition_id}-"
    try:
        check_common_name(group, "consumerGroup")
        leases = {lease: _parsed(lease) for lease in {request.lease_id for request in requests}}
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
    numbers = [leases[request.lease_id] for request in requests]
    return CompletedItems(facts, numbers, own, seqs, results)


def _parsed(lease: str | None) -> tuple[int, str]:
    check_common_name(lease, "leaseId")
    assert lease is not None
    return parse_lease_id(lease)


async def ack_items(unit: Database | Work, parts: list[Part]) -> list[tuple[int, Outcome[Acked]]]:
    """Answer items. Those of queues that run commands are refused where the caller may not work on
    commands: whether a partition's queue runs commands never changes."""
    answers: list[tuple[int, Outcome[Acked]]] = []
    allowed: list[Part] = []
    for part in parts:
        index, request, facts = part
        if facts.runs_commands and not request.commands:
            answers.append((index, forbidden(f"queue {facts.queue!r} runs commands")))
        else:
            allowed.append(part)
    return answers + await _ack_allowed(unit, allowed) if allowed else answers


async def _ack_allowed(
    unit: Database | Work, parts: list[Part]
) -> list[tuple[int, Outcome[Acked]]]:
    requests = [request for _, request, _ in parts]
    names = [named(request) for request in requests]
    leases = [lease_of(request) for request in requests]
    statuses = [request.status for request in requests]
    row: Any = await unit.fetchrow(
        _ITEMS,
        unit.now(),
        [seq for seq, _ in names],
        [name for _, name in names] if any(name for _, name in names) else None,
        one_for_all([request.partition_id for request in requests]),
        one_for_all([number for number, _ in leases]),
        one_for_all([token for _, token in leases]),
        one_for_all([STATUS[status] for status in statuses]),
        _unless_none([request.error for request in requests]),
        _unless_none([request.retry_at for request in requests]),
        _unless_none([request.result for request in requests]),
        [random.random() for _ in requests] if AckStatus.FAILED in statuses else None,
    )
    if row["faults"] is None:
        return [(index, _ended(one.transaction_id, facts)) for index, one, facts in parts]
    return [
        (index, fault(word) if word else _ended(one.transaction_id, facts, dead=died))
        for (index, one, facts), word, died in zip(parts, row["faults"], row["died"], strict=True)
    ]


async def complete_items(
    unit: Database | Work, catalog: Catalog, cipher: Cipher | None, items: CompletedItems
) -> list[Outcome[Acked]]:
    results = _unless_none(items.results)
    queue = items.facts.queue
    if results is not None and await encrypted_queues(unit, catalog, cipher, [queue]):
        try:
            results = [sealing.stored_result(result, cipher, queue) for result in results]
        except EncryptionKeyError as error:
            return [error] * len(items.names)
    row: Any = await unit.fetchrow(
        _ITEMS,
        unit.now(),
        items.seqs,
        None,
        [items.facts.id],
        one_for_all([number for number, _ in items.leases]),
        one_for_all([token for _, token in items.leases]),
        [STATUS[AckStatus.COMPLETED]],
        None,
        None,
        results,
        None,
    )
    if row["faults"] is None:
        return [_ended(name, items.facts) for name in items.names]
    return [
        fault(word) if word else _ended(name, items.facts)
        for name, word in zip(items.names, row["faults"], strict=True)
    ]


def _ended(name: str | None, facts: PartitionFacts, *, dead: bool = False) -> Acked:
    return Acked(
        queue=facts.queue,
        partition=DEFAULT_PARTITION,
        transaction_id=name,
        lease_released=True,
        dead=int(dead),
    )


def _unless_none(values: list[T | None]) -> list[T | None] | None:
    """None if there is nothing in it."""
    return None if values.count(None) == len(values) else values
