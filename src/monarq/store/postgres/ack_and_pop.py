"""Acks and the pops that come after them, in one statement and with one commit.

That is for what nearly all calls are: leases or messages that are completed, and pops of ordered
queues. Any others are two calls, one after the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from monarq.crypto import Cipher
from monarq.errors import MonarqError
from monarq.ids import parse_lease_id
from monarq.model import Ack, Acked, AckStatus, Pop, Popped
from monarq.store.contract import Outcome
from monarq.store.postgres.acks import ack, answer_leases
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import Database
from monarq.store.postgres.message_acks import (
    RunInLine,
    answers_to_runs,
    run_arguments,
    runs_in_line,
)
from monarq.store.postgres.pop import Look, Popper
from monarq.store.validation import check_common_name

# Where there are as many as requests, they come as one text: the driver looks at every element of
# an array several times.
_SQL = """
    select * from monarq.ack_and_pop($1, $2, $3, $4, $5, $6, $7, $8, $9, $10,
        string_to_array($11, ','), $12, string_to_array($13, ',')::bigint[],
        string_to_array($14, ','), string_to_array($15, ',')::bigint[], $16,
        string_to_array($17, ',')::bigint[], string_to_array($18, ',')::bigint[])
"""
_SIMPLY_COMPLETED = (None, 0, True)
_ALL_ENDED = (None, [True])


async def ack_and_pop(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    popper: Popper,
    acks: Sequence[Ack],
    pops: Sequence[Pop],
    max_bytes: int,
) -> tuple[list[Outcome[Acked]], list[Outcome[Popped]]]:
    leases = _completed_leases(acks)
    runs = None if leases else _runs_of_different_leases(catalog, acks)
    look = await popper.plain_look(pops) if pops and (leases or runs) else None
    if look is not None and leases:
        rows = await _fetch(database, look, max_bytes, leases, [None, None, None, None])
        outcomes: list[Outcome[Acked] | None] = [None] * len(acks)
        numbered = list(enumerate(acks))
        await answer_leases(database, catalog, numbered, _answers_to_leases(rows), outcomes)
        popped = await popper.finish(look, _of_pops(rows), max_bytes)
        return [outcome for outcome in outcomes if outcome is not None], popped
    if look is not None and runs:
        partitions, groups, _, _, firsts, lasts = run_arguments(runs)
        under = [_joined(partitions), groups, _joined(firsts), _joined(lasts)]
        rows = await _fetch(database, look, max_bytes, [run.lease for run in runs], under)
        acked = answers_to_runs(catalog, runs, _answers_to_runs(rows, len(runs)))
        return acked, await popper.finish(look, _of_pops(rows), max_bytes)
    acked = await ack(database, catalog, cipher, acks) if acks else []
    return acked, await popper.pop(pops, max_bytes) if pops else []


def _answers_to_leases(rows: list[Any]) -> list[tuple[Any, ...]]:
    """As `ack_leases` has them."""
    if rows[0][0] == 0:
        ended = zip(*json.loads(rows[0]["marks"]), strict=True)
        return [
            (place, partition_id, None, None, 0, count, True)
            for place, partition_id, count in ended
        ]
    answers = []
    for row in rows:
        if row[0] < 0:
            marks = row["marks"]
            fault, died, released = json.loads(marks) if marks else _SIMPLY_COMPLETED
            answers.append(
                (-row[0], row["partition_id"], row["seq"], fault, died, row["count"], released)
            )
    return answers


def _answers_to_runs(rows: list[Any], count: int) -> list[tuple[Any, ...]]:
    if rows[0][0] == 0:
        return [(entry, *_ALL_ENDED) for entry in range(1, count + 1)]
    return [
        (-row[0], *(json.loads(row["marks"]) if row["marks"] else _ALL_ENDED))
        for row in rows
        if row[0] < 0
    ]


async def _fetch(
    database: Database,
    look: Look,
    max_bytes: int,
    leases: Sequence[tuple[int, str]],
    under: Sequence[Any],
) -> list[Any]:
    """`under`: which messages, if not all."""
    *pops, tokens, known = look.arguments
    return await database.fetch(
        _SQL,
        database.now(),
        max_bytes,
        *pops,
        _joined(tokens),
        known,
        _joined(number for number, _ in leases),
        _joined(token for _, token in leases),
        *under,
    )


def _joined(values: Iterable[Any]) -> str:
    return ",".join(map(str, values))


def _of_pops(rows: list[Any]) -> list[Any]:
    return [row for row in rows if row[0] > 0]


def _completed_leases(acks: Sequence[Ack]) -> list[tuple[int, str]] | None:
    """The leases, if each ack completes a whole one and says nothing else."""
    leases = []
    completed = AckStatus.COMPLETED
    try:
        for one in acks:
            lease = one.lease_id
            if one.status is not completed or type(lease) is not str or _says_more(one):
                return None
            check_common_name(one.group, "consumerGroup")
            leases.append(parse_lease_id(lease))
    except MonarqError:
        return None
    return leases


def _says_more(one: Ack) -> bool:
    rest = (one.transaction_id, one.partition_id, one.error, one.retry_at, one.result)
    return rest != (None, None, None, None, None)


def _runs_of_different_leases(catalog: Catalog, acks: Sequence[Ack]) -> list[RunInLine] | None:
    """Of one lease in two partitions, what is said of one may depend on the other."""
    runs = runs_in_line(catalog, acks)
    if runs is None or len({run.lease for run in runs}) < len(runs):
        return None
    return runs
