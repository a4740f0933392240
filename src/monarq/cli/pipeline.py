"""`monarq pipeline`: the group of commands that move data with Spark, and the list of their runs.

Spark is imported by a command that runs it, when it does: no other one waits for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling
from monarq.cli.formats import moment

if TYPE_CHECKING:
    from monarq.pipeline_runs import Run

app = typer.Typer(
    help="Archive queues to a lake, analyse it, replay from it: on Spark.", no_args_is_help=True
)


def add_to(main: typer.Typer) -> None:
    main.add_typer(app, name="pipeline", rich_help_panel="Queues and messages")


@app.command("runs")
@calling
def runs(
    caller: Caller,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="how many")] = 20,
) -> None:
    """List runs of pipelines, the newest first."""
    from monarq.spark.pipelines.registry import RunRegistry

    with caller.client(only_looks=True) as client:
        found = RunRegistry(client.admin).runs()[:limit]
    caller.rows(
        [run_row(run) for run in found],
        ("id", "pipeline", "outcome", "started_at", "seconds", "rows", "lake", "error"),
        empty="no runs; `monarq pipeline archive` makes one",
    )


def run_row(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "pipeline": run.pipeline,
        "outcome": run.outcome,
        "started_at": moment(run.started),
        "ended_at": moment(run.ended),
        "seconds": round(run.seconds, 1),
        "rows": run.rows,
        "lake": run.lake,
        "queues": run.queues,
        "host": run.host,
        "error": run.error,
    }


def _add_commands() -> None:
    # Here, as these modules add their commands to the group above.
    from monarq.cli import (
        pipeline_analyse,
        pipeline_archive,
        pipeline_compact,
        pipeline_replay,
        pipeline_run,
    )

    for module in (
        pipeline_archive,
        pipeline_analyse,
        pipeline_replay,
        pipeline_compact,
        pipeline_run,
    ):
        module.add_to(app)


_add_commands()
