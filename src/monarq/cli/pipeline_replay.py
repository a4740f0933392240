"""`monarq pipeline replay`: messages of a lake into a queue again."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from monarq.cli.calling import Caller, calling, say
from monarq.cli.formats import parse_moment
from monarq.cli.pipeline_running import (
    ConfOption,
    LakeArgument,
    MasterOption,
    Spark,
    check_spark_is_installed,
    place_of,
    terminable,
)


def add_to(app: typer.Typer) -> None:
    app.command("replay")(calling(replay))


def replay(
    caller: Caller,
    lake: LakeArgument,
    to: Annotated[
        str | None,
        typer.Option("--to", help="the queue to push to; without, each to its own"),
    ] = None,
    queues: Annotated[
        list[str] | None, typer.Option("--queue", "-q", help="only messages of this queue")
    ] = None,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", "-p", help="only of this partition")
    ] = None,
    since: Annotated[
        str | None,
        typer.Option("--since", help="only pushed since: -1h, 2026-01-31T12:00:00Z"),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="only pushed before this")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            "--where",
            help="a condition in SQL, such as "
            "CAST(get_json_object(payload, '$.total') AS DOUBLE) > 9",
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option("--rate", help="messages a second, at most")] = None,
    label: Annotated[
        str,
        typer.Option("--label", help="what was replayed under another label is pushed once more"),
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="only say how many that would be")
    ] = False,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Push messages of a lake again, each once, in their order within a partition.

    Safe to kill and run again: what was pushed is not pushed twice.
    """
    check_spark_is_installed()
    from monarq.spark.failures import spark_failures
    from monarq.spark.lake.lake import Lake
    from monarq.spark.pipelines.progress import progress_for_people
    from monarq.spark.pipelines.registry import RunRegistry
    from monarq.spark.pipelines.replay import Replayer, ReplayOptions

    options = ReplayOptions(
        to=to,
        queues=queues or (),
        partitions=partitions or (),
        since=None if since is None else parse_moment(since, "--since"),
        until=None if until is None else parse_moment(until, "--until"),
        where=where,
        rate=rate,
        label=label,
    )
    opened = Lake.open(lake)
    place = place_of(caller)
    with ExitStack() as stack:
        stack.enter_context(spark_failures())
        client = stack.enter_context(caller.client())
        run, duplicates = None, 0
        if not dry_run:
            registry = RunRegistry(client.admin, warn=say)
            named = [to] if to is not None else list(options.queues)
            run = stack.enter_context(registry.run("replay", lake=str(opened.root), queues=named))
        spark = stack.enter_context(Spark(master, conf or ()))
        stack.enter_context(terminable())
        replayer = Replayer(spark, opened, place, options, progress=progress_for_people("replayed"))
        counts = replayer.count()
        total = sum(each.messages for each in counts)
        if run is not None:
            duplicates = replayer.push(total)
            run.reached(total)
    value = {
        "run": run.id if run is not None else None,
        "lake": str(opened.root),
        "messages": total,
        "duplicates": duplicates,
        "queues": counts,
        "done": not dry_run,
    }
    if dry_run:
        lines = [
            f"{each.messages:,} messages of {each.partitions:,} partitions of {each.queue} "
            f"would go to {each.to}"
            for each in counts
        ]
        text = "\n".join(lines) or "no message matches"
    else:
        text = f"replayed {total:,} messages, of which {duplicates:,} were there already"
    caller.answer(value, text)
