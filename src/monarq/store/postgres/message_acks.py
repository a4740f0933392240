"""Acks of messages: of those that a lease delivered, one after the other, and of any others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, NamedTuple

from monarq.errors import MonarqError
from monarq.ids import parse_lease_id, parse_message_id
from monarq.model import Ack, Acked, AckStatus, QueueKind
from monarq.store.contract import Outcome
from monarq.store.postgres.ack_parts import STATUS, Part, fault, lease_of, named
from monarq.store.postgres.catalog import Catalog, PartitionFacts
from monarq.store.postgres.database import Database, Work
from monarq.store.validation import check_common_name

_MESSAGES = "select * from monarq.ack_messages($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)"
_RUNS = "select * from monarq.complete_runs($1, $2, $3, $4, $5, $6, $7)"
_KIND = attrgetter("status", "partition_id", "lease_id", "group", "error", "retry_at", "result")


class RunInLine(NamedTuple):
    """Acks that complete messages under one lease, one after the other."""

    partition_id: int
    group: str
    lease: tuple[int, str]
    first_seq: int
    ids: list[str]
    start: int
    """Which request of the call is its first."""
    partition: PartitionFacts


def runs_in_line(catalog: Catalog, requests: Sequence[Ack]) -> list[RunInLine] | None:
    """All of the call as such runs, no two of one partition and group; None if it is not. Clients
    mostly answer all messages of a lease, in order, and each may come with a thousand."""
    runs: list[RunInLine] = []
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
) -> RunInLine | None:
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
        first = catalog.delivered.first_of(token, partition_id, names)
    if first is None:
        return None
    return RunInLine(partition_id, group, (number, token), first, names, start, facts)


async def complete_runs(
    unit: Database | Work, catalog: Catalog, runs: list[RunInLine]
) -> list[Outcome[Acked]]:
    rows = await unit.fetch(_RUNS, unit.now(), *run_arguments(runs))
    return answers_to_runs(catalog, runs, [(row[0], row[1], row[4]) for row in rows])


def run_arguments(runs: list[RunInLine]) -> list[Any]:
    """Of `complete_runs`, behind the time."""
    return [
        [run.partition_id for run in runs],
        [run.group for run in runs],
        [run.lease[0] for run in runs],
        [run.lease[1] for run in runs],
        [run.first_seq for run in runs],
        [run.first_seq + len(run.ids) - 1 for run in runs],
    ]


def answers_to_runs(
    catalog: Catalog, runs: list[RunInLine], rows: Iterable[tuple[int, Any, Any]]
) -> list[Outcome[Acked]]:
    """To each ack, in the order of the requests; of a run its number, faults and ends."""
    by_start: dict[int, list[Outcome[Acked]]] = {}
    for entry, faults, ends in rows:
        run = runs[entry - 1]
        queue, partition = run.partition.queue, run.partition.name
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
            catalog.delivered.forget(run.lease[1], run.partition_id)
    return [answer for start in sorted(by_start) for answer in by_start[start]]


def _entries(parts: list[Part]) -> list[list[Part]]:
    """Runs of acks under one lease, sorted by partition and group, each in order of arrival."""
    by_cursor: dict[tuple[int, str], list[list[Part]]] = {}
    for part in parts:
        runs = by_cursor.setdefault((part[2].id, part[1].group), [])
        if runs and runs[-1][0][1].lease_id == part[1].lease_id:
            runs[-1].append(part)
        else:
            runs.append([part])
    return [run for cursor in sorted(by_cursor) for run in by_cursor[cursor]]


_Answer = tuple[int | None, int | None, str | None, int, str | None, int | None]
"""As `ack_messages` takes it: seq, last seq of a range, id, status, error, retry time."""


def _answers(entry: list[Part]) -> list[_Answer]:
    """The acks of one run; those that complete one message after the other are one range."""
    answers: list[_Answer] = []
    in_line = len(entry) > 1
    expected: int | None = None
    for _, request, _ in entry:
        seq, name = named(request)
        in_line = (
            in_line
            and seq is not None
            and seq == (seq if expected is None else expected)
            and request.status is AckStatus.COMPLETED
            and request.error is None
        )
        expected = None if seq is None else seq + 1
        answers.append((seq, None, name, STATUS[request.status], request.error, request.retry_at))
    if in_line:
        return [(answers[0][0], answers[-1][0], None, STATUS[AckStatus.COMPLETED], None, None)]
    return answers


async def ack_messages(
    unit: Database | Work, parts: list[Part]
) -> list[tuple[int, Outcome[Acked]]]:
    entries = _entries(parts)
    leases = [lease_of(entry[0][1]) for entry in entries]
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
