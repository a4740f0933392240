"""`monarq top`: queues, rates, lag and workers, live in the terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling, print_rows, say
from monarq.cli.figures import Look, look, queue_figures, worker_figures
from monarq.cli.tables import printable
from monarq.errors import InvalidRequestError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

_QUEUE_COLUMNS = (
    "queue",
    "kind",
    "pending",
    "pushed_per_second",
    "done_per_second",
    "failed_per_second",
    "dead_letters",
    "lag_seconds",
)
_HEADINGS = {
    "pushed_per_second": "push/s",
    "done_per_second": "done/s",
    "failed_per_second": "fail/s",
    "dead_letters": "dead",
    "lag_seconds": "lag s",
}
_LEFT_OUT_FIRST = ("kind", "failed_per_second", "lag_seconds", "dead_letters", "pushed_per_second")
_STATE_STYLES = {"running": "green", "stopping": "cyan", "lost": "red"}


def add_to(app: typer.Typer) -> None:
    app.command("top", rich_help_panel="Looking")(calling(top))


def top(
    caller: Caller,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=3600, help="seconds between looks")
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="look twice, print what changed, and end")
    ] = False,
) -> None:
    """Watch queues, rates, lag and workers. Ctrl-C ends it."""
    if not once and (caller.as_json or not sys.stdout.isatty()):
        raise InvalidRequestError("there is no terminal to draw on: say --once")
    with caller.client(only_looks=True) as client:
        before = look(client)
        if once:
            time.sleep(interval)
            _print_once(caller, before, look(client))
            return
        from rich.console import Console
        from rich.live import Live

        console = Console(highlight=False)
        with Live(console=console, screen=True, auto_refresh=False) as live:
            now = before
            while True:
                live.update(_screen(console, before, now), refresh=True)
                time.sleep(interval)
                before, now = now, look(client)


def _print_once(caller: Caller, before: Look, now: Look) -> None:
    queues, workers = queue_figures(before, now), worker_figures(now)

    def print_both() -> None:
        if queues:
            print_rows(
                [_renamed(row) for row in queues], [_heading(each) for each in _QUEUE_COLUMNS]
            )
        else:
            say("no queues")
        if workers:
            print()
            print_rows([_worker_row(row) for row in workers], tuple(_worker_row(workers[0])))
        else:
            say("no workers")

    caller.answer({"queues": queues, "workers": workers}, print_both)


def _heading(column: str) -> str:
    return _HEADINGS.get(column, column)


def _renamed(row: dict[str, Any]) -> dict[str, Any]:
    return {_heading(column): row[column] for column in _QUEUE_COLUMNS}


def _worker_row(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "worker": row["id"],
        "state": row["state"],
        "done": row["completed"],
        "failed": row["failed"],
        "heartbeat_at": row["heartbeat_at"],
        "running": ", ".join(row["running"]) or None,
    }


# --- live ----------------------------------------------------------------------------------


def _screen(console: Console, before: Look, now: Look) -> RenderableType:
    """As many queues as there is room for; workers below them."""
    from rich.console import Group
    from rich.text import Text

    queues, workers = queue_figures(before, now), worker_figures(now)
    pending = sum(row["pending"] for row in queues)
    head = Text(
        f"monarq top   {len(queues):,} queues   {pending:,} pending   "
        f"{sum(row['pushed_per_second'] for row in queues):,.0f} push/s   "
        f"{sum(row['done_per_second'] for row in queues):,.0f} done/s   "
        f"{len(workers):,} workers   {time.strftime('%H:%M:%S')}",
        style="bold",
        no_wrap=True,
        overflow="ellipsis",
    )
    room = max(console.size.height - 6, 2)
    for_workers = min(len(workers), room // 3)
    for_queues = room - for_workers
    parts: list[RenderableType] = [head, Text(""), _queue_table(queues[:for_queues], console.width)]
    if len(queues) > for_queues:
        parts.append(Text(f"… and {len(queues) - for_queues:,} more queues", style="dim"))
    if workers:
        parts += [Text(""), _worker_table(workers[: max(for_workers, 1)])]
    return Group(*parts)


def _columns(rows: list[dict[str, Any]], width: int) -> dict[str, int]:
    """As many as there is room for, and how wide: a number or a heading that is cut says nothing.
    Names have what is left, and a third of it all where there is little."""
    needs = {
        column: max(map(len, [_heading(column), *(_shown(row[column]) for row in rows)])) + 2
        for column in _QUEUE_COLUMNS
    }
    names = min(needs.pop("queue"), width // 3)
    for column in _LEFT_OUT_FIRST:
        if names + sum(needs.values()) > width:
            del needs[column]
    return {"queue": width - sum(needs.values())} | needs


def _queue_table(rows: list[dict[str, Any]], width: int) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    columns = _columns(rows, width)
    for column, room in columns.items():
        is_text = column in ("queue", "kind")
        table.add_column(
            _heading(column),
            justify="left" if is_text else "right",
            no_wrap=True,
            max_width=room - 2,
        )
    for row in rows:
        table.add_row(*(Text(_shown(row[column]), _style(column, row)) for column in columns))
    return table


def _style(column: str, row: dict[str, Any]) -> str:
    if column in ("dead_letters", "failed_per_second") and row[column]:
        return "yellow"
    return "" if row["pending"] or row["pushed_per_second"] else "dim"


def _worker_table(rows: list[dict[str, Any]]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from monarq.cli.formats import since

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("worker", "state", "done", "failed", "heartbeat", "running"):
        table.add_column(column, no_wrap=True, overflow="ellipsis")
    for row in rows:
        state = str(row["state"])
        table.add_row(
            Text(printable(row["id"])),
            Text(state, _STATE_STYLES.get(state, "")),
            Text(f"{row['completed']:,}"),
            Text(f"{row['failed']:,}"),
            Text(since(row["heartbeat_at"])),
            Text(printable(", ".join(row["running"])) or "-"),
        )
    return table


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"
    return f"{value:,}" if isinstance(value, int) else printable(str(value))
