"""Consumer groups: where they are, moving them, removing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling, confirm
from monarq.cli.formats import moment, parse_moment
from monarq.cli.partitions import all_partitions
from monarq.cli.queues import all_groups, group_row
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import Cursor, PartitionStats, SeekTo
from monarq.model.pages import walk
from monarq.operations.groups import Seek

if TYPE_CHECKING:
    from monarq.client.async_client import AsyncClient

app = typer.Typer(help="Look at consumer groups, and move them.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="groups", rich_help_panel="Queues and messages")


QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="only of this queue")]
GroupArgument = Annotated[str, typer.Argument(help="the group", show_default=False)]
QueueArgument = Annotated[str, typer.Argument(help="the queue", show_default=False)]


@app.command("list")
@calling
def list_groups(
    caller: Caller,
    queue: QueueOption = None,
    group: Annotated[str | None, typer.Option("--group", "-g", help="only this one")] = None,
) -> None:
    """List groups, with what each still has before it."""
    with caller.looking() as client:
        rows = [group_row(each) for each in all_groups(client, queue=queue, group=group)]
    caller.rows(
        rows,
        ("group", "queue", "lag", "lag_seconds", "completed", "failed", "dead", "created_at"),
        empty="no groups; the first pop of a group makes it",
    )


@app.command("seek")
@calling
def seek(
    caller: Caller,
    group: GroupArgument,
    queue: QueueArgument,
    to: Annotated[
        str,
        typer.Option("--to", help="start, end, a seq, or a time: -1h, 2026-01-31T12:00:00Z"),
    ],
    partition: Annotated[
        str | None, typer.Option("--partition", "-p", help="only in this lane")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say how many messages that would replay")
    ] = False,
) -> None:
    """Move a group: back to replay messages, on to skip them. Its leases there end."""
    request = _request(group, queue, partition, to)

    async def ask(client: AsyncClient) -> tuple[int, int, int]:
        if not (await client.admin.list_groups(queue=queue, group=group)).rows:
            raise NotFoundError(
                f"group {group!r} does not consume {queue!r}; `monarq groups list` shows who does"
            )
        replayed, skipped, before = await _effect(client, request)
        if not dry_run:
            before = await client.admin.call(request)
        return replayed, skipped, before

    replayed, skipped, before = caller.ask(ask)
    value = {
        "group": group,
        "queue": queue,
        "to": moment(request.time) or to,
        "replayed": replayed,
        "skipped": skipped,
        "lag": before,
        "done": not dry_run,
    }
    verb = "would be" if dry_run else "are"
    caller.answer(
        value,
        f"{replayed:,} messages {verb} replayed, {skipped:,} {verb} skipped; "
        f"{group} {'would have' if dry_run else 'has'} {before:,} before it",
    )


def _request(group: str, queue: str, partition: str | None, to: str) -> Seek:
    if to in ("start", "end"):
        return Seek(group=group, queue=queue, partition=partition, to=SeekTo(to))
    if to.isdecimal():
        if int(to) < 1:
            raise InvalidRequestError("--to: a seq counts from 1; `start` is the first one kept")
        return Seek(group=group, queue=queue, partition=partition, seq=int(to))
    time = round(parse_moment(to, "--to", or_else="start, end, a seq, ").timestamp() * 1_000_000)
    return Seek(group=group, queue=queue, partition=partition, time=time)


async def _effect(client: AsyncClient, request: Seek) -> tuple[int, int, int]:
    """How many messages the group would get again, not get, and have before it."""
    cursors: dict[int, Cursor] = {
        cursor.partition_id: cursor for cursor in await _cursors(client, request)
    }
    replayed = skipped = before = 0
    for row in await all_partitions(client, request.queue):
        if request.partition not in (None, row.partition):
            continue
        cursor = cursors.get(row.partition_id)
        at = cursor.position if cursor is not None else row.first_seq - 1
        at = max(at, row.first_seq - 1)
        target = await _position(client, row, request)
        replayed += max(0, at - target)
        skipped += max(0, target - at)
        before += row.last_seq - target
    return replayed, skipped, before


async def _cursors(client: AsyncClient, request: Seek) -> list[Cursor]:
    rows = walk(
        lambda limit, after: client.admin.list_cursors(
            request.queue, request.group, limit=limit, after=after
        )
    )
    return [row async for row in rows]


async def _position(client: AsyncClient, row: PartitionStats, request: Seek) -> int:
    """The last seq that would count as consumed."""
    if request.to is SeekTo.END:
        return row.last_seq
    if request.seq is not None:
        return min(max(request.seq, row.first_seq) - 1, row.last_seq)
    if request.time is None or row.last_seq < row.first_seq:
        return row.first_seq - 1
    if row.last_at < request.time:
        return row.last_seq
    page = await client.admin.list_messages(
        row.queue, partition=row.partition, created_from=request.time, limit=1
    )
    return page.rows[0].seq - 1 if page.rows else row.last_seq


@app.command("delete")
@calling
def delete(
    caller: Caller,
    group: GroupArgument,
    queue: QueueOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Forget how far a group has come, in one queue or in all. No message is lost."""
    with caller.client() as client:
        known = list(all_groups(client, group=group, queue=queue))
        if not known:
            where = f" of {queue!r}" if queue is not None else ""
            raise NotFoundError(f"there is no group {group!r}{where}; see `monarq groups list`")
        names = ", ".join(each.queue for each in known[:5]) + (" …" if len(known) > 5 else "")
        confirm(f"Forget where group {group!r} is in {names}? It would start over.", yes)
        count = client.admin.delete_group(group, queue=queue)
    value: dict[str, Any] = {"group": group, "queues": count}
    caller.answer(value, f"forgot {group} in {count:,} queues")
