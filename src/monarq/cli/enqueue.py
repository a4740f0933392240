"""`monarq enqueue`: shell commands, for workers to run."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling
from monarq.cli.feeding import Progress, numbered_lines
from monarq.cli.formats import moment, parse_duration, parse_moment, since
from monarq.errors import ConflictError, InvalidRequestError, MonarqError
from monarq.job import job_state
from monarq.model import PushStatus

if TYPE_CHECKING:
    from monarq.client.client import Client
    from monarq.jobs.enqueueing import JobRequest, JobSettings

_AT_ONCE = 500


def add_to(app: typer.Typer) -> None:
    app.command("enqueue", rich_help_panel="Jobs")(calling(enqueue))


def enqueue(
    caller: Caller,
    job: Annotated[
        str | None,
        typer.Argument(
            help='a command, or a JSON object such as \'{"id":"job1","command":"sleep 2"}\'',
            show_default=False,
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option("--file", "-f", help="enqueue one job a line of this file; - is stdin"),
    ] = None,
    job_id: Annotated[str | None, typer.Option("--id", help="a name for the job")] = None,
    queue: Annotated[
        str | None, typer.Option("--queue", "-q", help="the queue; made if there is none")
    ] = None,
    priority: Annotated[int | None, typer.Option(help="higher is sooner")] = None,
    timeout: Annotated[str | None, typer.Option(help="how long it may run: 20, 5m")] = None,
    max_retries: Annotated[int | None, typer.Option(help="tries after the first")] = None,
    backoff_base: Annotated[
        float | None, typer.Option(help="it is tried again after base ^ attempts seconds")
    ] = None,
    run_at: Annotated[
        str | None, typer.Option(help="when: +5m, or a time such as 2026-01-31T12:00:00Z")
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="a variable")
    ] = None,
    cwd: Annotated[str | None, typer.Option(help="the directory to run it in")] = None,
) -> None:
    """Enqueue a shell command, for a worker to run.

    What is not said here is taken from `monarq config list`. With --file, each line is a command or
    a JSON object.
    """
    from monarq.jobs.enqueueing import read_settings

    if (job is None) == (file is None):
        raise InvalidRequestError("give a command, or --file with one a line")
    flags = {
        "id": job_id,
        "queue": queue,
        "priority": priority,
        "timeout": None if timeout is None else parse_duration(timeout, "--timeout"),
        "max_retries": max_retries,
        "backoff_base": backoff_base,
        "run_at": run_at,
        "env": _environment(env or []) or None,
        "cwd": None if cwd is None else str(Path(cwd).expanduser().absolute()),
    }
    with caller.client() as client:
        settings = read_settings(client)
        if job is not None:
            _enqueue_one(caller, client, _request(job, flags), settings)
        elif job_id is not None:
            raise InvalidRequestError("--id is for one job; in a file each line has its own")
        else:
            assert file is not None
            _enqueue_lines(caller, client, file, flags, settings)


def _request(text: str, flags: dict[str, Any]) -> JobRequest:
    import msgspec

    from monarq.jobs.enqueueing import JobRequest, read_request

    request = read_request(text)
    given = {name: value for name, value in flags.items() if value is not None}
    merged = msgspec.structs.asdict(request) | given
    try:
        return msgspec.convert(merged, JobRequest)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"not a job: {_plain(error)}") from None


def _plain(error: Exception) -> str:
    """What msgspec says, with the name of the field first."""
    wrong, _, place = str(error).replace("`", "").partition(" - at $.")
    return f"{place} must be {wrong.removeprefix('Expected ')}" if place else wrong


def _environment(pairs: list[str]) -> dict[str, str]:
    named = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise InvalidRequestError(f"--env must be KEY=VALUE, not {pair!r}")
        named[name] = value
    return named


def _times(requests: Iterable[JobRequest]) -> dict[str, int]:
    return {
        request.run_at: round(parse_moment(request.run_at, "run_at").timestamp() * 1_000_000)
        for request in requests
        if request.run_at is not None
    }


def _enqueue_one(
    caller: Caller, client: Client, request: JobRequest, settings: JobSettings
) -> None:
    from monarq.cli.job_views import job_row
    from monarq.jobs.enqueueing import enqueue as enqueue_jobs

    [pushed] = enqueue_jobs(client, [request], settings, _times([request]))
    item = client.admin.get_item(pushed.message_id)
    if pushed.status is PushStatus.DUPLICATE:
        raise ConflictError(
            f"there is a job {pushed.transaction_id!r} on {pushed.queue!r} already, and it is "
            f"{job_state(item)}; give this one another --id"
        )
    when = f", to run {since(str(moment(item.run_at)))}" if item.run_at else ""
    caller.answer(job_row(item), f"enqueued {item.transaction_id} on {item.queue}{when}")


def _enqueue_lines(
    caller: Caller, client: Client, file: str, flags: dict[str, Any], settings: JobSettings
) -> None:
    """In steps, each whole or not at all; a bad line is told before anything of its step."""
    from monarq.jobs.enqueueing import enqueue as enqueue_jobs

    duplicates = 0
    lines = ((number, line) for number, line in numbered_lines(file) if not _is_comment(line))
    with Progress("enqueued") as progress:
        while step := list(itertools.islice(lines, _AT_ONCE)):
            try:
                requests = [_numbered_request(number, line, flags) for number, line in step]
                pushed = enqueue_jobs(client, requests, settings, _times(requests))
            except MonarqError as error:
                error.add_note(
                    f"{progress.count:,} lines were enqueued before; line {step[0][0]} and those "
                    "behind it were not"
                )
                raise
            duplicates += sum(each.status is PushStatus.DUPLICATE for each in pushed)
            progress.add(len(step))
    enqueued = progress.count - duplicates
    known = f", {duplicates:,} were there already" if duplicates else ""
    caller.answer(
        {"enqueued": enqueued, "duplicates": duplicates}, f"enqueued {enqueued:,} jobs{known}"
    )


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith("#")


def _numbered_request(number: int, line: str, flags: dict[str, Any]) -> JobRequest:
    try:
        return _request(line, flags)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"line {number}: {error}") from None
