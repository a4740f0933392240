"""Ack and renew: sorts the acks of many requests by what they are about, one call a kind."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from monarq.clock import micros
from monarq.errors import (
    AlreadyAckedError,
    LeaseError,
    LeaseExpiredError,
    LeaseForeignError,
    LeaseTakenOverError,
    LeaseUnknownError,
    MonarqError,
    NotFoundError,
    NotInLeaseError,
)
from monarq.ids import parse_lease_id, parse_message_id
from monarq.model import DEFAULT_PARTITION, Ack, Acked, AckStatus, QueueKind, Renew, Renewed
from monarq.store.contract import Outcome
from monarq.store.postgres.catalog import Catalog, PartitionFacts
from monarq.store.postgres.database import Database, Work, one_for_all
from monarq.store.postgres.item_acks import CompletedItems, completed_items
from monarq.store.validation import check_ack, check_common_name, check_renew

_MESSAGES = "select * from monarq.ack_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_LEASES = "select * from monarq.ack_leases($1, $2, $3, $4, $5, $6)"
_ITEMS = "select * from monarq.ack_items($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)"
_STATUS = {status: number for number, status in enumerate(AckStatus)}
_FAULTS: dict[str, tuple[type[MonarqError], str]] = {
    "not_found": (NotFoundError, "there is no such message here"),
    "lease_expired": (LeaseExpiredError, "the lease has expired: pop the message again"),
    "already_acked": (AlreadyAckedError, "this was answered before"),
    "lease_foreign": (LeaseForeignError, "the lease is for another partition, group or item"),
    "lease_taken_over": (LeaseTakenOverError, "the lease ended and another has been given since"),
    "lease_unknown": (LeaseUnknownError, "there is no such lease: it never was, or it has ended"),
    "not_in_lease": (NotInLeaseError, "the message was not delivered under this lease"),
}
_NEVER_GIVEN = (2**62, "")
_FEW = 2
T = TypeVar("T")
_KIND = attrgetter("status", "partition_id", "lease_id", "group", "error", "retry_at", "result")
_Part = tuple[int, Ack, PartitionFacts]
"""An ack of one message, or of what a lease covers in one partition, for request n."""


def fault(word: str) -> MonarqError:
    kind, message = _FAULTS[word]
    return kind(message)


async def ack(
    unit: Database | Work, catalog: Catalog, requests: Sequence[Ack]
) -> list[Outcome[Acked]]:
    runs = _runs_in_line(catalog, requests)
    if runs is not None:
        return await _complete_runs(unit, catalog, runs)
    items = completed_items(catalog, requests)
    if items is not None:
        return await _complete_items(unit, items)
    outcomes: list[Outcome[Acked] | None] = [None] * len(requests)
    for index, request in enumerate(requests):
        try:
            check_ack(request)
        except MonarqError as error:
            outcomes[index] = error
    valid = [(n, request) for n, request in enumerate(requests) if outcomes[n] is None]
    if all(request.partition_id is None for _, request in valid):
        await _ack_leases(unit, catalog, valid, outcomes)
        return [outcome for outcome in outcomes if outcome is not None]
    own = unit if isinstance(unit, Work) else None
    partition_ids = [request.partition_id for _, request in valid if request.partition_id]
    facts = await catalog.facts(partition_ids, own)
    wholes = await _parts_of_leases(
        unit, catalog, [(n, request) for n, request in valid if request.partition_id is None]
    )
    parts: list[_Part] = []
    for index, request in valid:
        try:
            if request.partition_id is not None and request.partition_id not in facts:
                raise NotFoundError(f"there is no partition {request.partition_id}")
            if request.partition_id is not None:
                parts.append((index, request, facts[request.partition_id]))
            elif index in wholes:
                parts += wholes[index]
            else:
                raise fault("lease_unknown")
        except MonarqError as error:
            outcomes[index] = error
    ordered = [part for part in parts if part[2].kind is QueueKind.ORDERED]
    work = [part for part in parts if part[2].kind is QueueKind.WORK]
    answers: list[tuple[int, Outcome[Acked]]] = []
    if ordered:
        answers += await _ack_messages(unit, ordered)
    if work:
        answers += await _ack_items(unit, work)
    for index, answer in answers:
        outcomes[index] = _together(outcomes[index], answer)
    for index, request in valid:
        if request.transaction_id is None:
            outcomes[index] = _of_whole_lease(outcomes[index])
    return [outcome for outcome in outcomes if outcome is not None]


class _RunInLine(NamedTuple):
    """Acks that complete messages under one lease, one after the other."""

    partition_id: int
    group: str
    lease: tuple[int, str]
    first_seq: int
    ids: list[str]
    start: int
    """Which request of the call is its first."""


def _runs_in_line(catalog: Catalog, requests: Sequence[Ack]) -> list[_RunInLine] | None:
    """All of the call as such runs, no two of one partition and group; None if it is not. Clients
    mostly answer all messages of a lease, in order, and each may come with a thousand."""
    if len(requests) < _FEW:
        return None
    runs: list[_RunInLine] = []
    start = 0
    try:
        for kind, group in groupby(requests, _KIND):
            ids = [request.transaction_id for request in group]
            run = _run_in_line(catalog, kind, ids, start)
            if run is None:
                return None
            runs.append(run)
            start += len(ids)
    except MonarqError:
        return None
    if len({(run.partition_id, run.group) for run in runs}) < len(runs):
        return None
    return sorted(runs) if len(runs) > 1 else runs


def _run_in_line(
    catalog: Catalog, kind: tuple[Any, ...], ids: list[str | None], start: int
) -> _RunInLine | None:
    status, partition_id, lease, group, *rest = kind
    if status is not AckStatus.COMPLETED or type(partition_id) is not int or any(rest):
        return None
    facts = catalog.known_facts(partition_id)
    # The ids need no check: they turn out to be those of messages, or this is no such run.
    names = [one for one in ids if type(one) is str]
    if len(names) < len(ids) or facts is None or facts.kind is not QueueKind.ORDERED:
        return None
    check_common_name(group, "consumerGroup")
    check_common_name(lease, "leaseId")
    number, token = parse_lease_id(lease)
    own = parse_message_id(names[0])
    if own is not None and own[0] == partition_id:
        first: int | None = own[1]
        prefix = f"{partition_id}-"
        if names != [f"{prefix}{seq}" for seq in range(own[1], own[1] + len(names))]:
            return None
    else:
        first = catalog.delivered.first_of(number, partition_id, names)
    if first is None:
        return None
    return _RunInLine(partition_id, group, (number, token), first, names, start)


async def _complete_runs(
    unit: Database | Work, catalog: Catalog, runs: list[_RunInLine]
) -> list[Outcome[Acked]]:
    rows = await unit.fetch(
        _MESSAGES,
        unit.now(),
        [run.partition_id for run in runs],
        [run.group for run in runs],
        [run.lease[0] for run in runs],
        [run.lease[1] for run in runs],
        list(range(1, len(runs) + 1)),
        [run.first_seq for run in runs],
        [run.first_seq + len(run.ids) - 1 for run in runs],
        None,
        [_STATUS[AckStatus.COMPLETED]] * len(runs),
        [None] * len(runs),
        [None] * len(runs),
    )
    by_start: dict[int, list[Outcome[Acked]]] = {}
    for entry, faults, _, _, ends in rows:
        run = runs[entry - 1]
        facts = catalog.known_facts(run.partition_id)
        assert facts is not None
        queue, partition = facts.queue, facts.name
        if faults is None:
            faults, ends = repeat(None), [False] * (len(run.ids) - 1) + [ends[0]]
        by_start[run.start] = [
            fault(word)
            if word
            else Acked(
                queue=queue, partition=partition, transaction_id=one, lease_released=ended, dead=0
            )
            for one, word, ended in zip(run.ids, faults, ends, strict=False)
        ]
        if ends[-1]:
            catalog.delivered.forget(run.lease[0], run.partition_id)
    return [answer for start in sorted(by_start) for answer in by_start[start]]


async def _ack_leases(
    unit: Database | Work,
    catalog: Catalog,
    requests: Sequence[tuple[int, Ack]],
    outcomes: list[Outcome[Acked] | None],
) -> None:
    """Whole leases and nothing else, which is one call where they are over messages."""
    if not requests:
        return
    leases = [_lease_of(request) for _, request in requests]
    rows = await unit.fetch(
        _LEASES,
        unit.now(),
        [number for number, _ in leases],
        [token for _, token in leases],
        one_for_all([_STATUS[request.status] for _, request in requests]),
        one_for_all([request.error for _, request in requests]),
        one_for_all([request.retry_at for _, request in requests]),
    )
    own = unit if isinstance(unit, Work) else None
    facts = await catalog.facts([row[1] for row in rows], own)
    items: list[_Part] = []
    answers: list[tuple[int, Outcome[Acked]]] = []
    for place, partition_id, seq, word, died, count, released in rows:
        index, request = requests[place - 1]
        partition = facts[partition_id]
        if seq is not None:
            name = f"{partition.id}-{seq}"
            item = structs.replace(request, partition_id=partition.id, transaction_id=name)
            items.append((index, item, partition))
        elif word:
            answers.append((index, fault(word)))
        else:
            catalog.delivered.forget(leases[place - 1][0] or 0, partition_id)
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
        answers += await _ack_items(unit, items)
    for index, answer in answers:
        outcomes[index] = _together(outcomes[index], answer)
    for index, _ in requests:
        outcomes[index] = _of_whole_lease(outcomes[index]) or fault("lease_unknown")


async def _parts_of_leases(
    unit: Database | Work, catalog: Catalog, requests: Sequence[tuple[int, Ack]]
) -> dict[int, list[_Part]]:
    """Whole leases: for each an ack of each partition, or each item, that is under it."""
    if not requests:
        return {}
    leases = [_lease_of(request) for _, request in requests]
    rows = await unit.fetch(
        "select * from monarq.under_leases($1, $2)",
        [number for number, _ in leases],
        [token for _, token in leases],
    )
    own = unit if isinstance(unit, Work) else None
    facts = await catalog.facts([row["partition_id"] for row in rows], own)
    parts: dict[int, list[_Part]] = {}
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


def _lease_of(request: Ack) -> tuple[int | None, str | None]:
    """Number and token of the lease. What is no lease id at all is one that was never given:
    whether there is such a message has to be asked first."""
    if request.lease_id is None:
        return None, None
    try:
        return parse_lease_id(request.lease_id)
    except LeaseUnknownError:
        return _NEVER_GIVEN


def _named(request: Ack) -> tuple[int | None, str | None]:
    """The message's seq, if its id is one that Monarq made for this partition; else its id."""
    if request.transaction_id is None:
        return None, None
    prefix = f"{request.partition_id}-"
    if request.transaction_id.startswith(prefix):
        own = parse_message_id(request.transaction_id)
        if own is not None:
            return own[1], None
    return None, request.transaction_id


def _entries(parts: list[_Part]) -> list[list[_Part]]:
    """Runs of acks under one lease, sorted by partition and group, each in order of arrival."""
    by_cursor: dict[tuple[int, str], list[list[_Part]]] = {}
    for part in parts:
        runs = by_cursor.setdefault((part[2].id, part[1].group), [])
        if runs and runs[-1][0][1].lease_id == part[1].lease_id:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run for cursor in sorted(by_cursor) for run in by_cursor[cursor]]


_Answer = tuple[int | None, int | None, str | None, int, str | None, int | None]
"""As `ack_messages` takes it: seq, last seq of a range, id, status, error, retry time."""


def _answers(entry: list[_Part]) -> list[_Answer]:
    """The acks of one run; those that complete one message after the other are one range."""
    answers: list[_Answer] = []
    in_line = len(entry) > 1
    expected: int | None = None
    for _, request, _ in entry:
        seq, name = _named(request)
        in_line = (
            in_line
            and seq is not None
            and seq == (seq if expected is None else expected)
            and request.status is AckStatus.COMPLETED
            and request.error is None
        )
        expected = None if seq is None else seq + 1
        answers.append((seq, None, name, _STATUS[request.status], request.error, request.retry_at))
    if in_line:
        return [(answers[0][0], answers[-1][0], None, _STATUS[AckStatus.COMPLETED], None, None)]
    return answers


async def _ack_messages(
    unit: Database | Work, parts: list[_Part]
) -> list[tuple[int, Outcome[Acked]]]:
    entries = _entries(parts)
    leases = [_lease_of(entry[0][1]) for entry in entries]
    acks = [(number, *ack) for number, entry in enumerate(entries, 1) for ack in _answers(entry)]
    numbers, seqs, lasts, ids, statuses, errors, retries = zip(*acks, strict=True)
    rows = await unit.fetch(
        _MESSAGES,
        unit.now(),
        [entry[0][2].id for entry in entries],
        [entry[0][1].group for entry in entries],
        [number for number, _ in leases],
        [token for _, token in leases],
        numbers,
        seqs,
        lasts,
        ids if any(ids) else None,
        statuses,
        errors,
        retries,
    )
    answers: list[tuple[int, Outcome[Acked]]] = []
    for row in rows:
        group = entries[row["entry"] - 1]
        faults, died, counts, ends = row["faults"], row["died"], row["counts"], row["released"]
        for place, (index, request, facts) in enumerate(group):
            if faults is not None and faults[place]:
                answers.append((index, fault(faults[place])))
                continue
            simple = faults is None
            answers.append(
                (
                    index,
                    Acked(
                        queue=facts.queue,
                        partition=facts.name,
                        transaction_id=request.transaction_id,
                        lease_released=(
                            ends[0] and place == len(group) - 1 if simple else ends[place]
                        ),
                        dead=0 if simple else died[place],
                        count=(
                            counts[0]
                            if request.transaction_id is None and simple
                            else 1
                            if simple
                            else counts[place]
                        ),
                    ),
                )
            )
    return answers


async def _ack_items(unit: Database | Work, parts: list[_Part]) -> list[tuple[int, Outcome[Acked]]]:
    requests = [request for _, request, _ in parts]
    named = [_named(request) for request in requests]
    leases = [_lease_of(request) for request in requests]
    statuses = [request.status for request in requests]
    row: Any = await unit.fetchrow(
        _ITEMS,
        unit.now(),
        [seq for seq, _ in named],
        [name for _, name in named] if any(name for _, name in named) else None,
        one_for_all([request.partition_id for request in requests]),
        one_for_all([number for number, _ in leases]),
        one_for_all([token for _, token in leases]),
        one_for_all([_STATUS[status] for status in statuses]),
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


async def _complete_items(unit: Database | Work, items: CompletedItems) -> list[Outcome[Acked]]:
    number, token = items.lease
    row: Any = await unit.fetchrow(
        _ITEMS,
        unit.now(),
        items.seqs,
        None,
        [items.facts.id],
        [number],
        [token],
        [_STATUS[AckStatus.COMPLETED]],
        None,
        None,
        _unless_none(items.results),
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


async def renew(database: Database, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
    outcomes: list[Outcome[Renewed] | None] = [None] * len(requests)
    asked: list[tuple[int, int, str, int]] = []
    for index, request in enumerate(requests):
        try:
            check_renew(request)
            asked.append((index, *parse_lease_id(request.lease_id), micros(request.seconds)))
        except MonarqError as error:
            outcomes[index] = error
    if asked:
        rows = await database.fetch(
            "select * from monarq.renew($1, $2, $3, $4)",
            database.now(),
            [number for _, number, _, _ in asked],
            [token for _, _, token, _ in asked],
            [duration for _, _, _, duration in asked],
        )
        for row in rows:
            index = asked[row["place"] - 1][0]
            outcomes[index] = (
                fault(row["fault"])
                if row["fault"]
                else Renewed(requests[index].lease_id, row["expires_at"])
            )
    return [outcome for outcome in outcomes if outcome is not None]
