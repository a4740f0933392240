"""`monarq pipeline analyse`: what passed through the queues, in figures, words and charts."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import parse_moment
from monarq.cli.pipeline_running import (
    ConfOption,
    LakeArgument,
    MasterOption,
    Spark,
    check_spark_is_installed,
    terminable,
)
from monarq.errors import ForbiddenError, UnauthorizedError
from monarq.times import micros_of

if TYPE_CHECKING:
    from monarq.spark.pipelines.analyse.running import Result

#: Findings that are printed; the report has all.
_MOST_LINES = 12


def add_to(app: typer.Typer) -> None:
    app.command("analyse")(calling(analyse))


def analyse(
    caller: Caller,
    lake: LakeArgument,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="only this queue; a name, or a pattern such as shop-*"),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="only what happened since: -1h, 2026-01-31T12:00:00Z"),
    ] = None,
    until: Annotated[
        str | None, typer.Option("--until", help="only what happened before this")
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Say what passed through the queues: findings in words, a report with charts, and tables.

    Reads what is in the lake, and writes to `analysis/` in it. The dashboard shows the last ones.
    """
    check_spark_is_installed()
    from monarq.clock import SystemClock
    from monarq.spark.failures import spark_failures
    from monarq.spark.lake.lake import Lake
    from monarq.spark.pipelines.analyse.publishing import publish
    from monarq.spark.pipelines.analyse.running import analyse as run_analysis
    from monarq.spark.pipelines.analyse.sources import Scope, select
    from monarq.spark.pipelines.progress import progress_for_people
    from monarq.spark.pipelines.registry import RunRegistry

    scope = Scope(
        queues=tuple(queues or ()),
        start=None if since is None else micros_of(parse_moment(since, "--since")),
        end=None if until is None else micros_of(parse_moment(until, "--until")),
    )
    selection = select(Lake.open(lake), scope)
    progress = progress_for_people("analysed")
    with ExitStack() as stack:
        stack.enter_context(spark_failures())
        client = stack.enter_context(caller.client())
        registry = RunRegistry(client.admin, warn=say)
        run = stack.enter_context(
            registry.run("analyse", lake=str(selection.lake.root), queues=scope.queues)
        )
        spark = stack.enter_context(Spark(master, conf or ()))
        stack.enter_context(terminable())
        session = spark()
        with progress.stage(selection.rows):
            result = run_analysis(
                session,
                selection,
                run=run.id,
                now=SystemClock().now(),
                progress=lambda step, done, of: progress.move(selection.rows * done // of),
            )
        run.reached(selection.rows)
        try:
            publish(client.admin, result)
        except (ForbiddenError, UnauthorizedError) as error:
            say(f"the dashboard will not show this analysis: {error}")
    caller.answer(
        {
            "run": run.id,
            "lake": str(selection.lake.root),
            "folder": str(result.folder),
            "report": str(result.report_file),
            "rows": selection.rows,
            "totals": result.analysis.totals,
            "findings": result.analysis.findings,
        },
        _text(result),
    )


def _text(result: Result) -> str:
    analysis = result.analysis
    lines = [f"{finding.severity:8} {finding.text}" for finding in analysis.findings]
    if analysis.window is None:
        lines = ["there is nothing to look at"]
    elif not lines:
        lines = ["nothing stands out"]
    more = len(lines) - _MOST_LINES
    shown = [*lines[:_MOST_LINES], *([f"         and {more} more"] if more > 0 else [])]
    return "\n".join([*shown, f"report: {result.report_file}"])
