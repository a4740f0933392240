"""Dead letters: listing, redriving, purging."""

from __future__ import annotations

from functools import partial
from typing import Any

from monarq.crypto import SEALED, Cipher, open_payload
from monarq.errors import EncryptionKeyError, NotFoundError
from monarq.model import ERROR_KEY_LENGTH, DeadLetter, DeadLetterFilter, Page, Queue
from monarq.store import paging
from monarq.store.postgres.catalog import QUEUE_COLUMNS, queue_from
from monarq.store.postgres.database import Database, Work
from monarq.store.validation import (
    check_redrive_of_commands,
)

ERROR_KEY = f"left(split_part(d.error, chr(10), 1), {ERROR_KEY_LENGTH})"
MATCHING = f"""
    from monarq.dead_letters d join monarq.queues q on q.id = d.queue_id
    where ($1::text is null or q.name = $1) and ($2::text is null or d.group_name = $2)
        and ($3::text is null or d.partition_name = $3)
        and ($4::bigint is null or d.failed_at >= $4)
        and ($5::bigint is null or d.failed_at <= $5)
        and ($6::bigint[] is null or d.id = any ($6))
        and ($7::text is null or {ERROR_KEY} = $7)
"""
_STEP = 1000


def arguments(which: DeadLetterFilter) -> list[Any]:
    return [
        which.queue,
        which.group,
        which.partition,
        which.failed_from,
        which.failed_to,
        which.ids,
        which.error,
    ]


async def list_dead_letters(
    database: Database,
    cipher: Cipher | None,
    which: DeadLetterFilter,
    limit: int,
    after: str | None,
) -> Page[DeadLetter]:
    rows = await database.fetch(
        f"select d.*, q.name as queue {MATCHING} and ($8::bigint is null or d.id < $8) "
        "order by d.id desc limit $9",
        *arguments(which),
        paging.position(after, "dead letters", int),
        limit + 1,
    )
    letters = [_letter_from(row, cipher) for row in rows]
    return paging.page(letters, limit, "dead letters", lambda letter: letter.id)


async def count_dead_letters(database: Database, which: DeadLetterFilter) -> int:
    count: int = await database.fetchval(f"select count(*) {MATCHING}", *arguments(which))
    return count


async def _queue(database: Database, name: str) -> Queue | None:
    row = await database.fetchrow(
        f"select {QUEUE_COLUMNS} from monarq.queues where name = $1", name
    )
    return None if row is None else queue_from(row)


async def redrive(
    database: Database,
    cipher: Cipher | None,
    which: DeadLetterFilter,
    to: str | None,
    limit: int,
) -> int:
    target = None
    if to is not None:
        found = await _queue(database, to)
        if found is None:
            raise NotFoundError(f"there is no queue {to!r}")
        source = None if which.queue is None else await _queue(database, which.queue)
        check_redrive_of_commands(found, source)
        target = found.id
    done = 0
    while done < limit:
        count = min(_STEP, limit - done)
        moved = await database.atomically(
            partial(_redrive_some, cipher=cipher, which=which, target=target, count=count)
        )
        done += moved
        if moved < count:
            break
    return done


async def _redrive_some(
    unit: Work,
    *,
    cipher: Cipher | None,
    which: DeadLetterFilter,
    target: int | None,
    count: int,
) -> int:
    ids = await _lock_some(unit, which, count)
    await _seal(unit, cipher, ids, target)
    await unit.fetch("select monarq.redrive($1, $2, $3)", unit.now(), ids, target)
    return len(ids)


async def _seal(unit: Work, cipher: Cipher | None, ids: list[int], target: int | None) -> None:
    """Seal plain payloads that are on their way to an encrypted queue."""
    plain = await unit.fetch(
        "select d.id, d.payload from monarq.dead_letters d "
        "join monarq.queues q on q.id = coalesce($2, d.queue_id) and q.encryption_enabled "
        "where d.id = any($1) and not (d.is_item and q.id = d.queue_id) "
        "and get_byte(d.payload, 0) <> $3",
        ids,
        target,
        SEALED,
    )
    if plain and cipher is None:
        raise EncryptionKeyError("the queue is encrypted, and this store was given no key")
    for row in plain:
        assert cipher is not None
        await unit.fetch(
            "update monarq.dead_letters set payload = $2 where id = $1",
            row["id"],
            cipher.seal(row["payload"]),
        )


async def purge_dead_letters(database: Database, which: DeadLetterFilter) -> int:
    done = 0
    while True:
        purged = await database.atomically(lambda unit: _purge_some(unit, which))
        done += purged
        if purged < _STEP:
            return done


async def _purge_some(unit: Work, which: DeadLetterFilter) -> int:
    ids = await _lock_some(unit, which, _STEP)
    await unit.fetch("select monarq.drop_letters($1)", ids)
    return len(ids)


async def _lock_some(unit: Work, which: DeadLetterFilter, limit: int) -> list[int]:
    rows = await unit.fetch(
        f"select d.id {MATCHING} order by d.id limit $8 for update of d skip locked",
        *arguments(which),
        limit,
    )
    return [row["id"] for row in rows]


def _letter_from(row: Any, cipher: Cipher | None) -> DeadLetter:
    return DeadLetter(
        id=row["id"],
        queue=row["queue"],
        partition=row["partition_name"],
        partition_id=row["partition_id"],
        seq=row["seq"],
        transaction_id=row["transaction_id"],
        group=row["group_name"],
        payload=open_payload(row["payload"], cipher),
        error=row["error"],
        attempts=row["attempts"],
        created_at=row["created_at"],
        failed_at=row["failed_at"],
        trace_id=row["trace_id"],
        producer=row["producer"],
        headers=row["headers"].encode() if row["headers"] is not None else None,
    )
