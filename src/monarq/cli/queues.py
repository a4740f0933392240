"""Queues: making, changing, looking, emptying, removing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from monarq.cli.calling import Caller, calling, confirm, print_rows
from monarq.cli.formats import counted, moment
from monarq.cli.queue_options import with_option_flags
from monarq.cli.terminal import shown
from monarq.client.option_kinds import check_kind
from monarq.errors import ConflictError, InvalidRequestError, NotFoundError
from monarq.model import (
    DEFAULT_GROUP,
    ConfiguredQueue,
    Group,
    QueueInfo,
    QueueKind,
    QueueOptions,
)
from monarq.model.pages import all_rows

if TYPE_CHECKING:
    from monarq.cli.looking import Looker

app = typer.Typer(help="Make, change and look at queues.", no_args_is_help=True)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="queue", rich_help_panel="Queues and messages")


NameArgument = Annotated[str, typer.Argument(help="the queue's name", show_default=False)]
NamespaceOption = Annotated[
    str | None, typer.Option("--namespace", help="a label, to pop across queues")
]
TaskOption = Annotated[str | None, typer.Option("--task", help="the second half of that label")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


# --- looking -------------------------------------------------------------------------------


@app.command("list")
@calling
def list_queues(
    caller: Caller,
    namespace: Annotated[str | None, typer.Option(help="only with this namespace")] = None,
    task: Annotated[str | None, typer.Option(help="only with this task")] = None,
    kind: Annotated[QueueKind | None, typer.Option(help="only of this kind")] = None,
    search: Annotated[str | None, typer.Option(help="only with this in their name")] = None,
) -> None:
    """List queues, with what waits in them."""
    with caller.looking() as client:
        rows = [
            queue_row(queue)
            for queue in all_queues(client, namespace=namespace, task=task, search=search)
            if kind in (None, queue.kind)
        ]
    caller.rows(
        rows,
        ("queue", "kind", "state", "pending", "stored", "pushed", "dead_letters", "partitions"),
        empty="no queues; `monarq push orders '{\"n\": 1}'` makes one",
    )


def queue_row(queue: QueueInfo) -> dict[str, Any]:
    counts = queue.counts
    return {
        "queue": queue.name,
        "kind": str(queue.kind),
        "namespace": queue.namespace,
        "task": queue.task,
        "state": "paused" if queue.paused else "open",
        "pending": counts.pending,
        "stored": counts.stored,
        "pushed": counts.pushed,
        "completed": counts.completed,
        "failed": counts.failed,
        "dead": counts.dead,
        "dead_letters": counts.dead_letters,
        "partitions": queue.partitions,
        "states": counts.states,
        "created_at": moment(queue.created_at),
    }


def all_queues(client: Looker, **which: Any) -> Iterator[QueueInfo]:
    return all_rows(
        lambda limit, after: client.admin.list_queues(limit=limit, after=after, **which)
    )


def all_groups(client: Looker, **which: Any) -> Iterator[Group]:
    return all_rows(
        lambda limit, after: client.admin.list_groups(limit=limit, after=after, **which)
    )


def group_row(group: Group) -> dict[str, Any]:
    return {
        "group": group.name,
        "queue": group.queue,
        "lag": group.lag,
        "lag_seconds": round(group.lag_seconds, 3),
        "completed": group.completed,
        "failed": group.failed,
        "dead": group.dead,
        "created_at": moment(group.created_at),
    }


def find_queue(client: Looker, name: str) -> QueueInfo:
    """The queue; if there is none, the error says which ones have a name like it."""
    try:
        found: QueueInfo = client.admin.get_queue(name)
    except NotFoundError:
        import difflib

        names = [queue.name for queue in all_queues(client)]
        near = difflib.get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "`monarq queue list` shows what there is"
        raise NotFoundError(f"there is no queue {name!r}; {hint}") from None
    return found


@app.command("show")
@calling
def show(caller: Caller, name: NameArgument) -> None:
    """Show a queue: what is in it, its groups, and the options that are not at their default."""
    with caller.looking() as client:
        queue = find_queue(client, name)
        groups = [group_row(group) for group in all_groups(client, queue=name)]
    row = queue_row(queue)
    options = msgspec.to_builtins(queue.options)
    defaults = msgspec.to_builtins(QueueOptions())
    changed = {key: value for key, value in options.items() if value != defaults[key]}

    def print_queue() -> None:
        for key, value in row.items():
            if key == "states":
                for state, count in value.items():
                    print(f"  {state:14}{count:>12,}")
            elif value not in ("", None):
                text = f"{value:,}" if isinstance(value, int) else shown(str(value))
                print(f"{key.replace('_', ' '):16}{text}")
        print("options         " + (shown(_pairs(changed)) or "all at their defaults"))
        if groups:
            print()
            print_rows(groups, ("group", "lag", "lag_seconds", "completed", "failed", "dead"))

    caller.answer({**row, "options": options, "groups": groups}, print_queue)


def _pairs(options: dict[str, Any]) -> str:
    return ", ".join(
        f"{key}={msgspec.json.encode(value).decode()}" for key, value in options.items()
    )


# --- making and changing -------------------------------------------------------------------


@app.command("create")
@calling
@with_option_flags
def create(
    caller: Caller,
    name: NameArgument,
    options: dict[str, Any],
    kind: Annotated[
        QueueKind,
        typer.Option(help="ordered: messages in partitions; work: items leased one by one"),
    ] = QueueKind.ORDERED,
    namespace: NamespaceOption = None,
    task: TaskOption = None,
) -> None:
    """Make a queue. A push makes one too, ordered and with all options at their defaults."""
    check_kind(name, kind, options)
    with caller.client() as client:
        try:
            there = client.admin.get_queue(name)
        except NotFoundError:
            there = None
        if there is not None:
            raise ConflictError(
                f"there is a queue {name!r} already (of kind {there.kind}); "
                f"`monarq queue set {name}` changes its options"
            )
        queue = client.admin.configure(
            name, kind=kind, namespace=namespace, task=task, options=options
        )
    caller.answer(_described(queue, False), f"made {queue.name}, of kind {queue.kind}")


@app.command("set")
@calling
@with_option_flags
def set_options(caller: Caller, name: NameArgument, options: dict[str, Any]) -> None:
    """Change options of a queue; those that are not named keep their values."""
    if not options:
        raise InvalidRequestError(
            "name an option to change, such as --lease-time 60; `monarq queue set -h` lists them"
        )
    with caller.client() as client:
        there = find_queue(client, name)
        check_kind(name, there.kind, options)
        queue = client.admin.configure(name, options=options)
    now = msgspec.to_builtins(queue.options)
    pairs = _pairs({key: now[key] for key in options})
    caller.answer(_described(queue, there.paused), f"{name}: {pairs}")


def _described(queue: ConfiguredQueue, paused: bool) -> dict[str, Any]:
    return {
        "queue": queue.name,
        "kind": str(queue.kind),
        "namespace": queue.namespace,
        "task": queue.task,
        "state": "paused" if paused else "open",
        "options": msgspec.to_builtins(queue.options),
    }


@app.command("pause")
@calling
def pause(caller: Caller, name: NameArgument) -> None:
    """Let pops find nothing in a queue, until it is resumed. It still takes pushes and acks."""
    _set_paused(caller, name, True)


@app.command("resume")
@calling
def resume(caller: Caller, name: NameArgument) -> None:
    """Let a paused queue be popped again."""
    _set_paused(caller, name, False)


def _set_paused(caller: Caller, name: str, paused: bool) -> None:
    with caller.client() as client:
        find_queue(client, name)
        if paused:
            client.admin.pause_queue(name)
        else:
            client.admin.resume_queue(name)
    state = "paused" if paused else "open"
    caller.answer({"queue": name, "state": state}, f"{name} is {state}")


# --- removing ------------------------------------------------------------------------------


@app.command("clear")
@calling
def clear(
    caller: Caller,
    name: NameArgument,
    scheduled_only: Annotated[
        bool, typer.Option("--scheduled-only", help="remove only the scheduled items")
    ] = False,
    keep_leased: Annotated[
        bool, typer.Option("--keep-leased", help="leave the items that are leased")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Remove all messages or items of a queue; the queue, its groups and its dead letters stay."""
    with caller.client() as client:
        queue = find_queue(client, name)
        if queue.counts.stored:
            which = "the scheduled items among " if scheduled_only else ""
            rest = " but the leased items" if keep_leased and not scheduled_only else ""
            confirm(f"Remove {which}{_contents(queue)}{rest} from {name!r} for good?", yes)
        removed = client.admin.clear_queue(
            name, scheduled_only=scheduled_only, keep_leased=keep_leased
        )
    caller.answer({"queue": name, "removed": removed}, f"removed {removed:,} from {name}")


@app.command("delete")
@calling
def delete(caller: Caller, name: NameArgument, yes: YesOption = False) -> None:
    """Remove a queue with all that belongs to it: messages, groups, dead letters."""
    with caller.client() as client:
        queue = find_queue(client, name)
        groups = [group for group in all_groups(client, queue=name) if group.name != DEFAULT_GROUP]
        lost = [_contents(queue)]
        if groups:
            lost.append(counted(len(groups), "group"))
        if queue.counts.dead_letters:
            lost.append(counted(queue.counts.dead_letters, "dead letter"))
        confirm(f"Delete queue {name!r} with {', '.join(lost)} for good?", yes)
        deleted = client.admin.delete_queue(name)
    value = {
        "queue": name,
        "deleted": deleted.deleted,
        "messages": deleted.messages,
        "dead_letters": deleted.dead_letters,
    }
    caller.answer(value, f"deleted {name}")


def _contents(queue: QueueInfo) -> str:
    counts = queue.counts
    what = "item" if queue.kind is QueueKind.WORK else "message"
    pending = f" ({counts.pending:,} of them pending)" if counts.pending else ""
    return f"{counted(counts.stored, what)}{pending}"
