"""Transactions: pushes and acks that take effect together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from monarq.crypto import Cipher
from monarq.errors import MonarqError, StoreUnavailableError, TransactionFailedError
from monarq.ids import parse_lease_id
from monarq.model import Ack, Acked, Push, Pushed, Transaction, TransactionDone
from monarq.store.contract import Outcome
from monarq.store.postgres import acks
from monarq.store.postgres.ack_parts import fault
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import LOST_A_DEADLOCK, Database, RefusedError, Work
from monarq.store.postgres.foreign import ForeignWork
from monarq.store.postgres.push import MAX_ROUNDS, by_kind, refused, store_targets
from monarq.store.postgres.push_arguments import Target
from monarq.store.postgres.push_batch import PushBatch
from monarq.store.validation import check_transaction

_LEASE_STATE = """
    select monarq.is_live_lease(monarq.time($1), $2, $3) as live,
        exists (select from monarq.cursors where lease_no = $2 and lease_token = $3)
            or exists (select from monarq.items where lease_no = $2 and lease_token = $3) as known
"""


async def run(
    database: Database, catalog: Catalog, cipher: Cipher | None, request: Transaction
) -> Outcome[TransactionDone]:
    try:
        check_transaction(request)
        return await _Run(database.transaction, catalog, cipher, request).finish()
    except MonarqError as error:
        if isinstance(error, StoreUnavailableError):
            raise
        return error


async def run_within(
    work: ForeignWork, cipher: Cipher | None, request: Transaction
) -> TransactionDone:
    """As part of a transaction of the caller's, who commits it or rolls it back."""
    check_transaction(request)
    return await _Run(work.part, Catalog(work), cipher, request).finish()


class _Run:
    """One transaction, in as many rounds as its pushes need."""

    def __init__(
        self,
        begin: Callable[[], AbstractAsyncContextManager[Work]],
        catalog: Catalog,
        cipher: Cipher | None,
        request: Transaction,
    ) -> None:
        self._begin = begin
        self._catalog = catalog
        self._request = request
        numbered = list(enumerate(request.operations))
        pushes = [(n, operation) for n, operation in numbered if isinstance(operation, Push)]
        self._push_places = [n for n, _ in pushes]
        self._acks = [(n, operation) for n, operation in numbered if isinstance(operation, Ack)]
        self._cipher = cipher
        self._batch = PushBatch(catalog, cipher, [push for _, push in pushes])

    async def finish(self) -> TransactionDone:
        for _ in range(MAX_ROUNDS):
            targets: list[Target] = []
            try:
                async with self._begin() as unit:
                    targets = await self._batch.targets(unit)
                    self._raise_refused()
                    await self._require_leases(unit)
                    first_seqs = await store_targets(unit, self._batch, *by_kind(targets))
                    acked = await self._ack(unit)
            except RefusedError as refusal:
                self._batch.learn(refusal, refused(refusal, targets))
                self._raise_refused()
                continue
            except LOST_A_DEADLOCK:
                continue
            self._batch.finish(targets, first_seqs)
            return TransactionDone(self._results(acked))
        raise StoreUnavailableError("the queues change faster than this transaction can follow")

    def _raise_refused(self) -> None:
        for place, outcome in zip(self._push_places, self._batch.outcomes, strict=True):
            if isinstance(outcome, MonarqError):
                raise TransactionFailedError(place, outcome)

    async def _require_leases(self, unit: Work) -> None:
        for lease in self._request.required_leases:
            try:
                row = await unit.fetchrow(_LEASE_STATE, unit.now(), *parse_lease_id(lease))
                assert row is not None
                if not row["live"]:
                    raise fault("lease_expired" if row["known"] else "lease_unknown")
            except MonarqError as error:
                raise TransactionFailedError(None, error) from None

    async def _ack(self, unit: Work) -> dict[int, Acked]:
        requests = [request for _, request in self._acks]
        outcomes = await acks.ack(unit, self._catalog, self._cipher, requests)
        acked: dict[int, Acked] = {}
        for (place, _), outcome in zip(self._acks, outcomes, strict=True):
            if isinstance(outcome, MonarqError):
                raise TransactionFailedError(place, outcome)
            acked[place] = outcome
        return acked

    def _results(self, acked: dict[int, Acked]) -> list[list[Pushed] | Acked]:
        results: dict[int, list[Pushed] | Acked] = dict(acked)
        for place, outcome in zip(self._push_places, self._batch.outcomes, strict=True):
            assert isinstance(outcome, list)
            results[place] = outcome
        return [results[place] for place in sorted(results)]
