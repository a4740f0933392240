"""Ack: sorts the acks of many requests by what they are about, one call a kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import structs

from monarq.crypto import Cipher
from monarq.errors import (
    LeaseError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    LeaseUnknownError,
    MonarqError,
    NotFoundError,
)
from monarq.model import Ack, Acked, QueueKind
from monarq.store.contract import Outcome
from monarq.store.postgres.ack_parts import STATUS, AnsweredEarlierError, Part, fault, lease_of
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database, Work, one_for_all
from monarq.store.postgres.item_acks import ack_items, complete_items, completed_items
from monarq.store.postgres.message_acks import ack_messages, complete_runs, runs_in_line
from monarq.store.postgres.sealed_answers import says_something, sealed_parts
from monarq.store.validation import check_ack

_LEASES = "select * from monarq.ack_leases($1, $2, $3, $4, $5, $6)"
_FEW = 2
_DISPUTED = {AnsweredEarlierError, LeaseForeignError, LeaseTakenOverError, LeaseUnknownError}
"""What depends on whether a lease is live for something else."""


async def ack(
    unit: Database | Work, catalog: Catalog, cipher: Cipher | None, requests: Sequence[Ack]
) -> list[Outcome[Acked]]:
    outcomes = await _by_kind(unit, catalog, cipher, requests)
    if _DISPUTED.isdisjoint(map(type, outcomes)):
        return outcomes
    return await _in_order(unit, catalog, cipher, requests, outcomes)


async def _in_order(
    unit: Database | Work,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[Ack],
    outcomes: list[Outcome[Acked]],
) -> list[Outcome[Acked]]:
    """Different partitions and items are not answered in the order of the requests, and a lease
    that is for something else is told so only until the last answer under it."""
    last_answers = {
        request.lease_id: n
        for n, (request, outcome) in enumerate(zip(requests, outcomes, strict=True))
        if isinstance(outcome, Acked)
    }
    for n, (request, outcome) in enumerate(zip(requests, outcomes, strict=True)):
        last = last_answers.get(request.lease_id)
        if last is None or request.transaction_id is None or type(outcome) not in _DISPUTED:
            continue
        if n < last:
            outcomes[n] = fault("lease_foreign")
        elif isinstance(outcome, LeaseForeignError):
            [outcomes[n]] = await _by_kind(unit, catalog, cipher, [request])
    return outcomes


async def _by_kind(
    unit: Database | Work, catalog: Catalog, cipher: Cipher | None, requests: Sequence[Ack]
) -> list[Outcome[Acked]]:
    runs = runs_in_line(catalog, requests) if len(requests) >= _FEW else None
    if runs is not None:
        return await complete_runs(unit, catalog, runs)
    items = completed_items(catalog, requests)
    if items is not None:
        return await complete_items(unit, catalog, cipher, items)
    outcomes: list[Outcome[Acked] | None] = [_refused(request) for request in requests]
    valid = [(n, request) for n, request in enumerate(requests) if outcomes[n] is None]
    # To seal an error one has to know what its lease is over.
    if all(request.partition_id is None and not says_something(request) for _, request in valid):
        await _ack_leases(unit, catalog, valid, outcomes)
    else:
        await _ack_parts(unit, catalog, cipher, valid, outcomes)
    return [outcome for outcome in outcomes if outcome is not None]


def _refused(request: Ack) -> MonarqError | None:
    try:
        check_ack(request)
    except MonarqError as error:
        return error
    return None


async def _ack_parts(
    unit: Database | Work,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[tuple[int, Ack]],
    outcomes: list[Outcome[Acked] | None],
) -> None:
    """Messages, items and whole leases in any mixture: messages are one call, items another."""
    parts = await _parts(unit, catalog, requests, outcomes)
    parts, refused = await sealed_parts(unit, catalog, cipher, parts)
    for index, error in refused.items():
        outcomes[index] = error
    ordered = [part for part in parts if part[2].kind is QueueKind.ORDERED]
    work = [part for part in parts if part[2].kind is QueueKind.WORK]
    answers: list[tuple[int, Outcome[Acked]]] = []
    if ordered:
        answers += await ack_messages(unit, ordered)
    if work:
        answers += await ack_items(unit, work)
    for index, answer in answers:
        outcomes[index] = _together(outcomes[index], answer)
    for index, request in requests:
        if request.transaction_id is None:
            outcomes[index] = _of_whole_lease(outcomes[index])


async def _parts(
    unit: Database | Work,
    catalog: Catalog,
    requests: Sequence[tuple[int, Ack]],
    outcomes: list[Outcome[Acked] | None],
) -> list[Part]:
    """What the requests are about; those that are about nothing are refused."""
    own = unit if isinstance(unit, Work) else None
    named = [request.partition_id for _, request in requests if request.partition_id]
    facts = await catalog.facts(named, own)
    wholes = await _parts_of_leases(
        unit, catalog, [(n, request) for n, request in requests if request.partition_id is None]
    )
    parts: list[Part] = []
    for index, request in requests:
        if request.partition_id in facts:
            parts.append((index, request, facts[request.partition_id]))
        elif index in wholes:
            parts += wholes[index]
        elif request.partition_id is None:
            outcomes[index] = fault("lease_unknown")
        else:
            outcomes[index] = NotFoundError(f"there is no partition {request.partition_id}")
    return parts


async def _ack_leases(
    unit: Database | Work,
    catalog: Catalog,
    requests: Sequence[tuple[int, Ack]],
    outcomes: list[Outcome[Acked] | None],
) -> None:
    """Whole leases and nothing else, which is one call where they are over messages."""
    if requests:
        rows = await unit.fetch(_LEASES, unit.now(), *lease_arguments(requests))
        await answer_leases(unit, catalog, requests, rows, outcomes)


def lease_arguments(requests: Sequence[tuple[int, Ack]]) -> list[Any]:
    """Of `ack_leases`, behind the time."""
    leases = [lease_of(request) for _, request in requests]
    return [
        [number for number, _ in leases],
        [token for _, token in leases],
        one_for_all([STATUS[request.status] for _, request in requests]),
        one_for_all([request.error for _, request in requests]),
        one_for_all([request.retry_at for _, request in requests]),
    ]


async def answer_leases(
    unit: Database | Work,
    catalog: Catalog,
    requests: Sequence[tuple[int, Ack]],
    rows: Sequence[Any],
    outcomes: list[Outcome[Acked] | None],
) -> None:
    """From the rows of `ack_leases`; what is under leases over items is answered now."""
    own = unit if isinstance(unit, Work) else None
    facts = await catalog.facts([row[1] for row in rows], own)
    items: list[Part] = []
    answers: list[tuple[int, Outcome[Acked]]] = []
    for place, partition_id, seq, word, died, count, released in rows:
        index, request = requests[place - 1]
        partition = facts.get(partition_id)
        if partition is None:  # Deleted since, with its queue.
            answers.append((index, fault("lease_unknown")))
        elif seq is not None:
            name = f"{partition.id}-{seq}"
            item = structs.replace(request, partition_id=partition.id, transaction_id=name)
            items.append((index, item, partition))
        elif word:
            answers.append((index, fault(word)))
        else:
            catalog.delivered.forget(lease_of(request)[1] or "", partition_id)
            acked = Acked(
                queue=partition.queue,
                partition=partition.name,
                transaction_id=None,
                lease_released=released,
                dead=died,
                count=count,
            )
            answers.append((index, acked))
    if items:
        answers += await ack_items(unit, items)
    for index, answer in answers:
        outcomes[index] = _together(outcomes[index], answer)
    for index, _ in requests:
        outcomes[index] = _of_whole_lease(outcomes[index]) or fault("lease_unknown")


async def _parts_of_leases(
    unit: Database | Work, catalog: Catalog, requests: Sequence[tuple[int, Ack]]
) -> dict[int, list[Part]]:
    """Whole leases: for each an ack of each partition, or each item, that is under it."""
    if not requests:
        return {}
    leases = [lease_of(request) for _, request in requests]
    rows = await unit.fetch(
        "select * from monarq.under_leases($1, $2)",
        [number for number, _ in leases],
        [token for _, token in leases],
    )
    own = unit if isinstance(unit, Work) else None
    facts = await catalog.facts([row["partition_id"] for row in rows], own)
    parts: dict[int, list[Part]] = {}
    for row in rows:
        index, request = requests[row["place"] - 1]
        partition_id, seq = row["partition_id"], row["seq"]
        part = (
            structs.replace(request, group=row["group_name"], partition_id=partition_id)
            if seq is None
            else structs.replace(
                request, partition_id=partition_id, transaction_id=f"{partition_id}-{seq}"
            )
        )
        parts.setdefault(index, []).append((index, part, facts[partition_id]))
    return parts


def _together(first: Outcome[Acked] | None, second: Outcome[Acked]) -> Outcome[Acked]:
    """What is said of a lease over several partitions or items, from what each said."""
    if first is None or isinstance(first, MonarqError):
        return second
    if isinstance(second, MonarqError):
        return first
    return structs.replace(
        first,
        lease_released=first.lease_released and second.lease_released,
        dead=first.dead + second.dead,
        count=first.count + second.count,
    )


def _of_whole_lease(outcome: Outcome[Acked] | None) -> Outcome[Acked] | None:
    if isinstance(outcome, Acked):
        if outcome.transaction_id is None:
            return outcome
        return structs.replace(outcome, transaction_id=None)
    if isinstance(outcome, LeaseError) and not isinstance(outcome, LeaseExpiredError):
        return fault("lease_unknown")
    return outcome
