"""`monarq pipeline run`: a pipeline of one's own, from a TOML file."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.pipeline_running import (
    ConfOption,
    MasterOption,
    Spark,
    check_spark_is_installed,
    place_of,
    stopping,
    terminable,
)
from monarq.errors import InvalidRequestError

if TYPE_CHECKING:
    from monarq.spark.pipelines.user.definition import Pipeline


def add_to(app: typer.Typer) -> None:
    app.command("run")(calling(run))


def run(
    caller: Caller,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="the pipeline, in TOML", show_default=False)
    ],
    once: Annotated[
        bool, typer.Option("--once", help="a stream: end when all is done that is there now")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="say what would be done, and do nothing")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="check the file without starting Spark, and end")
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Run a pipeline of your own: from queues, files or a lake, by SQL or Python, to where you say.

    The file is checked before Spark starts. Safe to kill and run again.
    """
    check_spark_is_installed()
    from monarq.spark.failures import spark_failures
    from monarq.spark.pipelines.encrypted import refuse_encrypted_sources
    from monarq.spark.pipelines.user.reading import read_pipeline

    pipeline = read_pipeline(file)
    if once and not pipeline.is_stream:
        raise InvalidRequestError('--once is for a pipeline with mode = "stream"')
    settings = [f"{name}={value}" for name, value in pipeline.spark.items()]
    if check:
        caller.answer({"name": pipeline.name, "valid": True}, f"{pipeline.name} is valid")
        return
    place = place_of(caller).options
    with ExitStack() as stack:
        stack.enter_context(spark_failures())
        spark = stack.enter_context(Spark(master, [*settings, *(conf or ())]))
        refuse_encrypted_sources(pipeline, place)
        if explain:
            from monarq.spark.pipelines.user.explaining import explain as explained
            from monarq.spark.pipelines.user.explaining import explained_text

            made = explained(spark(), pipeline, place)
            caller.answer(made, explained_text(made))
            return
        rows = _run(caller, stack, spark, pipeline, place, once)
    caller.answer({"name": pipeline.name, "rows": rows}, _text(pipeline, rows))


def _run(
    caller: Caller,
    stack: ExitStack,
    spark: Spark,
    pipeline: Pipeline,
    place: dict[str, str],
    once: bool,
) -> dict[str, int]:
    from monarq.spark.pipelines.registry import RunRegistry
    from monarq.spark.pipelines.user.running import run_batch, run_stream

    client = stack.enter_context(caller.client(only_looks=True))
    registry = RunRegistry(client.admin, warn=say)
    queues = [source.queue for source in pipeline.sources.values() if source.queue is not None]
    noted = stack.enter_context(registry.run(f"run {pipeline.name}", queues=queues))
    counted: dict[str, int] = {}

    def told(sink: str, rows: int) -> None:
        counted[sink] = rows
        noted.reached(sum(counted.values()))
        say(f"{sink}: {rows:,} rows")

    if pipeline.is_stream:
        stop = stack.enter_context(stopping())
        return run_stream(spark(), pipeline, place, stop, told, once=once)
    stack.enter_context(terminable())
    return run_batch(spark(), pipeline, place, told)


def _text(pipeline: Pipeline, rows: dict[str, int]) -> str:
    sinks = ", ".join(f"{count:,} rows to {name}" for name, count in rows.items())
    return f"{pipeline.name}: {sinks}"
