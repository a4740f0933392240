"""`monarq pipeline archive`: queues and their logs to a lake."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import parse_duration
from monarq.cli.pipeline_running import (
    ConfOption,
    LakeArgument,
    MasterOption,
    Spark,
    check_spark_is_installed,
    place_of,
    stopping,
    terminable,
)
from monarq.errors import InvalidRequestError

if TYPE_CHECKING:
    from monarq.spark.pipelines.archive import ArchiveReport


def add_to(app: typer.Typer) -> None:
    app.command("archive")(calling(archive))


def archive(
    caller: Caller,
    lake: LakeArgument,
    queues: Annotated[
        list[str] | None,
        typer.Option("--queue", "-q", help="a queue, or a pattern with *; all, if none is named"),
    ] = None,
    tables: Annotated[
        list[str] | None,
        typer.Option(
            "--table",
            help="messages, deliveries, dead_letters or attempts; all, if none is named",
        ),
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="end when all is in that is there now")
    ] = False,
    interval: Annotated[
        str, typer.Option("--interval", help="how often to look for more, without --once")
    ] = "10s",
    batch: Annotated[
        int, typer.Option("--batch", min=1, help="messages of one commit, at most")
    ] = 2_000_000,
    file_format: Annotated[
        str, typer.Option("--format", help="parquet, or delta; chosen when the lake is made")
    ] = "parquet",
    allow_gaps: Annotated[
        bool,
        typer.Option(
            "--allow-gaps", help="go on where messages were removed before they were archived"
        ),
    ] = False,
    decrypt: Annotated[
        bool,
        typer.Option("--decrypt", help="copy encrypted queues too, in the clear"),
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Copy messages, deliveries, dead letters and attempts to a lake, each once.

    Goes on until it is stopped, or with --once until all is in. Safe to kill and run again.
    """
    if file_format not in ("parquet", "delta"):
        raise InvalidRequestError(f"--format must be parquet or delta, not {file_format!r}")
    seconds = parse_duration(interval, "--interval")
    check_spark_is_installed()
    from monarq.spark.failures import spark_failures
    from monarq.spark.lake.lake import Lake
    from monarq.spark.lake.layout import TABLES
    from monarq.spark.pipelines.archive import ArchiveOptions, Archiver
    from monarq.spark.pipelines.archive_notes import ArchiveNotes
    from monarq.spark.pipelines.progress import progress_for_people
    from monarq.spark.pipelines.registry import RunRegistry

    options = ArchiveOptions(
        queues=queues or (),
        tables=tables or tuple(TABLES),
        batch_messages=batch,
        allow_gaps=allow_gaps,
        decrypt=decrypt,
    )
    if file_format == "delta":
        from monarq.spark.lake.delta import check_installed

        check_installed()
    place = place_of(caller)
    with ExitStack() as stack:
        stack.enter_context(spark_failures())
        client = stack.enter_context(caller.client(only_looks=True))
        registry = RunRegistry(client.admin, warn=say)
        opened = Lake.open_or_make(lake, store=registry.store_id(), file_format=file_format)
        stack.enter_context(opened.archiving())
        run = stack.enter_context(
            registry.run("archive", lake=str(opened.root), queues=options.queues)
        )
        spark = stack.enter_context(Spark(master, conf or ()))
        opened.repair()
        archiver = Archiver(
            spark,
            opened,
            place,
            options,
            run=run.id,
            progress=progress_for_people("archived"),
            watcher=ArchiveNotes(registry, run, opened),
        )
        if once:
            stack.enter_context(terminable())
            archiver.once()
        else:
            archiver.follow(stack.enter_context(stopping()), seconds)
    caller.answer(_value(run.id, str(opened.root), archiver.report), _text(archiver.report))


def _value(run: str, lake: str, report: ArchiveReport) -> dict[str, Any]:
    return {
        "run": run,
        "lake": lake,
        "rows": report.rows,
        "files": report.files,
        "bytes": report.bytes,
        "commits": report.commits,
        "lost": report.lost,
    }


def _text(report: ArchiveReport) -> str:
    if not report.commits:
        return "nothing new to archive"
    rows = ", ".join(
        f"{count:,} {table.replace('_', ' ')}" for table, count in report.rows.items() if count
    )
    lost = f"; {report.lost:,} messages were gone before" if report.lost else ""
    size = f"{report.bytes / 1_000_000:,.1f} MB"
    return f"archived {rows or 'nothing'} in {report.files:,} files ({size}){lost}"
