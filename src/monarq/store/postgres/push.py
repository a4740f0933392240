"""Push: gathers the items of many requests into one call a kind, and mends what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from monarq.crypto import Cipher
from monarq.errors import (
    AlreadyPushedError,
    InternalError,
    InvalidRequestError,
    StoreUnavailableError,
)
from monarq.model import Push, Pushed, QueueKind
from monarq.store.contract import Outcome
from monarq.store.postgres.catalog import Catalog
from monarq.store.postgres.database import LOST_A_DEADLOCK, Database, RefusedError, Work
from monarq.store.postgres.push_arguments import Target, item_arguments, message_arguments
from monarq.store.postgres.push_batch import MissingError, PushBatch, already_pushed
from monarq.store.validation import check_mark

MAX_ROUNDS = 50
_MARK = "select monarq.keep_mark($1, $2)"
_NOTE_REFUSED = "update monarq.push_marks set refused = $2 where mark = $1"
_REFUSED = "select refused from monarq.push_marks where mark = $1"
_IS_MARKED = "select exists (select from monarq.push_marks where mark = $1)"


def _call(procedure: str, count: int, texts: Mapping[int, str]) -> str:
    """`texts`: which parameters come as `numbers` do, and of what type these are."""
    parameters = [
        f"${n}::text::{texts[n]}[]" if n in texts else f"${n}" for n in range(1, count + 1)
    ]
    return f"select * from monarq.{procedure}({', '.join(parameters)})"


_TARGETS = {9: "bigint", 11: "integer"}
_SEGMENTS = {14: "integer", 16: "integer", 17: "integer"}
_MESSAGES = _call("push_messages", 25, _TARGETS | _SEGMENTS)
_ITEMS = _call("push_items", 26, _TARGETS | {15: "integer"})
# Looked up once, not for each of a thousand targets.
_ORDERED = QueueKind.ORDERED


class _TriedError(Exception):
    """A push that was only tried has come to its end, and is undone."""


async def push(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[Push],
    mark: str | None = None,
    after: str | None = None,
) -> list[Outcome[list[Pushed]]]:
    if after is not None:
        check_mark(after)
    if mark is None:
        return await _push(database, catalog, cipher, requests, None, after)
    check_mark(mark)
    try:
        return await _push(database, catalog, cipher, requests, mark, after)
    except AlreadyPushedError as error:
        refused = await database.fetchval(_REFUSED, mark)
        raise AlreadyPushedError(str(error), refused or ()) from None


async def _push(
    database: Database,
    catalog: Catalog,
    cipher: Cipher | None,
    requests: Sequence[Push],
    mark: str | None,
    after: str | None,
) -> list[Outcome[list[Pushed]]]:
    batch = PushBatch(catalog, cipher, requests, mark, after)
    try:
        await push_batch(database, batch)
    except InternalError:
        # Something that validation did not foresee. Only the request it belongs to may fail.
        if len(requests) == 1:
            raise
        refused = [await _try_alone(database, catalog, cipher, request) for request in requests]
        batch = PushBatch(catalog, cipher, requests, mark, after)
        for index, error in enumerate(refused):
            batch.outcomes[index] = error or batch.outcomes[index]
        await push_batch(database, batch)
    if mark is not None and await _is_repeat(database, batch, mark):
        raise already_pushed()
    return [outcome for outcome in batch.outcomes if outcome is not None]


async def _try_alone(
    database: Database, catalog: Catalog, cipher: Cipher | None, request: Push
) -> InvalidRequestError | None:
    """Why PostgreSQL does not take a request, if it does not. Nothing of it is kept: all of a
    call is stored in one transaction, or its mark would promise too much."""
    batch = PushBatch(catalog, cipher, [request])
    try:
        async with database.transaction() as unit:
            targets = await batch.targets(unit)
            await store_targets(unit, batch, *by_kind(targets))
            raise _TriedError
    except (_TriedError, RefusedError, *LOST_A_DEADLOCK):
        return None
    except InternalError as error:
        return InvalidRequestError(f"PostgreSQL does not take this push: {error.__cause__}")


async def _is_repeat(database: Database, batch: PushBatch, mark: str) -> bool:
    """Whether a call of which nothing was stored, perhaps because of what its first try has
    done, is a repeat."""
    if any(isinstance(outcome, list) for outcome in batch.outcomes):
        return False
    if not batch.has_valid:
        return False
    return bool(await database.fetchval(_IS_MARKED, mark))


async def push_batch(database: Database, batch: PushBatch) -> None:
    """Push in rounds: each either stores all that is left, or learns what is in its way."""
    for _ in range(MAX_ROUNDS):
        if batch.is_done:
            return
        if await _push_existing(database, batch) is False:
            await _push_making(database, batch)
    if not batch.is_done:
        raise StoreUnavailableError("the queues change faster than this push can follow")


async def _push_existing(database: Database, batch: PushBatch) -> bool:
    """The usual way, one call; False if it takes several: a queue or partition has to be made
    first, or what was refused has to be noted with the mark."""
    targets: list[Target] = []
    try:
        targets = await batch.targets()
        if batch.is_done:
            return True
        ordered, work = by_kind(targets)
        if (ordered and work) or (batch.mark is not None and batch.refused):
            return False
        if ordered or work:
            first_seqs = await store_targets(database, batch, ordered, work, batch.mark)
        else:
            first_seqs = {}
            await _keep_mark(database, batch)
        batch.finish(targets, first_seqs)
    except MissingError:
        return False
    except RefusedError as refusal:
        batch.learn(refusal, refused(refusal, targets))
    return True


async def _push_making(database: Database, batch: PushBatch) -> None:
    """All in one transaction: what is made for a push that is refused goes with it."""
    targets: list[Target] = []
    try:
        async with database.transaction() as unit:
            await _keep_mark(unit, batch)
            targets = await batch.targets(unit)
            if batch.is_done:
                raise _TriedError  # nothing to store, so no mark either
            first_seqs = await store_targets(unit, batch, *by_kind(targets))
            if batch.mark is not None and batch.refused:
                await unit.fetchval(_NOTE_REFUSED, batch.mark, batch.refused)
        batch.finish(targets, first_seqs)
    except RefusedError as refusal:
        batch.learn(refusal, refused(refusal, targets))
    except (_TriedError, *LOST_A_DEADLOCK):
        return


async def _keep_mark(unit: Database | Work, batch: PushBatch) -> None:
    if batch.mark is not None:
        await unit.fetchval(_MARK, unit.now(), batch.mark)


def by_kind(targets: list[Target]) -> tuple[list[Target], list[Target]]:
    """Those with something to store: of ordered queues, and of work queues."""
    ordered: list[Target] = []
    work: list[Target] = []
    for target in targets:
        if target.items:
            (ordered if target.queue.kind is _ORDERED else work).append(target)
    return ordered, work


def refused(refusal: RefusedError, targets: list[Target]) -> list[Target]:
    """The targets that the refusing procedure was given, by which it counts."""
    return [t for t in targets if t.items and t.queue.kind is refusal.kind]


async def store_targets(
    unit: Database | Work,
    batch: PushBatch,
    ordered: list[Target],
    work: list[Target],
    mark: str | None = None,
) -> dict[int, int]:
    """Call the procedures; the first seq in each partition. With a mark, of one kind only."""
    first_seqs: dict[int, int] = {}
    for kind, targets in ((QueueKind.ORDERED, ordered), (QueueKind.WORK, work)):
        if not targets:
            continue
        if kind is QueueKind.ORDERED:
            sql, arguments = _MESSAGES, message_arguments(targets, batch.requests, batch.cipher)
        else:
            sql, arguments = _ITEMS, item_arguments(targets, batch.requests, batch.cipher)
        try:
            [(seqs, *times)] = await unit.fetch(sql, unit.now(), mark, batch.after, *arguments)
        except RefusedError as refusal:
            refusal.kind = kind
            raise
        first_seqs.update(zip((t.partition_id for t in targets), seqs, strict=True))
        if times and isinstance(unit, Database):
            # Committed: what a transaction has pushed may yet come to nothing.
            batch.keep(targets, seqs, *times)
    return first_seqs
