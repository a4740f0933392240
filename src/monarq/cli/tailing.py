"""`monarq tail`: look at the newest messages of a queue, and follow it, without consuming."""

from __future__ import annotations

import asyncio
import heapq
import select
import sys
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import moment, payload_value
from monarq.cli.partitions import all_partitions
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import PartitionStats, QueueKind, StoredMessage

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient

_LOOK_SECONDS = 0.25
#: Looking costs more with more partitions: at most this part of the time is spent on it.
_LOOKING_PART = 0.2
_PAGE = 1000


def add_to(app: typer.Typer) -> None:
    app.command("tail", rich_help_panel="Queues and messages")(calling(tail))


def tail(
    caller: Caller,
    queue: Annotated[str, typer.Argument(help="an ordered queue")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on as messages come, until Ctrl-C")
    ] = False,
    count: Annotated[
        int, typer.Option("--lines", "-n", min=0, max=1000, help="how many of those there are")
    ] = 10,
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="only of this lane")
    ] = None,
) -> None:
    """Print the newest messages of a queue, whoever has consumed them. Consumes nothing.

    With --json: an array, or with --follow a line for each message.
    """

    async def ask(client: AsyncClient) -> None:
        await _check(client, queue)
        positions: dict[int, int] = {}
        newest = await _newest(client, queue, partition, count, positions)
        if caller.as_json and not follow:
            caller.answer([message_row(message) for message in newest], "")
            return
        for message in newest:
            _print(message, caller.as_json)
        if not newest and not follow:
            say(f"there is nothing in {queue}")
        if follow:
            async for message in _follow(client, queue, partition, positions):
                _print(message, caller.as_json)

    caller.check_store_is_there()
    caller.ask(ask)


async def _check(client: AsyncClient, queue: str) -> None:
    try:
        info = await client.admin.get_queue(queue)
    except NotFoundError:
        raise NotFoundError(
            f"there is no queue {queue!r}; `monarq queue list` shows what there is"
        ) from None
    if info.kind is QueueKind.WORK:
        raise ConflictError(
            f"{queue!r} is a work queue, whose items change: `monarq list --queue {queue}` and "
            "`monarq top` show them"
        )


async def _known(client: AsyncClient, queue: str, partition: str | None) -> list[PartitionStats]:
    found = await all_partitions(client, queue)
    return [row for row in found if partition in (None, row.partition)]


async def _newest(
    client: AsyncClient,
    queue: str,
    partition: str | None,
    count: int,
    positions: dict[int, int],
) -> list[StoredMessage]:
    """The newest of all partitions, oldest first; `positions` learns where each one ends."""
    partitions = await _known(client, queue, partition)
    if partition is not None and not partitions:
        raise InvalidRequestError(f"queue {queue!r} has no partition {partition!r}")
    positions.update({row.partition_id: row.last_seq for row in partitions})
    # Whoever has one of the newest so many is among the so many that were last pushed to.
    found: list[StoredMessage] = []
    for row in heapq.nlargest(count, partitions, key=lambda row: row.last_at):
        first = max(row.first_seq, row.last_seq - count + 1)
        found += [m async for m in _range(client, row, first, row.last_seq)]
    found.sort(key=lambda message: (message.created_at, message.partition_id, message.seq))
    return found[len(found) - min(count, len(found)) :]


async def _range(
    client: AsyncClient, row: PartitionStats, first: int, last: int
) -> AsyncIterator[StoredMessage]:
    while first <= last:
        page = await client.admin.list_messages(
            row.queue, partition=row.partition, first_seq=first, limit=min(_PAGE, last - first + 1)
        )
        for message in page.rows:
            if message.seq > last:
                return
            yield message
        if not page.rows:
            return
        first = page.rows[-1].seq + 1


async def _follow(
    client: AsyncClient, queue: str, partition: str | None, positions: dict[int, int]
) -> AsyncIterator[StoredMessage]:
    """Commit order is seq order, so what is behind a partition's last seq is all that is new."""
    while not _is_output_closed():
        began = time.monotonic()
        fresh: list[StoredMessage] = []
        for row in await _known(client, queue, partition):
            seen = positions.get(row.partition_id, 0)
            if row.last_seq > seen:
                first = max(seen + 1, row.first_seq)
                fresh += [m async for m in _range(client, row, first, row.last_seq)]
                positions[row.partition_id] = row.last_seq
        fresh.sort(key=lambda message: (message.created_at, message.partition_id, message.seq))
        for message in fresh:
            yield message
        spent = time.monotonic() - began
        await asyncio.sleep(max(_LOOK_SECONDS, spent / _LOOKING_PART))


def _is_output_closed() -> bool:
    """Whether whoever read what is printed is gone: `… | head -1` should not wait for the next."""
    output = select.poll()
    output.register(sys.stdout.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in output.poll(0))


def message_row(message: StoredMessage) -> dict[str, Any]:
    return {
        "id": message.id,
        "queue": message.queue,
        "partition": message.partition,
        "seq": message.seq,
        "transaction_id": message.transaction_id,
        "created_at": moment(message.created_at),
        "payload": payload_value(message.payload) if message.payload else None,
    }


def _print(message: StoredMessage, as_json: bool) -> None:
    from monarq.cli.tables import printable
    from monarq.cli.terminal import shown_json

    row = message_row(message)
    if as_json:
        print(shown_json(msgspec.json.encode(row).decode()))
    else:
        payload = msgspec.json.encode(row["payload"]).decode()
        place = printable(f"{message.partition} #{message.seq}")
        print(f"{row['created_at']}  {place}  {printable(payload)}")
    sys.stdout.flush()
