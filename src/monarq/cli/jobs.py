"""Jobs: enqueueing, looking, cancelling, retrying."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from monarq.cli.calling import Caller, calling, confirm, say
from monarq.cli.formats import duration, parse_duration, parse_moment
from monarq.errors import ConflictError, InvalidRequestError
from monarq.job import ITEM_STATE, JobState, job_state
from monarq.model import ItemState, PushStatus

if TYPE_CHECKING:
    from monarq.client.client import Client
    from monarq.jobs.enqueueing import JobRequest

_AT_ONCE = 500
_FOLLOW_SECONDS = 0.25
_FINISHED = (ItemState.DONE, ItemState.DEAD, ItemState.CANCELLED)

QueueOption = Annotated[str | None, typer.Option("--queue", "-q", help="the job's queue")]
JobArgument = Annotated[str, typer.Argument(help="the job's id", show_default=False)]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="do not ask")]


def add_to(app: typer.Typer) -> None:
    panel = "Jobs"
    app.command("enqueue", rich_help_panel=panel)(calling(enqueue))
    app.command("list", rich_help_panel=panel)(calling(list_jobs))
    app.command("show", rich_help_panel=panel)(calling(show))
    app.command("logs", rich_help_panel=panel)(calling(logs))
    app.command("cancel", rich_help_panel=panel)(calling(cancel))
    app.command("retry", rich_help_panel=panel)(calling(retry))
    app.command("status", rich_help_panel=panel)(calling(status))
    app.command("clear", rich_help_panel=panel)(calling(clear))


# --- enqueue -------------------------------------------------------------------------------


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
    queue: QueueOption = None,
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
            _enqueue_lines(caller, client, _lines(file), flags, settings)


def _request(text: str, flags: dict[str, Any]) -> JobRequest:
    import msgspec

    from monarq.jobs.enqueueing import JobRequest, read_request

    request = read_request(text)
    given = {name: value for name, value in flags.items() if value is not None}
    merged = msgspec.structs.asdict(request) | given
    try:
        return msgspec.convert(merged, JobRequest)
    except msgspec.ValidationError as error:
        raise InvalidRequestError(f"not a job: {error}") from None


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


def _enqueue_one(caller: Caller, client: Client, request: JobRequest, settings: Any) -> None:
    from monarq.cli.job_views import job_row
    from monarq.jobs.enqueueing import enqueue as enqueue_jobs

    [pushed] = enqueue_jobs(client, [request], settings, _times([request]))
    item = client.admin.get_item(pushed.message_id)
    if pushed.status is PushStatus.DUPLICATE:
        raise ConflictError(
            f"there is a job {pushed.transaction_id!r} on {pushed.queue!r} already, and it is "
            f"{job_state(item)}; give this one another --id"
        )
    when = f", to run at {job_row(item)['run_at']}" if item.run_at else ""
    caller.answer(job_row(item), f"enqueued {item.transaction_id} on {item.queue}{when}")


def _lines(file: str) -> Iterator[tuple[int, str]]:
    if file == "-":
        source: Iterable[str] = sys.stdin
    else:
        try:
            source = Path(file).read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise InvalidRequestError(f"cannot read {file}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise InvalidRequestError(f"{file} is not UTF-8 text") from None
    for number, line in enumerate(source, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def _enqueue_lines(
    caller: Caller,
    client: Client,
    lines: Iterator[tuple[int, str]],
    flags: dict[str, Any],
    settings: Any,
) -> None:
    """In steps, each whole or not at all; a bad line is told before anything of its step."""
    from monarq.jobs.enqueueing import enqueue as enqueue_jobs

    enqueued = duplicates = 0
    step: list[JobRequest] = []

    def send() -> None:
        nonlocal enqueued, duplicates
        for pushed in enqueue_jobs(client, step, settings, _times(step)):
            duplicates += pushed.status is PushStatus.DUPLICATE
            enqueued += pushed.status is not PushStatus.DUPLICATE
        step.clear()
        if sys.stderr.isatty():
            print(f"\r{enqueued:,} enqueued", end="", file=sys.stderr, flush=True)

    for number, line in lines:
        try:
            step.append(_request(line, flags))
        except InvalidRequestError as error:
            raise InvalidRequestError(
                f"line {number}: {error} ({enqueued:,} of the lines before were enqueued)"
            ) from None
        if len(step) == _AT_ONCE:
            send()
    if step:
        send()
    if sys.stderr.isatty():
        say("")
    known = f", {duplicates:,} were there already" if duplicates else ""
    caller.answer(
        {"enqueued": enqueued, "duplicates": duplicates}, f"enqueued {enqueued:,} jobs{known}"
    )


# --- looking -------------------------------------------------------------------------------


def list_jobs(
    caller: Caller,
    state: Annotated[
        JobState | None, typer.Option("--state", "-s", help="only jobs that are so")
    ] = None,
    queue: QueueOption = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="at most so many")] = 50,
) -> None:
    """List jobs: those that wait in the order in which they will run, then the others."""
    from monarq.cli.job_views import job_row, work_queues

    with caller.client() as client:
        names = [queue] if queue is not None else work_queues(client)
        rows: list[dict[str, Any]] = []
        for name in names:
            rows += map(job_row, _items(client, name, state, limit - len(rows)))
            if len(rows) >= limit:
                break
    columns = ("id", "queue", "state", "priority", "effective", "attempts", "run_at", "command")
    which = "" if state is None else f"{state} "
    caller.rows(rows, columns, empty=f"no {which}jobs; `monarq enqueue 'echo hello'` makes one")


def _items(client: Client, queue: str, state: JobState | None, limit: int) -> Iterator[Any]:
    """Up to `limit` jobs of a queue. Waiting ones first, in the order of their turn."""
    states = [ITEM_STATE[state]] if state is not None else list(_ORDER)
    for each in states:
        if limit <= 0:
            return
        if each is ItemState.READY:
            found = client.admin.next_items(queue, limit=min(limit, 1000))
            yield from found
            limit -= len(found)
            continue
        after = None
        while limit > 0:
            page = client.admin.list_items(queue, state=each, limit=min(limit, 1000), after=after)
            for item in page.rows:
                if state is None or job_state(item) is state:
                    yield item
                    limit -= 1
            after = page.next
            if after is None:
                break


_ORDER = (
    ItemState.LEASED,
    ItemState.READY,
    ItemState.SCHEDULED,
    ItemState.DEAD,
    ItemState.CANCELLED,
    ItemState.DONE,
)


def show(caller: Caller, job: JobArgument, queue: QueueOption = None) -> None:
    """Show a job: its state, and each attempt with exit code, duration and output."""
    from monarq.cli.job_views import find_job, job_detail

    with caller.client() as client:
        item = find_job(client, job, queue)
        detail = job_detail(item, client.admin.item_attempts(item.id))
    caller.answer(detail, lambda: _print_job(detail))


def _print_job(detail: dict[str, Any]) -> None:
    for name, value in detail.items():
        if name not in ("history", "payload") and value is not None:
            print(f"{name.replace('_', ' '):16}{value}")
    for attempt in detail["history"]:
        code = "" if attempt["exit_code"] is None else f", exit code {attempt['exit_code']}"
        print(
            f"\nattempt {attempt['attempt']}: {attempt['outcome']}{code}, "
            f"{duration(attempt['seconds'])}, {attempt['started_at']}"
        )
        for name in ("error", "stdout", "stderr", "value", "traceback"):
            if attempt[name]:
                text = str(attempt[name]).rstrip("\n").replace("\n", "\n    ")
                print(f"  {name}:\n    {text}")


def logs(
    caller: Caller,
    job: JobArgument,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="which one; the last if left out")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="go on until the job has ended")
    ] = False,
    queue: QueueOption = None,
) -> None:
    """Print what a job has printed; of one that runs, what it has printed so far."""
    from monarq.cli.job_views import find_job
    from monarq.job import read_result

    with caller.client() as client:
        item = find_job(client, job, queue)
        number = attempt or max(item.attempts, 1)
        finished = {row.attempt: row for row in client.admin.item_attempts(item.id)}
        if number in finished and not follow:
            result = read_result(finished[number].result)
            stdout, stderr = ("", "") if result is None else (result.stdout, result.stderr)
            caller.answer(
                {"attempt": number, "stdout": stdout, "stderr": stderr},
                lambda: _print_output(stdout, stderr),
            )
            return
        if caller.as_json:
            part = client.admin.read_output(item.id, number)
            output = part.data.decode("utf-8", "replace")
            caller.answer({"attempt": number, "output": output, "running": True}, "")
            return
        _follow(client, item.id, number, follow=follow)


def _print_output(stdout: str, stderr: str) -> None:
    sys.stdout.write(stdout)
    sys.stderr.write(stderr)


def _follow(client: Client, item_id: str, attempt: int, *, follow: bool) -> None:
    start = 0
    while True:
        # Asked before reading: what was printed before it ended is read then.
        item = client.admin.get_item(item_id)
        is_over = item.state in _FINISHED or item.attempts > attempt
        part = client.admin.read_output(item_id, attempt, start=start)
        sys.stdout.buffer.write(part.data)
        sys.stdout.flush()
        start = part.next
        if part.data:
            continue
        if not follow or is_over:
            return
        time.sleep(_FOLLOW_SECONDS)


def status(caller: Caller) -> None:
    """Count jobs by state, and show the workers."""
    from monarq.cli.job_views import work_queues
    from monarq.clock import SystemClock
    from monarq.jobs.processes import list_workers

    with caller.client() as client:
        counts = {str(state): 0 for state in JobState}
        queues = []
        for name in work_queues(client):
            [stats] = client.admin.queue_stats(queue=name).rows
            mine = _job_counts(stats.states)
            queues.append({"queue": name, **mine, "completed_in_all": stats.completed})
            for state, count in mine.items():
                counts[state] += count
        workers = [known for known in list_workers(client, SystemClock().now()) if known.is_there]
    running = [job for known in workers for job in known.info.running]
    value = {
        "jobs": counts,
        "queues": queues,
        "workers": [{"id": known.info.id, "state": known.state} for known in workers],
        "running": [{"job": job.job, "queue": job.queue, "what": job.what} for job in running],
    }

    def print_status() -> None:
        for state, count in counts.items():
            print(f"{state:12}{count:>10,}")
        print(f"\n{len(workers)} workers, {len(running)} jobs running")
        for known in workers:
            for job in known.info.running:
                print(f"  {known.info.id}: {job.job} ({job.what})")
        if not workers:
            print("`monarq worker start` starts one")

    caller.answer(value, print_status)


def _job_counts(states: dict[str, int]) -> dict[str, int]:
    """Counters do not tell a job that failed from one that is scheduled."""
    return {
        "pending": states.get("ready", 0),
        "scheduled": states.get("scheduled", 0),
        "processing": states.get("leased", 0),
        "completed": states.get("done", 0),
        "dead": states.get("dead", 0),
        "cancelled": states.get("cancelled", 0),
    }


# --- changing ------------------------------------------------------------------------------


def cancel(caller: Caller, job: JobArgument, queue: QueueOption = None) -> None:
    """Take a job out of its queue; if it runs, it is ended within seconds."""
    from monarq.cli.job_views import find_job, job_row

    with caller.client() as client:
        item = client.admin.cancel_item(find_job(client, job, queue).id)
    caller.answer(job_row(item), f"cancelled {item.transaction_id}")


def retry(caller: Caller, job: JobArgument, queue: QueueOption = None) -> None:
    """Run a job again that is finished, dead, cancelled or waiting, with its attempts forgotten."""
    from monarq.cli.job_views import find_job, job_row

    with caller.client() as client:
        item = client.admin.retry_item(find_job(client, job, queue).id)
    caller.answer(job_row(item), f"{item.transaction_id} will run again")


def clear(
    caller: Caller,
    queue: QueueOption = None,
    yes: YesOption = False,
) -> None:
    """Remove all jobs of a queue (of all, if none is named), whatever their state."""
    from monarq.cli.job_views import work_queues

    with caller.client() as client:
        names = [queue] if queue is not None else work_queues(client)
        total = sum(client.admin.queue_stats(queue=name).rows[0].stored for name in names)
        if total:
            confirm(f"Remove {total:,} jobs from {', '.join(names)}?", yes)
        removed = {name: client.admin.clear_queue(name) for name in names}
    count = sum(removed.values())
    caller.answer({"removed": count, "queues": removed}, f"removed {count:,} jobs")
