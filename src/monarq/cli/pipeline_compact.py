"""`monarq pipeline compact`: few large files in place of many small ones."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from typing import Annotated

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import parse_duration
from monarq.cli.pipeline_running import (
    ConfOption,
    LakeArgument,
    MasterOption,
    Spark,
    check_spark_is_installed,
    terminable,
)


def add_to(app: typer.Typer) -> None:
    app.command("compact")(calling(compact))


def compact(
    caller: Caller,
    lake: LakeArgument,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="messages, deliveries, dead_letters or attempts; all, if none is named",
        ),
    ] = None,
    keep: Annotated[
        str,
        typer.Option("--keep", help="how long replaced files stay for those who are reading them"),
    ] = "1d",
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Put the small files of a lake together, and delete what nobody needs.

    Safe while the lake is read and archived to. Safe to kill and run again.
    """
    seconds = parse_duration(keep, "--keep")
    check_spark_is_installed()
    from monarq.spark.failures import spark_failures
    from monarq.spark.lake.lake import Lake
    from monarq.spark.lake.layout import TABLES
    from monarq.spark.pipelines.compact import Compactor
    from monarq.spark.pipelines.progress import progress_for_people
    from monarq.spark.pipelines.registry import RunRegistry

    opened = Lake.open(lake)
    with ExitStack() as stack:
        stack.enter_context(spark_failures())
        client = stack.enter_context(caller.client())
        registry = RunRegistry(client.admin, warn=say)
        run = stack.enter_context(registry.run("compact", lake=str(opened.root)))
        spark = stack.enter_context(Spark(master, conf or ()))
        stack.enter_context(terminable())
        report = Compactor(
            spark,
            opened,
            run=run.id,
            tables=tables or tuple(TABLES),
            keep_seconds=seconds,
            progress=progress_for_people("compacted"),
        ).run()
        run.reached(report.rows)
    deleted = f"; deleted {report.deleted:,} replaced files" if report.deleted else ""
    orphans = f"; removed {report.orphans:,} orphans" if report.orphans else ""
    done = (
        f"{report.files_before:,} files are now {report.files_after:,} ({report.rows:,} rows)"
        if report.files_before
        else "nothing to compact"
    )
    caller.answer(
        {"run": run.id, "lake": str(opened.root), **asdict(report)}, f"{done}{deleted}{orphans}"
    )
