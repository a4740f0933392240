"""Renew: leases over messages or items, one call for many."""

from __future__ import annotations

from collections.abc import Sequence

from monarq.clock import micros
from monarq.errors import MonarqError
from monarq.ids import parse_lease_id
from monarq.model import Renew, Renewed
from monarq.store.contract import Outcome
from monarq.store.postgres.ack_parts import fault
from monarq.store.postgres.database import Database
from monarq.store.validation import check_renew


async def renew(database: Database, requests: Sequence[Renew]) -> list[Outcome[Renewed]]:
    outcomes: list[Outcome[Renewed] | None] = [None] * len(requests)
    asked: list[tuple[int, int, str, int]] = []
    commands = [request.commands for request in requests]
    for index, request in enumerate(requests):
        try:
            check_renew(request)
            asked.append((index, *parse_lease_id(request.lease_id), micros(request.seconds)))
        except MonarqError as error:
            outcomes[index] = error
    if asked:
        rows = await database.fetch(
            "select * from monarq.renew($1, $2, $3, $4, $5)",
            database.now(),
            [number for _, number, _, _ in asked],
            [token for _, _, token, _ in asked],
            [duration for _, _, _, duration in asked],
            None if all(commands) else [commands[index] for index, _, _, _ in asked],
        )
        for row in rows:
            index = asked[row["place"] - 1][0]
            outcomes[index] = (
                fault(row["fault"])
                if row["fault"]
                else Renewed(requests[index].lease_id, row["expires_at"])
            )
    return [outcome for outcome in outcomes if outcome is not None]
