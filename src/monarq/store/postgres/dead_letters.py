"""Dead letters: listing, redriving, purging."""

from __future__ import annotations

from functools import partial
from typing import Any

from monarq.crypto import Cipher
from monarq.errors import NotFoundError
from monarq.model import ERROR_KEY_LENGTH, DeadLetter, DeadLetterFilter, Page, Queue
from monarq.operations.dead_letters import PurgeDeadLetters, Redrive
from monarq.store import paging, sealing
from monarq.store.postgres.catalog import QUEUE_COLUMNS, queue_from
from monarq.store.postgres.database import Database, Work
from monarq.store.postgres.handlers import Tools, handles
from monarq.store.queries.dead_letters import COLUMNS, StoredLetter
from monarq.store.validation import (
    check_may_work,
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
        and ($7::text[] is null or {ERROR_KEY} = any ($7))
"""
_TO_SEAL = f"""
    select {COLUMNS}, t.name,
        case when t.kind = 'work' then 'Default' else d.partition_name end
    from monarq.dead_letters d
    join monarq.queues q on q.id = d.queue_id
    join monarq.queues t on t.id = coalesce($2, d.queue_id)
    where d.id = any ($1) and not (d.is_item and t.id = d.queue_id)
        and (t.encryption_enabled or get_byte(d.payload, 0) in (1, 2))
"""
_STEP = 1000


def arguments(which: DeadLetterFilter, cipher: Cipher | None) -> list[Any]:
    return [
        which.queue,
        which.group,
        which.partition,
        which.failed_from,
        which.failed_to,
        which.ids,
        None if which.error is None else sealing.error_lines(which.error, cipher),
    ]


async def list_dead_letters(
    database: Database,
    cipher: Cipher | None,
    which: DeadLetterFilter,
    limit: int,
    after: str | None,
) -> Page[DeadLetter]:
    rows = await database.fetch(
        f"select {COLUMNS} {MATCHING} and ($8::bigint is null or d.id < $8) "
        "order by d.id desc limit $9",
        *arguments(which, cipher),
        paging.position(after, "dead letters", int),
        limit + 1,
    )
    letters = [StoredLetter(*row).opened(cipher) for row in rows]
    return paging.page(letters, limit, "dead letters", lambda letter: int(letter.id))


async def count_dead_letters(
    database: Database, cipher: Cipher | None, which: DeadLetterFilter
) -> int:
    if which == DeadLetterFilter():
        sums = "select coalesce(sum(dead_letters), 0)::bigint from monarq.counters"
        return int(await database.fetchval(sums))
    values = arguments(which, cipher)
    return int(await database.fetchval(f"select count(*) {MATCHING}", *values))


async def _queue(database: Database, name: str) -> Queue | None:
    row = await database.fetchrow(
        f"select {QUEUE_COLUMNS} from monarq.queues where name = $1", name
    )
    return None if row is None else queue_from(row)


@handles(Redrive)
async def redrive(tools: Tools, request: Redrive) -> int:
    database, cipher, which = tools.database, tools.cipher, request.which
    to, limit, commands = request.to_queue, request.limit, tools.commands
    target = None
    if to is not None:
        found = await _queue(database, to)
        if found is None:
            raise NotFoundError(f"there is no queue {to!r}")
        source = None if which.queue is None else await _queue(database, which.queue)
        check_redrive_of_commands(found, source)
        target = found.id
    if not commands:
        await _check_no_command(database, cipher, which)
    done = 0
    while done < limit:
        count = min(_STEP, limit - done)
        moved = await database.atomically(
            partial(
                _redrive_some,
                cipher=cipher,
                which=which,
                target=target,
                count=count,
                commands=commands,
            )
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
    commands: bool,
) -> int:
    ids = await _lock_some(unit, cipher, which, count, commands)
    await _seal(unit, cipher, ids, target)
    await unit.fetch("select monarq.redrive($1, $2, $3)", unit.now(), ids, target)
    return len(ids)


async def _seal(unit: Work, cipher: Cipher | None, ids: list[int], target: int | None) -> None:
    """Seal payloads for the place to which the procedure is about to move them: those that were
    sealed for their old place, and plain ones that go to an encrypted queue."""
    for *row, queue, partition in await unit.fetch(_TO_SEAL, ids, target):
        if cipher is None:
            raise sealing.no_key(queue)
        letter = StoredLetter(*row)
        context = sealing.payload_context(queue, partition, None)
        payload = cipher.seal(letter.plain_payload(cipher), context)
        await unit.fetch(
            "update monarq.dead_letters set payload = $2 where id = $1", letter.id, payload
        )


async def opened_keys(database: Database, cipher: Cipher | None, ids: list[int]) -> dict[int, str]:
    """The first lines of the errors of these dead letters, as they were given."""
    if not ids:
        return {}
    rows = await database.fetch(
        "select d.id, d.error, q.name as queue from monarq.dead_letters d "
        "join monarq.queues q on q.id = d.queue_id where d.id = any ($1)",
        ids,
    )
    return {
        row["id"]: sealing.first_line(sealing.open_error(row["error"], cipher, row["queue"]))
        for row in rows
    }


@handles(PurgeDeadLetters)
async def purge_dead_letters(tools: Tools, request: PurgeDeadLetters) -> int:
    database, cipher, which = tools.database, tools.cipher, request.which
    commands = tools.commands
    if not commands:
        await _check_no_command(database, cipher, which)
    done = 0
    while True:
        purged = await database.atomically(lambda unit: _purge_some(unit, cipher, which, commands))
        done += purged
        if purged < _STEP:
            return done


async def _purge_some(
    unit: Work, cipher: Cipher | None, which: DeadLetterFilter, commands: bool
) -> int:
    ids = await _lock_some(unit, cipher, which, _STEP, commands)
    await unit.fetch("select monarq.drop_letters($1)", ids)
    return len(ids)


async def _check_no_command(
    database: Database, cipher: Cipher | None, which: DeadLetterFilter
) -> None:
    """Raise `ForbiddenError` if one of these dead letters is of a queue that runs commands."""
    queue = await database.fetchval(
        f"select q.name {MATCHING} and q.runs_commands limit 1", *arguments(which, cipher)
    )
    if queue is not None:
        check_may_work(True, queue, False)


async def _lock_some(
    unit: Work, cipher: Cipher | None, which: DeadLetterFilter, limit: int, commands: bool
) -> list[int]:
    """Without `commands`, dead letters of queues that run commands are left out: those that came
    since `_check_no_command` looked."""
    rows = await unit.fetch(
        f"select d.id {MATCHING} and ($9 or not q.runs_commands) "
        "order by d.id limit $8 for update of d skip locked",
        *arguments(which, cipher),
        limit,
        commands,
    )
    return [row["id"] for row in rows]
