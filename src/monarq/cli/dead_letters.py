"""Dead letters: what ran out of attempts, of jobs and of messages alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from monarq.cli.calling import Caller, RawOption, calling, confirm
from monarq.cli.formats import counted, moment, payload_value
from monarq.errors import InvalidRequestError, NotFoundError
from monarq.model import DeadLetter
from monarq.model.pages import all_rows

app = typer.Typer(help="Look at what is dead, and bring it back.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="dlq", rich_help_panel="Jobs")


QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="only of this queue")]
GroupOption = Annotated[str | None, typer.Option("--group", "-g", help="only of this group")]
IdArgument = Annotated[
    str | None,
    typer.Argument(help="a job's id, or the number of a dead letter", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="everything that matches")]


@app.command("list")
@calling
def list_letters(
    caller: Caller,
    queue: QueueOption = None,
    group: GroupOption = None,
    limit: Annotated[int, typer.Option(min=1, max=1000, help="at most so many")] = 50,
) -> None:
    """List dead letters, the newest first."""
    with caller.looking() as client:
        page = client.admin.list_dead_letters(queue=queue, group=group, limit=limit)
    caller.rows(
        [_row(letter) for letter in page.rows],
        ("number", "queue", "id", "attempts", "failed_at", "error"),
        empty="nothing is dead",
    )


def _row(letter: DeadLetter) -> dict[str, Any]:
    return {
        "number": letter.id,
        "queue": letter.queue,
        "partition": letter.partition,
        "id": letter.transaction_id,
        "group": letter.group,
        "attempts": letter.attempts,
        "failed_at": moment(letter.failed_at),
        "error": letter.error,
    }


@app.command("show")
@calling
def show(
    caller: Caller, letter: IdArgument, queue: QueueOption = None, raw: RawOption = False
) -> None:
    """Show a dead letter with its payload."""
    import msgspec

    from monarq.cli.terminal import shown

    with caller.looking() as client:
        found = _find(client, letter, queue)
    row = {**_row(found), "payload": payload_value(found.payload)}

    def print_letter() -> None:
        for name, value in row.items():
            if name == "payload":
                value = msgspec.json.encode(value).decode()
            if value not in ("", None):
                print(f"{name.replace('_', ' '):12}{shown(str(value), raw=raw)}")

    caller.answer(row, print_letter)


@app.command("retry")
@calling
def retry(
    caller: Caller,
    letter: IdArgument = None,
    everything: AllOption = False,
    queue: QueueOption = None,
    group: GroupOption = None,
    to: Annotated[str | None, typer.Option("--to", help="into this queue, not its own")] = None,
) -> None:
    """Put a dead letter back into its queue, or all of them."""
    with caller.client() as client:
        which = _choose(client, letter, everything, queue, group)
        count = 0
        while moved := client.admin.redrive(**which, to_queue=to):
            count += moved
            if moved < 1000:
                break
    caller.answer({"retried": count}, f"put back {count:,}")


@app.command("purge")
@calling
def purge(
    caller: Caller,
    letter: IdArgument = None,
    everything: AllOption = False,
    queue: QueueOption = None,
    group: GroupOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask")] = False,
) -> None:
    """Delete dead letters for good."""
    with caller.client() as client:
        which = _choose(client, letter, everything, queue, group)
        matching = {name: value for name, value in which.items() if name != "all"}
        total = client.admin.list_dead_letters(**matching, limit=1).total
        if total:
            confirm(f"Delete {counted(total, 'dead letter')} for good?", yes)
        count = client.admin.purge_dead_letters(**which) if total else 0
    caller.answer({"purged": count}, f"deleted {count:,}")


def _choose(
    client: Any, letter: str | None, everything: bool, queue: str | None, group: str | None
) -> dict[str, Any]:
    """Return the fields that choose the dead letters."""
    if letter is None and not everything:
        raise InvalidRequestError("name a dead letter, or say --all (with --queue for one queue)")
    if letter is not None and everything:
        raise InvalidRequestError("name a dead letter or say --all, not both")
    if letter is None:
        return {"queue": queue, "group": group, "all": queue is None and group is None}
    found = _find(client, letter, queue)
    return {"queue": found.queue, "ids": [found.id]}


def _find(client: Any, letter: str | None, queue: str | None) -> DeadLetter:
    """By its number, or by the id of the job or message: the newest with that id."""
    if letter is None:
        raise InvalidRequestError("name a dead letter: `monarq dlq list` shows them")
    rows: Iterator[DeadLetter] = all_rows(
        lambda limit, after: client.admin.list_dead_letters(queue=queue, limit=limit, after=after)
    )
    for row in rows:
        if letter in (row.transaction_id, str(row.id)):
            return row
    raise NotFoundError(f"there is no dead letter {letter!r}")
